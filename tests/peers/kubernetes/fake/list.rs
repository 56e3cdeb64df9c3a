//! Lists and watches: queries, label selectors, events.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Uri;
use axum::response::Response;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::Server;

/// Values of a query, decoded.
pub(super) fn query(uri: &Uri) -> Vec<(String, String)> {
    let text = uri.query().unwrap_or_default();
    text.split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), decoded(value)))
        .collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let pair = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&pair).unwrap(), 16).unwrap()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

pub(super) fn selected(object: &Value, asked: &HashMap<String, String>) -> bool {
    let Some(selector) = asked.get("labelSelector") else {
        return true;
    };
    let labels = &object["metadata"]["labels"];
    match selector.split_once('=') {
        Some((key, value)) => labels[key].as_str() == Some(value),
        None => labels[selector.as_str()].is_string(),
    }
}

pub(super) fn watch(server: &Arc<Server>, kind: &str, asked: &HashMap<String, String>) -> Response {
    // What happened since the list is told first: those objects that are newer.
    let objects = server.objects.lock().unwrap();
    let events = server.events.subscribe();
    let since: u64 = asked
        .get("resourceVersion")
        .and_then(|version| version.parse().ok())
        .unwrap_or(0);
    let is_new = |object: &Value| {
        object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
            > since
    };
    let newer: Vec<Value> = objects
        .all
        .iter()
        .filter(|(key, object)| key.0 == kind && is_new(object))
        .map(|(_, object)| json!({"type": "MODIFIED", "object": object}))
        .collect();
    drop(objects);
    let (kind, asked) = (kind.to_owned(), asked.clone());
    let line = |event: &Value| Ok::<_, std::io::Error>(Bytes::from(format!("{event}\n")));
    let first: Vec<_> = newer
        .iter()
        .filter(|event| selected(&event["object"], &asked))
        .map(line)
        .collect();
    let later = futures_util::stream::unfold(events, |mut events| async {
        let event = tokio::time::timeout(Duration::from_mins(10), events.recv())
            .await
            .ok()?
            .ok()?;
        Some((event, events))
    });
    let later = later.filter_map(move |(of, event)| {
        let wanted = of == kind && selected(&event["object"], &asked);
        std::future::ready(wanted.then(|| line(&event)))
    });
    Response::new(Body::from_stream(futures_util::stream::iter(first).chain(later)))
}
