//! Which hub, which cache, and who asks: the variables that Hugging Face's own clients follow.

use std::path::PathBuf;

/// How models are had by name.
#[derive(Clone)]
pub struct HubSettings {
    /// `HF_ENDPOINT`.
    pub endpoint: String,
    /// `HF_HUB_CACHE`, else `hub` in `HF_HOME`.
    pub cache: PathBuf,
    /// `HF_TOKEN`, else what the file of a log-in says.
    pub token: Option<String>,
    /// `HF_HUB_OFFLINE`: nothing is asked for.
    pub offline: bool,
}

impl std::fmt::Debug for HubSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HubSettings")
            .field("endpoint", &self.endpoint)
            .field("cache", &self.cache)
            .field("token", &self.token.is_some())
            .field("offline", &self.offline)
            .finish()
    }
}

impl HubSettings {
    /// Reads them from variables; empty ones count as not set.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let home = set("HOME").unwrap_or_else(|| ".".to_owned());
        let cached = set("XDG_CACHE_HOME").map_or_else(|| PathBuf::from(home).join(".cache"), PathBuf::from);
        let own = set("HF_HOME").map_or_else(|| cached.join("huggingface"), PathBuf::from);
        let token_file = set("HF_TOKEN_PATH").map_or_else(|| own.join("token"), PathBuf::from);
        let token = set("HF_TOKEN").or_else(|| fs_err::read_to_string(token_file).ok());
        let flag = |value: String| ["1", "on", "yes", "true"].contains(&value.to_lowercase().as_str());
        Self {
            endpoint: set("HF_ENDPOINT")
                .unwrap_or_else(|| "https://huggingface.co".to_owned())
                .trim_end_matches('/')
                .to_owned(),
            cache: set("HF_HUB_CACHE").map_or_else(|| own.join("hub"), PathBuf::from),
            token: token
                .map(|token| token.trim().to_owned())
                .filter(|token| !token.is_empty()),
            offline: set("HF_HUB_OFFLINE").is_some_and(flag),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of(set: &[(&str, &str)]) -> HubSettings {
        HubSettings::from_variables(|name| {
            let found = set.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_variables_are_those_of_the_hubs_own_clients() {
        let default = of(&[("HOME", "/home/a")]);
        assert_eq!(default.endpoint, "https://huggingface.co");
        assert_eq!(default.cache, Path::new("/home/a/.cache/huggingface/hub"));
        assert!(default.token.is_none() && !default.offline);
        assert_eq!(of(&[("HF_HOME", "/hf"), ("HOME", "/h")]).cache, Path::new("/hf/hub"));
        assert_eq!(of(&[("XDG_CACHE_HOME", "/c")]).cache, Path::new("/c/huggingface/hub"));
        let set = of(&[
            ("HF_ENDPOINT", "http://127.0.0.1:1/"),
            ("HF_HUB_CACHE", "/x"),
            ("HF_HUB_OFFLINE", "1"),
            ("HF_TOKEN", " of-a-test\n"),
        ]);
        assert_eq!(
            (set.endpoint.as_str(), set.cache.as_path()),
            ("http://127.0.0.1:1", Path::new("/x"))
        );
        assert_eq!((set.token.as_deref(), set.offline), (Some("of-a-test"), true));
        assert!(!format!("{set:?}").contains("of-a-test"), "a token is never shown");
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("token"), "of-a-file\n").unwrap();
        let home = home.path().to_string_lossy();
        assert_eq!(of(&[("HF_HOME", &home)]).token.as_deref(), Some("of-a-file"));
        assert_eq!(
            of(&[("HF_HOME", &home), ("HF_TOKEN", "")]).token.as_deref(),
            Some("of-a-file")
        );
    }
}
