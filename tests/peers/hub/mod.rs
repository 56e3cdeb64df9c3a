//! Models by name, from a server with a hub's routes, in the cache of Hugging Face's own client.

mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;

use lego::hub::{HubError, HubEvent, HubSettings, ModelName, Need, Snapshot, fetch};
use lego_policy::Weights;
use server::{Asked, COMMIT, Fault, Hub};

use super::{peers, root, succeeds};

const MODEL: &str = "hf:lego/tiny";
const FILES: [&str; 4] = [
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
];

/// The quickstart's policy, and what a repository has beside a model.
fn files() -> BTreeMap<String, Vec<u8>> {
    let folder = root().join("examples/quickstart/policy");
    let of = |name: &&str| ((*name).to_owned(), std::fs::read(folder.join(name)).unwrap());
    let beside = [
        ("README.md".to_owned(), b"a card".to_vec()),
        ("onnx/model.onnx".to_owned(), vec![1; 99]),
    ];
    FILES.iter().map(of).chain(beside).collect()
}

fn settings(hub: &Hub, home: &Path) -> HubSettings {
    let (endpoint, home) = (hub.endpoint.clone(), home.display().to_string());
    HubSettings::from_variables(|name| match name {
        "HF_ENDPOINT" => Some(endpoint.clone()),
        "HF_HOME" => Some(home.clone()),
        _ => None,
    })
}

/// Fetches, and tells what happened on the way.
fn get(settings: &HubSettings, name: &str, need: Need) -> (Result<Snapshot, HubError>, Vec<HubEvent>) {
    let (name, told) = (name.parse::<ModelName>().unwrap(), Mutex::new(Vec::new()));
    let note = |event| told.lock().unwrap().push(event);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fetched = runtime.block_on(fetch(settings, &name, need, &note));
    (fetched, told.into_inner().unwrap())
}

fn refused(settings: &HubSettings, name: &str) -> String {
    get(settings, name, Need::Model).0.unwrap_err().to_string()
}

/// The binary on the quickstart with a model by name.
fn lego(arguments: &[&str], endpoint: &str, home: &Path, set: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
    command.args(arguments).arg(root().join("examples/quickstart/run.toml"));
    command
        .env("HF_ENDPOINT", endpoint)
        .env("HF_HOME", home)
        .env_remove("HF_TOKEN");
    for value in set {
        command.args(["--set", value]);
    }
    command.output().unwrap()
}

/// Python with Hugging Face's own client.
fn client(hub: &str, home: &Path, code: &str) -> String {
    let mut command = Command::new(peers("pip/hub").join("bin/python"));
    command
        .args(["-c", code])
        .env("HF_ENDPOINT", hub)
        .env("HF_HOME", home)
        .env_remove("HF_TOKEN");
    String::from_utf8(succeeds(&mut command).stdout)
        .unwrap()
        .trim()
        .to_owned()
}

/// What was asked for of the files that a policy needs, in any order.
fn routes(asked: &[Asked]) -> BTreeSet<(String, String)> {
    // Newer clients ask for a longer list too, and tell which program they run in.
    let others = [".md", ".onnx"];
    let wanted = asked.iter().filter(|asked| {
        !asked.path.contains("/tree/")
            && asked.path != "/api/agent-harnesses"
            && !others.iter().any(|ending| asked.path.ends_with(ending))
    });
    wanted.map(|asked| (asked.method.clone(), asked.path.clone())).collect()
}

#[test]
fn a_run_trains_a_model_by_its_name_and_the_hubs_own_client_finds_it_in_the_cache() {
    let (hub, home, runs) = (
        Hub::of(files()),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let dir = format!("run.dir={}", runs.path().display());
    let set = [
        "policy.model=hf:lego/tiny",
        &dir,
        "rollout.groups_per_step=1",
        "rollout.group_size=2",
        "train.mini_batch=1",
        "eval.before_train=false",
        "eval.every=0",
        "data.val=[]",
    ];
    let output = lego(&["preflight", "--static"], &hub.endpoint, home.path(), &set);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("hf:lego/tiny is not in the cache"), "{said}");
    assert_eq!(hub.asked(), [], "preflight asks nobody for a model");

    let output = lego(&["train", "--steps", "1"], &hub.endpoint, home.path(), &set);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = std::fs::read_to_string(runs.path().join("quickstart/run.toml")).unwrap();
    assert!(run.contains(&format!("model = \"{MODEL}@{COMMIT}\"")), "{run}");
    let asked = routes(&hub.asked());
    assert!(
        asked
            .iter()
            .all(|(_, path)| !path.contains("README") && !path.contains("onnx")),
        "{asked:?}"
    );
    // The next start asks what `main` is, and downloads nothing.
    let output = lego(&["train", "--steps", "2"], &hub.endpoint, home.path(), &set);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let again = hub.asked();
    assert_eq!(
        again.iter().map(|asked| asked.path.as_str()).collect::<Vec<_>>(),
        ["/api/models/lego/tiny/revision/main"]
    );
    let output = lego(
        &["preflight", "--static", "--only", "model-files"],
        &hub.endpoint,
        home.path(),
        &set,
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));

    let found = client(
        &hub.endpoint,
        home.path(),
        "import os; os.environ['HF_HUB_OFFLINE'] = '1'\n\
         from huggingface_hub import snapshot_download, try_to_load_from_cache\n\
         folder = snapshot_download('lego/tiny')\n\
         assert os.path.dirname(try_to_load_from_cache('lego/tiny', 'model.safetensors')) == folder\n\
         print(folder)",
    );
    assert_eq!(hub.asked(), []);
    let weights = Weights::load(Path::new(&found)).unwrap();
    let original = Weights::load(&root().join("examples/quickstart/policy")).unwrap();
    assert!(weights.iter().zip(original.iter()).all(|(a, b)| a == b));
}

