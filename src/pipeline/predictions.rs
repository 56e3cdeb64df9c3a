//! What agents left, as the file of predictions that graders of others read.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run_dir::RunDir;
use crate::scaffold::WORK_PATCH;
use crate::trajectory::Episode;

/// One line of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// The task.
    pub instance_id: String,
    /// Who worked on it.
    pub model_name_or_path: String,
    /// The change; empty where nothing was changed.
    pub model_patch: String,
}

/// The predictions of a rollout: of each task the first episode's that left one. Those without are named beside them.
pub fn predictions(out: &Path, evaluated: bool, episodes: &[Episode]) -> (Vec<Prediction>, Vec<String>) {
    let trials = out.join("trials").join(RunDir::trials_of(0, evaluated));
    let mut found: Vec<Prediction> = Vec::new();
    let mut missing: Vec<String> = Vec::new();
    let mut ordered: Vec<&Episode> = episodes.iter().collect();
    ordered.sort_by(|left, right| (&left.task_id, &left.trial_name).cmp(&(&right.task_id, &right.trial_name)));
    for episode in ordered {
        if found.last().is_some_and(|last| last.instance_id == episode.task_id) {
            continue;
        }
        match fs_err::read_to_string(trials.join(&episode.trial_name).join(WORK_PATCH)) {
            Ok(model_patch) => {
                missing.retain(|id| *id != episode.task_id);
                found.push(Prediction {
                    instance_id: episode.task_id.clone(),
                    model_name_or_path: format!("{}/{}", episode.agent, episode.model),
                    model_patch,
                });
            }
            Err(_) if missing.last() != Some(&episode.task_id) => missing.push(episode.task_id.clone()),
            Err(_) => {}
        }
    }
    (found, missing)
}
