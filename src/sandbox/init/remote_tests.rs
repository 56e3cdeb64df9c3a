//! Both ends over real sockets that break, with commands that really run; only the forks of an init are threads here.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream as StdStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use async_trait::async_trait;
use nix::poll::{PollTimeout, poll};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::super::folders::Place;
use super::super::listing;
use super::*;
use crate::sandbox::control::Control;
use crate::sandbox::control::container::{self, Says};
use crate::sandbox::control::remote::{Broken, Dial, Dialed, Remote as Bridge};
use crate::sandbox::{ExecRequest, Network, SandboxError, SandboxSpec};

/// An init whose forks are threads. Ends when its host says goodbye; gives how many commands it ran.
fn init(name: &str) -> JoinHandle<usize> {
    let mut host = Remote::listen(name).unwrap();
    std::thread::spawn(move || {
        let (mut children, mut ran): (Vec<(u64, Child)>, usize) = (Vec::new(), 0);
        loop {
            poll(&mut host.wanted(), PollTimeout::from(5u8)).unwrap();
            children.retain_mut(|(id, child)| match child.try_wait().unwrap() {
                None => true,
                Some(status) => {
                    let (id, code) = (*id, status.code().unwrap_or(137));
                    let exited = Reply::Exited {
                        id,
                        code,
                        timed_out: false,
                        out_of_memory: false,
                    };
                    host.reply(exited, Vec::new()).unwrap();
                    false
                }
            });
            let (request, extra) = match host.hear(&[]).unwrap() {
                None => continue,
                Some(Heard::Gone) => return ran,
                Some(Heard::Request(request, extra)) => (request, extra),
            };
            let done = |id| Reply::Done { id, count: 0 };
            let stream = extra.map(std::fs::File::from);
            let reply = match request {
                Request::Setup(setup) => {
                    let listen = |_| std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                    let doors: Vec<_> = setup.listen.iter().map(listen).collect();
                    for door in &doors {
                        door.set_nonblocking(true).unwrap();
                    }
                    let port = doors[1].local_addr().unwrap().port();
                    PORT.store(port.into(), Ordering::SeqCst);
                    host.reply(
                        Reply::Ready {
                            landlock: false,
                            open: None,
                        },
                        doors.into_iter().map(OwnedFd::from).collect(),
                    )
                    .unwrap();
                    continue;
                }
                Request::Exec { id, argv, .. } => {
                    ran += 1;
                    let (output, write) = std::io::pipe().unwrap();
                    let input = stream.map_or_else(Stdio::null, Stdio::from);
                    let mut command = Command::new(&argv[0]);
                    command
                        .args(&argv[1..])
                        .stdin(input)
                        .stderr(write.try_clone().unwrap())
                        .stdout(write);
                    children.push((id, command.spawn().unwrap()));
                    host.reply(Reply::Started { id }, vec![output.into()]).unwrap();
                    continue;
                }
                Request::Kill { id } => {
                    children
                        .iter_mut()
                        .filter(|child| child.0 == id)
                        .for_each(|child| child.1.kill().unwrap());
                    continue;
                }
                Request::Receive { id, base, path } => {
                    std::thread::spawn(move || Place { base, path }.receive(stream.unwrap().into()));
                    done(id)
                }
                Request::Send { id, base, path } => {
                    std::thread::spawn(move || Place { base, path }.send(stream.unwrap().into()));
                    done(id)
                }
                Request::List { id, path, .. } => {
                    std::thread::spawn(move || listing::write(&path, None, stream.unwrap().into()));
                    done(id)
                }
                Request::EndProcesses { id } | Request::ResetDir { id, .. } | Request::SendEntries { id, .. } => {
                    done(id)
                }
            };
            host.reply(reply, Vec::new()).unwrap();
        }
    })
}

/// Where the sandbox's proxy listens, in the one test that asks.
static PORT: AtomicUsize = AtomicUsize::new(0);

/// Streams that break after so many bytes in either direction; 0: never.
struct Breaking {
    name: String,
    after: usize,
    dialed: Arc<AtomicUsize>,
}

