//! A server without a model, for `proxy_load.py`: constant answers, no think time.
//!
//!     rustc -O --edition 2024 mock_engine.rs && ./mock_engine PORT TOKENS EVENTS
//!
//! It answers vLLM's token route with TOKENS tokens in EVENTS events, and Chat Completions with as much text in one piece
//! or in as many events, each event in a write of its own. The standard library is enough for it. What is measured is what
//! stands in front of it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// A token of the quickstart's policy, and the one that ends its answers.
const TOKEN: u32 = 84;
const END: u32 = 2;

struct Mock {
    tokens: usize,
    events: usize,
}

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let mut next = || args.next().and_then(Result::ok).ok_or(io::Error::from(io::ErrorKind::InvalidInput));
    let (port, tokens, events) = (next()?, next()?, next()?);
    let mock = Arc::new(Mock { tokens, events });
    for stream in TcpListener::bind(("127.0.0.1", port as u16))?.incoming() {
        let (stream, mock) = (stream?, Arc::clone(&mock));
        stream.set_nodelay(true)?;
        std::thread::spawn(move || mock.serve(&stream));
    }
    Ok(())
}

impl Mock {
    /// Answers the requests of one connection until it is closed.
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
            let mut length = 0;
            loop {
                let mut header = String::new();
                reader.read_line(&mut header)?;
                let Some((name, value)) = header.split_once(':') else { break };
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let body = String::from_utf8_lossy(&body);
            match path.as_str() {
                "/inference/v1/generate" => events(stream, &self.generation(&body))?,
                "/v1/chat/completions" if body.contains("\"stream\":true") => events(stream, &self.chunks())?,
                "/v1/chat/completions" => whole(stream, &self.completion())?,
                "/v1/models" => whole(stream, r#"{"object":"list","data":[{"id":"mock","object":"model","max_model_len":131072}]}"#)?,
                "/weight_info" => whole(stream, r#"{"weight_version":"default"}"#)?,
                "/metrics" => whole(stream, "vllm:num_requests_running 0\n")?,
                _ => whole(stream, "{}")?,
            }
        }
    }

    fn completion(&self) -> String {
        let text = "lorem ".repeat(self.tokens);
        format!(
            r#"{{"id":"chatcmpl-0","object":"chat.completion","created":1,"model":"mock","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":1000,"completion_tokens":{0},"total_tokens":{1}}}}}"#,
            self.tokens,
            self.tokens + 1000
        )
    }

    fn chunks(&self) -> Vec<String> {
        let chunk = |delta: &str, finish: &str| {
            format!(
                r#"{{"id":"chatcmpl-0","object":"chat.completion.chunk","created":1,"model":"mock","choices":[{{"index":0,"delta":{{{delta}}},"finish_reason":{finish}}}]}}"#
            )
        };
        let text = "lorem ".repeat(self.tokens / self.events);
        let mut all = vec![chunk(&format!(r#""content":"{text}""#), "null"); self.events];
        all.push(chunk("", r#""stop""#));
        all
    }

    fn generation(&self, body: &str) -> Vec<String> {
        let sent = body.split_once(r#""token_ids":["#).and_then(|(_, rest)| rest.split_once(']'));
        let prompt = sent.map_or(0, |(ids, _)| ids.matches(',').count() + 1);
        let each = self.tokens.div_ceil(self.events);
        let mut all: Vec<String> = (0..self.tokens).step_by(each).map(|at| self.event(at, (at + each).min(self.tokens))).collect();
        all.push(format!(
            r#"{{"request_id":"0","choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{}}}}}"#,
            self.tokens
        ));
        all
    }

    /// Tokens `at..end` with their log-probs.
    fn event(&self, at: usize, end: usize) -> String {
        let ids: Vec<u32> = (at..end).map(|index| if index + 1 == self.tokens { END } else { TOKEN }).collect();
        let listed: Vec<String> = ids.iter().map(u32::to_string).collect();
        let logprobs: Vec<String> = ids.iter().map(|id| format!(r#"{{"token_id":{id},"logprob":-0.25}}"#)).collect();
        let finish = if end == self.tokens { r#""stop""# } else { "null" };
        format!(
            r#"{{"request_id":"0","choices":[{{"index":0,"token_ids":[{}],"logprobs":{{"content":[{}]}},"finish_reason":{finish}}}]}}"#,
            listed.join(","),
            logprobs.join(",")
        )
    }
}

fn whole(mut stream: &TcpStream, body: &str) -> io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes())
}

/// One write an event, and one for the end.
fn events(mut stream: &TcpStream, events: &[String]) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
    for event in events.iter().map(String::as_str).chain(["[DONE]"]) {
        let data = format!("data: {event}\n\n");
        stream.write_all(format!("{:x}\r\n{data}\r\n", data.len()).as_bytes())?;
    }
    stream.write_all(b"0\r\n\r\n")
}
