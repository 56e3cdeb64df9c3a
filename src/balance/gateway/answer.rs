//! The body of an answer on its way to a client: handed on as it comes, kept alive while nothing does, and ended by an error
//! that the client can read where its replica is lost.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, StatusCode, header};
use hyper::body::Frame;
use tokio::time::{Instant, Sleep};

use super::attempt::{Content, Ticket, Won, is_stream};
use super::refusal::{Grammar, Refusal};
use super::scan::usage;
use super::upstream::Answer;

/// Said while nothing comes: a comment, which clients of event streams skip.
const COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");
/// What is kept of the end of an answer, for its usage.
const TAIL: usize = 8 << 10;
/// Where probes are not answered any more, a stream is given up after this time without a byte.
const OUT_PATIENCE: Duration = Duration::from_secs(10);

/// An answer that is awaited.
pub(super) type Awaited = Pin<Box<dyn Future<Output = Result<Won, Refusal>> + Send>>;

/// Times of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Time without a byte after which a comment is sent.
    pub(super) comment: Duration,
    /// Time without a byte after which a replica has failed.
    pub(super) idle: Duration,
}

/// What comes first; empty where nothing does.
pub(super) async fn first_frame(answer: &mut Answer) -> Result<Bytes, hyper::Error> {
    while let Some(frame) = poll_fn(|context| answer.poll_frame(context)).await {
        match frame?.into_data() {
            Ok(data) if !data.is_empty() => return Ok(data),
            _ => {}
        }
    }
    Ok(Bytes::new())
}

/// A stream whose answer is still awaited: the client is told that it will come.
pub(super) fn early(awaited: Awaited, grammar: Grammar, pace: Pace) -> Response<Body> {
    let mut response = Response::new(Body::new(Relayed {
        stage: Stage::Awaiting(awaited),
        grammar,
        pace,
        timer: Timer::new(pace.comment, true),
    }));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// An answer that has begun.
pub(super) fn body(content: Content, ticket: Ticket, grammar: Grammar, pace: Pace, is_events: bool) -> Body {
    match content {
        Content::Whole(whole) => Body::from(whole),
        Content::Begun(first, answer) => Body::new(Relayed {
            stage: Stage::Relaying(Relaying::new(first, answer, ticket, is_events)),
            grammar,
            pace,
            timer: Timer::new(pace.comment, false),
        }),
    }
}

struct Relayed {
    stage: Stage,
    grammar: Grammar,
    pace: Pace,
    timer: Timer,
}

enum Stage {
    Awaiting(Awaited),
    Relaying(Box<Relaying>),
    Ended,
}

/// Tells when nothing has come for a while. It is set anew by each byte at no cost: only when it fires is looked at how long
/// ago the last one was.
struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    period: Duration,
    last: Instant,
    said: Instant,
}

impl Timer {
    fn new(period: Duration, now: bool) -> Self {
        let (last, said) = (Instant::now(), Instant::now());
        let said = if now {
            said.checked_sub(period).unwrap_or(said)
        } else {
            said
        };
        Self {
            sleep: None,
            period,
            last,
            said,
        }
    }

    fn came(&mut self) {
        self.last = Instant::now();
        self.said = self.last;
    }

    /// Ready once in each period without a byte.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let due = self.said + self.period;
            if Instant::now() >= due {
                self.said = Instant::now();
                return Poll::Ready(());
            }
            let sleep = self
                .sleep
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            sleep.as_mut().reset(due);
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

struct Relaying {
    first: Option<Bytes>,
    answer: Box<Answer>,
    ticket: Ticket,
    /// The end of what has come.
    tail: Vec<Bytes>,
    is_events: bool,
}

impl Relaying {
    fn new(first: Bytes, answer: Box<Answer>, ticket: Ticket, is_events: bool) -> Box<Self> {
        Box::new(Self {
            first: Some(first).filter(|first| !first.is_empty()),
            answer,
            ticket,
            tail: Vec::new(),
            is_events,
        })
    }