#[async_trait]
impl Dial for Breaking {
    async fn dial(&self) -> Result<Dialed, Broken> {
        let number = self.dialed.fetch_add(1, Ordering::SeqCst);
        let socket = StdStream::connect_addr(&SocketAddr::from_abstract_name(&self.name).unwrap());
        let socket = socket.map_err(|error| Broken::Again(error.to_string()))?;
        socket.set_nonblocking(true).unwrap();
        let (ours, far) = (UnixStream::from_std(socket).unwrap(), UnixStream::pair().unwrap());
        // Another length each time, so that every kind of frame is cut somewhere.
        let left = if self.after == 0 {
            u64::MAX
        } else {
            (self.after + number * 7919 % self.after) as u64
        };
        let (near, carrier) = far;
        let carrying = tokio::spawn(async move {
            let (read, mut write) = ours.into_split();
            let (carrier_read, mut carrier_write) = carrier.into_split();
            let mut out = carrier_read.take(left);
            let mut back = read.take(left);
            tokio::select! {
                _ = tokio::io::copy(&mut out, &mut write) => {}
                _ = tokio::io::copy(&mut back, &mut carrier_write) => {}
            }
        });
        let (input, output) = near.into_split();
        Ok(Dialed {
            input: Box::new(input),
            output: Box::new(output),
            _keep: Box::new(carrying),
        })
    }
}

fn name(of: &str) -> String {
    format!("lego-test-{of}-{}", std::process::id())
}

