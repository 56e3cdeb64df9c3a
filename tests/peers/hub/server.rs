//! A server with a hub's routes: lists of files, small files as they are, large ones on another host that asks for no token.
//! It fails on demand, and remembers what it was asked.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Response, StatusCode, header};
use futures_util::stream;

/// What of a file is large, and lies on the other host.
const LARGE: usize = 50_000;
/// The revision `main`.
pub(super) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// How a request for a large file's content is answered.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The connection ends after so many bytes.
    Cut(usize),
    /// An answer of this status.
    Status(u16),
    /// Other bytes than the file's.
    Wrong,
    /// The whole file, whatever part was asked for.
    Whole,
}

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<String, Bytes>,
    token: Option<String>,
    gated: bool,
    faults: VecDeque<Fault>,
    asked: Vec<Asked>,
    other_host: Option<SocketAddr>,
}

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub method: String,
    pub path: String,
    pub range: Option<String>,
    pub with_token: bool,
    /// Whether the other host was asked.
    pub far: bool,
}

/// A hub with one model, `lego/tiny`.
pub(super) struct Hub {
    pub endpoint: String,
    inner: Arc<Mutex<Inner>>,
    runtime: tokio::runtime::Runtime,
}

impl Hub {
    /// Serves these files.
    pub(super) fn of(files: BTreeMap<String, Vec<u8>>) -> Self {
        let inner = Arc::new(Mutex::new(Inner {
            files: files.into_iter().map(|(name, bytes)| (name, bytes.into())).collect(),
            ..Inner::default()
        }));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let serve = |far| {
            let app = Router::new().fallback(answer).with_state((Arc::clone(&inner), far));
            let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            runtime.spawn(async move { axum::serve(listener, app).await });
            address
        };
        let (near, far) = (serve(false), serve(true));
        inner.lock().unwrap().other_host = Some(far);
        Self {
            endpoint: format!("http://{near}"),
            inner,
            runtime,
        }
    }

    /// Answers only who brings this token.
    pub(super) fn private(self, token: &str) -> Self {
        self.inner.lock().unwrap().token = Some(token.to_owned());
        self
    }

    /// Answers nobody before its terms are accepted.
    pub(super) fn gated(self) -> Self {
        self.inner.lock().unwrap().gated = true;
        self
    }

    /// How the next requests for content of large files are answered.
    pub(super) fn fails(&self, faults: impl IntoIterator<Item = Fault>) {
        self.inner.lock().unwrap().faults.extend(faults);
    }

    /// What was asked so far; forgotten with that.
    pub(super) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.inner.lock().unwrap().asked)
    }

    /// Ends it: its address is refused from then on.
    pub(super) fn end(self) {
        self.runtime.shutdown_background();
    }
}

type Shared = (Arc<Mutex<Inner>>, bool);

async fn answer(State((inner, far)): State<Shared>, request: Request) -> Response<Body> {
    let mut inner = inner.lock().unwrap();
    let (path, headers) = (request.uri().path().to_owned(), request.headers());
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let (range, token) = (text(header::RANGE), text(header::AUTHORIZATION));
    inner.asked.push(Asked {
        method: request.method().to_string(),
        path: path.clone(),
        range: range.clone(),
        with_token: token.is_some(),
        far,
    });
    if far {
        let file = inner.files.get(path.trim_start_matches('/')).cloned();
        let fault = inner.faults.pop_front();
        return file.map_or_else(|| refuse(404, ""), |file| content(&file, range.as_deref(), fault));
    }
    if inner.gated {
        return refuse(403, "GatedRepo");
    }
    if inner.token.is_some() && token != inner.token.as_ref().map(|token| format!("Bearer {token}")) {
        return refuse(401, "RepoNotFound");
    }
    if let Some(revision) = path.strip_prefix("/api/models/lego/tiny/revision/") {
        return list(&inner, revision);
    }
    if path == format!("/api/models/lego/tiny/tree/{COMMIT}") {
        return tree(&inner);
    }
    match path
        .strip_prefix("/lego/tiny/resolve/")
        .and_then(|rest| rest.split_once('/'))
    {
        Some((revision, file)) if revision == COMMIT || revision == "main" => {
            file_of(&inner, request.method(), file, range.as_deref())
        }
        Some(_) => refuse(404, "RevisionNotFound"),
        None => refuse(404, "RepoNotFound"),
    }
}

