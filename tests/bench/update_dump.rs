//! Makes the updates that `grpo_parity.py` describes in a JSON file, and writes down what came of them.
//!
//! `update_dump <FOLDER>` reads `policy/` (a Hugging Face folder) and `case.json` there and writes `result.json`
//! (metrics of each step) and `after/` (the weights).

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use jiff::Timestamp;
use lego::config::{FilterSection, HackPolicy, TrainSection};
use lego::train::{Filter, Recipe, UpdateSettings, Updater, Window};
use lego::trajectory::{CaptureAudit, Episode, Outcome, SamplingParams, Segment, Timings};
use lego_policy::{AdamW, Device, Trainer, Weights};

#[derive(serde::Deserialize)]
struct Case {
    train: TrainSection,
    prompt_window: usize,
    response_window: usize,
    steps: u64,
    episodes: Vec<CaseEpisode>,
}

#[derive(serde::Deserialize)]
struct CaseEpisode {
    id: String,
    group: String,
    reward: Option<f32>,
    outcome: Outcome,
    temperature: f32,
    segments: Vec<CaseSegment>,
}

#[derive(serde::Deserialize)]
struct CaseSegment {
    prompt: Vec<u32>,
    response: Vec<u32>,
    mask: Vec<u8>,
    logprobs: Option<Vec<f32>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: update_dump <FOLDER>")?;
    let folder = Path::new(&folder);
    let case: Case = serde_json::from_str(&fs_err::read_to_string(folder.join("case.json"))?)?;
    let recipe = Recipe::from_section(&case.train, 64)?;
    let load = || -> Result<Trainer, Box<dyn Error>> {
        let optimizer = AdamW {
            weight_decay: case.train.weight_decay,
            ..AdamW::default()
        };
        Ok(Trainer::new(
            Weights::load(&folder.join("policy"))?,
            Device::Cpu,
            optimizer,
        )?)
    };
    let reference = recipe.kl.map(|_| load()).transpose()?;
    let settings = UpdateSettings {
        recipe,
        filter: Filter::from_sections(&FilterSection::default(), HackPolicy::Flag)?,
        window: Window {
            prompt: case.prompt_window,
            response: case.response_window,
        },
        group_size: None,
        seed: 42,
    };
    let updater = Updater::new(settings, reference)?;
    let episodes: Vec<Episode> = case.episodes.into_iter().map(episode).collect();
    let mut trainer = load()?;
    let mut steps = Vec::new();
    for step in 1..=case.steps {
        steps.push(updater.step(&mut trainer, step, &episodes)?.metrics);
    }
    fs_err::write(folder.join("result.json"), serde_json::to_string_pretty(&steps)?)?;
    fs_err::create_dir_all(folder.join("after"))?;
    trainer.weights().save(&folder.join("after"))?;
    Ok(())
}

fn episode(case: CaseEpisode) -> Episode {
    let segment = |case: CaseSegment| Segment {
        prompt_ids: case.prompt,
        response_ids: case.response,
        response_mask: case.mask,
        response_logprobs: case.logprobs,
        weight_versions: Vec::new(),
        routing: Vec::new(),
        is_main_agent: true,
    };
    Episode {
        run_id: "parity".to_owned(),
        step: 1,
        task_id: case.group.clone(),
        data_source: "parity".to_owned(),
        group_id: case.group.into(),
        episode_id: case.id.as_str().into(),
        trial_id: case.id.as_str().into(),
        trial_name: case.id,
        attempt: 0,
        agent: "builtin".to_owned(),
        agent_version: String::new(),
        model: "policy".to_owned(),
        tool_parser: String::new(),
        endpoint: String::new(),
        segments: case.segments.into_iter().map(segment).collect(),
        reward: case.reward,
        rewards: BTreeMap::new(),
        sampling: SamplingParams {
            temperature: case.temperature,
            top_p: 1.0,
            top_k: -1,
        },
        outcome: case.outcome,
        failure: None,
        drop_reason: None,
        audit: CaptureAudit::default(),
        hack_flags: Vec::new(),
        started_at: Timestamp::UNIX_EPOCH,
        timings: Timings::default(),
        messages: String::new(),
    }
}
