//! Object stores, by the URLs of their buckets. Their settings are environment variables under the names that the stores'
//! own tools use.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path;

/// What the variables of the stores' settings begin with. Others stay unread: a `TOKEN` or `ENDPOINT` of something else
/// would pass for one.
const SETTINGS: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];
/// Schemes of URLs that are served, as messages name them.
const SCHEMES: &str = "`s3://`, `gs://` or `az://`";

/// The object store of a URL such as `s3://bucket/prefix`, and the key in it. Its client bounds its own waits and tries
/// again what failed on the way.
///
/// # Errors
/// What is wrong with the URL or the settings, and what was expected.
pub(crate) fn object_store(url: &str) -> Result<(Arc<dyn ObjectStore>, Path), String> {
    super::provide_cryptography();
    let parsed: reqwest::Url = url.parse().map_err(|error| format!("not a URL: {error}"))?;
    if ["memory", "file"].contains(&parsed.scheme()) {
        return Err(format!("expected a folder or {SCHEMES}, found `{}:`", parsed.scheme()));
    }
    let settings = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        SETTINGS
            .iter()
            .any(|start| name.starts_with(start))
            .then_some((name, value))
    });
    let (store, key) = object_store::parse_url_opts(&parsed, settings)
        .map_err(|error| format!("{error}; expected a folder or {SCHEMES}"))?;
    Ok((Arc::from(store), key))
}

#[cfg(test)]
mod tests {
    use super::object_store;

    #[test]
    fn buckets_are_opened_and_other_urls_refused() {
        let (_, key) = object_store("s3://bucket/runs/one").expect("a bucket");
        assert_eq!(key.as_ref(), "runs/one");
        for wrong in ["memory:///runs", "http://host/runs", "ftp://host/runs", "s3://"] {
            let error = object_store(wrong).expect_err(wrong);
            assert!(error.contains("expected a folder or `s3://`"), "{wrong}: {error}");
        }
        assert!(object_store("no scheme").is_err_and(|error| error.starts_with("not a URL")));
    }
}
