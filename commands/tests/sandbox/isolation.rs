//! What is not there: the host's files, processes and network.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use lego::sandbox::{Isolation, Network};
use lego::task::{NetworkMode, NetworkPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Kind, each, shell};

#[tokio::test(flavor = "multi_thread")]
async fn only_the_proxy_is_reached() {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let proxy = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nthe proxy").await;
        }
    });
    let other = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let forbidden = other.local_addr().unwrap();
    each(async |fixture| {
        let mut spec = fixture.spec();
        spec.network = Network::Proxy(proxy);
        let sandbox = fixture.create(spec).await;
        let inside: SocketAddr = sandbox
            .proxy_url()
            .unwrap()
            .trim_start_matches("http://")
            .parse()
            .unwrap();
        let get = |address: SocketAddr| {
            let mut request = shell(&format!(
                "exec 3<>/dev/tcp/{}/{} && echo GET / >&3 && cat <&3",
                address.ip(),
                address.port()
            ));
            request.argv[0] = "bash".to_owned();
            request.timeout = Duration::from_secs(5);
            request
        };
        let ran = sandbox.exec(get(inside)).await.unwrap();
        assert!(ran.output.ends_with("the proxy"), "{}", ran.output);
        for address in [forbidden, "192.0.2.1:80".parse().unwrap()] {
            let ran = sandbox.exec(get(address)).await.unwrap();
            assert_ne!(ran.exit_code, 0, "{address} was reached: {}", ran.output);
        }
        let sandbox = fixture.create(fixture.spec()).await;
        assert_eq!(sandbox.proxy_url(), None);
        assert_ne!(sandbox.exec(get(proxy)).await.unwrap().exit_code, 0);
    })
    .await;
}

/// An address of this machine that is not loopback.
fn own_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback() && !address.is_unspecified())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_phase_reaches_what_it_may_and_nothing_else() {
    // A machine without any network has nothing that could be reached.
    let Some(own) = own_address() else { return };
    let listener = tokio::net::TcpListener::bind((own, 0)).await.unwrap();
    let target = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nreached").await;
        }
    });
    each(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        // As programs do (by the proxy of their environment), past it, and through the gateway whatever it says.
        let by_proxy = format!(
            "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://{target}/\", timeout=5).read())'"
        );
        let directly = format!("env -u http_proxy -u HTTP_PROXY {by_proxy}");
        let forced = format!("http_proxy=http://127.0.0.1:3128 {by_proxy}");
        let reached = async |script: &str| sandbox.exec(shell(script)).await.unwrap().output.contains("b'reached'");
        let policy = |mode, hosts: &[String]| NetworkPolicy::of(Some(mode), hosts).unwrap();
        let closed = policy(NetworkMode::NoNetwork, &[]);
        let listed = policy(NetworkMode::Allowlist, &[format!("{own}/32")]);
        let other = policy(NetworkMode::Allowlist, &["example.com".to_owned()]);
        let public = policy(NetworkMode::Public, &[]);
        let none = [false, false, false];
        let (through, all) = match fixture.kind() {
            Kind::Weak => (none, none),
            // A private address is no public host to the gateway.
            Kind::Namespaces => ([true, false, true], none),
            // With the engine's own network the gateway is closed.
            Kind::Docker | Kind::Kubernetes => ([true, false, true], [true, true, false]),
        };
        for (policy, expected) in [
            (None, none),
            (Some(&listed), through),
            (Some(&other), none),
            (Some(&public), all),
            (Some(&closed), none),
            (Some(&listed), through),
        ] {
            if let Some(policy) = policy {
                sandbox.set_network(policy).await.unwrap();
            }
            let found = [
                reached(&by_proxy).await,
                reached(&directly).await,
                reached(&forced).await,
            ];
            assert_eq!(found, expected, "{policy:?} {:?}", fixture.kind());
        }
        let refused = sandbox.refused_connections();
        assert!(
            fixture.kind() == Kind::Weak || refused.contains(&target.to_string()),
            "{refused:?}"
        );
        sandbox.destroy().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_files_are_not_there() {
    each(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        let secret = fixture.folder().join("solution.sh");
        fs::write(&secret, "the answer").unwrap();
        let probe = format!("cat {}; cat {}/hello.txt; ls /home/* /work /root/.ssh /etc/shadow; echo x > /usr/x; echo x > /etc/x", secret.display(), fixture.source.display());
        let ran = sandbox.exec(shell(&probe)).await.unwrap();
        assert!(!ran.output.contains("the answer"), "{}", ran.output);
        assert!(!ran.output.contains("\nhello"), "{}", ran.output);
        // What an image holds is a container's own to write.
        assert!(ran.exit_code != 0 || sandbox.isolation() == Isolation::Container);
        if sandbox.isolation() == Isolation::Container {
            let denied = sandbox
                .exec(shell("mount -t tmpfs x /tmp; unshare -m true; echo x > /.lego/lego; kill -9 1; cat /proc/1/environ; \
                    ls /proc/1/fd; ls -A /tests /solution; ls /.lego/init.sock && python3 -c 'import socket; \
                    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(\"/.lego/init.sock\")'; \
                    python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"\\0lego-init\")'; \
                    python3 -c 'import ctypes; print(ctypes.CDLL(None).ptrace(16, 1, 0, 0), \"traced\")'; echo alive"))
                .await
                .unwrap();
            let refused = ["denied", "not permitted", "Read-only", "refused"].map(|word| denied.output.matches(word).count());
            assert!(denied.output.ends_with("alive\n") && refused.iter().sum::<usize>() >= 5, "{}", denied.output);
            assert!(denied.output.contains("-1 traced"), "{}", denied.output);
        }
        if sandbox.isolation() == Isolation::Namespaces {
            let ran = sandbox.exec(shell("ls /; echo $$; ls /proc | grep -c '^[0-9]'; hostname; ls -A /tests /solution")).await.unwrap();
            assert!(!ran.output.contains("home") && !ran.output.contains("opt"), "{}", ran.output);
            let denied = sandbox.exec(shell("mount -t tmpfs x /tmp; unshare -Ur true; echo 1 > /proc/sys/kernel/hostname; kill -9 1; cat /proc/1/environ; ls /proc/1/fd; echo alive")).await.unwrap();
            assert!(denied.output.ends_with("alive\n") && denied.output.matches("denied").count() + denied.output.matches("not permitted").count() + denied.output.matches("Read-only").count() >= 4, "{}", denied.output);
        }
        // Nothing of the host process's environment.
        let env = sandbox.exec(shell("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")).await.unwrap().output;
        assert!(!env.contains("CARGO"), "{env}");
    })
    .await;
}
