//! The hub's two routes: what a revision holds, and a file of it. Redirects are followed by hand, since a token is
//! for the hub alone and what a file is stands in the first answer.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, LOCATION, RANGE};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde::Deserialize;

use super::error::HubError;
use super::name::{ModelName, is_commit};
use super::settings::HubSettings;
use crate::http_client;

const CONNECT: Duration = Duration::from_secs(10);
/// Longest silence within an answer.
const SILENCE: Duration = Duration::from_mins(1);
const REDIRECTS: usize = 8;
/// Bytes of a listing at most.
const LISTING: usize = 32 << 20;

/// What a revision holds.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Listing {
    pub sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Debug, Clone, Deserialize)]
struct Sibling {
    rfilename: String,
}

impl Listing {
    pub(super) fn has(&self, file: &str) -> bool {
        self.siblings.iter().any(|sibling| sibling.rfilename == file)
    }

    /// Names with one of these endings.
    pub(super) fn ending<'a>(&'a self, endings: &'a [&str]) -> impl Iterator<Item = &'a str> {
        let names = self.siblings.iter().map(|sibling| sibling.rfilename.as_str());
        names.filter(move |name| endings.iter().any(|ending| name.ends_with(ending)))
    }
}

/// What a file is, before it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileInfo {
    pub url: Url,
    /// Name of its content; the SHA-256 of large files.
    pub etag: String,
    pub size: u64,
}

/// Why a try failed: for good, or so that another may succeed.
#[derive(Debug)]
pub(super) enum Failed {
    Final(HubError),
    Passing { reason: String, after: Option<Duration> },
}

impl From<HubError> for Failed {
    fn from(error: HubError) -> Self {
        Self::Final(error)
    }
}

/// A client of one hub for one model.
pub(super) struct HubClient<'a> {
    http: Client,
    base: Url,
    settings: &'a HubSettings,
    name: &'a ModelName,
}

