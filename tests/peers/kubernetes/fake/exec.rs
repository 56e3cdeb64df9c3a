//! Exec over a websocket, as servers from 1.30 on speak it: a channel's number before each piece, 255 for its end.

use std::process::Stdio;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::{Server, pods, refusal};

const PROTOCOL: &str = "v5.channel.k8s.io";

pub(super) fn open(server: &Arc<Server>, pod: &str, query: &[(String, String)], mut request: Request) -> Response {
    let of = |key: &'static str| {
        query
            .iter()
            .filter(move |pair| pair.0 == key)
            .map(|pair| pair.1.clone())
    };
    let name = of("container").next().unwrap_or_default();
    let mut objects = server.objects.lock().unwrap();
    let status = objects
        .all
        .get(&("pods".to_owned(), pod.to_owned()))
        .map(|pod| pod["status"].clone());
    let Some(status) = status else {
        return refusal(404, "NotFound", &format!("pods \"{pod}\" not found"), None);
    };
    let all =
        ["initContainerStatuses", "containerStatuses"].map(|list| status[list].as_array().cloned().unwrap_or_default());
    if !all
        .iter()
        .flatten()
        .any(|one| one["name"] == name.as_str() && one["state"]["running"].is_object())
    {
        return refusal(500, "InternalError", &format!("container not found (\"{name}\")"), None);
    }
    objects.execs += 1;
    let left = match (name.as_str(), objects.break_after) {
        ("main", after @ 1..) => after + objects.execs * 7919 % after,
        _ => usize::MAX,
    };
    drop(objects);
    let header = |name: &str| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    assert!(header("sec-websocket-protocol").contains(PROTOCOL));
    let accept = derive_accept_key(header("sec-websocket-key").as_bytes());
    let upgrade = hyper::upgrade::on(&mut request);
    let (container, command) = (pods::container(pod, &name), of("command").collect::<Vec<_>>());
    tokio::spawn(async move {
        let upgraded = TokioIo::new(upgrade.await.unwrap());
        let socket = WebSocketStream::from_raw_socket(upgraded, Role::Server, None).await;
        serve(socket, &container, &command, left).await;
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-accept", accept)
        .header("sec-websocket-protocol", PROTOCOL)
        .body(Body::empty())
        .unwrap()
}

async fn serve<S>(socket: WebSocketStream<S>, container: &str, command: &[String], mut left: usize)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let mut child = Command::new("docker")
        .args(["exec", "-i", container])
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut input, mut output, mut errors) = (
        child.stdin.take(),
        child.stdout.take().unwrap(),
        child.stderr.take().unwrap(),
    );
    let (mut write, mut read) = socket.split();
    let (send, mut pieces) = mpsc::channel::<Vec<u8>>(8);
    let errors_to = send.clone();
    tokio::spawn(async move {
        let mut text = Vec::new();
        let _ = errors.read_to_end(&mut text).await;
        if !text.is_empty() {
            let _ = errors_to.send([&[2], text.as_slice()].concat()).await;
        }
    });
    let ending = tokio::spawn(async move {
        let mut buffer = vec![1; 32 * 1024];
        while let Ok(n @ 1..) = output.read(&mut buffer[1..]).await {
            if send.send(buffer[..=n].to_vec()).await.is_err() {
                return;
            }
        }
        let code = child.wait().await.ok().and_then(|status| status.code()).unwrap_or(137);
        let status = if code == 0 {
            json!({"metadata": {}, "status": "Success"})
        } else {
            json!({"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "message": format!("command terminated with exit code {code}"),
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]}})
        };
        let _ = send.send([&[3], status.to_string().as_bytes()].concat()).await;
    });
    loop {
        tokio::select! {
            piece = pieces.recv() => {
                let Some(piece) = piece else { break };
                left = left.saturating_sub(piece.len());
                if left == 0 || write.send(Message::binary(piece)).await.is_err() { break }
            }
            message = read.next() => match message {
                Some(Ok(Message::Binary(piece))) => match (piece.first(), &mut input) {
                    (Some(0), Some(to)) => {
                        left = left.saturating_sub(piece.len());
                        if left == 0 || to.write_all(&piece[1..]).await.is_err() { input = None }
                        if left == 0 { break }
                    }
                    (Some(255), _) => input = None,
                    _ => {}
                },
                Some(Ok(_)) => {}
                _ => break,
            },
        }
    }
    // Broken or at its end: what runs inside hears the end of its input.
    drop(input);
    let _ = write.close().await;
    ending.abort();
}
