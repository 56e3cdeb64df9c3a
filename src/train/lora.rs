//! Which adapters `[train.lora]` asks for.

use lego_policy::{LoraSpec, LoraTarget, ModelConfig};

use crate::config::{LoraSection, LoraTargetName};

/// The adapters of a model of this shape: those that are named, each once, or all that it can have.
pub fn lora_spec(section: &LoraSection, shape: &ModelConfig) -> LoraSpec {
    let mut targets: Vec<LoraTarget> = section.targets.as_ref().map_or_else(
        || LoraTarget::all_of(shape),
        |names| names.iter().copied().map(target).collect(),
    );
    targets.sort_unstable();
    targets.dedup();
    LoraSpec {
        rank: section.rank as usize,
        alpha: section.alpha,
        targets,
    }
}

fn target(name: LoraTargetName) -> LoraTarget {
    match name {
        LoraTargetName::QProj => LoraTarget::Query,
        LoraTargetName::KProj => LoraTarget::Key,
        LoraTargetName::VProj => LoraTarget::Value,
        LoraTargetName::OProj => LoraTarget::Output,
        LoraTargetName::GateProj => LoraTarget::Gate,
        LoraTargetName::UpProj => LoraTarget::Up,
        LoraTargetName::DownProj => LoraTarget::Down,
    }
}
