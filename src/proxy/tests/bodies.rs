//! Bodies of many connections together: there is room for so many bytes, and who comes beyond is told to come again.

use std::sync::atomic::{AtomicU32, AtomicUsize};

use super::*;

const MIB: usize = 1 << 20;

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Forty clients send 8 MiB each where there is room for 24: it is never exceeded, nobody is told 429, and all who come
/// again are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_big_bodies_share_one_room() {
    let room = 24 * MIB;
    let harness = Harness::with(vec![], |options| options.body_room = room).await;
    let ticket = harness.open();
    let mut body = request(&opening());
    body["messages"][1]["content"] = "word ".repeat(8 * MIB / 5).into();
    let body = axum::body::Bytes::from(body.to_string());
    let (busy, most_taken, most_resident) = (AtomicU32::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let before = resident();
    let watch = async {
        loop {
            most_taken.fetch_max(harness.proxy.0.room.taken(), Ordering::Relaxed);
            most_resident.fetch_max(resident(), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let ask = |number: usize| {
        let url = format!("{}/v1/chat/completions", ticket.url);
        let (harness, ticket, body, busy) = (&harness, &ticket, body.clone(), &busy);
        async move {
            loop {
                let sent = harness.client.post(&url).bearer_auth(&ticket.token).body(body.clone());
                let answer = sent.timeout(Duration::from_mins(2)).send().await.unwrap();
                let (status, again) = (answer.status().as_u16(), answer.headers().contains_key("retry-after"));
                let text = answer.text().await.unwrap();
                match status {
                    // The window is far smaller.
                    400 => return assert!(text.contains("maximum context length"), "{number}: {text}"),
                    503 => assert!(again && text.contains("take all of 24 MiB"), "{number}: {text}"),
                    other => panic!("{number}: {other} {text}"),
                }
                busy.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    tokio::select! {
        () = watch => {}
        _ = futures_util::future::join_all((0..40).map(ask)) => {}
    }
    assert_eq!(harness.proxy.0.room.taken(), 0);
    assert!(busy.load(Ordering::Relaxed) > 0);
    let taken = most_taken.load(Ordering::Relaxed);
    assert!(taken > 8 * MIB && taken <= room, "{taken}");
    let grown = most_resident.load(Ordering::Relaxed).saturating_sub(before);
    // 154 MiB were seen, those of the clients and of their library included.
    assert!(grown < 10 * room, "{grown}");
}

/// A small body that unpacks to more than there is room for is refused as one of that size.
#[tokio::test]
async fn what_a_body_unpacks_to_takes_room() {
    let harness = Harness::with(vec![], |options| options.body_room = MIB).await;
    let ticket = harness.open();
    let packed = zstd::stream::encode_all(&vec![b' '; 2 * MIB][..], 1).unwrap();
    let sent = harness.client.post(format!("{}/v1/messages", ticket.url));
    let sent = sent.header("content-encoding", "zstd").bearer_auth(&ticket.token);
    let answer = sent.body(packed).send().await.unwrap();
    assert_eq!(answer.status(), 503);
    assert_eq!(harness.proxy.0.room.taken(), 0);
}

/// Who declares much and sends little takes what was sent, and not for ever.
#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let harness = Harness::with(vec![], |options| options.client_patience = Duration::from_millis(300)).await;
    let ticket = harness.open();
    let mut stream = tokio::net::TcpStream::connect(harness.url.trim_start_matches("http://"))
        .await
        .unwrap();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\ncontent-length: {}\r\n\r\n{{\"mess",
        ticket.token,
        60 * MIB
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    eventually("the piece is there", || harness.proxy.0.room.taken() == 6).await;
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 408");
    eventually("its room is free", || harness.proxy.0.room.taken() == 0).await;
}

/// A head that does not come whole ends its connection, and so does an idle one.
#[tokio::test]
async fn a_head_that_does_not_come_is_not_waited_for() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let harness = Harness::with(vec![], |options| options.client_patience = Duration::from_millis(300)).await;
    for sent in ["", "POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api"] {
        let mut stream = tokio::net::TcpStream::connect(harness.url.trim_start_matches("http://"))
            .await
            .unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut Vec::new())).await;
        ended.expect("the connection ends").unwrap();
    }
}