async fn enter(
    name: &str,
    after: usize,
    workdir: &std::path::Path,
    proxy: std::net::SocketAddr,
) -> (Control, Arc<AtomicUsize>) {
    let dialed = Arc::new(AtomicUsize::new(0));
    let dial = Breaking {
        name: name.to_owned(),
        after,
        dialed: Arc::clone(&dialed),
    };
    let bridge = Bridge::join(Arc::new(dial), 2).unwrap();
    let spec = SandboxSpec {
        workdir: Some(workdir.to_str().unwrap().to_owned()),
        network: Network::Proxy(proxy),
        ..SandboxSpec::probe(workdir.to_owned())
    };
    let entered = container::enter(bridge.link, Some(bridge.listeners), spec, &Says::default()).await;
    (entered.unwrap().control, dialed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_inside_never_notices_that_streams_break() {
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("work");
    std::fs::create_dir(&work).unwrap();
    // Echoes, after what it was told has ended.
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = proxy.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = proxy.accept().await {
            tokio::spawn(async move {
                let mut said = Vec::new();
                connection.read_to_end(&mut said).await.unwrap();
                connection.write_all(&said).await.unwrap();
            });
        }
    });
    let name = name("breaks");
    let ran = init(&name);
    let (control, dialed) = enter(&name, 150_000, &work, address).await;

    let counted = |script: &str| ExecRequest {
        output_limit: 4 << 20,
        ..ExecRequest::shell(script)
    };
    let all = (1..=40_000).fold(String::new(), |all, n| all + &n.to_string() + "\n");
    for code in 0..6 {
        let script = format!("seq 40000; echo x >>{}/once; exit {code}", work.display());
        let ended = control.exec(counted(&script)).await.unwrap();
        assert_eq!((ended.exit_code, ended.output == all), (code, true));
    }
    let once = std::fs::read_to_string(work.join("once")).unwrap();
    assert_eq!(once, "x\n".repeat(6), "a command ran again");
    let told = ExecRequest {
        stdin: Some(all.clone()),
        ..counted("cat; exit 3")
    };
    let ended = control.exec(told).await.unwrap();
    assert_eq!((ended.exit_code, ended.output == all), (3, true));

    // Files there and back, at the same time.
    let bytes: Vec<u8> = (0..2_000_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    std::fs::write(folder.path().join("file"), &bytes).unwrap();
    let inside = |name: &str| work.join(name).to_str().unwrap().to_owned();
    let up = async {
        control
            .upload(&folder.path().join("file"), &inside("up"))
            .await
            .unwrap();
        control
            .download_within(&inside("up"), &folder.path().join("back"), u64::MAX)
            .await
            .unwrap();
    };
    let same = async { assert_eq!(control.exec(counted("seq 40000")).await.unwrap().output, all) };
    tokio::join!(up, same);
    assert!(std::fs::read(folder.path().join("back")).unwrap() == bytes);
    let missing = control
        .download_within(&inside("none"), &folder.path().join("none"), u64::MAX)
        .await;
    assert!(matches!(missing, Err(SandboxError::NotFound { .. })), "{missing:?}");
    let listed = control.list(work.to_str().unwrap()).await.unwrap();
    assert_eq!(listed.keys().collect::<Vec<_>>(), ["once", "up"]);

    // A connection made inside, half closed by it.
    let port = PORT.load(Ordering::SeqCst) as u16;
    let said = bytes[..600_000].to_vec();
    let heard = tokio::task::spawn_blocking(move || {
        let mut connection = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        connection.write_all(&said).unwrap();
        connection.shutdown(std::net::Shutdown::Write).unwrap();
        let mut heard = Vec::new();
        connection.read_to_end(&mut heard).unwrap();
        heard == said
    });
    assert!(heard.await.unwrap());

    control.close();
    assert_eq!(ran.join().unwrap(), 8);
    assert!(
        dialed.load(Ordering::SeqCst) > 10,
        "the streams did not break: {dialed:?}"
    );
    assert!(matches!(
        control.exec(ExecRequest::shell("true")).await,
        Err(SandboxError::Gone(_))
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_who_lacks_the_key_is_heard() {
    let work = tempfile::tempdir().unwrap();
    let name = name("key");
    let ran = init(&name);
    let nowhere = "127.0.0.1:9".parse().unwrap();
    let (control, _) = enter(&name, 0, work.path(), nowhere).await;
    let connect = || {
        let stream = StdStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    };
    // One that does all as a host does, but for the key that it cannot have.
    let mut stranger = connect();
    let (hello, mut reliable) = (Hello::new().unwrap(), Reliable::new(Role::Host));
    stranger.write_all(&hello.public).unwrap();
    let mut theirs = [0; HELLO];
    stranger.read_exact(&mut theirs).unwrap();
    let mut out = Vec::new();
    let mut stream = reliable.meet(hello, theirs, &mut out).unwrap();
    stranger.write_all(&out).unwrap();
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer);
    stream.buffer = answer;
    assert!(
        reliable.greet(&mut stream).is_err(),
        "a stranger was answered as the host is"
    );
    // Many that say nothing, or nonsense: the host's stream and a new one of it still work.
    let mut crowd: Vec<StdStream> = (0..UNKNOWN * 2).map(|_| connect()).collect();
    for one in &mut crowd {
        let _ = one.write_all(&[7; 100]);
    }
    let ended = control.exec(ExecRequest::shell("echo heard")).await.unwrap();
    assert_eq!((ended.exit_code, ended.output.as_str()), (0, "heard\n"));
    control.close();
    assert_eq!(ran.join().unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_nobody_waits_for_ends_and_what_nobody_reads_is_not_taken() {
    let work = tempfile::tempdir().unwrap();
    let name = name("slow");
    let ran = init(&name);
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (control, _) = enter(&name, 0, work.path(), silent.local_addr().unwrap()).await;
    let port = PORT.load(Ordering::SeqCst) as u16;
    let written = tokio::task::spawn_blocking(move || {
        let mut connection = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        connection.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let piece = vec![0; 64 << 10];
        (0..2000).take_while(|_| connection.write_all(&piece).is_ok()).count()
    });
    // Sockets of this machine take some megabytes each before they are full.
    let written = written.await.unwrap();
    assert!(written < 400, "{written} pieces of 64 KiB were taken for nobody");
    let marker = work.path().join("written");
    let script = format!("head -c 50000000 /dev/zero; echo x >{}", marker.display());
    let dropped = control.exec(ExecRequest {
        env: BTreeMap::new(),
        ..ExecRequest::shell("exec sleep 1000")
    });
    assert!(tokio::time::timeout(Duration::from_millis(300), dropped).await.is_err());
    let ended = control
        .exec(ExecRequest {
            output_limit: 1000,
            ..ExecRequest::shell(script)
        })
        .await
        .unwrap();
    assert_eq!((ended.exit_code, ended.truncated), (0, 50_000_000 - 1000));
    assert!(marker.exists());
    control.close();
    // The thread ends only when its children have.
    assert_eq!(ran.join().unwrap(), 2);
}
