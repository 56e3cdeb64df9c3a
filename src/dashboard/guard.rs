//! Who may look: this machine's browsers, or those that know the token. And what a page may do once it is there.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::middleware::Next;

/// Everything comes from this server, nothing is inline, nothing is sent elsewhere, no other page may frame it.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                                 connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const COOKIE: &str = "lego_token";

/// What is asked of whoever looks.
#[derive(Debug, Clone, Default)]
pub(super) struct Guard {
    /// Needed where it is set.
    pub(super) token: Option<String>,
    /// Where the page is, for the cookie.
    pub(super) base: String,
}

/// A token that cannot be guessed.
pub fn new_token() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

pub(super) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response<Body> {
    let (headers, query) = (request.headers(), request.uri().query().unwrap_or_default());
    let mut cookie = None;
    if let Some(token) = &guard.token {
        let asked = parameter(query, "token");
        if asked.is_some_and(|asked| same(asked, token)) {
            // The address is not kept: the cookie is.
            let path = if guard.base.is_empty() { "/" } else { &guard.base };
            cookie = HeaderValue::from_str(&format!("{COOKIE}={token}; Path={path}; HttpOnly; SameSite=Strict")).ok();
        } else if !known(headers, token) {
            return refused(
                StatusCode::UNAUTHORIZED,
                "this dashboard needs its token: open the address that `lego dashboard` printed",
            );
        }
    } else if !is_loopback(headers.get(header::HOST)) {
        return refused(
            StatusCode::FORBIDDEN,
            "asked for by a name that is not this machine's own; start `lego dashboard` with --listen to be seen from elsewhere",
        );
    }
    if request.method() != axum::http::Method::GET && !is_same_origin(headers) {
        return refused(StatusCode::FORBIDDEN, "asked for by another page");
    }
    let mut response = next.run(request).await;
    let set = response.headers_mut();
    set.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    set.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    set.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    set.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(cookie) = cookie {
        set.insert(header::SET_COOKIE, cookie);
    }
    response
}

fn refused(status: StatusCode, why: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{why}\n")));
    *response.status_mut() = status;
    response
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

fn known(headers: &HeaderMap, token: &str) -> bool {
    let cookies = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut by_cookie = cookies
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == COOKIE);
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    by_cookie.any(|(_, value)| same(value, token)) || bearer.is_some_and(|value| same(value, token))
}

/// Compares in a time that does not depend on where they differ.
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len()
        && one
            .bytes()
            .zip(other.bytes())
            .fold(0, |sum, (one, other)| sum | (one ^ other))
            == 0
}

/// A page of another name that resolves to this machine must not read from it.
fn is_loopback(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host.and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost"
        || name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    match (text(header::ORIGIN), text(header::HOST)) {
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, name)| name == host),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine() {
        let is = |host: &str| is_loopback(HeaderValue::from_str(host).ok().as_ref());
        assert!(is("127.0.0.1:8090") && is("localhost") && is("[::1]:8090"));
        assert!(!is("evil.example:8090") && !is("127.0.0.1.evil.example") && !is_loopback(None));
        assert!(same("abc", "abc") && !same("abc", "abd") && !same("abc", "ab"));
    }
}
