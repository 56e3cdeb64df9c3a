//! One request over replicas: sent where its session is, and elsewhere as long as nothing of an answer has come.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};

use super::Inner;
use super::answer::first_frame;
use super::key::Key;
use super::pool::{InFlight, Replica, lock};
use super::refusal::Refusal;
use super::upstream::{Answer, Collected, LinkError, joined};
use crate::balance::hold::{Ask, Entered, NotLetGo, Place};
use crate::balance::placement::{BLOCK, Reason, ReplicaId, Wish, blocks_of, stable_hash};

/// Attempts at a request at most.
const ATTEMPTS: usize = 4;
/// An answer that is no stream is kept whole up to so many bytes: as long as nothing of it was handed on, it can be asked for
/// again.
const WHOLE: usize = 8 << 20;
/// Blocks by which what sessions share is found, and by which a replica that has seen them is.
const SHARED_BLOCKS: usize = 256;
const PREFIX_BLOCKS: usize = 4096;

/// A request that was read.
pub(super) struct Asked {
    pub(super) method: Method,
    /// Path and query, as replicas are asked.
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether the answer is to be a stream: only of one it is told when its prompt has been computed.
    pub(super) streams: bool,
    pub(super) key: Key,
    /// Where in the body its messages begin.
    pub(super) said: usize,
}

/// An answer, whole or begun.
pub(super) struct Won {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) content: Content,
    pub(super) ticket: Ticket,
}

pub(super) enum Content {
    Whole(Bytes),
    /// What has come, and the rest.
    Begun(Bytes, Box<Answer>),
}

/// What a request holds at its replica until its end.
pub(super) struct Ticket {
    inner: Arc<Inner>,
    in_flight: InFlight,
    place: Place,
    pub(super) reason: Reason,
    session: Option<String>,
    body: usize,
    told: bool,
}

impl Ticket {
    pub(super) fn replica(&self) -> &Arc<Replica> {
        &self.in_flight.replica
    }

    /// The replica has done its part; `usage` is what it says that prompt and answer come to.
    pub(super) fn answered(&mut self, usage: Option<u64>) {
        self.told = true;
        let replica = self.replica();
        replica.circuit().succeeded();
        replica.answered.fetch_add(1, Ordering::Relaxed);
        let tokens = usage.unwrap_or(self.place.tokens());
        if let Some(tokens) = usage {
            self.inner.ratio.saw(self.body, tokens);
        }
        self.place.set_tokens(tokens);
        if let Some(session) = &self.session {
            lock(&self.inner.pool.placement).ended(session, tokens);
        }
    }

    /// The first byte of a stream has come, so long after it was asked for; so many tokens of its prompt were new.
    fn saw_prefill(&self, fresh: u64, time: Duration) {
        let replica = self.replica();
        lock(&replica.rate).saw(fresh, time.as_secs_f64());
        if let Some(hold) = &replica.hold {
            hold.saw_prefill(fresh, time);
        }
    }

