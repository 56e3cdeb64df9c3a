//! Which start of a run this is: what names its weights and its shards, and must never be used twice.

use fs_err as fs;

use super::PipelineError;
use crate::run_dir::{RunDir, RunState};
use crate::train::checkpoint::Checkpoint;

/// Names of the writers of a start's shards, before its number: of episodes to train on, of validations.
const WRITERS: [&str; 2] = [TRAINER, EVAL];
const TRAINER: &str = "trainer";
const EVAL: &str = "eval";

/// The writer of what a start samples.
pub(super) fn trainer_writer(lineage: u32) -> String {
    format!("{TRAINER}{lineage}")
}

/// The writer of a start's validations.
pub(super) fn eval_writer(lineage: u32) -> String {
    format!("{EVAL}{lineage}")
}

/// The number of the next start: what the state says, unless it was lost and checkpoints or shards know of later ones.
pub(super) fn next(dir: &RunDir, state: &RunState, checkpoint: Option<&Checkpoint>) -> Result<u32, PipelineError> {
    let saved = checkpoint.map_or(0, |checkpoint| checkpoint.state.version.lineage + 1);
    let mut next = state.starts.max(saved);
    for root in [dir.rollouts(), dir.eval()] {
        for step in fs::read_dir(root)? {
            let step = step?.path();
            if !step.is_dir() {
                continue;
            }
            for shard in fs::read_dir(step)? {
                let name = shard?.file_name();
                next = next.max(lineage_of(&name.to_string_lossy()).map_or(0, |lineage| lineage + 1));
            }
        }
    }
    Ok(next)
}

/// The start that wrote a shard, finished or not.
fn lineage_of(name: &str) -> Option<u32> {
    let writer = name.trim_start_matches('.').strip_prefix("part-")?.split('-').next()?;
    WRITERS.iter().find_map(|kind| writer.strip_prefix(kind)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir::Phase;

    #[test]
    fn a_start_that_left_a_shard_is_counted_whatever_the_state_says() {
        let folder = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&folder.path().join("run")).unwrap();
        let mut state = RunState::new(Phase::Running);
        assert_eq!(next(&dir, &state, None).unwrap(), 0);
        for (root, name) in [
            (dir.rollouts(), format!("part-{}-000000.parquet", trainer_writer(3))),
            (
                dir.rollouts(),
                format!(".part-{}-000000.parquet.tmp", trainer_writer(4)),
            ),
            (dir.eval(), "part-rollout77-000000.parquet".to_owned()),
        ] {
            fs::create_dir_all(root.join("000001")).unwrap();
            fs::write(root.join("000001").join(name), "").unwrap();
        }
        assert_eq!(next(&dir, &state, None).unwrap(), 5);
        fs::write(dir.eval().join("000001/part-eval6-000000.parquet"), "").unwrap();
        assert_eq!(next(&dir, &state, None).unwrap(), 7);
        state.starts = 9;
        assert_eq!(next(&dir, &state, None).unwrap(), 9);
    }
}