#[test]
fn what_the_hubs_own_client_downloads_is_found_and_both_ask_for_the_same() {
    let (hub, theirs, ours) = (
        Hub::of(files()),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let code = format!(
        "from huggingface_hub import snapshot_download\n\
         print(snapshot_download('lego/tiny', allow_patterns={FILES:?}, max_workers=1))"
    );
    let folder = client(&hub.endpoint, theirs.path(), &code);
    let by_them = hub.asked();
    let (fetched, _) = get(&settings(&hub, ours.path()), MODEL, Need::Model);
    let own = fetched.unwrap().folder;
    // Content of large files is asked for at the hub, which signs anew where to; the other client keeps the first signature.
    let again = format!("/lego/tiny/resolve/{COMMIT}/model.safetensors");
    let mut expected = routes(&by_them);
    assert!(expected.insert(("GET".to_owned(), again)));
    assert_eq!(routes(&hub.asked()), expected);

    let offline = HubSettings {
        offline: true,
        ..settings(&hub, theirs.path())
    };
    let found = get(&offline, MODEL, Need::Model).0.unwrap();
    assert_eq!(
        (found.commit.as_str(), found.folder.as_path()),
        (COMMIT, Path::new(&folder))
    );
    assert_eq!(hub.asked(), []);
    // Both lay the cache out alike, to the names of the blobs.
    for file in FILES {
        let links = [&own, &found.folder].map(|folder| std::fs::read_link(folder.join(file)).unwrap());
        assert_eq!(links[0], links[1], "{file}");
    }
}

#[test]
fn a_broken_download_goes_on_where_it_was() {
    let (hub, home) = (Hub::of(files()), tempfile::tempdir().unwrap());
    hub.fails([
        Fault::Cut(1_000_000),
        Fault::Status(503),
        Fault::Cut(500_000),
        Fault::Whole,
    ]);
    let (fetched, told) = get(&settings(&hub, home.path()), MODEL, Need::Model);
    let folder = fetched.unwrap().folder;
    let original = &files()["model.safetensors"];
    assert!(std::fs::read(folder.join("model.safetensors")).unwrap() == *original);
    let ranges: Vec<Option<String>> = hub
        .asked()
        .into_iter()
        .filter(|asked| asked.far)
        .map(|asked| asked.range)
        .collect();
    let from = |at: usize| Some(format!("bytes={at}-"));
    assert_eq!(ranges, [None, from(1_000_000), from(1_000_000), from(1_500_000)]);
    let again = told.iter().filter(|event| matches!(event, HubEvent::Again { .. }));
    assert_eq!(again.count(), 3, "every try is told: {told:?}");
    let blobs = std::fs::read_dir(folder.join("../../blobs")).unwrap();
    let names: Vec<_> = blobs.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), FILES.len(), "nothing incomplete is left: {names:?}");
}

#[test]
fn other_bytes_than_the_hubs_are_refused_and_asked_for_again() {
    let (hub, home) = (Hub::of(files()), tempfile::tempdir().unwrap());
    let settings = settings(&hub, home.path());
    hub.fails([Fault::Wrong]);
    let error = refused(&settings, MODEL);
    assert!(
        error.contains("model.safetensors: expected SHA-256 ") && error.contains("try again"),
        "{error}"
    );
    let folder = get(&settings, MODEL, Need::Model).0.unwrap().folder;
    assert!(std::fs::read(folder.join("model.safetensors")).unwrap() == files()["model.safetensors"]);
}

