//! The stages of a task: what an agent is told, and how that is judged. One, or one for each of its `[[steps]]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;

use super::{
    Artifact, CollectStep, EnvironmentConfig, Healthcheck, MinReward, NetworkPolicy, Seconds, StepConfig, Task,
    TaskConfig, TaskError, UserName, VerifierConfig, VerifierMode,
};

/// One stage, with what the task as a whole says filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// Of its step; `None` where the task has no steps.
    pub step: Option<String>,
    /// What the agent is told.
    pub instruction: String,
    /// Time for the agent, if the task limits it.
    pub agent_timeout: Option<Duration>,
    /// Who it runs as, where the task says so.
    pub agent_user: Option<String>,
    /// What it reaches, where the task says so of this phase.
    pub agent_network: Option<NetworkPolicy>,
    /// Time for the verifier.
    pub verifier_timeout: Duration,
    /// Environment of the tests, not resolved yet.
    pub verifier_env: BTreeMap<String, String>,
    /// Who the tests run as, where the task says so.
    pub verifier_user: Option<String>,
    /// What they reach, where the task says so of this phase.
    pub verifier_network: Option<NetworkPolicy>,
    /// Whether the tests run in a sandbox of their own.
    pub mode: VerifierMode,
    /// That sandbox's environment, where it is not the agent's.
    pub verifier_environment: Option<EnvironmentConfig>,
    /// That sandbox's image, where it is not the agent's.
    pub tests_image: Option<TestsImage>,
    /// Commands in the agent's sandbox, before anything leaves it.
    pub collect: Vec<CollectStep>,
    /// Host folders that become `/tests`, each over the one before it.
    pub tests: Vec<PathBuf>,
    /// Host folder that the oracle gets as `/solution`.
    pub solution: PathBuf,
    /// Host folder whose content is put into the working folder before the agent starts; a `setup.sh` in it is run.
    pub workdir_files: Option<PathBuf>,
    /// When the environment is ready for it.
    pub healthcheck: Option<Healthcheck>,
    /// Files to keep.
    pub artifacts: Vec<Artifact>,
    /// Reward below which no later stage runs.
    pub min_reward: Option<MinReward>,
}

/// An image that holds the tests of a stage as `/tests`: nothing is uploaded there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestsImage {
    /// By its name.
    Named(String),
    /// Built of this host folder of tests, by its Dockerfile.
    Built(PathBuf),
}

/// The image of the tests of the task, or of one of its steps: the step's own, else the task's. `None` where they are
/// uploaded. Only tests in a sandbox of their own have one.
pub(super) fn tests_image(dir: &Path, config: &TaskConfig, step: Option<&StepConfig>) -> Option<TestsImage> {
    let mode = step
        .and_then(|step| said_mode(&step.verifier))
        .or_else(|| said_mode(&config.verifier));
    if mode != Some(VerifierMode::Separate) {
        return None;
    }
    let own = step.map(|step| (&step.verifier, dir.join("steps").join(&step.name).join("tests")));
    own.into_iter()
        .chain([(&config.verifier, dir.join("tests"))])
        .find_map(|(verifier, tests)| {
            let named = verifier.environment.as_ref().and_then(|own| own.docker_image.clone());
            named
                .map(TestsImage::Named)
                .or_else(|| tests.join("Dockerfile").is_file().then_some(TestsImage::Built(tests)))
        })
}

