//! The gateway with real connections: what must come through does, what must fail fails.

use std::net::TcpListener as StdListener;

use tokio::io::AsyncReadExt;

use super::*;

/// A gateway, and its address here.
fn gateway() -> (Egress, SocketAddr) {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (Egress::spawn(Listener::Socket(listener.into())), address)
}

async fn ask(gateway: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(gateway).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn what_a_phase_does_not_allow_is_refused_and_remembered() {
    let (egress, address) = gateway();
    let near = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let tunnel = |target: &str| format!("CONNECT {target} HTTP/1.1\r\n\r\n");
    assert!(egress.environment().is_empty());
    let refused = ask(address, &tunnel("pypi.org:443")).await;
    assert!(
        refused.starts_with("HTTP/1.1 403") && refused.contains("pypi.org:443"),
        "{refused}"
    );

    // This machine is no public host, by whatever name.
    egress.allow(&NetworkPolicy::of(Some(NetworkMode::Public), &[]).unwrap());
    assert_eq!(egress.environment()["HTTPS_PROXY"], format!("http://127.0.0.1:{PORT}"));
    for target in [
        near.to_string(),
        format!("localhost:{}", near.port()),
        "169.254.169.254:80".to_owned(),
    ] {
        let refused = ask(address, &tunnel(&target)).await;
        assert!(refused.starts_with("HTTP/1.1 403"), "{target}: {refused}");
    }
    let wrong = ask(address, "GET / HTTP/1.1\r\n\r\n").await;
    assert!(wrong.starts_with("HTTP/1.1 400"), "{wrong}");
    let asked: Vec<String> = egress.refused();
    assert_eq!(asked.len(), 4);
    assert_eq!(asked[0], "pypi.org:443");
}

/// An address of this machine that is not loopback, if it has one.
fn own_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[tokio::test]
async fn a_listed_address_is_reached_by_a_tunnel_and_plainly() {
    // Without a network there is nothing but loopback, which is never reached.
    let Some(own) = own_address() else { return };
    let server = tokio::net::TcpListener::bind((own, 0)).await.unwrap();
    let target = server.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = server.accept().await {
            let mut got = [0; 256];
            let n = stream.read(&mut got).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\ngot ").await.unwrap();
            stream.write_all(&got[..n]).await.unwrap();
        }
    });
    let (egress, address) = gateway();
    egress.allow(&NetworkPolicy::of(None, &[format!("{own}/32")]).unwrap());
    let plain = ask(address, &format!("GET http://{target}/x HTTP/1.1\r\n\r\n")).await;
    assert_eq!(
        plain,
        "HTTP/1.1 200 OK\r\n\r\ngot GET /x HTTP/1.1\r\nconnection: close\r\n\r\n"
    );
    let tunnel = ask(address, &format!("CONNECT {target} HTTP/1.1\r\n\r\nhello")).await;
    assert!(
        tunnel.starts_with("HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK"),
        "{tunnel}"
    );
    assert!(tunnel.ends_with("got hello"), "{tunnel}");
    assert!(egress.refused().is_empty());
}
