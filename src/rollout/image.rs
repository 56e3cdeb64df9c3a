//! What a task's sandbox starts from, and whether the backend can give the task what it asks for.

use std::path::PathBuf;

use crate::config::{BackendName, SandboxSection};
use crate::sandbox::{Image, mirrored};
use crate::task::{Stage, Task, TestsImage};

const COMPOSE: [&str; 4] = [
    "docker-compose.yaml",
    "docker-compose.yml",
    "compose.yaml",
    "compose.yml",
];

/// Why the backend cannot run this task, if it cannot: said before anything starts, and by the trial itself.
pub fn unfit(task: &Task, stages: &[Stage], section: &SandboxSection) -> Option<String> {
    let folder = task.dir.display();
    if section.backend != BackendName::Harbor && task.config.environment.gpus.is_some_and(|gpus| gpus > 0) {
        return Some(format!("{folder} asks for a GPU: no backend gives one to a task yet"));
    }
    match section.backend {
        BackendName::Local if task.local_source().is_none() => Some(format!(
            "{folder} has no environment/files: the `local` backend starts from that folder; other images need `docker`"
        )),
        BackendName::Local if stages.iter().any(|stage| stage.tests_image.is_some()) => Some(format!(
            "the tests of {folder} have an image of their own: the `local` backend has no images; they need `docker`"
        )),
        BackendName::Local => {
            let users = stages
                .iter()
                .flat_map(|stage| [&stage.agent_user, &stage.verifier_user]);
            let other = users.flatten().find(|user| !matches!(user.as_str(), "root" | "0"))?;
            Some(format!(
                "{folder} asks for the user `{other}`: the `local` backend has one user; several need `docker`"
            ))
        }
        BackendName::Docker | BackendName::Kubernetes
            if COMPOSE
                .iter()
                .any(|file| task.dir.join("environment").join(file).is_file()) =>
        {
            Some(format!(
                "{folder} is an environment of several containers: compose files are not supported yet"
            ))
        }
        BackendName::Docker if image_of(task, section).is_none() => Some(format!(
            "{folder} has no image: set `environment.docker_image` in its task.toml, configure `sandbox.registry`, or give it \
             an environment/Dockerfile"
        )),
        BackendName::Kubernetes if !matches!(image_of(task, section), Some(Image::Named(_))) => Some(format!(
            "{folder} has no image that a cluster could pull: set `environment.docker_image` in its task.toml, or have \
             `lego prepare --stage build --push REGISTRY` push what its Dockerfile builds"
        )),
        BackendName::Kubernetes
            if stages
                .iter()
                .any(|stage| matches!(stage.tests_image, Some(TestsImage::Built(_)))) =>
        {
            Some(format!(
                "the tests of {folder} have an image that is built from a Dockerfile: the `kubernetes` backend builds none"
            ))
        }
        BackendName::Docker | BackendName::Kubernetes | BackendName::Harbor => None,
    }
}

/// The task's own `docker_image`; else, where a registry is configured, [`name_in`] it; else, in a cluster, what the task's
/// index says; else what its `environment/Dockerfile` builds; else `None`.
///
/// Where the index pins an image of that name, its digest goes with it. `sandbox.mirror` replaces the beginning of a name
/// that is pulled, the longest that fits.
pub fn image_of(task: &Task, section: &SandboxSection) -> Option<Image> {
    let named = |name: &str| Image::Named(mirrored(name, &section.mirror));
    let pins = |name: &str| task.pinned.as_deref().filter(|pin| pin.split('@').next() == Some(name));
    let registry = || section.registry.as_deref().map(|registry| name_in(registry, task));
    if let Some(name) = task.config.environment.docker_image.clone().or_else(registry) {
        return Some(named(pins(&name).unwrap_or(&name)));
    }
    if let Some(pinned) = task
        .pinned
        .as_deref()
        .filter(|_| section.backend == BackendName::Kubernetes)
    {
        return Some(named(pinned));
    }
    let context = task.dir.join("environment");
    let name = format!("lego/{}", task.id.to_lowercase());
    context
        .join("Dockerfile")
        .is_file()
        .then(|| built(task, section, context, name))
}

/// All that trials of the task start from, each once: what the agent works in comes first.
pub fn images_of(task: &Task, section: &SandboxSection) -> Vec<Image> {
    let stages = task.stages().unwrap_or_default();
    let own = stages.iter().filter_map(|stage| stage.tests_image.as_ref());
    let tests = own.map(|own| image_of_tests(task, own, section));
    let mut images: Vec<Image> = Vec::new();
    for image in image_of(task, section).into_iter().chain(tests) {
        if !images.contains(&image) {
            images.push(image);
        }
    }
    images
}

/// The name, without a tag, by which a task's image is looked for in a registry: `<registry><task id, lower-cased>`.
pub fn name_in(registry: &str, task: &Task) -> String {
    format!("{registry}{}", task.id.to_lowercase())
}

/// What tests start from that have an image of their own.
pub(super) fn image_of_tests(task: &Task, own: &TestsImage, section: &SandboxSection) -> Image {
    match own {
        TestsImage::Named(name) => Image::Named(mirrored(name, &section.mirror)),
        TestsImage::Built(context) => {
            let name = format!("lego/{}-tests", task.id.to_lowercase());
            built(task, section, context.clone(), name)
        }
    }
}

