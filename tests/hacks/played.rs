//! Plays trials: a task and the commands of its agent in, reward and flags out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lego::config::{Layers, Override, load};
use lego::pipeline::{CollectJob, PipelineEvent, PipelineObserver, StackOptions, collect};
use lego::rollout::RolloutEvent;
use lego::sandbox::Isolation;
use lego::sandbox::local::{LocalBackend, LocalOptions};
use lego::task::{IndexRow, TaskIndex};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::tasks::TaskFiles;

/// Where trials run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Namespaces of this machine.
    Namespaces,
    /// The fallback without them.
    Weak,
    /// Containers, where the tests are told of an engine's image with Python and git.
    Docker,
    /// Pods, where they are told of a cluster.
    Kubernetes,
}

/// Names that image.
const IMAGE: &str = "LEGO_TEST_IMAGE";

/// And the cluster's kubeconfig, which lies beside the socket of its node's containerd.
const CLUSTER: &str = "LEGO_TEST_CLUSTER";

/// The kubeconfig of a real cluster.
fn cluster() -> Option<PathBuf> {
    std::env::var(CLUSTER)
        .ok()
        .filter(|cluster| cluster != "fake")
        .map(PathBuf::from)
}

/// Whether a case is played in this run, of several places that share the cases among them. `tests/run --full`
/// (`LEGO_TEST_HACKS=all`) plays every case in every place.
pub(crate) fn is_due(case: usize, place: usize, places: usize) -> bool {
    std::env::var_os("LEGO_TEST_HACKS").is_some() || case % places == place
}

/// One trial to play.
pub(crate) struct Play {
    pub(crate) name: String,
    pub(crate) task: TaskFiles,
    /// What the agent runs, one call each.
    pub(crate) commands: Vec<String>,
    /// What it runs in a later step: a text of that step's instruction, and a command.
    pub(crate) later: Vec<(&'static str, &'static str)>,
}

impl Play {
    pub(crate) fn new(name: impl Into<String>, task: TaskFiles, commands: &[&str]) -> Self {
        Self {
            name: name.into(),
            task,
            commands: commands.iter().map(|command| (*command).to_owned()).collect(),
            later: Vec::new(),
        }
    }
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: String,
    pub(crate) reward: Option<f32>,
    /// Names of the flags.
    pub(crate) flags: Vec<String>,
    pub(crate) result: Value,
    /// Contents of the tool messages.
    pub(crate) said: String,
    /// The trial's folder.
    pub(crate) folder: PathBuf,
}

pub(crate) struct Played {
    pub(crate) ended: BTreeMap<String, Ended>,
    _folder: tempfile::TempDir,
}

fn init_exe() -> PathBuf {
    env!("CARGO_BIN_EXE_lego").into()
}

/// Whether trials can run there on this machine.
pub(crate) async fn is_possible(place: Place) -> bool {
    if place == Place::Docker {
        return std::env::var_os(IMAGE).is_some();
    }
    if place == Place::Kubernetes {
        return cluster().is_some();
    }
    let folder = tempfile::tempdir().unwrap();
    let backend = LocalBackend::new(LocalOptions::new(init_exe(), folder.path()));
    place == Place::Weak || backend.isolation().await.unwrap() == Isolation::Namespaces
}

/// Plays them all, several at a time.
pub(crate) async fn play(place: Place, plays: Vec<Play>, set: &[&str]) -> Played {
    let folder = written(place, &plays);
    if place == Place::Kubernetes {
        give_images(folder.path(), &plays);
    }
    let done = Box::pin(collect(job(place, folder.path(), set, Arc::new(|_| {})))).await;
    if matches!(place, Place::Docker | Place::Kubernetes) {
        forget_images(&plays);
    }
    done.unwrap();
    let ended = plays.iter().map(|play| {
        let trial = folder.path().join(format!("out/trials/step_0000/{}__00", play.name));
        (play.name.clone(), read(&trial))
    });
    Played {
        ended: ended.collect(),
        _folder: folder,
    }
}

