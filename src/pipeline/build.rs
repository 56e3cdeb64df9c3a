//! Images of tasks, made before a trial asks for them, and pushed to where a cluster finds them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use tokio_util::sync::CancellationToken;

use super::stack::docker;
use super::validate::end_of;
use super::{PipelineError, StackOptions};
use crate::config::{BackendName, Loaded, SandboxSection};
use crate::prepare::{
    PushedImage, Unbuilt, ValidationRow, note_build, read_pushed, read_validation, write_pushed, write_validation,
};
use crate::rollout::{image_of, images_of, name_in, unfit};
use crate::sandbox::docker::DockerBackend;
use crate::sandbox::{Image, SandboxError};
use crate::task::{IndexRow, Task};

/// Folder of what engines say while they build, below that of the tasks.
const LOGS: &str = ".build";
/// How much of what is known a kill costs at most.
const KEPT_EVERY: Duration = Duration::from_secs(5);

/// Tasks whose images are to be there.
pub struct BuildJob {
    /// Which engine, and how long a build may take.
    pub loaded: Loaded,
    /// Folder of the tasks, where what is found is kept.
    pub tasks: PathBuf,
    /// The tasks: with absolute paths and checksums.
    pub rows: Vec<IndexRow>,
    /// Tasks at a time.
    pub jobs: usize,
    /// The registry that what is built is pushed to, as `sandbox.registry` has it; a `/` is put behind it where it ends
    /// otherwise.
    pub push: Option<String>,
    /// What does not come from run.toml.
    pub stack: StackOptions,
    /// Fires when no more tasks are to begin.
    pub stop: CancellationToken,
    /// Who watches.
    pub observer: BuildObserver,
}

/// Is told of each task as it ends.
pub type BuildObserver = Arc<dyn Fn(&BuiltTask) + Send + Sync>;

/// What became of the images of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltTask {
    /// The task.
    pub instance_id: String,
    /// Its image: by digest where it was pushed, else by its name in the engine's store.
    pub image: Option<String>,
    /// Whether it lies in the registry.
    pub pushed: bool,
    /// How it came to be there.
    pub state: ImageState,
}

/// How an image came to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageState {
    /// It was pulled, built or pushed now.
    Made,
    /// It was there.
    There,
    /// It could not be made.
    Missing(Unbuilt),
}

/// What became of the tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildEnd {
    /// Those that were looked at, in the order of their ids.
    pub tasks: Vec<BuiltTask>,
    /// Whether it was asked to stop before all were.
    pub interrupted: bool,
}

