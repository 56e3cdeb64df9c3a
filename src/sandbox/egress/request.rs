//! The head of a request to the gateway: where it wants to go, and what is passed on.

use tokio::io::{AsyncRead, AsyncReadExt};

/// Largest head.
const HEAD: usize = 64 * 1024;
/// Most headers.
const HEADERS: usize = 100;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) host: String,
    pub(super) port: u16,
    /// The head as the host gets it; `None` for a tunnel.
    pub(super) forward: Option<Vec<u8>>,
    /// Bytes that came behind the head.
    pub(super) rest: Vec<u8>,
}

/// Reads a head to its end.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Asked, String> {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let n = stream.read(&mut piece).await.map_err(|error| error.to_string())?;
        if n == 0 {
            return Err("the request ended before its head did".to_owned());
        }
        bytes.extend_from_slice(&piece[..n]);
        if let Some(asked) = parse(&bytes)? {
            return Ok(asked);
        }
        if bytes.len() > HEAD {
            return Err(format!("a head of more than {HEAD} bytes"));
        }
    }
}

/// `None` where more is to come.
fn parse(bytes: &[u8]) -> Result<Option<Asked>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes).map_err(|error| error.to_string())? {
        httparse::Status::Partial => return Ok(None),
        httparse::Status::Complete(length) => length,
    };
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    let rest = bytes[length..].to_vec();
    if method == "CONNECT" {
        let (host, port) = split(target, None)?;
        return Ok(Some(Asked {
            host,
            port,
            forward: None,
            rest,
        }));
    }
    let Some(url) = target.strip_prefix("http://") else {
        return Err(format!(
            "`{target}` is not an address for a proxy: expected `http://host/…`, or CONNECT for TLS"
        ));
    };
    let at = url.find(['/', '?']).unwrap_or(url.len());
    let (authority, path) = url.split_at(at);
    let (host, port) = split(authority, Some(80))?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut head = format!("{method} {slash}{path} HTTP/1.1\r\n").into_bytes();
    for header in request.headers.iter() {
        let name = header.name.to_ascii_lowercase();
        // One request a connection: what follows must not go to a host that was not asked for.
        if name.starts_with("proxy-") || name == "connection" || name == "keep-alive" {
            continue;
        }
        head.extend_from_slice(header.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(header.value);
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"connection: close\r\n\r\n");
    Ok(Some(Asked {
        host,
        port,
        forward: Some(head),
        rest,
    }))
}

/// Host and port of `host:port`, `[v6]:port`; a name and password before them are left out.
fn split(authority: &str, port: Option<u16>) -> Result<(String, u16), String> {
    let plain = authority.rsplit('@').next().unwrap_or(authority);
    let (host, given) = match plain.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match plain.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (plain, None),
        },
    };
    let port = given.map_or(Ok(port), |text| text.parse().map(Some));
    match port {
        Ok(Some(port)) if !host.is_empty() => Ok((host.to_owned(), port)),
        _ => Err(format!("`{authority}` is no host with a port")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Result<Option<Asked>, String> {
        parse(text.as_bytes())
    }

    #[test]
    fn tunnels_and_plain_requests_are_told_apart() {
        let tunnel = asked("CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org:443\r\n\r\nhello")
            .unwrap()
            .unwrap();
        assert_eq!(
            (tunnel.host.as_str(), tunnel.port, tunnel.forward),
            ("pypi.org", 443, None)
        );
        assert_eq!(tunnel.rest, b"hello");
        let plain = asked(
            "GET http://u:p@Example.com:81?q=1 HTTP/1.1\r\nHost: example.com\r\nProxy-Authorization: x\r\nConnection: keep-alive\r\n\r\n",
        )
        .unwrap()
        .unwrap();
        assert_eq!((plain.host.as_str(), plain.port), ("Example.com", 81));
        assert_eq!(
            String::from_utf8(plain.forward.unwrap()).unwrap(),
            "GET /?q=1 HTTP/1.1\r\nHost: example.com\r\nconnection: close\r\n\r\n"
        );
        assert_eq!(asked("CONNECT [::1]:80 HTTP/1.1\r\n\r\n").unwrap().unwrap().host, "::1");
        assert_eq!(asked("CONNECT pypi.org:443 HTTP/1.1\r\nHo"), Ok(None));
        for wrong in [
            "GET /x HTTP/1.1\r\n\r\n",
            "CONNECT host HTTP/1.1\r\n\r\n",
            "GET http://:80/ HTTP/1.1\r\n\r\n",
            "\u{1}\r\n\r\n",
        ] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
    }
}