/// How often each trial was started, and how often it was tried again.
type Counts = (BTreeMap<String, u32>, BTreeMap<String, u32>);

/// Plays one group. Nothing of its sandboxes is left.
pub(crate) async fn play_group(place: Place, play: Play, set: &[&str]) -> Counts {
    let folder = written(place, &[play]);
    let seen: Arc<Mutex<Counts>> = Arc::default();
    let watch = Arc::clone(&seen);
    let observer = move |event| {
        let mut seen = watch.lock().unwrap();
        match event {
            PipelineEvent::Rollout(RolloutEvent::Started { name, .. }) => *seen.0.entry(name).or_default() += 1,
            PipelineEvent::Rollout(RolloutEvent::Retried { name, .. }) => *seen.1.entry(name).or_default() += 1,
            _ => {}
        }
    };
    Box::pin(collect(job(place, folder.path(), set, Arc::new(observer))))
        .await
        .unwrap();
    assert_eq!(std::fs::read_dir(folder.path().join("sandboxes")).unwrap().count(), 0);
    seen.lock().unwrap().clone()
}

/// Tasks, index, recording and run.toml in a folder.
fn written(place: Place, plays: &[Play]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    // Without namespaces and as root, an unprivileged user works below it.
    open_to_all(folder.path());
    let mut rows = Vec::new();
    let mut turns = String::new();
    for play in plays {
        let task = folder.path().join("tasks").join(&play.name);
        play.task.write(&task);
        if matches!(place, Place::Docker | Place::Kubernetes) {
            let image = std::env::var(IMAGE).unwrap();
            let dockerfile = format!("FROM {image}\nCOPY files/ /app/\nWORKDIR /app\n");
            std::fs::write(task.join("environment/Dockerfile"), dockerfile).unwrap();
        }
        rows.push(IndexRow {
            instance_id: play.name.clone(),
            task_path: task.to_str().unwrap().to_owned(),
            data_source: "hacks".to_owned(),
            ..IndexRow::default()
        });
        let call = |command: &str| json!({"tool_calls": [{"name": "bash", "arguments": {"command": command}}]});
        let done = || json!({"content": "done"});
        let mut all: Vec<Value> = play.commands.iter().map(|command| call(command)).collect();
        all.push(done());
        let side = play.later.iter();
        let side: Vec<Value> = side
            .map(|(when, command)| json!({"when": when, "turns": [call(command), done()]}))
            .collect();
        turns += &format!("{}\n", json!({"instance_id": play.name, "turns": all, "side": side}));
    }
    TaskIndex::write(&folder.path().join("index.parquet"), &rows).unwrap();
    std::fs::write(folder.path().join("turns.jsonl"), turns).unwrap();
    let policy = folder.path().join("policy");
    wide_policy(&policy);
    let backend = match place {
        Place::Docker => "docker\"\n".to_owned(),
        Place::Kubernetes => format!(
            "kubernetes\"\nregistry = \"lego/\"\n[sandbox.kubernetes]\nkubeconfig = \"{}\"\n",
            cluster().unwrap().display()
        ),
        Place::Namespaces | Place::Weak => "local\"\n".to_owned(),
    };
    let config = format!(
        "[policy]\nmodel = \"{}\"\n[data]\ntrain = \"index.parquet\"\nmax_prompt_tokens = 65536\nmax_response_tokens = 32768\n\
         [engine]\nkind = \"replay\"\nrecording = \"turns.jsonl\"\n[rollout]\ngroup_size = 1\nmax_retries = 0\nmax_tokens = 16384\n\
         [scaffold]\nmax_turns = 8\nmax_consecutive_no_tool = 1\n[sandbox]\nconcurrency = 6\nbackend = \"{backend}",
        policy.display()
    );
    std::fs::write(folder.path().join("run.toml"), config).unwrap();
    folder
}