fn built(task: &Task, section: &SandboxSection, context: PathBuf, name: String) -> Image {
    let timeout = section.timeouts.build.map_or_else(
        || task.build_timeout().mul_f64(section.timeout_multiplier),
        |limit| limit.0,
    );
    Image::Build {
        context,
        name,
        timeout,
        mirror: section.mirror.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    fn task(toml: &str, dockerfile: bool) -> (tempfile::TempDir, Task) {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("Fix__Me-1");
        for folder in ["tests", "environment"] {
            fs_err::create_dir_all(dir.join(folder)).unwrap();
        }
        fs_err::write(dir.join("instruction.md"), "Do.").unwrap();
        fs_err::write(dir.join("tests/test.sh"), "").unwrap();
        fs_err::write(dir.join("task.toml"), toml).unwrap();
        if dockerfile {
            fs_err::write(dir.join("environment/Dockerfile"), "FROM scratch\n").unwrap();
        }
        let task = Task::load(&dir).unwrap();
        (root, task)
    }

    #[test]
    fn the_tasks_own_image_comes_before_the_registry_and_that_before_a_build() {
        let mut section = SandboxSection::default();
        let (_root, plain) = task("", true);
        let (_own_root, own) = task("[environment]\ndocker_image = \"docker.io/library/python:3\"\n", true);
        let build = Image::Build {
            context: plain.dir.join("environment"),
            name: "lego/fix__me-1".to_owned(),
            timeout: Duration::from_mins(10),
            mirror: BTreeMap::new(),
        };
        assert_eq!(image_of(&plain, &section), Some(build));
        assert_eq!(image_of(&task("", false).1, &section), None);
        let stages = |task: &Task| task.stages().unwrap();
        section.backend = BackendName::Docker;
        assert_eq!(unfit(&plain, &stages(&plain), &section), None);
        let bare = task("", false).1;
        let said = unfit(&bare, &[], &section).unwrap();
        assert!(said.contains("has no image: set `environment.docker_image`"), "{said}");
        let (_root, gpu) = task("[environment]\ngpus = 1\n", true);
        assert!(unfit(&gpu, &[], &section).unwrap().contains("asks for a GPU"));
        let (root, several) = task("", true);
        fs_err::write(root.path().join("Fix__Me-1/environment/compose.yaml"), "").unwrap();
        assert!(unfit(&several, &[], &section).unwrap().contains("several containers"));
        section.backend = BackendName::Local;
        let said = unfit(&plain, &stages(&plain), &section).unwrap();
        assert!(said.contains("has no environment/files"), "{said}");
        let (root, _) = task("[verifier]\nuser = \"grader\"\n", false);
        fs_err::create_dir_all(root.path().join("Fix__Me-1/environment/files")).unwrap();
        let asks = Task::load(&root.path().join("Fix__Me-1")).unwrap();
        let said = unfit(&asks, &stages(&asks), &section).unwrap();
        assert!(said.contains("asks for the user `grader`"), "{said}");
        section.registry = Some("reg:5000/swe/".to_owned());
        let named = |name: &str| Some(Image::Named(name.to_owned()));
        assert_eq!(image_of(&plain, &section), named("reg:5000/swe/fix__me-1"));
        assert_eq!(image_of(&own, &section), named("docker.io/library/python:3"));
        let pinned = |name: &str| {
            let mut task = plain.clone();
            task.pinned = Some(format!("{name}@sha256:1"));
            task
        };
        let pushed = pinned("reg:5000/swe/fix__me-1");
        assert_eq!(image_of(&pushed, &section), named("reg:5000/swe/fix__me-1@sha256:1"));
        // Another registry's digest says nothing of this one's.
        let elsewhere = pinned("other/fix__me-1");
        assert_eq!(image_of(&elsewhere, &section), named("reg:5000/swe/fix__me-1"));
        let cluster = SandboxSection {
            backend: BackendName::Kubernetes,
            ..SandboxSection::default()
        };
        assert_eq!(image_of(&elsewhere, &cluster), named("other/fix__me-1@sha256:1"));
        assert_eq!(unfit(&elsewhere, &[], &cluster), None);
        assert!(unfit(&plain, &[], &cluster).unwrap().contains("--stage build --push"));
        let local = SandboxSection {
            backend: BackendName::Docker,
            ..SandboxSection::default()
        };
        assert!(matches!(image_of(&elsewhere, &local), Some(Image::Build { .. })));
        for (from, to) in [
            ("docker.io/", "mirror/"),
            ("docker.io/library/", "near/lib-"),
            ("quay.io/", "no/"),
        ] {
            section.mirror.insert(from.to_owned(), to.to_owned());
        }
        assert_eq!(image_of(&own, &section), named("near/lib-python:3"));
        assert_eq!(image_of(&plain, &section), named("reg:5000/swe/fix__me-1"));
    }

    #[test]
    fn tests_with_an_image_of_their_own_need_that_one_too() {
        let section = SandboxSection::default();
        let toml = "[verifier.environment]\ndocker_image = \"grader:1\"\n";
        let (_root, graded) = task(toml, true);
        let names: Vec<String> = images_of(&graded, &section)
            .into_iter()
            .map(|image| match image {
                Image::Named(name) | Image::Build { name, .. } => name,
            })
            .collect();
        assert_eq!(names, ["lego/fix__me-1", "grader:1"]);
        let (_same_root, same) = task(&format!("[environment]\ndocker_image = \"grader:1\"\n{toml}"), false);
        assert_eq!(images_of(&same, &section), [Image::Named("grader:1".to_owned())]);
    }
}
