//! `lego balance` before servers in processes of their own, which are stopped and killed.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::quickstart;
use super::serving::{Http, Server};

fn lego(arguments: &[&str]) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
    Server::start(command.args(arguments).stdin(Stdio::null()))
}

fn engine(listen: &str) -> Server {
    let toml = quickstart();
    lego(&["serve-proxy", toml.to_str().unwrap(), "--anonymous", "--listen", listen])
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// One turn of a session; the address of the replica that answered it.
fn turn(url: &str, session: &str) -> Result<String, String> {
    let body = json!({ "messages": [{ "role": "user", "content": "ls" }], "max_tokens": 4 });
    let answer = Http::to(url).post(&format!("/sess/{session}/v1/chat/completions"), &body);
    match answer.status {
        200 => Ok(answer.header("x-lego-replica").unwrap()),
        status => Err(format!("{status}: {}", answer.body)),
    }
}

fn replicas(url: &str) -> Vec<Value> {
    let mut status = Command::new(env!("CARGO_BIN_EXE_lego"));
    let output = status
        .args(["balance", "--status", url, "--format", "json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn until(url: &str, replica: &str, state: &str) {
    let began = Instant::now();
    loop {
        let rows = replicas(url);
        let row = rows.iter().find(|row| row["replica"] == replica).unwrap();
        if row["state"] == state {
            return;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "never {state}: {row}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn recorded_sessions_are_a_load_to_simulate() {
    let runs = tempfile::tempdir().unwrap();
    let (toml, shards) = (quickstart(), runs.path().join("shards"));
    let ids = runs.path().join("ids.txt");
    std::fs::write(&ids, "train-00000\ntrain-00001\n").unwrap();
    let arguments = [
        "rollout",
        toml.to_str().unwrap(),
        "-o",
        shards.to_str().unwrap(),
        "--tasks",
        ids.to_str().unwrap(),
    ];
    super::succeeded(&super::lego(&arguments, runs.path(), &[]));
    let simulate = |place: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
        command.args([
            "balance",
            "--simulate",
            "moe30b",
            "--batch",
            "8",
            "--policy",
            "sticky,lease",
        ]);
        command
            .args(["--format", "json", "--shards"])
            .arg(place)
            .output()
            .unwrap()
    };
    let output = simulate(&shards);
    super::succeeded(&output);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("8 sessions that begin with the same"), "{said}");
    let reports: Value = serde_json::from_slice(&output.stdout).unwrap();
    // What was sampled is sampled again, whatever the policy.
    let rows = lego::shard::ShardReader::open(&[&shards])
        .unwrap()
        .rows_local()
        .unwrap();
    let sampled: usize = rows
        .iter()
        .flat_map(|row| row.response_mask.iter().flatten())
        .filter(|&&sampled| sampled == 1)
        .count();
    for report in reports.as_array().unwrap() {
        let played = report["output_tokens_per_s"].as_f64().unwrap() * report["makespan_s"].as_f64().unwrap();
        assert!(
            (played - sampled as f64).abs() < 1e-3 * sampled as f64,
            "{sampled}: {report}"
        );
    }
    let empty = runs.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let output = simulate(&empty);
    assert_eq!(
        output.status.code(),
        Some(2),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn what_is_stopped_or_killed_is_answered_for_by_the_other() {
    let engines = [engine("127.0.0.1:0"), engine("127.0.0.1:0")];
    let [one, other] = [&engines[0], &engines[1]].map(|engine| engine.url.clone());
    let balance = lego(&[
        "balance",
        "--replica",
        &one,
        "--replica",
        &other,
        "--keep-path",
        "--tell-reason",
    ]);
    let url = balance.url.as_str();
    until(url, &one, "healthy");
    until(url, &other, "healthy");
    let home = turn(url, "s").unwrap();
    assert_eq!(turn(url, "s"), Ok(home.clone()));
    assert_ne!(turn(url, "t"), Ok(home.clone()));
    // A process that was stopped accepts and never answers.
    let stopped = engines.iter().find(|engine| engine.url == home).unwrap().pid();
    signal(stopped, "-STOP");
    let began = Instant::now();
    let moved = turn(url, "s").unwrap();
    let took = began.elapsed();
    signal(stopped, "-CONT");
    assert_ne!(moved, home);
    // 3 s, on a machine that has nothing else to do.
    assert!(took < Duration::from_secs(15), "rerouted after {took:?}");
    until(url, &home, "healthy");
    assert_eq!(turn(url, "s"), Ok(moved.clone()), "nothing moves back");
    // Killed under load: whoever had no byte of an answer gets one all the same.
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let [first, second] = engines;
    let (dies, lives) = if first.url == moved {
        (first, second)
    } else {
        (second, first)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6)
            .map(|worker| {
                let (over, answered) = (&over, &answered);
                scope.spawn(move || {
                    let mut failures = Vec::new();
                    for index in 0.. {
                        if over.load(Ordering::SeqCst) {
                            break;
                        }
                        match turn(url, &format!("w{worker}-{}", index / 3)) {
                            Ok(_) => _ = answered.fetch_add(1, Ordering::SeqCst),
                            Err(failure) => failures.push(failure),
                        }
                    }
                    failures
                })
            })
            .collect();
        let reaches = |count: usize| {
            let began = Instant::now();
            while answered.load(Ordering::SeqCst) < count && began.elapsed() < Duration::from_mins(1) {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        reaches(10);
        dies.kill();
        reaches(answered.load(Ordering::SeqCst) + 20);
        over.store(true, Ordering::SeqCst);
        let failures: Vec<String> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        assert_eq!(failures, Vec::<String>::new());
    });
    assert!(answered.load(Ordering::SeqCst) >= 30);
    until(url, &moved, "out");
    assert_eq!(turn(url, "s"), Ok(lives.url.clone()));
    // Started anew at its address, with nothing in its cache, it is given sessions again.
    let address = moved.strip_prefix("http://").unwrap();
    let again = engine(address);
    until(url, &moved, "healthy");
    assert_eq!(turn(url, "s"), Ok(lives.url.clone()));
    let fresh: Vec<_> = (0..30).map(|index| turn(url, &format!("n{index}")).unwrap()).collect();
    assert!(fresh.contains(&again.url));
    let (code, said) = balance.ends();
    assert_eq!(code, Some(0), "{said}");
}
