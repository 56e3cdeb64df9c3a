//! The tokens of a trial as its shard holds them: id, text, mask, log-prob and weights of each; and over many trials,
//! how likely the tokens were and how old their weights.

use serde_json::{Value, json};

use super::run::Run;
use super::series::number;
use crate::shard::{Row, ShardReader};
use crate::trajectory::TokenId;

/// Tokens of one answer at most.
const MOST_TOKENS: usize = 4000;
/// Rows that a summary looks at.
const SAMPLE: usize = 256;
const COLUMNS: [&str; 14] = [
    "trial_name",
    "segment_index",
    "n_segments",
    "is_main_agent",
    "prompt_ids",
    "response_ids",
    "response_mask",
    "response_logprobs",
    "weight_versions",
    "reward",
    "temperature",
    "finish_reason",
    "dropped",
    "step",
];

/// The segments of a trial; of segment `segment` the tokens from `from` on.
pub(super) fn segments(run: &Run, index: usize, segment: usize, from: usize) -> Option<Result<Value, String>> {
    let (trial, file) = run.with_trials(|trials| {
        let trial = trials.list.get(index)?.clone();
        Some((trial.clone(), trials.files.get(trial.file as usize)?.clone()))
    })?;
    let rows = || -> Result<Vec<Row>, crate::shard::ShardError> {
        let reader = ShardReader::open(&[&file])?.with_columns(&COLUMNS)?;
        let mut found = Vec::new();
        let wanted = usize::from(trial.segments.max(1));
        reader.each_batch(&file, 16, (trial.row as usize, Some(wanted)), |rows| {
            found.extend(rows.into_iter().filter(|row| *row.trial_name == *trial.name));
        })?;
        Ok(found)
    };
    Some(rows().map_err(|error| error.to_string()).map(|rows| {
        let list: Vec<Value> = rows.iter().map(about).collect();
        let shown = rows.get(segment).map(|row| tokens(run, row, from));
        json!({"segments": list, "segment": segment, "tokens": shown, "text": run.tokenizer().is_some()})
    }))
}

fn about(row: &Row) -> Value {
    let mask = row.response_mask.as_deref().unwrap_or_default();
    json!({
        "index": row.segment_index,
        "main": row.is_main_agent,
        "prompt": row.prompt_ids.as_ref().map_or(0, Vec::len),
        "response": row.response_ids.as_ref().map_or(0, Vec::len),
        "trained": if row.dropped { 0 } else { mask.iter().filter(|bit| **bit != 0).count() },
        "finish": row.finish_reason,
        "dropped": row.dropped,
        "versions": row.weight_versions.iter().map(|span| json!({"start": span.start, "end": span.end,
            "version": span.version.to_string()})).collect::<Vec<_>>(),
    })
}

/// The prompt and then the response, as one sequence.
fn tokens(run: &Run, row: &Row, from: usize) -> Value {
    let (prompt, response) = (
        row.prompt_ids.as_deref().unwrap_or_default(),
        row.response_ids.as_deref().unwrap_or_default(),
    );
    let ids: Vec<TokenId> = prompt
        .iter()
        .chain(response)
        .copied()
        .skip(from)
        .take(MOST_TOKENS)
        .collect();
    let at = |position: usize| (from + position).checked_sub(prompt.len());
    let mask: Vec<u8> = (0..ids.len())
        .map(|position| {
            let mask = row.response_mask.as_deref().unwrap_or_default();
            at(position).and_then(|at| mask.get(at)).copied().unwrap_or(0)
        })
        .collect();
    let logprobs: Vec<Value> = (0..ids.len())
        .map(|position| {
            let all = row.response_logprobs.as_deref().unwrap_or_default();
            let value = at(position)
                .and_then(|at| all.get(at))
                .copied()
                .filter(|_| mask[position] == 1);
            value.map_or(Value::Null, |value| number((f64::from(value) * 1e4).round() / 1e4))
        })
        .collect();
    let text: Option<Vec<String>> = run
        .tokenizer()
        .map(|tokenizer| ids.iter().map(|id| shown(&tokenizer.token_bytes(*id))).collect());
    json!({
        "from": from,
        "total": prompt.len() + response.len(),
        "prompt": prompt.len(),
        "ids": ids,
        "mask": mask,
        "logprobs": logprobs,
        "text": text,
    })
}

/// The text of one token; a part of a character is shown as its bytes.
fn shown(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let shown: Vec<String> = bytes.iter().map(|byte| format!("⟨{byte:02x}⟩")).collect();
    shown.concat()
}

/// Of the newest trained rows: how the log-probs of sampled tokens are spread, and how old their weights were.
pub(super) fn spread(run: &Run) -> Value {
    let picked = run.with_trials(|trials| {
        let mut picked: Vec<_> = trials
            .list
            .iter()
            .rev()
            .filter(|trial| !trial.validation && trial.dropped.is_empty())
            .take(SAMPLE)
            .map(|trial| (trials.files[trial.file as usize].clone(), trial.row as usize))
            .collect();
        picked.sort();
        picked
    });
    let (mut bins, mut updates, mut tokens, mut trouble) =
        ([0u64; 24], std::collections::BTreeMap::new(), 0u64, Vec::new());
    let (mut first, mut last) = (i32::MAX, i32::MIN);
    for group in picked.chunk_by(|one, other| one.0 == other.0) {
        let (from, to) = (group[0].1, group[group.len() - 1].1);
        let mut look = |rows: Vec<Row>| {
            for row in rows.iter().filter(|row| !row.dropped) {
                (first, last) = (first.min(row.step), last.max(row.step));
                let mask = row.response_mask.as_deref().unwrap_or_default();
                for (logprob, bit) in row.response_logprobs.iter().flatten().zip(mask) {
                    if *bit == 1 {
                        tokens += 1;
                        bins[((-logprob * 3.0).max(0.0) as usize).min(bins.len() - 1)] += 1;
                    }
                }
                for span in &row.weight_versions {
                    let count = u64::from(span.end - span.start);
                    *updates.entry((row.step, span.version.update)).or_insert(0u64) += count;
                }
            }
        };
        let read = ShardReader::open(&[&group[0].0])
            .and_then(|reader| reader.with_columns(&COLUMNS))
            .and_then(|reader| reader.each_batch(&group[0].0, 32, (from, Some(to - from + 1)), &mut look));
        if let Err(error) = read {
            trouble.push(error.to_string());
        }
    }
    // How many updates there are to a step is the run's business: the newest weights of a step are its age 0.
    let mut ages = std::collections::BTreeMap::new();
    let mut newest = 0;
    let mut step_of_newest = None;
    for ((step, update), count) in updates.iter().rev() {
        if step_of_newest != Some(*step) {
            (step_of_newest, newest) = (Some(*step), *update);
        }
        *ages.entry(newest - update).or_insert(0u64) += count;
    }
    json!({
        "trials": picked.len(),
        "tokens": tokens,
        "steps": if first <= last { json!([first, last]) } else { Value::Null },
        "logprobs": bins,
        "bin": 1.0 / 3.0,
        "ages": ages.iter().map(|(age, count)| json!([age, count])).collect::<Vec<_>>(),
        "trouble": trouble,
    })
}
