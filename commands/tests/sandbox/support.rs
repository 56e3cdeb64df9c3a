//! What the sandbox tests share: a backend in a folder of its own, in both kinds, and other processes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use lego::config::KubernetesSection;
use lego::sandbox::docker::{DockerBackend, DockerOptions};
use lego::sandbox::kubernetes::{KubernetesBackend, KubernetesOptions};
use lego::sandbox::local::{LocalBackend, LocalOptions};
use lego::sandbox::{Backend, ExecRequest, Image, Isolation, Limits, Network, Sandbox, SandboxSpec};
use tempfile::TempDir;

use crate::fake::Fake;

const NOBODY: u32 = 65534;

/// A backend, a source folder, and what they need.
#[derive(Clone)]
pub(crate) struct Fixture {
    folder: Arc<TempDir>,
    pub(crate) source: PathBuf,
    pub(crate) backend: Arc<Backend>,
    root: PathBuf,
    kind: Kind,
    /// Held for as long as its pods are.
    fake: Option<Arc<Fake>>,
}

/// What a fixture's sandboxes are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Namespaces,
    Weak,
    Docker,
    Kubernetes,
}

/// Names an image with a shell and Python in the engine's store: the tests run in containers too.
const IMAGE: &str = "LEGO_TEST_IMAGE";

/// Names the kubeconfig of a cluster, or is `fake` for the server of ours that makes pods of containers: the tests run in
/// pods too.
const CLUSTER: &str = "LEGO_TEST_CLUSTER";

/// An image of the files that the tests expect, in both.
const FILES: &str = "lego-test/sandbox:files";

fn init_exe() -> PathBuf {
    std::env::var_os("LEGO_TEST_INIT").map_or_else(|| env!("CARGO_BIN_EXE_lego").into(), PathBuf::from)
}

impl Fixture {
    pub(crate) fn with(change: impl FnOnce(&mut LocalOptions)) -> Self {
        let (folder, source, root) = Self::folders();
        let mut options = LocalOptions::new(init_exe(), &root);
        change(&mut options);
        let kind = if options.force_weak {
            Kind::Weak
        } else {
            Kind::Namespaces
        };
        let backend = Arc::new(Backend::Local(LocalBackend::new(options)));
        Self {
            folder,
            source,
            backend,
            root,
            kind,
            fake: None,
        }
    }

    /// `None` where the tests are not told of an engine.
    pub(crate) fn docker(change: impl FnOnce(&mut DockerOptions)) -> Option<Self> {
        let image = std::env::var(IMAGE).ok()?;
        let (folder, source, root) = Self::folders();
        fs::write(
            folder.path().join("context/Dockerfile"),
            format!("FROM {image}\nCOPY task /app\n"),
        )
        .unwrap();
        let mut options = DockerOptions::new(init_exe(), &root);
        change(&mut options);
        Some(Self {
            folder,
            source,
            backend: Arc::new(Backend::Docker(Box::new(DockerBackend::new(options)))),
            root,
            kind: Kind::Docker,
            fake: None,
        })
    }

    /// `None` where the tests are not told of a cluster.
    pub(crate) fn kubernetes(change: impl FnOnce(&mut KubernetesOptions)) -> Option<Self> {
        let cluster = std::env::var(CLUSTER).ok()?;
        let (folder, source, root) = Self::folders();
        let mut options = KubernetesOptions::new(init_exe(), &KubernetesSection::default());
        let fake = (cluster == "fake").then(|| {
            let dockerfile = format!("FROM {}\nCOPY task /app\n", std::env::var(IMAGE).unwrap());
            let context = folder.path().join("context");
            fs::write(context.join("Dockerfile"), dockerfile).unwrap();
            let built = Command::new("docker")
                .args(["build", "-q", "-t", FILES])
                .arg(context)
                .output()
                .unwrap();
            assert!(built.status.success(), "{built:?}");
            Arc::new(Fake::start(folder.path()))
        });
        options.cluster.kubeconfig = Some(
            fake.as_ref()
                .map_or_else(|| cluster.into(), |fake| fake.kubeconfig.clone()),
        );
        change(&mut options);
        Some(Self {
            folder,
            source,
            backend: Arc::new(Backend::Kubernetes(Box::new(KubernetesBackend::new(options)))),
            root,
            kind: Kind::Kubernetes,
            fake,
        })
    }