/// Makes the image of every task be there: the one that its trials will ask for, under the same name. What cannot be made is
/// kept in validation.jsonl and invalid.jsonl; what was pushed, in images.jsonl.
///
/// # Errors
/// Where the engine does not answer or the registry does not take an image: what was done before is kept.
pub async fn build(job: BuildJob) -> Result<BuildEnd, PipelineError> {
    let config = &job.loaded.config;
    let registry = registry(job.push.as_deref(), &config.sandbox)?;
    let builder = Builder {
        engine: docker(config, &job.stack, job.tasks.join(LOGS)),
        section: SandboxSection {
            backend: BackendName::Docker,
            registry: config.sandbox.registry.clone().filter(|_| registry.is_none()),
            ..config.sandbox.clone()
        },
        registry,
        pushed: read_pushed(&job.tasks)?,
    };
    builder.engine.answers().await?;
    let builder = &builder;
    let mut kept = Kept {
        folder: job.tasks.clone(),
        known: read_validation(&job.tasks)?,
        pushed: builder.pushed.clone(),
        changed: (false, false),
        written: Instant::now(),
    };
    let mut end = BuildEnd::default();
    let tasks = stream::iter(&job.rows).take_until(job.stop.cancelled());
    let mut ended = pin!(
        tasks
            .map(|row| async move { (row, builder.task(row).await) })
            .buffer_unordered(job.jobs.max(1))
    );
    let mut failed = None;
    while let Some((row, result)) = ended.next().await {
        match result {
            Ok((task, pushed)) => {
                (job.observer)(&task);
                kept.note(row, &task, pushed)?;
                end.tasks.push(task);
            }
            // What another one has come to by now is found again.
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    kept.write()?;
    if let Some(error) = failed {
        return Err(error);
    }
    end.tasks.sort_by(|one, other| one.instance_id.cmp(&other.instance_id));
    end.interrupted = end.tasks.len() < job.rows.len();
    Ok(end)
}

/// The beginning of the names to push by, where there is anything to push.
fn registry(push: Option<&str>, section: &SandboxSection) -> Result<Option<String>, PipelineError> {
    if matches!(section.backend, BackendName::Local | BackendName::Harbor) {
        return Err(PipelineError::Config(
            "sandbox.backend: images are built for the backends `docker` and `kubernetes`; give `--backend docker`, or a \
             run config that names one of them"
                .to_owned(),
        ));
    }
    let Some(push) = push else { return Ok(None) };
    let wrong = push.contains("://")
        || push.contains('@')
        || push
            .chars()
            .any(|letter| letter.is_whitespace() || letter.is_uppercase());
    if wrong || push.trim_matches('/').is_empty() {
        return Err(PipelineError::Config(format!(
            "--push: expected the beginning of names in a registry, in small letters and without a scheme, such as \
             `registry.example.com:5000/team`; found `{push}`"
        )));
    }
    if section.registry.as_deref() == Some(push) {
        return Ok(Some(push.to_owned()));
    }
    let prefix = format!("{}/", push.trim_end_matches('/'));
    match &section.registry {
        Some(registry) if *registry != prefix => Err(PipelineError::Config(format!(
            "--push {push}: `sandbox.registry` is `{registry}`, so that trials of this run would look for the images there; \
             push to that one, or set `sandbox.registry = \"{prefix}\"`"
        ))),
        _ => Ok(Some(prefix)),
    }
}

/// What makes images.
struct Builder {
    engine: DockerBackend,
    /// As a trial on this engine would have it; without a registry where one is filled.
    section: SandboxSection,
    registry: Option<String>,
    /// What was pushed earlier.
    pushed: BTreeMap<String, PushedImage>,
}

impl Builder {
    /// Makes the images of a task be there, and pushes the one that it is built from.
    async fn task(&self, row: &IndexRow) -> Result<(BuiltTask, Option<PushedImage>), PipelineError> {
        let task = Task::load(Path::new(&row.task_path))?;
        let mut built = BuiltTask {
            instance_id: row.instance_id.clone(),
            image: None,
            pushed: false,
            state: ImageState::There,
        };
        if let Some(reason) = unfit(&task, &task.stages()?, &self.section) {
            built.state = ImageState::Missing(Unbuilt {
                log: reason.clone(),
                detail: reason,
            });
            return Ok((built, None));
        }
        let own = image_of(&task, &self.section).filter(|image| matches!(image, Image::Build { .. }));
        let to = self.registry.as_deref().map(|registry| name_in(registry, &task));
        let push = own.as_ref().zip(to.as_deref());
        if let Some((_, to)) = push
            && let Some(earlier) = self.still_pushed(row, to).await?
        {
            built.image = Some(format!("{to}@{}", earlier.digest));
            built.pushed = true;
            return Ok((built, None));
        }
        for image in images_of(&task, &self.section) {
            let (name, there) = match self.have(&image).await {
                Ok(had) => had,
                Err(SandboxError::Image { image, reason, .. }) => {
                    // An engine that has gone says nothing of the task.
                    self.engine.answers().await?;
                    let log = self.engine.build_log(&image).and_then(|path| end_of(&path));
                    built.state = ImageState::Missing(Unbuilt {
                        log: log.unwrap_or_else(|| reason.clone()),
                        detail: format!("image `{image}`: {reason}"),
                    });
                    return Ok((built, None));
                }
                Err(error) => return Err(error.into()),
            };
            if !there {
                built.state = ImageState::Made;
            }
            built.image.get_or_insert(name);
        }
        let Some((own, to)) = push else {
            return Ok((built, None));
        };
        let digest = self.engine.push(own, to).await?;
        built.image = Some(format!("{to}@{digest}"));
        built.pushed = true;
        built.state = ImageState::Made;
        Ok((built, Some(PushedImage::of(row, to.to_owned(), digest))))
    }

    /// What was pushed of the task as it is, if the registry still has it under that name.
    async fn still_pushed(&self, row: &IndexRow, to: &str) -> Result<Option<&PushedImage>, PipelineError> {
        let earlier = self.pushed.get(&row.instance_id);
        let Some(earlier) = earlier.filter(|earlier| earlier.is_of(row) && earlier.image == to) else {
            return Ok(None);
        };
        let there = self.engine.digest_at(to).await?;
        Ok(Some(earlier).filter(|earlier| there.as_ref() == Some(&earlier.digest)))
    }

    /// Its name in the engine's store, and whether it was there before.
    async fn have(&self, image: &Image) -> Result<(String, bool), SandboxError> {
        let (name, there) = self.engine.look(image).await?;
        self.engine.fetch(image).await?;
        Ok((name, there))
    }
}

/// What is kept beside the tasks.
struct Kept {
    folder: PathBuf,
    known: BTreeMap<String, ValidationRow>,
    pushed: BTreeMap<String, PushedImage>,
    /// Whether either is other than what lies in the folder.
    changed: (bool, bool),
    written: Instant,
}

impl Kept {
    fn note(&mut self, row: &IndexRow, task: &BuiltTask, pushed: Option<PushedImage>) -> Result<(), PipelineError> {
        let unbuilt = match &task.state {
            ImageState::Missing(unbuilt) => Some(unbuilt),
            ImageState::Made | ImageState::There => None,
        };
        self.changed.0 |= note_build(&mut self.known, row, unbuilt);
        if let Some(pushed) = pushed {
            self.pushed.insert(row.instance_id.clone(), pushed);
            self.changed.1 = true;
        }
        if self.written.elapsed() >= KEPT_EVERY {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), PipelineError> {
        if std::mem::take(&mut self.changed.0) {
            write_validation(&self.folder, &self.known)?;
        }
        if std::mem::take(&mut self.changed.1) {
            write_pushed(&self.folder, &self.pushed)?;
        }
        self.written = Instant::now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_pushed_to_where_the_runs_trials_look() {
        let section = |backend, registry: Option<&str>| SandboxSection {
            backend,
            registry: registry.map(str::to_owned),
            ..SandboxSection::default()
        };
        let cluster = |set: Option<&str>, push: &str| registry(Some(push), &section(BackendName::Kubernetes, set));
        let prefix = |result: Result<Option<String>, PipelineError>| result.unwrap().unwrap();
        assert_eq!(prefix(cluster(None, "reg:5000/team")), "reg:5000/team/");
        assert_eq!(prefix(cluster(None, "reg:5000/team/")), "reg:5000/team/");
        assert_eq!(
            prefix(cluster(Some("reg:5000/team/"), "reg:5000/team")),
            "reg:5000/team/"
        );
        // One that is no folder, as the key may have it.
        assert_eq!(prefix(cluster(Some("reg:5000/swe-"), "reg:5000/swe-")), "reg:5000/swe-");
        let said = cluster(Some("other/"), "reg:5000/team").unwrap_err().to_string();
        assert!(
            said.contains("`sandbox.registry` is `other/`") && said.contains("reg:5000/team/"),
            "{said}"
        );
        for wrong in ["", "/", "https://reg/x", "reg/X", "a b", "reg/x@sha256:1"] {
            let said = cluster(None, wrong).unwrap_err().to_string();
            assert!(
                said.starts_with("--push: expected") && said.ends_with(&format!("found `{wrong}`")),
                "{said}"
            );
        }
        let local = registry(None, &section(BackendName::Local, None))
            .unwrap_err()
            .to_string();
        assert!(local.contains("give `--backend docker`"), "{local}");
        assert_eq!(registry(None, &section(BackendName::Docker, None)).unwrap(), None);
    }
}
