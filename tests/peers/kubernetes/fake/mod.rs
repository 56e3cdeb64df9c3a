//! A small API server that makes pods of containers of the engine on this machine: the calls that lego makes, the forms
//! of the real one's answers, exec as newer servers speak it (`v5.channel.k8s.io`), and failures on demand. What a real
//! server does with the same calls is tested where one runs (`cluster`).

mod exec;
mod list;
mod pods;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use list::{query, selected, watch};

/// An answer instead of the real one.
pub(crate) struct Fault {
    pub(crate) method: &'static str,
    /// What the path must contain.
    pub(crate) path: &'static str,
    pub(crate) code: u16,
    pub(crate) message: &'static str,
    pub(crate) retry_after: Option<u32>,
    /// Whether the call is carried out all the same.
    pub(crate) carried_out: bool,
}

#[derive(Default)]
pub(crate) struct Objects {
    /// By collection and name.
    pub(crate) all: BTreeMap<(String, String), Value>,
    version: u64,
    pub(crate) faults: Vec<Fault>,
    /// Requests so far, as `METHOD path`.
    pub(crate) asked: Vec<String>,
    /// Bytes after which exec streams break; 0: never.
    pub(crate) break_after: usize,
    pub(crate) execs: usize,
    /// What is not allowed, as `verb resource`.
    pub(crate) denied: Vec<String>,
}

pub(crate) struct Server {
    pub(crate) objects: Mutex<Objects>,
    events: broadcast::Sender<(String, Value)>,
}

/// One that runs until this is dropped.
pub(crate) struct Fake {
    pub(crate) server: Arc<Server>,
    pub(crate) kubeconfig: PathBuf,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Fake {
    /// Its kubeconfig is written to this folder.
    pub(crate) fn start(folder: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let server = Arc::new(Server {
            objects: Mutex::default(),
            events: broadcast::channel(4096).0,
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(answer).with_state(Arc::clone(&server));
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, app).await.unwrap();
        });
        let kubeconfig = folder.join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "fake", "user": {"token": "none"}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": "trials"}}],
        });
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        Self {
            server,
            kubeconfig,
            runtime: Some(runtime),
        }
    }

    pub(crate) fn fail(&self, fault: Fault) {
        self.server.objects.lock().unwrap().faults.push(fault);
    }

    /// Names of what is there of a kind.
    pub(crate) fn names(&self, kind: &str) -> Vec<String> {
        let objects = self.server.objects.lock().unwrap();
        objects
            .all
            .keys()
            .filter(|key| key.0 == kind)
            .map(|key| key.1.clone())
            .collect()
    }

    pub(crate) fn asked(&self, what: &str) -> usize {
        self.server
            .objects
            .lock()
            .unwrap()
            .asked
            .iter()
            .filter(|asked| asked.contains(what))
            .count()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        for name in self.names("pods") {
            pods::discard(&name);
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Server {
    /// Sets an object as it is from now on, and tells who watches. `change` sees it, where it is there.
    pub(crate) fn update(&self, kind: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut objects = self.objects.lock().unwrap();
        objects.version += 1;
        let version = objects.version.to_string();
        let Some(object) = objects.all.get_mut(&(kind.to_owned(), name.to_owned())) else {
            return;
        };
        change(object);
        object["metadata"]["resourceVersion"] = json!(version);
        let event = json!({"type": "MODIFIED", "object": object});
        let _ = self.events.send((kind.to_owned(), event));
    }

    fn insert(&self, kind: &str, name: &str, mut object: Value) -> Option<Value> {
        let mut objects = self.objects.lock().unwrap();
        let key = (kind.to_owned(), name.to_owned());
        if objects.all.contains_key(&key) {
            return None;
        }
        objects.version += 1;
        object["metadata"]["resourceVersion"] = json!(objects.version.to_string());
        object["metadata"]["uid"] = json!(format!("uid-{}", objects.version));
        object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        objects.all.insert(key, object.clone());
        let _ = self
            .events
            .send((kind.to_owned(), json!({"type": "ADDED", "object": object})));
        Some(object)
    }

    pub(crate) fn remove(&self, kind: &str, name: &str) -> Option<Value> {
        let mut objects = self.objects.lock().unwrap();
        let mut object = objects.all.remove(&(kind.to_owned(), name.to_owned()))?;
        objects.version += 1;
        object["metadata"]["resourceVersion"] = json!(objects.version.to_string());
        let _ = self
            .events
            .send((kind.to_owned(), json!({"type": "DELETED", "object": object})));
        Some(object)
    }

    fn fault(&self, method: &Method, path: &str) -> Option<Fault> {
        let mut objects = self.objects.lock().unwrap();
        let found = objects
            .faults
            .iter()
            .position(|fault| method == fault.method && path.contains(fault.path));
        found.map(|at| objects.faults.remove(at))
    }
}

pub(crate) fn refusal(code: u16, reason: &str, message: &str, retry_after: Option<u32>) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
        "details": {"retryAfterSeconds": retry_after.unwrap_or(0)},
    });
    (StatusCode::from_u16(code).unwrap(), status.to_string()).into_response()
}