    /// A folder of its own, a task's files in it, and where sandboxes go.
    fn folders() -> (Arc<TempDir>, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let source = folder.path().join("context/task");
        fs::create_dir_all(source.join("sub")).unwrap();
        fs::write(source.join("hello.txt"), "hello\n").unwrap();
        fs::write(source.join("sub/deep"), "deep\n").unwrap();
        fs::write(source.join("run.sh"), "#!/bin/sh\necho ran\n").unwrap();
        fs::set_permissions(source.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        let root = folder.path().join("sandboxes");
        (Arc::new(folder), source, root)
    }

    /// In the process that `spawn_owner` started.
    pub(crate) fn from_parent() -> Option<Self> {
        let root = std::env::var_os("LEGO_TEST_ROOT")?;
        let kind = std::env::var("LEGO_TEST_KIND").unwrap();
        if kind == format!("{:?}", Kind::Docker) {
            return Self::docker(|options| options.root = root.into());
        }
        if kind == format!("{:?}", Kind::Kubernetes) {
            return Self::kubernetes(|_| {});
        }
        Some(Self::with(|options| {
            options.root = root.into();
            options.force_weak = kind == format!("{:?}", Kind::Weak);
        }))
    }

    pub(crate) fn spawn_owner(&self, test: &str, marker: &str) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", test])
            .env("LEGO_TEST_ROOT", &self.root)
            .env("LEGO_TEST_KIND", format!("{:?}", self.kind))
            .env("LEGO_TEST_MARKER", marker);
        command
            .env("LEGO_TEST_INIT", init_exe())
            .env("TMPDIR", self.folder.path())
            // Of its own, so that a signal to it spares the tests.
            .process_group(0);
        command.spawn().unwrap()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn spec(&self) -> SandboxSpec {
        SandboxSpec {
            source: self.source.clone(),
            image: match self.kind {
                Kind::Docker => Some(Image::Build {
                    context: self.folder().join("context"),
                    name: "lego-test/sandbox".to_owned(),
                    timeout: Duration::from_mins(5),
                    mirror: BTreeMap::new(),
                }),
                Kind::Kubernetes => Some(Image::Named(FILES.to_owned())),
                Kind::Namespaces | Kind::Weak => None,
            },
            workdir: Some("/app".to_owned()),
            env: BTreeMap::new(),
            limits: Limits::default(),
            network: Network::None,
            name: "trial".to_owned(),
            labels: BTreeMap::from([("run".to_owned(), "test".to_owned())]),
            lifetime: Duration::from_mins(5),
        }
    }

    pub(crate) async fn create(&self, spec: SandboxSpec) -> Arc<dyn Sandbox> {
        self.backend.create(spec).await.unwrap()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// How many sandboxes have a folder, or are pods; a container's goes after the container.
    pub(crate) fn left(&self) -> usize {
        if let Some(fake) = &self.fake {
            return fake.names("pods").len();
        }
        fs::read_dir(&self.root).map_or(0, Iterator::count)
    }

    pub(crate) fn assert_nothing_left(&self) {
        assert_eq!(self.left(), 0, "folders were left in {}", self.root.display());
    }
}

/// Runs a test in namespaces (where this machine allows them), in the fallback, and in containers (where the tests are
/// told of an engine).
pub(crate) async fn each(test: impl AsyncFn(Fixture)) {
    let fixture = Fixture::with(|_| {});
    if fixture.backend.isolation().await.unwrap() == Isolation::Namespaces {
        test(fixture).await;
    }
    let fixture = Fixture::with(|options| options.force_weak = true);
    assert!(matches!(fixture.backend.isolation().await.unwrap(), Isolation::Weak(_)));
    test(fixture).await;
    if let Some(fixture) = Fixture::docker(|_| {}) {
        test(fixture).await;
    }
    if let Some(fixture) = Fixture::kubernetes(|_| {}) {
        test(fixture).await;
    }
}

#[expect(clippy::print_stderr, reason = "figures for people, shown with --nocapture")]
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

pub(crate) fn shell(script: &str) -> ExecRequest {
    ExecRequest::shell(script)
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// How many processes of this machine have `marker` as an argument.
pub(crate) fn processes_of(marker: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| {
            line.starts_with(b"sleep\0") && line.split(|byte| *byte == 0).any(|word| word == marker.as_bytes())
        })
        .count()
}

/// As root: this test program once more, as a user without any rights, from a folder that it can read.
pub(crate) fn again_as_nobody() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let copy = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        to
    };
    let (tests, init) = (
        copy(&std::env::current_exe().unwrap(), "tests"),
        copy(&init_exe(), "lego"),
    );
    let done = Command::new(tests)
        .args(["--skip", "all_of_it_as_an_unprivileged_user", "--test-threads", "4"])
        .env("LEGO_TEST_INIT", init)
        .env("TMPDIR", folder.path())
        // Who may use an engine is root there.
        .env_remove(IMAGE)
        .env_remove(CLUSTER)
        .current_dir(folder.path())
        .gid(NOBODY)
        .uid(NOBODY)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}");
    assert!(text.contains("test result: ok"), "{text}");
}
