//! From arguments to the library's pipeline: the one place that the commands call it from.

use lego::config::Loaded;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Printer;
use crate::rollout::RolloutArgs;
use crate::train::TrainArgs;

/// The full loop, or training from shards.
pub(crate) fn train(_: &Printer, _: Loaded, _: TrainArgs) -> Result<Exit, Failure> {
    Err(Failure::not_built("the training loop"))
}

/// Rollouts alone.
pub(crate) fn rollout(_: &Printer, _: Loaded, _: RolloutArgs) -> Result<Exit, Failure> {
    Err(Failure::not_built("the rollout loop"))
}

/// Removes what earlier runs left behind.
pub(crate) fn reap(_: &Printer, _: &Loaded) -> Result<Exit, Failure> {
    Err(Failure::not_built("lego rollout --reap"))
}