fn list(inner: &Inner, revision: &str) -> Response<Body> {
    if revision != "main" && revision != COMMIT {
        return refuse(404, "RevisionNotFound");
    }
    let files: Vec<_> = inner
        .files
        .keys()
        .map(|name| serde_json::json!({ "rfilename": name }))
        .collect();
    let body = serde_json::json!({
        "id": "lego/tiny", "modelId": "lego/tiny", "sha": COMMIT, "private": false, "tags": [], "downloads": 0, "likes": 0,
        "siblings": files,
    });
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    response.body(body.to_string().into()).unwrap()
}

/// The same list as newer clients ask for it beside the other.
fn tree(inner: &Inner) -> Response<Body> {
    let entry = |(name, bytes): (&String, &Bytes)| serde_json::json!({ "type": "file", "path": name, "size": bytes.len(), "oid": "0" });
    let all: Vec<_> = inner.files.iter().map(entry).collect();
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    response.body(serde_json::json!(all).to_string().into()).unwrap()
}

fn file_of(inner: &Inner, method: &Method, file: &str, range: Option<&str>) -> Response<Body> {
    let Some(bytes) = inner.files.get(file) else {
        return refuse(404, "EntryNotFound");
    };
    let hash = lego::task::sha256_hex(bytes);
    if bytes.len() >= LARGE {
        let far = inner.other_host.unwrap();
        return Response::builder()
            .status(StatusCode::FOUND)
            .header("x-repo-commit", COMMIT)
            .header("x-linked-etag", format!("\"{hash}\""))
            .header("x-linked-size", bytes.len())
            .header(header::LOCATION, format!("http://{far}/{file}?signature=secret"))
            .body(Body::empty())
            .unwrap();
    }
    let mut answer = if method == Method::HEAD {
        let head = Response::builder().header(header::CONTENT_LENGTH, bytes.len());
        head.body(Body::empty()).unwrap()
    } else {
        content(bytes, range, None)
    };
    let headers = answer.headers_mut();
    headers.insert("x-repo-commit", COMMIT.parse().unwrap());
    // As of git: 40 digits, which say nothing that can be checked by SHA-256.
    headers.insert(header::ETAG, format!("\"{}\"", &hash[..40]).parse().unwrap());
    answer
}

/// A file or the part of it that is asked for, as a fault has it.
fn content(bytes: &Bytes, range: Option<&str>, fault: Option<Fault>) -> Response<Body> {
    if let Some(Fault::Status(status)) = fault {
        return refuse(status, "");
    }
    let first = range.and_then(|range| range.strip_prefix("bytes=")?.split('-').next()?.parse().ok());
    let first: usize = if matches!(fault, Some(Fault::Whole)) {
        0
    } else {
        first.unwrap_or(0)
    };
    let part = match fault {
        Some(Fault::Wrong) => vec![7; bytes.len() - first].into(),
        _ => bytes.slice(first..),
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_LENGTH, part.len().into());
    let mut status = StatusCode::OK;
    if first > 0 {
        status = StatusCode::PARTIAL_CONTENT;
        let range = format!("bytes {first}-{}/{}", bytes.len() - 1, bytes.len());
        headers.insert(header::CONTENT_RANGE, range.parse().unwrap());
    }
    let body = match fault {
        Some(Fault::Cut(after)) => {
            let sent = Ok(part.slice(..after.min(part.len())));
            Body::from_stream(stream::iter([sent, Err(std::io::Error::other("cut"))]))
        }
        _ => Body::from(part),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn refuse(status: u16, code: &str) -> Response<Body> {
    let mut response = Response::builder().status(status);
    if !code.is_empty() {
        response = response.header("x-error-code", code);
    }
    response.body(Body::empty()).unwrap()
}
