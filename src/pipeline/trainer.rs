//! What computes the policy's updates by a configuration: its weights or adapters over them, and the critic.

use lego_policy::{AdamW, Device, Trainer, Weights};

use super::PipelineError;
use crate::config::{DeviceName, RunConfig};
use crate::train::checkpoint::Checkpoint;
use crate::train::{Recipe, lora_spec};

/// The device of the trainer.
pub(super) fn device(name: DeviceName) -> Device {
    match name {
        DeviceName::Cpu => Device::Cpu,
        DeviceName::Cuda(index) => Device::Cuda(index as usize),
    }
}

/// A trainer of the policy; with `train.lora` one of fresh adapters over `weights`.
pub(super) fn policy(config: &RunConfig, weights: Weights, optimizer: AdamW) -> Result<Trainer, PipelineError> {
    let (train, device) = (&config.train, device(config.policy.device));
    if train.recompute && !matches!(device, Device::Cpu) {
        return Err(PipelineError::Config(
            "train.recompute is for the processor alone, and policy.device is another one; leave the key out"
                .to_owned(),
        ));
    }
    let mut trainer = match &train.lora {
        None => Trainer::new(weights, device, optimizer)?,
        Some(lora) => {
            let spec = lora_spec(lora, weights.config());
            let name = config.policy.model.display().to_string();
            Trainer::with_adapters(weights, &name, spec, config.run.seed, device, optimizer)?
        }
    };
    trainer.set_recompute(train.recompute);
    Ok(trainer)
}

/// The critic that the advantage needs: the checkpoint's, or a fresh one over the policy's body.
pub(super) fn critic(
    config: &RunConfig,
    checkpoint: Option<&Checkpoint>,
    policy: &Weights,
    optimizer: AdamW,
) -> Result<Option<Trainer>, PipelineError> {
    let recipe = Recipe::from_section(&config.train, config.rollout.groups_per_step)
        .map_err(|error| PipelineError::Config(error.to_string()))?;
    if recipe.critic.is_none() {
        return Ok(None);
    }
    let device = device(config.policy.device);
    if let Some(checkpoint) = checkpoint
        && let Some(weights) = checkpoint.critic_weights()?
    {
        let mut critic = Trainer::new(weights, device, optimizer)?;
        critic.set_recompute(config.train.recompute);
        checkpoint.restore_critic(&mut critic)?;
        return Ok(Some(critic));
    }
    let mut critic = Trainer::new(policy.critic(), device, optimizer)?;
    critic.set_recompute(config.train.recompute);
    Ok(Some(critic))
}
