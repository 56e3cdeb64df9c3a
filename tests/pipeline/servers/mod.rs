//! Local servers with the routes and shapes of vLLM 0.32 and `SGLang` 0.5 that serve a real policy: the embedded engine
//! samples.

mod sglang;
mod vllm;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lego::inference::{
    EmbeddedEngine, EmbeddedOptions, Engine, GenerateRequest, GenerationEvent, RequestOrigin, Sampling,
};
use lego::trajectory::{PolicyVersion, SessionKey};
use serde_json::{Value, json};

/// How a server differs from one that does all that it is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Started without `--enable-scale-out`.
    Forbids,
    /// Started without `--logprobs-mode processed_logprobs`.
    Raw,
    /// Lost in the middle of this generation.
    DiesAt(u64),
}

/// A server; it ends with the test.
pub(crate) struct Peer {
    pub(crate) url: String,
    server: Arc<Server>,
    _runtime: tokio::runtime::Runtime,
}

struct Server {
    engine: EmbeddedEngine,
    fault: Fault,
    generations: AtomicU64,
    /// What each publication is called, by its number.
    labels: Mutex<Vec<String>>,
    /// Folders that were loaded.
    loaded: Mutex<Vec<PathBuf>>,
}

fn number(update: usize) -> PolicyVersion {
    PolicyVersion {
        lineage: 0,
        update: update as u64,
    }
}

impl Peer {
    pub(crate) fn start(policy: &Path, fault: Fault) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let weights = lego_policy::Weights::load(policy).unwrap();
        let (url, server) = runtime.block_on(async {
            let server = Arc::new(Server {
                engine: EmbeddedEngine::start(&weights, number(0), &EmbeddedOptions::default()).unwrap(),
                fault,
                generations: AtomicU64::new(0),
                labels: Mutex::new(vec!["default".to_owned()]),
                loaded: Mutex::default(),
            });
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let router = Router::new().fallback(answer).with_state(Arc::clone(&server));
            tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
            (url, server)
        });
        Self {
            url,
            server,
            _runtime: runtime,
        }
    }

    pub(crate) fn generations(&self) -> u64 {
        self.server.generations.load(Ordering::SeqCst)
    }

    /// Folders that were loaded, and what the weights are called now.
    pub(crate) fn loaded(&self) -> (Vec<PathBuf>, String) {
        (self.server.loaded.lock().unwrap().clone(), self.server.label())
    }
}

impl Server {
    fn is_dead(&self) -> bool {
        matches!(self.fault, Fault::DiesAt(at) if self.generations.load(Ordering::SeqCst) >= at)
    }

    /// What the weights are called now.
    fn label(&self) -> String {
        self.labels.lock().unwrap().last().unwrap().clone()
    }

    fn rename(&self, label: &str) {
        label.clone_into(self.labels.lock().unwrap().last_mut().unwrap());
    }

    /// Serves the weights in a folder.
    async fn load(&self, folder: &str) -> Result<(), String> {
        let folder = PathBuf::from(folder);
        let next = self.labels.lock().unwrap().len();
        let published = self.engine.publish(number(next), &folder).await;
        published.map_err(|error| error.to_string())?;
        self.labels.lock().unwrap().push("unnamed".to_owned());
        self.loaded.lock().unwrap().push(folder);
        Ok(())
    }
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    if server.is_dead() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let path = request.uri().path().to_owned();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match vllm::answer(&server, &path, &body).await {
        Some(response) => response,
        None => sglang::answer(&server, &path, &body)
            .await
            .unwrap_or_else(|| StatusCode::NOT_FOUND.into_response()),
    }
}

/// What was sampled so far.
struct Told {
    server: Arc<Server>,
    prompt: usize,
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    /// How many tokens each version sampled.
    spans: Vec<(PolicyVersion, usize)>,
}

impl Told {
    /// Whose each token is, as both servers say it.
    fn versions(&self) -> Value {
        let labels = self.server.labels.lock().unwrap();
        let mut at = 0;
        let spans = self.spans.iter().map(|(version, count)| {
            let span = json!({"version": labels[version.update as usize], "start": at, "end": at + count});
            at += count;
            span
        });
        spans.collect()
    }
}

/// Samples for a request; `write` turns what is new into server-sent events.
async fn generate(
    server: &Arc<Server>,
    id: &Value,
    prompt: &Value,
    knobs: [&Value; 6],
    write: fn(&Told, &GenerationEvent) -> String,
) -> Response {
    let [temperature, top_p, top_k, max_tokens, stops, seed] = knobs;
    let prompt: Vec<u32> = serde_json::from_value(prompt.clone()).unwrap();
    let told = Told {
        server: Arc::clone(server),
        prompt: prompt.len(),
        ids: Vec::new(),
        logprobs: Vec::new(),
        spans: Vec::new(),
    };
    let request = GenerateRequest {
        id: id.as_str().unwrap().to_owned(),
        session: SessionKey::from("any"),
        prompt: prompt.into(),
        sampling: Sampling {
            temperature: temperature.as_f64().unwrap() as f32,
            top_p: top_p.as_f64().unwrap() as f32,
            top_k: top_k.as_i64().unwrap() as i32,
            max_tokens: max_tokens.as_u64().unwrap() as u32,
            stop_token_ids: serde_json::from_value(stops.clone()).unwrap(),
            seed: seed.as_u64().unwrap(),
        },
        origin: RequestOrigin::default(),
        routing_from: None,
    };
    let generation = match server.engine.generate(request).await {
        Ok(generation) => generation,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    server.generations.fetch_add(1, Ordering::SeqCst);
    let stream = futures_util::stream::unfold((generation, told), move |(mut generation, mut told)| async move {
        let mut event = generation.next().await?;
        if told.server.is_dead() {
            return Some((Err(std::io::Error::other("killed")), (generation, told)));
        }
        if let GenerationEvent::Tokens(delta) = &mut event {
            let logprobs = delta.logprobs.as_mut().unwrap();
            // A raw server does not know of temperature.
            if told.server.fault == Fault::Raw {
                for logprob in &mut *logprobs {
                    *logprob -= 2.0;
                }
            }
            told.ids.extend(&delta.ids);
            told.logprobs.extend(&*logprobs);
            match told.spans.last_mut() {
                Some((version, count)) if *version == delta.version => *count += delta.ids.len(),
                _ => told.spans.push((delta.version, delta.ids.len())),
            }
        }
        Some((Ok(Bytes::from(write(&told, &event))), (generation, told)))
    });
    Body::from_stream(stream).into_response()
}