impl Task {
    /// The stages, in order.
    ///
    /// # Errors
    /// Where the instruction of a step cannot be read.
    pub fn stages(&self) -> Result<Vec<Stage>, TaskError> {
        if self.config.steps.is_empty() {
            return Ok(vec![self.whole()]);
        }
        self.config
            .steps
            .iter()
            .map(|step| {
                let folder = self.dir.join("steps").join(&step.name);
                let whole = self.whole();
                let own = |name: &str| Some(folder.join(name)).filter(|path| path.is_dir());
                let mut verifier_env = whole.verifier_env;
                verifier_env.extend(step.verifier.env.clone());
                Ok(Stage {
                    step: Some(step.name.clone()),
                    instruction: fs::read_to_string(folder.join("instruction.md"))?,
                    agent_timeout: step.agent.timeout_sec.map(Seconds::duration).or(whole.agent_timeout),
                    agent_user: step.agent.user.as_ref().map(UserName::to_string).or(whole.agent_user),
                    agent_network: NetworkPolicy::of(step.agent.network_mode, &step.agent.allowed_hosts)
                        .or(whole.agent_network),
                    verifier_user: step
                        .verifier
                        .user
                        .as_ref()
                        .map(UserName::to_string)
                        .or(whole.verifier_user),
                    verifier_network: NetworkPolicy::of(step.verifier.network_mode, &step.verifier.allowed_hosts)
                        .or(whole.verifier_network),
                    verifier_timeout: step
                        .verifier
                        .timeout_sec
                        .map_or(whole.verifier_timeout, Seconds::duration),
                    verifier_env,
                    mode: said_mode(&step.verifier).unwrap_or(whole.mode),
                    verifier_environment: step.verifier.environment.clone().or(whole.verifier_environment),
                    tests_image: tests_image(&self.dir, &self.config, Some(step)),
                    collect: [whole.collect, step.verifier.collect.clone()].concat(),
                    tests: whole.tests.into_iter().chain(own("tests")).collect(),
                    solution: own("solution").unwrap_or(whole.solution),
                    workdir_files: own("workdir"),
                    healthcheck: step.healthcheck.clone(),
                    artifacts: [whole.artifacts, step.artifacts.clone()].concat(),
                    min_reward: step.min_reward.clone(),
                })
            })
            .collect()
    }

    /// Where the tests run; `None` for a task of several steps, each of which says it for itself.
    pub fn verifier_mode(&self) -> Option<VerifierMode> {
        let said = said_mode(&self.config.verifier).unwrap_or_default();
        self.config.steps.is_empty().then_some(said)
    }

    fn whole(&self) -> Stage {
        let verifier = &self.config.verifier;
        Stage {
            step: None,
            instruction: self.instruction().to_owned(),
            agent_timeout: self.agent_timeout(),
            agent_user: self.config.agent.user.as_ref().map(UserName::to_string),
            agent_network: NetworkPolicy::of(self.config.agent.network_mode, &self.config.agent.allowed_hosts),
            verifier_user: verifier.user.as_ref().map(UserName::to_string),
            verifier_network: NetworkPolicy::of(verifier.network_mode, &verifier.allowed_hosts),
            verifier_timeout: self.verifier_timeout(),
            verifier_env: verifier.env.clone(),
            mode: said_mode(verifier).unwrap_or_default(),
            verifier_environment: verifier.environment.clone(),
            tests_image: tests_image(&self.dir, &self.config, None),
            collect: verifier.collect.clone(),
            tests: Some(self.tests_dir()).filter(|dir| dir.is_dir()).into_iter().collect(),
            solution: self.dir.join("solution"),
            workdir_files: None,
            healthcheck: None,
            artifacts: self.config.artifacts.clone(),
            min_reward: None,
        }
    }
}

/// What a section says; an environment of its own means a sandbox of its own.
fn said_mode(verifier: &VerifierConfig) -> Option<VerifierMode> {
    let implied = verifier.environment.as_ref().map(|_| VerifierMode::Separate);
    verifier.environment_mode.or(implied)
}

impl MinReward {
    /// Whether these rewards reach it. One that is missing does not.
    pub fn is_reached(&self, rewards: &BTreeMap<String, f64>) -> bool {
        let reached = |name: &str, least: f64| rewards.get(name).is_some_and(|reward| *reward >= least);
        match self {
            Self::Scalar(least) => reached("reward", *least),
            Self::Named(all) => all.iter().all(|(name, least)| reached(name, *least)),
        }
    }
}
