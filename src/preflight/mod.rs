//! May this run start? One file a class of checks; ids are stable.
//!
//! Static checks only read the config and local files: no network, no side effect. Nothing here changes
//! a config or prints.

mod agent;
mod asynchronous;
mod balance;
mod batch;
mod chat_template;
mod clock;
mod cluster;
mod engine;
mod gpu;
mod habits;
mod images;
mod import;
mod live;
mod memory;
mod model;
mod model_files;
mod network;
mod pages;
mod paths;
mod reach;
mod report;
mod sandbox;
mod schedule;
mod secrets;
mod tasks;
mod token_budget;
mod tool_parser;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wrong_files_tests;

use std::path::Path;

use crate::config::Loaded;

pub use import::{Imported, from_variables};
pub use pages::page;
pub use report::{Finding, Report, Status};

/// What the run is for: some checks ask for less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Everything that run.toml describes.
    Whole,
    /// `lego train`; from shards it needs no tasks.
    Train {
        /// Whether shards were given.
        from_shards: bool,
    },
    /// `lego rollout --eval`: of `data.val`, or of `data.train` where there is none.
    Evaluate,
    /// `lego rollout`; tasks may come from elsewhere.
    Rollout {
        /// Whether tasks were given.
        tasks_given: bool,
    },
}

impl Purpose {
    /// Whether the policy is updated.
    pub fn trains(self) -> bool {
        !matches!(self, Self::Rollout { .. } | Self::Evaluate)
    }

    /// Whether a command that updates the policy is about to run.
    pub fn updates(self) -> bool {
        matches!(self, Self::Train { .. })
    }

    /// Whether anything is sampled.
    pub fn samples(self) -> bool {
        !matches!(self, Self::Train { from_shards: true })
    }

    /// Whether tasks are drawn from `[data]`.
    pub fn draws_tasks(self) -> bool {
        match self {
            Self::Whole | Self::Evaluate => true,
            Self::Train { from_shards } => !from_shards,
            Self::Rollout { tasks_given } => !tasks_given,
        }
    }
}

/// What a check looks at.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The config and who wrote what in it.
    pub run: &'a Loaded,
    /// What for.
    pub purpose: Purpose,
}

impl Context<'_> {
    /// Whether tasks are drawn from `data.train`.
    fn draws_from_train(&self) -> bool {
        let validates_alone = self.purpose == Purpose::Evaluate && !self.run.config.data.val.is_empty();
        self.purpose.draws_tasks() && !validates_alone
    }
}

/// One class of checks.
pub trait Check: Send + Sync {
    /// Its name: stable, and the name of its page.
    fn id(&self) -> &'static str;

    /// What it looks at, in a few words.
    fn title(&self) -> &'static str;

    /// Looks. Nothing to say is a pass, where there was something to look at.
    fn look(&self, context: Context<'_>) -> Vec<Finding>;

    /// Why this run has nothing that it looks at.
    fn idle(&self, _: Context<'_>) -> Option<&'static str> {
        None
    }
}

/// Every static check, in the order of a run's needs.
pub fn checks() -> Vec<Box<dyn Check>> {
    vec![
        Box::new(paths::Paths),
        Box::new(model_files::ModelFiles),
        Box::new(chat_template::ChatTemplate),
        Box::new(tool_parser::ToolParser),
        Box::new(engine::Engine),
        Box::new(balance::Balance),
        Box::new(token_budget::TokenBudget),
        Box::new(memory::Memory),
        Box::new(batch::Batch),
        Box::new(asynchronous::Asynchronous),
        Box::new(schedule::Schedule),
        Box::new(habits::RolloutCorrection),
        Box::new(habits::Routing),
        Box::new(habits::Validation),
        Box::new(sandbox::Sandbox),
        Box::new(images::Images),
        Box::new(network::Network),
        Box::new(agent::Agent),
        Box::new(secrets::Secrets),
    ]
}

/// The JSON Schemas of this module's rows, by file stem.
pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![("preflight-row", schemars::schema_for!(Finding))]
}

/// Ids of all checks, the live ones last.
pub fn ids() -> Vec<&'static str> {
    checks()
        .iter()
        .map(|check| check.id())
        .chain(live::IDS)
        .chain([gpu::ID, clock::ID, cluster::ID])
        .collect()
}

/// The live checks, all or those named: they ask other machines, and leave nothing there. `init_exe` is this program.
async fn run_live(run: &Loaded, init_exe: &Path, only: &[String]) -> Vec<Finding> {
    let wanted = |id: &str| only.is_empty() || only.iter().any(|name| name == id);
    let mut found = Box::pin(live::look(run, init_exe, only)).await;
    if wanted(gpu::ID) {
        found.extend(gpu::look(run).await);
    }
    let answers = found
        .iter()
        .all(|finding| finding.check != images::ID || finding.status < Status::Fatal);
    if wanted(network::ID) {
        found.extend(Box::pin(reach::look(run, init_exe, answers)).await);
    }
    if wanted(clock::ID) {
        found.extend(Box::pin(clock::look(run)).await);
    }
    if wanted(cluster::ID) {
        found.extend(cluster::look(run, init_exe).await);
    }
    found
}

/// Runs the static checks, all or those named, worst last.
pub fn run_static(context: Context<'_>, only: &[String]) -> Report {
    Report::new(found_static(context, only))
}

/// The static checks and then, unless those already say that the run must not start, the live ones; worst last.
pub async fn run_all(context: Context<'_>, init_exe: &Path, only: &[String]) -> Report {
    let mut findings = found_static(context, only);
    if findings.iter().all(|finding| finding.status < Status::Fatal) {
        findings.extend(Box::pin(run_live(context.run, init_exe, only)).await);
    }
    Report::new(findings)
}

fn found_static(context: Context<'_>, only: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for check in checks() {
        if !only.is_empty() && !only.iter().any(|id| id == check.id()) {
            continue;
        }
        let found = check.look(context);
        if found.is_empty() {
            findings.push(match check.idle(context) {
                Some(why) => Finding::skip(check.id(), why),
                None => Finding::pass(check.id(), check.title()),
            });
        }
        findings.extend(found);
    }
    findings
}
