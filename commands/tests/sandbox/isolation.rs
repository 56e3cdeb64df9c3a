//! What is not there: the host's files, processes and network.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lego::sandbox::{Isolation, Network};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{both, shell};

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
    both(async |fixture| {
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

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_files_are_not_there() {
    both(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        let secret = fixture.folder().join("solution.sh");
        fs::write(&secret, "the answer").unwrap();
        let probe = format!("cat {}; cat {}/hello.txt; ls /home/* /work /root/.ssh /etc/shadow; echo x > /usr/x; echo x > /etc/x", secret.display(), fixture.source.display());
        let ran = sandbox.exec(shell(&probe)).await.unwrap();
        assert!(!ran.output.contains("the answer"), "{}", ran.output);
        assert!(!ran.output.contains("\nhello"), "{}", ran.output);
        assert_ne!(ran.exit_code, 0);
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
