//! Pods: on a server of ours that makes them of containers and fails on demand (`fake`), and, where `LEGO_TEST_CLUSTER`
//! names the kubeconfig of a real cluster that has the image `LEGO_TEST_IMAGE`, there too.

pub(crate) mod fake;
mod faults;
mod trials;

use std::path::PathBuf;
use std::sync::Arc;

use lego::config::KubernetesSection;
use lego::sandbox::kubernetes::{KubernetesBackend, KubernetesOptions};
use lego::sandbox::{ExecRequest, Image, Sandbox, SandboxSpec};

use fake::Fake;

/// An image with a shell and Python that pods can be made of.
fn image() -> Option<String> {
    std::env::var("LEGO_TEST_IMAGE").ok()
}

/// The kubeconfig of a real cluster.
fn cluster() -> Option<PathBuf> {
    std::env::var("LEGO_TEST_CLUSTER")
        .ok()
        .filter(|cluster| cluster != "fake")
        .map(PathBuf::from)
}

/// A server of ours and a backend that asks it.
struct Faked {
    fake: Fake,
    backend: KubernetesBackend,
    _folder: tempfile::TempDir,
}

impl Faked {
    fn new(change: impl FnOnce(&mut KubernetesOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fake = Fake::start(folder.path());
        let mut options = options(fake.kubeconfig.clone());
        change(&mut options);
        Self {
            fake,
            backend: KubernetesBackend::new(options),
            _folder: folder,
        }
    }

    async fn create(&self, image: &str) -> Arc<dyn Sandbox> {
        self.backend.create(spec(image)).await.unwrap()
    }
}

fn options(kubeconfig: PathBuf) -> KubernetesOptions {
    let mut options = KubernetesOptions::new(env!("CARGO_BIN_EXE_lego"), &KubernetesSection::default());
    options.cluster.kubeconfig = Some(kubeconfig);
    options
}

fn spec(image: &str) -> SandboxSpec {
    SandboxSpec {
        image: Some(Image::Named(image.to_owned())),
        lifetime: std::time::Duration::from_mins(10),
        ..SandboxSpec::probe(PathBuf::new())
    }
}

async fn says(sandbox: &dyn Sandbox, script: &str) -> String {
    sandbox.exec(ExecRequest::shell(script)).await.unwrap().output
}

/// Whatever happened to its streams.
async fn works_on_and_ends(sandbox: &dyn Sandbox) {
    assert_eq!(
        sandbox.end_processes().await.unwrap(),
        0,
        "the way in was counted as left running"
    );
    assert_eq!(says(sandbox, "echo still").await, "still\n");
    sandbox.destroy().await.unwrap();
}