#[test]
fn shards_are_those_that_the_index_names() {
    let mut files = files();
    let whole = files.remove("model.safetensors").unwrap();
    // One shard with everything, and one that the index does not name.
    let header = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&whole[8..8 + header]).unwrap();
    let names = header
        .as_object()
        .unwrap()
        .keys()
        .filter(|name| *name != "__metadata__");
    let shard = "model-00001-of-00001.safetensors";
    let map: BTreeMap<_, _> = names.map(|name| (name, shard)).collect();
    let index = serde_json::json!({ "metadata": {}, "weight_map": map }).to_string();
    files.insert("model.safetensors.index.json".to_owned(), index.into_bytes());
    files.insert(shard.to_owned(), whole);
    files.insert("consolidated.safetensors".to_owned(), vec![0; 60_000]);
    let (hub, home) = (Hub::of(files), tempfile::tempdir().unwrap());
    let settings = settings(&hub, home.path());
    let folder = get(&settings, MODEL, Need::Model).0.unwrap().folder;
    assert!(Weights::load(&folder).is_ok() && !folder.join("consolidated.safetensors").exists());
    // A cache that lacks a shard is not whole.
    std::fs::remove_file(folder.join(shard)).unwrap();
    let offline = HubSettings {
        offline: true,
        ..settings
    };
    let error = refused(&offline, MODEL);
    assert!(
        error.contains(&format!("{shard} is missing")) && error.contains("HF_HUB_OFFLINE"),
        "{error}"
    );
}

#[test]
fn a_token_is_shown_to_the_hub_alone() {
    let (hub, home) = (Hub::of(files()).private("of-a-test"), tempfile::tempdir().unwrap());
    let anonymous = settings(&hub, home.path());
    let error = refused(&anonymous, MODEL);
    assert!(error.contains("401") && error.contains("HF_TOKEN"), "{error}");
    hub.asked();
    let known = HubSettings {
        token: Some("of-a-test".to_owned()),
        ..anonymous
    };
    let (fetched, _) = get(&known, MODEL, Need::Model);
    fetched.unwrap();
    let asked = hub.asked();
    assert!(
        asked.iter().any(|asked| asked.far) && asked.iter().all(|asked| asked.with_token != asked.far),
        "{asked:?}"
    );
}

#[test]
fn why_a_model_cannot_be_had_is_said_with_what_to_do() {
    let (hub, home) = (Hub::of(files()), tempfile::tempdir().unwrap());
    let own = settings(&hub, home.path());
    for (name, words) in [
        ("hf:lego/none", ["404", "no such model"]),
        ("hf:lego/tiny@v9", ["404", "no such revision"]),
    ] {
        let error = refused(&own, name);
        assert!(
            error.contains(name) && words.iter().all(|word| error.contains(word)),
            "{error}"
        );
    }
    let error = refused(&settings(&Hub::of(files()).gated(), home.path()), MODEL);
    assert!(error.contains("403") && error.contains("terms"), "{error}");
    let mut torch = files();
    torch.remove("model.safetensors");
    torch.insert("pytorch_model.bin".to_owned(), vec![0; 9]);
    let error = refused(&settings(&Hub::of(torch.clone()), home.path()), MODEL);
    assert!(
        error.contains("no model.safetensors, only pytorch_model.bin"),
        "{error}"
    );
    torch.remove("config.json");
    let error = refused(&settings(&Hub::of(torch.clone()), home.path()), MODEL);
    assert!(error.contains("no config.json"), "{error}");
    // A tokenizer alone needs no weights.
    let alone = tempfile::tempdir().unwrap();
    assert!(
        get(&settings(&Hub::of(torch), alone.path()), MODEL, Need::Tokenizer)
            .0
            .is_ok()
    );

    let output = lego(&["train"], &hub.endpoint, home.path(), &["policy.model=hf:lego/none"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        (output.status.code(), said.contains("no such model")),
        (Some(2), true),
        "{said}"
    );
    let output = lego(&["train"], &hub.endpoint, home.path(), &["policy.model=hf:../tiny"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(2) && said.contains("expected `hf:org/name`"),
        "{said}"
    );
}

#[test]
fn without_a_hub_the_cache_serves_and_what_is_pinned_needs_none() {
    let (hub, home) = (Hub::of(files()), tempfile::tempdir().unwrap());
    let settings = settings(&hub, home.path());
    let folder = get(&settings, MODEL, Need::Model).0.unwrap().folder;
    hub.asked();
    let pinned = format!("{MODEL}@{COMMIT}");
    assert_eq!(get(&settings, &pinned, Need::Model).0.unwrap().folder, folder);
    assert_eq!(hub.asked(), [], "a commit that is here is always the same");
    hub.end();
    assert_eq!(get(&settings, &pinned, Need::Model).0.unwrap().folder, folder);
    let (fetched, told) = get(&settings, MODEL, Need::Model);
    assert_eq!(fetched.unwrap().folder, folder);
    assert!(
        matches!(told.last(), Some(HubEvent::FromCache { commit, .. }) if commit == COMMIT),
        "{told:?}"
    );

    let empty = tempfile::tempdir().unwrap();
    let output = lego(
        &["train"],
        &settings.endpoint,
        empty.path(),
        &["policy.model=hf:lego/tiny"],
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("cannot reach http://127.0.0.1:") && said.contains("HF_ENDPOINT"),
        "{said}"
    );
}