impl<'a> HubClient<'a> {
    pub(super) fn new(settings: &'a HubSettings, name: &'a ModelName) -> Result<Self, HubError> {
        let endpoint = &settings.endpoint;
        let wrong = |reason: String| HubError::Endpoint {
            endpoint: endpoint.clone(),
            reason,
        };
        let base = Url::parse(endpoint).map_err(|error| wrong(error.to_string()))?;
        let builder = match base.scheme() {
            "http" => http_client::plain(),
            "https" => http_client::trusting(None).map_err(wrong)?,
            other => return Err(wrong(format!("expected http or https, found `{other}`"))),
        };
        let http = builder
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("lego/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            http,
            base,
            settings,
            name,
        })
    }

    /// What the model's revision holds.
    pub(super) async fn list(&self) -> Result<Listing, Failed> {
        let revision = self.name.revision.replace('/', "%2F");
        let url = self.url(&format!("api/models/{}/revision/{revision}", self.name.repo))?;
        let (response, url) = self.follow(Method::GET, url, None, true).await?;
        let wrong = |reason: String| self.answer(&url, reason);
        let mut body = Vec::new();
        let mut response = response;
        while let Some(chunk) = response.chunk().await.map_err(|error| passing(&error))? {
            body.extend_from_slice(&chunk);
            if body.len() > LISTING {
                return Err(wrong(format!("the list of its files is longer than {LISTING} bytes")).into());
            }
        }
        let listing: Listing = serde_json::from_slice(&body).map_err(|error| {
            wrong(format!(
                "expected the list of a model's files, found something else: {error}"
            ))
        })?;
        if !is_commit(&listing.sha) {
            return Err(wrong(format!("expected `sha` to be a commit, found `{}`", listing.sha)).into());
        }
        Ok(listing)
    }

    /// What a file is, without its content.
    pub(super) async fn look(&self, commit: &str, file: &str) -> Result<FileInfo, Failed> {
        let url = self.url(&format!("{}/resolve/{commit}/{file}", self.name.repo))?;
        // The answer that sends to another host says what the file is.
        let (response, url) = self.follow(Method::HEAD, url, None, false).await?;
        let headers = response.headers();
        let etag = text(headers, "x-linked-etag").or_else(|| text(headers, ETAG.as_str()));
        let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned());
        let size = text(headers, "x-linked-size").or_else(|| text(headers, CONTENT_LENGTH.as_str()));
        // It becomes a file's name.
        let usable = |etag: &String| {
            !etag.is_empty() && etag.len() <= 128 && etag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        let Some(etag) = etag.filter(usable) else {
            return Err(self
                .answer(&url, "expected an ETag of letters and digits, found none".to_owned())
                .into());
        };
        let Some(size) = size.and_then(|size| size.parse().ok()) else {
            return Err(self
                .answer(&url, "expected the file's size, found none".to_owned())
                .into());
        };
        Ok(FileInfo { url, etag, size })
    }

    /// The content of a file from byte `from` on, and the byte that it does begin with.
    pub(super) async fn open(&self, info: &FileInfo, from: u64) -> Result<(Response, u64), Failed> {
        let (response, url) = self.follow(Method::GET, info.url.clone(), Some(from), true).await?;
        let begins = match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let range = text(response.headers(), CONTENT_RANGE.as_str());
                let first = range
                    .as_deref()
                    .and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse().ok());
                first.ok_or_else(|| self.answer(&url, "a part of the file, and not which".to_owned()))?
            }
            _ => 0,
        };
        Ok((response, begins))
    }

    fn url(&self, path: &str) -> Result<Url, HubError> {
        let endpoint = &self.settings.endpoint;
        Url::parse(&format!("{endpoint}/{path}")).map_err(|error| HubError::Endpoint {
            endpoint: endpoint.clone(),
            reason: error.to_string(),
        })
    }

    /// Asks, and follows redirects; with `far` also to other hosts, which are not shown the token.
    async fn follow(
        &self,
        method: Method,
        mut url: Url,
        from: Option<u64>,
        far: bool,
    ) -> Result<(Response, Url), Failed> {
        for _ in 0..REDIRECTS {
            let mut request = self.http.request(method.clone(), url.clone());
            if let Some(token) = self.settings.token.as_ref().filter(|_| self.is_hub(&url)) {
                request = request.header(AUTHORIZATION, format!("Bearer {token}"));
            }
            if let Some(from) = from.filter(|from| *from > 0) {
                request = request.header(RANGE, format!("bytes={from}-"));
            }
            // A compressed answer would have another size and another tag.
            request = request.header("accept-encoding", "identity");
            let response = request.send().await.map_err(|error| passing(&error))?;
            let status = response.status();
            if status.is_success() {
                return Ok((response, url));
            }
            if !status.is_redirection() {
                return Err(self.refused(&response, &url));
            }
            let target = text(response.headers(), LOCATION.as_str()).and_then(|target| url.join(&target).ok());
            let Some(target) = target else {
                return Err(self.answer(&url, format!("{status} without a place to go to")).into());
            };
            if !far && !self.is_hub(&target) {
                return Ok((response, url));
            }
            url = target;
        }
        Err(self.answer(&url, format!("more than {REDIRECTS} redirects")).into())
    }

    fn is_hub(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }

    fn answer(&self, url: &Url, reason: String) -> HubError {
        HubError::Answer {
            name: self.name.to_string(),
            url: shown(url),
            reason,
        }
    }

    fn refused(&self, response: &Response, url: &Url) -> Failed {
        let (name, endpoint) = (self.name.to_string(), self.settings.endpoint.clone());
        let status = response.status();
        // What the hub says in words for programs; other servers say nothing.
        let code = text(response.headers(), "x-error-code").unwrap_or_default();
        match status.as_u16() {
            _ if code == "GatedRepo" => HubError::Forbidden { name, endpoint }.into(),
            401 => HubError::Unauthorised { name, endpoint }.into(),
            403 => HubError::Forbidden { name, endpoint }.into(),
            404 => {
                let what = match code.as_str() {
                    "RevisionNotFound" => "revision",
                    "EntryNotFound" => "file",
                    _ => "model",
                };
                HubError::NotFound { name, endpoint, what }.into()
            }
            408 | 429 | 500..=599 => Failed::Passing {
                reason: format!("{} answers {status}", shown(url)),
                after: text(response.headers(), "retry-after")
                    .and_then(|seconds| seconds.parse().ok())
                    .map(Duration::from_secs),
            },
            status => HubError::Status {
                name,
                url: shown(url),
                status,
            }
            .into(),
        }
    }
}

/// A URL without its query, which may be a signature.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// What a connection died of, down to its cause.
pub(super) fn passing(error: &reqwest::Error) -> Failed {
    let mut reason = String::new();
    let mut next: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(error) = next {
        reason = error.to_string();
        next = error.source();
    }
    if reason.is_empty() {
        reason = error.to_string();
    }
    Failed::Passing { reason, after: None }
}