fn json_of(object: &Value) -> Response {
    ([("content-type", "application/json")], object.to_string()).into_response()
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let path = uri.path().to_owned();
    server.objects.lock().unwrap().asked.push(format!("{method} {path}"));
    let fault = server.fault(&method, &path);
    if let Some(fault) = &fault
        && !fault.carried_out
    {
        return refusal(fault.code, "Fault", fault.message, fault.retry_after);
    }
    let done = carry_out(&server, &method, &uri, request).await;
    match fault {
        Some(fault) => refusal(fault.code, "Fault", fault.message, fault.retry_after),
        None => done,
    }
}

async fn carry_out(server: &Arc<Server>, method: &Method, uri: &Uri, request: Request) -> Response {
    let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let asked: HashMap<String, String> = query(uri).into_iter().collect();
    let (kind, name, sub) = match parts.as_slice() {
        ["version"] => {
            return json_of(
                &json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0-fake", "gitCommit": "",
            "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
            );
        }
        ["api", "v1", "namespaces", _, kind]
        | ["apis", _, _, "namespaces", _, kind]
        | ["apis", "authorization.k8s.io", "v1", kind] => (*kind, None, None),
        ["api", "v1", "namespaces", _, kind, name] | ["apis", _, _, "namespaces", _, kind, name] => {
            (*kind, Some(*name), None)
        }
        ["api", "v1", "namespaces", _, kind, name, sub] => (*kind, Some(*name), Some(*sub)),
        _ => return refusal(404, "NotFound", uri.path(), None),
    };
    if sub == Some("exec") {
        return exec::open(server, name.unwrap_or_default(), &query(uri), request);
    }
    if sub == Some("log") {
        let wanted = asked.get("container").cloned().unwrap_or_default();
        return pods::log(name.unwrap_or_default(), &wanted).await.into_response();
    }
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let object = || -> Value { serde_json::from_slice(&body).unwrap() };
    let missing = || {
        refusal(
            404,
            "NotFound",
            &format!("{kind} \"{}\" not found", name.unwrap_or_default()),
            None,
        )
    };
    match (method.as_str(), name) {
        ("POST", None) if kind == "selfsubjectaccessreviews" => {
            let mut review = object();
            let asked = review["spec"]["resourceAttributes"].clone();
            let below = asked["subresource"]
                .as_str()
                .map_or_else(String::new, |name| format!("/{name}"));
            let right = format!(
                "{} {}{below}",
                asked["verb"].as_str().unwrap(),
                asked["resource"].as_str().unwrap()
            );
            let denied = server.objects.lock().unwrap().denied.contains(&right);
            review["status"] = json!({"allowed": !denied});
            json_of(&review)
        }
        ("POST", None) => {
            let object = object();
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            match server.insert(kind, &name, object) {
                None => refusal(409, "AlreadyExists", &format!("{kind} \"{name}\" already exists"), None),
                Some(made) => {
                    if kind == "pods" {
                        tokio::spawn(pods::run(Arc::clone(server), name, made.clone()));
                    }
                    json_of(&made)
                }
            }
        }
        ("GET", None) if asked.get("watch").is_some_and(|watch| watch == "true" || watch == "1") => {
            watch(server, kind, &asked)
        }
        ("GET", None) => {
            let objects = server.objects.lock().unwrap();
            let items: Vec<&Value> = objects
                .all
                .iter()
                .filter(|(key, object)| key.0 == kind && selected(object, &asked))
                .map(|found| found.1)
                .collect();
            json_of(
                &json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": objects.version.to_string()}, "items": items}),
            )
        }
        ("GET", Some(name)) => {
            let objects = server.objects.lock().unwrap();
            objects
                .all
                .get(&(kind.to_owned(), name.to_owned()))
                .map_or_else(missing, json_of)
        }
        ("PATCH", Some(name)) => {
            let patch = object();
            server.update(kind, name, |object| {
                for (key, value) in patch["spec"].as_object().into_iter().flatten() {
                    object["spec"][key] = value.clone();
                }
            });
            let objects = server.objects.lock().unwrap();
            objects
                .all
                .get(&(kind.to_owned(), name.to_owned()))
                .map_or_else(missing, json_of)
        }
        ("DELETE", Some(name)) => match server.remove(kind, name) {
            None => missing(),
            Some(object) => {
                if kind == "pods" {
                    let name = name.to_owned();
                    let _ = tokio::task::spawn_blocking(move || pods::discard(&name)).await;
                }
                json_of(&object)
            }
        },
        _ => refusal(405, "MethodNotAllowed", method.as_str(), None),
    }
}
