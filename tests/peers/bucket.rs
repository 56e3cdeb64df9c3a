//! A trainer and rollouters that share nothing but a bucket: the S3 API as moto's server speaks it, conditional puts included.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use lego::buffer::Ledger;

use super::process::Process;
use super::{peers, root, succeeds};

const PLACE: &str = "s3://runs/first/quickstart";
const TASKS: usize = 7;
const GROUP: usize = 4;

struct Store {
    port: u16,
    _server: Process,
}

impl Store {
    /// A server with one empty bucket.
    fn start(folder: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = std::fs::File::create(folder.join("s3.log")).unwrap();
        let server = Command::new(peers("pip/s3").join("bin/moto_server"))
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let store = Self {
            port,
            _server: Process(server.unwrap()),
        };
        let began = Instant::now();
        while !store.made_bucket() {
            assert!(
                began.elapsed() < Duration::from_mins(1),
                "{:?}",
                std::fs::read_to_string(folder.join("s3.log"))
            );
            std::thread::sleep(Duration::from_millis(200));
        }
        store
    }

    fn made_bucket(&self) -> bool {
        let made = TcpStream::connect(("127.0.0.1", self.port)).and_then(|mut stream| {
            write!(
                stream,
                "PUT /runs HTTP/1.0\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n"
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer.contains(" 200 "))
        });
        made.unwrap_or(false)
    }

    /// A command of `lego`, on a machine of its own as far as its files go.
    fn lego(&self, machine: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
        command
            .args(arguments)
            .current_dir(machine)
            .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port))
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "eu-central-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test");
        command
    }
}

struct Run {
    folder: tempfile::TempDir,
    store: Store,
}

impl Run {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let all = std::fs::read_to_string(root().join("examples/quickstart/train.jsonl")).unwrap();
        let some: Vec<&str> = all.lines().take(TASKS).collect();
        std::fs::write(folder.path().join("tasks.jsonl"), some.join("\n")).unwrap();
        let store = Store::start(folder.path());
        Self { folder, store }
    }

    fn machine(&self, name: &str) -> PathBuf {
        let machine = self.folder.path().join(name);
        std::fs::create_dir_all(&machine).unwrap();
        machine
    }

    fn start(&self, machine: &str, arguments: &[&str]) -> Process {
        let quickstart = root().join("examples/quickstart/run.toml");
        let (subcommand, more) = arguments.split_first().unwrap();
        let mut command = self.store.lego(&self.machine(machine), &[subcommand]);
        command.arg(quickstart).args(more);
        let tasks = format!("data.train={}", self.folder.path().join("tasks.jsonl").display());
        let group = format!("rollout.group_size={GROUP}");
        for value in [
            "run.dir=runs",
            "rollout.groups_per_step=2",
            "train.mini_batch=2",
            "data.epochs=1",
            "data.val=[]",
            "eval.before_train=false",
            "eval.every=0",
            "async.enabled=true",
            "async.staleness=2",
            &group,
            &tasks,
        ] {
            command.args(["--set", value]);
        }
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.path().join(format!("{machine}.log")));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.unwrap());
        Process(command.spawn().unwrap())
    }

    fn trainer(&self) -> Process {
        self.start("trainer", &["train", "--steps", "20", "--publish", PLACE])
    }

    fn rollouter(&self, name: &str) -> Process {
        self.start(name, &["rollout", "--follow", PLACE, "--name", name])
    }

    fn said(&self) -> String {
        let logs = ["trainer.log", "one.log", "two.log"];
        let texts = logs.map(|log| std::fs::read_to_string(self.folder.path().join(log)).unwrap_or_default());
        texts.join("----\n")
    }

    fn diagnose(&self, place: &str) -> Output {
        succeeds(&mut self.store.lego(
            &self.machine("trainer"),
            &["diagnose", "shards", place, "--format", "jsonl"],
        ))
    }
}

#[test]
fn a_bucket_is_all_that_a_trainer_and_its_rollouters_share() {
    let run = Run::new();
    let mut rollouters = [run.rollouter("one"), run.rollouter("two")];
    let mut trainer = run.trainer();
    // Until something has trained, then both sides lose a process.
    let ledger = run.machine("trainer").join("runs/quickstart/buffer.jsonl");
    let began = Instant::now();
    while Ledger::read_view(&ledger).map_or(0, |view| view.consumed().count()) == 0 {
        assert!(began.elapsed() < Duration::from_mins(4), "{}", run.said());
        std::thread::sleep(Duration::from_millis(100));
    }
    trainer.kill();
    rollouters[0].kill();
    rollouters[0] = run.rollouter("one");
    let status = run.trainer().ends();
    assert!(status.success(), "{status}\n{}", run.said());
    for rollouter in &mut rollouters {
        let status = rollouter.ends();
        assert!(status.success(), "{status}\n{}", run.said());
    }
    // By its name, and by the run that knows where its rows are.
    let episodes = TASKS * GROUP;
    let said = String::from_utf8(run.diagnose(PLACE).stderr).unwrap();
    assert!(said.contains(&format!("{episodes} episodes")), "{said}");
    let rows = String::from_utf8(run.diagnose("runs/quickstart").stdout).unwrap();
    assert_eq!(
        rows.trim(),
        format!(r#"{{"account":"episodes trained","episodes":{episodes}}}"#),
        "{}",
        run.said()
    );
    let quickstart = root().join("examples/quickstart/run.toml");
    let plan = succeeds(
        run.store
            .lego(&run.machine("trainer"), &["train", "--plan", "--format", "jsonl"])
            .arg(quickstart)
            .args(["--set", "run.dir=runs"]),
    );
    let settings = String::from_utf8(plan.stdout).unwrap();
    assert!(settings.lines().count() > 3, "{settings}");
}