    fn keep(&mut self, data: &Bytes) {
        self.tail.push(data.clone());
        let mut length: usize = self.tail.iter().map(Bytes::len).sum();
        while length > TAIL && self.tail.len() > 2 {
            length -= self.tail.remove(0).len();
        }
    }

    /// Whether a comment can stand here.
    fn is_between_events(&self) -> bool {
        let last = self.tail.last();
        self.is_events && last.is_none_or(|last| last.ends_with(b"\n\n") || last.ends_with(b"\r\n\r\n"))
    }
}

impl Relayed {
    fn fail(&mut self, refusal: &Refusal) -> Result<Frame<Bytes>, axum::Error> {
        let is_events = match &self.stage {
            Stage::Relaying(relaying) => relaying.is_events,
            _ => true,
        };
        self.stage = Stage::Ended;
        if is_events {
            return Ok(Frame::data(self.grammar.event(refusal)));
        }
        // There is no way to say it: the client sees that the answer is not whole.
        Err(axum::Error::new(std::io::Error::other(refusal.message.clone())))
    }

    /// An answer has come after the client was told that one will.
    fn begin(&mut self, won: Result<Won, Refusal>) -> Option<Result<Frame<Bytes>, axum::Error>> {
        let won = match won {
            Ok(won) => won,
            Err(refusal) => return Some(self.fail(&refusal)),
        };
        match won.content {
            Content::Begun(first, answer) if won.status == StatusCode::OK && is_stream(&won.headers) => {
                self.stage = Stage::Relaying(Relaying::new(first, answer, won.ticket, true));
                self.timer.came();
                None
            }
            Content::Whole(said) | Content::Begun(said, _) => {
                let said = String::from_utf8_lossy(&said);
                let message = format!("The replica answers {}: {said}", won.status.as_u16());
                Some(self.fail(&Refusal::bad(won.status.as_u16(), "replica_answer", message)))
            }
        }
    }
}

impl hyper::body::Body for Relayed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        loop {
            match &mut this.stage {
                Stage::Ended => return Poll::Ready(None),
                Stage::Awaiting(awaited) => {
                    if let Poll::Ready(won) = awaited.as_mut().poll(context) {
                        match this.begin(won) {
                            Some(frame) => return Poll::Ready(Some(frame)),
                            None => continue,
                        }
                    }
                    return this.timer.poll(context).map(|()| Some(Ok(Frame::data(COMMENT))));
                }
                Stage::Relaying(relaying) => {
                    if let Some(first) = relaying.first.take() {
                        relaying.keep(&first);
                        return Poll::Ready(Some(Ok(Frame::data(first))));
                    }
                    match relaying.answer.poll_frame(context) {
                        Poll::Ready(Some(Ok(frame))) => {
                            let Ok(data) = frame.into_data() else { continue };
                            relaying.keep(&data);
                            this.timer.came();
                            return Poll::Ready(Some(Ok(Frame::data(data))));
                        }
                        Poll::Ready(Some(Err(error))) => {
                            let reason = format!("the answer broke off: {error}");
                            relaying.ticket.failed(&reason);
                            let lost = Refusal::unavailable("replica_lost", format!("The replica was lost: {error}"));
                            return Poll::Ready(Some(this.fail(&lost)));
                        }
                        Poll::Ready(None) => {
                            let usage = usage(&relaying.tail.concat());
                            relaying.ticket.answered(usage);
                            this.stage = Stage::Ended;
                            return Poll::Ready(None);
                        }
                        Poll::Pending => {}
                    }
                    if this.timer.poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    let silent = this.timer.last.elapsed();
                    let is_up = *relaying.ticket.replica().up.borrow();
                    if silent >= this.pace.idle || (!is_up && silent >= OUT_PATIENCE) {
                        let reason = format!("nothing came for {silent:?}");
                        relaying.ticket.failed(&reason);
                        let lost = Refusal::unavailable("replica_silent", format!("The replica was lost: {reason}"));
                        return Poll::Ready(Some(this.fail(&lost)));
                    }
                    if relaying.is_between_events() {
                        return Poll::Ready(Some(Ok(Frame::data(COMMENT))));
                    }
                }
            }
        }
    }
}
