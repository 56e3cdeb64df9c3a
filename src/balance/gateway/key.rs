//! Whose a request is: the first of what its client says, or else what its conversation began with.

use axum::http::HeaderMap;

use super::scan::{Fields, head, text};
use crate::balance::placement::stable_hash;

/// Headers that name a session, in this order; `_` and `-` are the same.
const HEADERS: [&str; 8] = [
    "x-session-id",
    "x-claude-code-session-id",
    "session-id",
    "conversation-id",
    "x-opencode-session",
    "x-session-affinity",
    "x-smg-routing-key",
    "x-correlation-id",
];

/// A request's session and conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// `None`: nothing names it.
    pub(super) session: Option<String>,
    /// Of what was said first; 0: unknown.
    pub(super) conversation: u64,
}

/// The session in a path, and the path without it.
pub(super) fn of_path(path: &str) -> (Option<&str>, &str) {
    let Some(rest) = path.strip_prefix("/sess/") else {
        return (None, path);
    };
    match rest.find('/') {
        Some(end) if end > 0 => (Some(&rest[..end]), &rest[end..]),
        _ => (None, path),
    }
}

/// Whose a request is. `own` is a header to look for before others.
pub(super) fn key(path: Option<&str>, headers: &HeaderMap, own: Option<&str>, fields: &Fields<'_>) -> Key {
    let head = fields.said.and_then(head);
    let conversation = head.as_ref().map_or(0, |head| stable_hash(head.as_bytes()).max(1));
    let named = path
        .map(str::to_owned)
        .or_else(|| of_headers(headers, own))
        .or_else(|| {
            let keys = [fields.session_id, fields.prompt_cache_key, fields.user];
            keys.into_iter().flatten().find_map(text)
        });
    // Without a name the conversation is the session.
    let session = named.or_else(|| head.map(|_| format!("head-{conversation:016x}")));
    Key { session, conversation }
}

fn of_headers(headers: &HeaderMap, own: Option<&str>) -> Option<String> {
    let found = |name: &str| {
        let alike = || {
            let plain = |name: &str| name.replace('_', "-");
            let mut with = headers
                .iter()
                .filter(|(have, _)| have.as_str().contains('_') || name.contains('_'));
            with.find(|(have, _)| plain(have.as_str()) == plain(name))
                .map(|(_, value)| value)
        };
        let value = headers.get(name).or_else(alike)?;
        value.to_str().ok().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    own.into_iter().chain(HEADERS).find_map(found)
}

#[cfg(test)]
mod tests {
    use super::super::scan::fields;
    use super::*;

    fn session(path: Option<&str>, headers: &[(&str, &str)], body: &str) -> Option<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(
                axum::http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                value.parse().unwrap(),
            );
        }
        key(path, &map, Some("x-mine"), &fields(body.as_bytes())).session
    }

    #[test]
    fn the_first_name_counts() {
        let body = r#"{"session_id":"c","user":"d","messages":[{"role":"user","content":"hi"}]}"#;
        let headers = [("x-session_id", "b"), ("x-correlation-id", "z")];
        let name = |text: &str| Some(text.to_owned());
        assert_eq!(session(Some("a"), &headers, body), name("a"));
        assert_eq!(session(None, &headers, body), name("b"));
        assert_eq!(session(None, &[("x-mine", "own"), headers[0]], body), name("own"));
        assert_eq!(session(None, &[], body), name("c"));
        assert_eq!(session(None, &[], r#"{"user":"d"}"#), name("d"));
        assert_eq!(session(None, &[], "{}"), None);
        let by_head = session(None, &[], r#"{"messages":[{"role":"user","content":"hi"}]}"#).unwrap();
        let later = r#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"x"}],"stream":true}"#;
        assert_eq!(session(None, &[], later), Some(by_head.clone()));
        assert_ne!(
            session(None, &[], r#"{"messages":[{"role":"user","content":"ho"}]}"#),
            Some(by_head)
        );
    }

    #[test]
    fn a_path_names_its_session() {
        assert_eq!(of_path("/sess/ab/v1/messages"), (Some("ab"), "/v1/messages"));
        assert_eq!(of_path("/v1/messages"), (None, "/v1/messages"));
        assert_eq!(of_path("/sess/ab"), (None, "/sess/ab"));
        assert_eq!(of_path("/sess//v1"), (None, "/sess//v1"));
    }
}