/// A cluster builds nothing: images of these tasks, built here and handed to its node, all at once since they share most.
fn give_images(folder: &Path, plays: &[Play]) {
    let names: Vec<String> = plays
        .iter()
        .map(|play| format!("lego/{}", play.name.to_lowercase()))
        .collect();
    for (play, name) in plays.iter().zip(&names) {
        let context = folder.join("tasks").join(&play.name).join("environment");
        let mut build = std::process::Command::new("docker");
        let built = build.args(["build", "-q", "-t", name]).arg(context).output().unwrap();
        assert!(built.status.success(), "{built:?}");
    }
    let socket = cluster().unwrap().with_file_name("containerd.sock");
    let mut saved = std::process::Command::new("docker")
        .arg("save")
        .args(&names)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let taken = std::process::Command::new("ctr")
        .arg("-a")
        .arg(socket)
        .args(["-n", "k8s.io", "images", "import", "-"])
        .stdin(saved.stdout.take().unwrap())
        .output()
        .unwrap();
    assert!(saved.wait().unwrap().success() && taken.status.success(), "{taken:?}");
}

/// What was built for these tasks.
fn forget_images(plays: &[Play]) {
    let names = plays.iter().map(|play| format!("lego/{}", play.name));
    let mut command = std::process::Command::new("docker");
    command.args(["images", "--format", "{{.Repository}}:{{.Tag}}"]);
    for name in names {
        command.args(["--filter", &format!("reference={name}")]);
    }
    let built = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let removed = std::process::Command::new("docker")
        .args(["rmi", "-f"])
        .args(built.lines())
        .output();
    assert!(removed.is_ok());
}

/// The quickstart's policy with a longer window: nothing of it is computed here.
fn wide_policy(folder: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart/policy");
    std::fs::create_dir(folder).unwrap();
    for entry in std::fs::read_dir(&from).unwrap() {
        let entry = entry.unwrap();
        let target = folder.join(entry.file_name());
        if entry.file_name() == "config.json" {
            let mut config: Value = serde_json::from_str(&std::fs::read_to_string(entry.path()).unwrap()).unwrap();
            config["max_position_embeddings"] = json!(65536);
            std::fs::write(target, config.to_string()).unwrap();
        } else {
            std::os::unix::fs::symlink(entry.path().canonicalize().unwrap(), target).unwrap();
        }
    }
}

fn job(place: Place, folder: &Path, set: &[&str], observer: PipelineObserver) -> CollectJob {
    let layers = Layers {
        overrides: set.iter().map(|value| Override::set(*value)).collect(),
        ..Layers::file(folder.join("run.toml"))
    };
    CollectJob {
        loaded: load(&layers).unwrap(),
        out: folder.join("out"),
        tasks: None,
        patches: None,
        max_failures: None,
        evaluate: false,
        check: None,
        stack: StackOptions {
            init_exe: init_exe(),
            scratch: folder.join("sandboxes"),
            force_weak: place == Place::Weak,
        },
        stop: CancellationToken::new(),
        observer,
    }
}

fn read(trial: &Path) -> Ended {
    let json = |name: &str| -> Value {
        let path = trial.join(name);
        serde_json::from_str(
            &std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        )
        .unwrap()
    };
    let result = json("result.json");
    let flags = result["hack_flags"].as_array().unwrap().iter();
    let trajectory = json("trajectory.json");
    let observed = trajectory["steps"].as_array().unwrap().iter().flat_map(|step| {
        let results = step["observation"]["results"].as_array().cloned().unwrap_or_default();
        results
            .into_iter()
            .map(|result| result["content"].as_str().unwrap_or_default().to_owned())
    });
    Ended {
        outcome: result["outcome"].as_str().unwrap().to_owned(),
        reward: result["reward"].as_f64().map(|reward| reward as f32),
        flags: flags
            .map(|flag| flag.as_str().unwrap().split(':').next().unwrap().to_owned())
            .collect(),
        said: observed.collect::<Vec<_>>().join("\n"),
        folder: trial.to_owned(),
        result,
    }
}

fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}
