//! Writes a run directory as large as the dashboard is to hold: `big_run FOLDER STEPS KEYS TRIALS TOKENS`.
//!
//! Metrics through the run's own log, trials through the shard writer, one shard a step as runs write them. Used by
//! `dashboard_load.py`.

use std::error::Error;
use std::path::Path;

use jiff::Timestamp;
use lego::metrics::{METRICS, StepMetrics};
use lego::run_dir::{Phase, RunDir, RunState, StepLog};
use lego::shard::{ShardMeta, ShardWriter, WriterOptions};
use lego::trajectory::{
    CaptureAudit, Episode, EpisodeId, FinishReason, GroupId, Outcome, PolicyVersion, SamplingParams, Segment, Timings,
    TrialId, VersionSpan,
};

/// Trials of one task at a step.
const GROUP: u64 = 5;
/// Tasks, each of which comes up again and again.
const TASKS: u64 = 400;

/// Numbers that look like chance and are the same each time.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as f64) / f64::from(1u32 << 31)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, steps, keys, trials, tokens] = arguments.as_slice() else {
        return Err("big_run FOLDER STEPS KEYS TRIALS TOKENS".into());
    };
    let (steps, keys, trials, tokens): (u64, usize, u64, usize) =
        (steps.parse()?, keys.parse()?, trials.parse()?, tokens.parse()?);
    let run = RunDir::create(Path::new(folder))?;
    run.write_config("[run]\nname = \"big\"\n")?;
    let mut chance = Chance(1);
    let began = Timestamp::now().as_second() - steps as i64 * 30;
    metrics(&run, steps, keys, began, &mut chance)?;
    episodes(&run, steps, trials, tokens, began, &mut chance)?;
    let mut state = RunState::new(Phase::Finished);
    (state.step, state.steps) = (steps, Some(steps));
    run.write_state(&state)?;
    Ok(())
}

/// Names of the table first, then made-up ones.
fn names(count: usize) -> Vec<String> {
    let known = METRICS
        .iter()
        .map(|metric| metric.name)
        .filter(|name| !name.contains('<'));
    let made = (0..).map(|number| format!("timing_s/part_{number}"));
    known.map(str::to_owned).chain(made).take(count).collect()
}

fn metrics(run: &RunDir, steps: u64, keys: usize, began: i64, chance: &mut Chance) -> Result<(), Box<dyn Error>> {
    let names = names(keys);
    let (mut log, _) = StepLog::open(run, None, false)?;
    for step in 1..=steps {
        let mut metrics = StepMetrics::new(step, Timestamp::from_second(began + step as i64 * 30)?);
        let at = step as f64 / steps as f64;
        for name in &names {
            metrics.set(name.clone(), at + 0.3 * chance.next());
        }
        log.append(&metrics)?;
    }
    Ok(())
}

fn episodes(
    run: &RunDir,
    steps: u64,
    trials: u64,
    tokens: usize,
    began: i64,
    chance: &mut Chance,
) -> Result<(), Box<dyn Error>> {
    let meta = ShardMeta {
        run_id: "big".to_owned(),
        producer: "big_run".to_owned(),
        tokenizer_sha256: "0".repeat(64),
        template_sha256: "0".repeat(64),
        vocab_size: 32_000,
    };
    let mut writer = ShardWriter::new(&run.rollouts(), "trainer0", meta, WriterOptions::default())?;
    let each = trials.div_ceil(steps);
    for step in 1..=steps {
        for number in 0..each {
            let group = step * each.div_ceil(GROUP) + number / GROUP;
            let task = format!("task-{:05}", group % TASKS);
            let at = step as f64 / steps as f64;
            let episode = episode((step, number), task, at, tokens, began, chance)?;
            writer.push(&episode)?;
        }
        writer.flush_step(step as i32)?;
    }
    writer.flush()?;
    Ok(())
}

fn episode(
    (step, number): (u64, u64),
    task: String,
    at: f64,
    tokens: usize,
    began: i64,
    chance: &mut Chance,
) -> Result<Episode, Box<dyn Error>> {
    let response: Vec<u32> = (0..tokens).map(|_| (chance.next() * 32_000.0) as u32).collect();
    let solved = chance.next() < 0.2 + 0.6 * at;
    let outcome = if chance.next() < 0.02 {
        Outcome::Timeout
    } else {
        Outcome::Completed
    };
    let group = GroupId(format!("{task}@{step}"));
    let seconds = 20.0 + 30.0 * chance.next() as f32;
    Ok(Episode {
        run_id: "big".to_owned(),
        step: step as i32,
        data_source: "load/made".to_owned(),
        episode_id: EpisodeId(format!("{}#{number}", group.0)),
        group_id: group,
        trial_id: TrialId::fresh(),
        trial_name: format!("{task}__{number:02}"),
        task_id: task,
        attempt: 0,
        agent: "builtin".to_owned(),
        agent_version: "1".to_owned(),
        model: "policy".to_owned(),
        tool_parser: "hermes".to_owned(),
        endpoint: "openai_chat_completions".to_owned(),
        segments: vec![Segment {
            prompt_ids: vec![1; 32],
            response_mask: vec![1; tokens],
            response_logprobs: Some(response.iter().map(|id| -(*id as f32) / 32_000.0).collect()),
            response_ids: response,
            is_main_agent: true,
            weight_versions: vec![VersionSpan {
                start: 0,
                end: tokens as u32,
                version: PolicyVersion {
                    lineage: 0,
                    update: step - 1,
                },
            }],
            ..Segment::default()
        }],
        reward: outcome.is_graded().then_some(f32::from(u8::from(solved))),
        rewards: std::collections::BTreeMap::new(),
        sampling: SamplingParams {
            temperature: 1.0,
            top_p: 1.0,
            top_k: -1,
        },
        outcome,
        failure: None,
        drop_reason: None,
        audit: CaptureAudit {
            delivered_fraction: 1.0,
            num_turns: 1 + (chance.next() * 12.0) as u32,
            num_tool_calls: (chance.next() * 12.0) as u32,
            num_calls: 4,
            finish_reason: Some(FinishReason::Stop),
            ..CaptureAudit::default()
        },
        hack_flags: Vec::new(),
        started_at: Timestamp::from_second(began + step as i64 * 30)?,
        timings: Timings {
            env_setup_s: 0.5,
            model_s: seconds * 0.7,
            tool_s: seconds * 0.2,
            verify_s: 1.0,
            agent_s: seconds,
            total_s: seconds + 2.0,
            ..Timings::default()
        },
        messages: r#"[{"role":"user","content":"mend it"},{"role":"assistant","content":"done"}]"#.to_owned(),
    })
}