    /// The replica has failed the request.
    pub(super) fn failed(&mut self, reason: &str) {
        self.told = true;
        let replica = self.replica();
        replica.failed.fetch_add(1, Ordering::Relaxed);
        if replica.circuit().failed(Instant::now(), reason.to_owned()) {
            tracing::warn!(replica = replica.url, reason, "circuit open");
            replica.upstream.forget();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.told {
            self.replica().circuit().abandoned();
        }
    }
}

/// What came of one attempt.
enum Attempt {
    Won(Box<Won>),
    /// The replica failed; what it said of it, if it said anything.
    Failed(String, Option<Box<Won>>),
}

/// Sends a request until there is an answer, or until no more attempt at it is worth making.
pub(super) async fn answer(inner: Arc<Inner>, asked: Asked) -> Result<Won, Refusal> {
    let tokens = inner.ratio.tokens(asked.body.len());
    let mut tried: Vec<ReplicaId> = Vec::new();
    let mut last: Option<(String, Option<Box<Won>>)> = None;
    loop {
        let chosen = choose(&inner, &asked, tokens, &tried);
        let Some((replica, reason, fresh)) = chosen else {
            // Whoever has seen a replica fail just now is told so, unless there is nobody else to ask.
            if let Some((reason, said)) = last.take() {
                return said.map(|won| *won).ok_or_else(|| lost(&reason));
            }
            wait_for_one(&inner, asked.key.session.as_deref()).await?;
            continue;
        };
        let in_flight = InFlight::at(&replica, tokens, if asked.streams { fresh } else { 0 });
        let mut ticket = Ticket {
            inner: Arc::clone(&inner),
            in_flight,
            place: Place::free(tokens),
            reason,
            session: asked.key.session.clone(),
            body: asked.body.len(),
            told: false,
        };
        match held(&inner, &replica, &asked, tokens).await? {
            Some(place) => ticket.place = place,
            None => continue,
        }
        match attempt(&inner, &replica, &asked, ticket).await {
            Attempt::Won(won) => return Ok(*won),
            Attempt::Failed(reason, said) => {
                tried.push(replica.id);
                last = Some((reason, said));
                if tried.len() >= ATTEMPTS || !inner.retries.take() {
                    let (reason, said) = last.take().unwrap_or_default();
                    return said.map(|won| *won).ok_or_else(|| lost(&reason));
                }
                inner.counts.retried.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn lost(reason: &str) -> Refusal {
    Refusal::unavailable("replica_lost", format!("The replica failed: {reason}"))
}

fn choose(inner: &Inner, asked: &Asked, tokens: u64, tried: &[ReplicaId]) -> Option<(Arc<Replica>, Reason, u64)> {
    let blocks = if inner.reads_blocks {
        blocks_of(&asked.body[asked.said..], PREFIX_BLOCKS)
    } else {
        Vec::new()
    };
    let wish = Wish {
        session: asked.key.session.as_deref(),
        tokens,
        blocks: &blocks,
    };
    inner.pool.choose(&wish, tried)
}

/// Waits until a replica may be given a turn of the session.
async fn wait_for_one(inner: &Inner, session: Option<&str>) -> Result<(), Refusal> {
    let patience = inner.options.patience;
    let waited = tokio::time::timeout(patience, async {
        loop {
            let back = inner.pool.back.notified();
            tokio::pin!(back);
            back.as_mut().enable();
            if inner.pool.has_place(session) {
                return;
            }
            back.await;
        }
    });
    waited.await.map_err(|_| {
        let count = inner.pool.all().len();
        Refusal::unavailable(
            "no_replica",
            format!("None of {count} replicas was well and took new sessions within {patience:?}."),
        )
    })
}

/// Waits for the turn's place; `None`: it is to go elsewhere.
async fn held(inner: &Inner, replica: &Arc<Replica>, asked: &Asked, tokens: u64) -> Result<Option<Place>, Refusal> {
    let (Some(hold), Some(session)) = (&replica.hold, &asked.key.session) else {
        return Ok(Some(Place::free(tokens)));
    };
    let blocks = blocks_of(&asked.body[asked.said..], SHARED_BLOCKS);
    let ask = Ask {
        session,
        conversation: asked.key.conversation,
        tokens,
        blocks: &blocks,
        block_tokens: BLOCK as f64 * inner.ratio.of(),
        digest: stable_hash(&asked.body),
        probe: None,
    };
    match hold
        .enter_or_move(&ask, || inner.pool.roomier(replica.id, tokens))
        .await
    {
        Ok(Entered::Here(place)) => Ok(Some(place)),
        Ok(Entered::Elsewhere(other)) => {
            inner.pool.moved(session, &other);
            Ok(None)
        }
        Err(NotLetGo::Out) => Ok(None),
        Err(error @ NotLetGo::Preempted) => Err(Refusal::bad(409, "preempted", error.to_string())),
        Err(error @ NotLetGo::TooLong(_)) => Err(Refusal::unavailable("held_too_long", error.to_string())),
    }
}

async fn attempt(inner: &Inner, replica: &Arc<Replica>, asked: &Asked, mut ticket: Ticket) -> Attempt {
    let mut up = replica.up.subscribe();
    let limit = inner.options.first_byte;
    let began = Instant::now();
    tokio::select! {
        biased;
        done = tokio::time::timeout(limit, exchange(inner, replica, asked)) => match done {
            Ok(Ok(begun)) => {
                let fresh = ticket.in_flight.begun();
                if begun.0.is_success() && is_stream(&begun.1) {
                    ticket.saw_prefill(fresh, began.elapsed());
                }
                settled(begun, ticket)
            }
            Ok(Err(reason)) => failed(ticket, reason),
            Err(_) => failed(ticket, format!("no byte of an answer within {limit:?}")),
        },
        _ = up.wait_for(|up| !up) => failed(ticket, "it answers no probe".to_owned()),
    }
}

fn failed(mut ticket: Ticket, reason: String) -> Attempt {
    ticket.failed(&reason);
    Attempt::Failed(reason, None)
}

/// What its status says of the replica.
fn settled((status, headers, content): Begun, mut ticket: Ticket) -> Attempt {
    let reason = format!("it answers {}", status.as_u16());
    match status.as_u16() {
        // What the client asked for is wrong, or too much: no fault of the replica.
        ..500 | 501 => {}
        500 => ticket.failed(&reason),
        _ => {
            ticket.failed(&reason);
            let won = Won {
                status,
                headers,
                content,
                ticket,
            };
            return Attempt::Failed(reason, Some(Box::new(won)));
        }
    }
    if let (false, Content::Whole(answer)) = (ticket.told, &content) {
        let usage = if status.is_success() {
            super::scan::usage(answer)
        } else {
            None
        };
        ticket.answered(usage);
    }
    Attempt::Won(Box::new(Won {
        status,
        headers,
        content,
        ticket,
    }))
}

type Begun = (StatusCode, HeaderMap, Content);

/// Sends it, and waits for the first byte of a stream, or for all of another answer.
async fn exchange(inner: &Inner, replica: &Arc<Replica>, asked: &Asked) -> Result<Begun, String> {
    let upstream = &replica.upstream;
    let connect = inner.options.connect;
    let mut sent = upstream.send(request(replica, asked), connect, false).await;
    if let Err(LinkError::Broken { was_kept: true, .. }) = &sent {
        // The server has closed an idle connection in the moment in which it was used.
        sent = upstream.send(request(replica, asked), connect, true).await;
    }
    let (parts, mut answer) = sent.map_err(|error| error.to_string())?.into_parts();
    let streams = is_stream(&parts.headers);
    let broke = |error: hyper::Error| format!("the answer broke off: {error}");
    let content = if streams {
        let first = first_frame(&mut answer).await.map_err(broke)?;
        Content::Begun(first, Box::new(answer))
    } else {
        match answer.collect(WHOLE).await.map_err(broke)? {
            Collected::Whole(whole) => Content::Whole(whole),
            Collected::TooLong(parts) => Content::Begun(joined(parts), Box::new(answer)),
        }
    };
    Ok((parts.status, parts.headers, content))
}

pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

fn request(replica: &Replica, asked: &Asked) -> Request<Body> {
    let upstream = &replica.upstream;
    let mut request = Request::new(Body::from(asked.body.clone()));
    *request.method_mut() = asked.method.clone();
    let uri = if upstream.base.is_empty() {
        asked.path.parse()
    } else {
        format!("{}{}", upstream.base, asked.path).parse()
    };
    // It was a path before.
    *request.uri_mut() = uri.unwrap_or_default();
    *request.headers_mut() = asked.headers.clone();
    if let Ok(host) = HeaderValue::from_str(&upstream.authority) {
        request.headers_mut().insert(header::HOST, host);
    }
    request
}

/// Headers that are of one connection only, or that are made anew.
pub(super) fn end_to_end(headers: &mut HeaderMap) {
    const HOPS: [header::HeaderName; 9] = [
        header::CONNECTION,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::CONTENT_LENGTH,
        header::EXPECT,
    ];
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    for name in HOPS {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    for name in named {
        headers.remove(name.as_str());
    }
}

/// The answer as its client gets it.
pub(super) fn response(won: Won, body: impl FnOnce(Content, Ticket) -> Body) -> Response<Body> {
    let Won {
        status,
        mut headers,
        content,
        ticket,
    } = won;
    end_to_end(&mut headers);
    if ticket.inner.options.tell_reason {
        headers.insert("x-lego-reason", HeaderValue::from_static(ticket.reason.name()));
        if let Ok(url) = HeaderValue::from_str(&ticket.replica().url) {
            headers.insert("x-lego-replica", url);
        }
    }
    let mut response = Response::new(body(content, ticket));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
