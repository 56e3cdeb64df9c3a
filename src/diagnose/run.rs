//! A run judged: which signatures match, which do not, and for which there is nothing to look at.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::evidence::Evidence;
use super::signature::{Cure, Match, Seen, Signature, Verdict, signatures};
use super::surroundings::{Surroundings, now};
use crate::run_dir::{History, RunDir, RunDirError, discover};

/// Recommendations in all.
const MOST_CURES: usize = 3;

/// A signature that matched.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct RunFinding {
    /// Its name, for `lego diagnose explain`.
    pub signature: String,
    /// In a few words.
    pub title: String,
    /// How bad it is.
    pub verdict: Verdict,
    /// With numbers and places.
    pub evidence: Vec<String>,
    /// Metrics that show it.
    pub metrics: Vec<String>,
    /// What is behind it.
    pub cause: String,
    /// What to change, the first first.
    pub cures: Vec<Cure>,
}

/// A signature that was looked for and is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct LookedAt {
    /// Its name.
    pub signature: String,
    /// In a few words.
    pub title: String,
    /// `no`, `no data`, or `explained by …`.
    pub result: String,
}

/// A run, judged.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct RunReport {
    /// The run directory or log.
    pub run: PathBuf,
    /// The worst of the findings.
    pub verdict: Verdict,
    /// Steps that were looked at, of the newest attempt.
    pub steps: String,
    /// Lines of the metrics that could not be read.
    pub damage: Option<String>,
    /// What matched, worst first.
    pub findings: Vec<RunFinding>,
    /// At most three, over all findings.
    pub recommendations: Vec<Cure>,
    /// What else was looked for.
    pub looked_at: Vec<LookedAt>,
}

/// Reads and judges a run directory, or a log with `step:` lines. Steps before `since` are left out.
///
/// # Errors
/// Where there is no run, or it cannot be read.
pub fn look_at_run(path: &Path, since: Option<u64>) -> Result<RunReport, RunDirError> {
    let run = if path.is_file() {
        None
    } else {
        Some(RunDir::open(path)?)
    };
    let mut history = History::of(run.as_ref().map_or_else(|| path.to_owned(), RunDir::metrics));
    history.refresh()?;
    if run.is_none() {
        refuse_without_steps(&history)?;
    }
    let mut report = judge(&history, run.as_ref(), since)?;
    path.clone_into(&mut report.run);
    Ok(report)
}

/// Judges the text of a log with `step:` lines, or of metrics.jsonl; `name` is for messages.
///
/// # Errors
/// Where it has no such line.
pub fn look_at_log(name: &str, text: &str, since: Option<u64>) -> Result<RunReport, RunDirError> {
    let history = History::parse(name, text);
    refuse_without_steps(&history)?;
    judge(&history, None, since)
}

fn refuse_without_steps(history: &History) -> Result<(), RunDirError> {
    if history.steps().is_empty() {
        return Err(RunDirError::Damaged {
            path: history.path().to_owned(),
            reason:
                "no line `step:N - key:value` in it; expected a run directory, a log with such lines, or metrics.jsonl"
                    .to_owned(),
        });
    }
    Ok(())
}

/// The newest run below a folder.
///
/// # Errors
/// Where the folder cannot be read.
pub fn newest_run(root: &Path) -> Result<Option<PathBuf>, RunDirError> {
    Ok(discover(root)?.0.into_iter().next().map(|run| run.dir))
}

/// Judges metrics, and what lies beside them where there is a run directory.
///
/// # Errors
/// Where the run's state cannot be read.
pub fn judge(history: &History, run: Option<&RunDir>, since: Option<u64>) -> Result<RunReport, RunDirError> {
    let around = match run {
        Some(run) => Surroundings::of(run)?,
        None => Surroundings {
            now: now(),
            ..Surroundings::default()
        },
    };
    let first_of_attempt = around.began.map_or(0, |began| {
        history
            .times()
            .iter()
            .position(|time| *time >= began)
            .unwrap_or(history.times().len())
    });
    let named = since.map_or(0, |since| history.steps().partition_point(|step| *step < since));
    let validated_only = usize::from(history.steps().first() == Some(&0));
    let evidence = Evidence {
        history,
        around: &around,
        from: history
            .attempt_row()
            .max(first_of_attempt)
            .max(named)
            .max(validated_only.min(history.steps().len())),
    };
    Ok(report(
        &evidence,
        run.map_or_else(|| history.path().to_owned(), |run| run.path().to_owned()),
    ))
}

fn report(evidence: &Evidence<'_>, run: PathBuf) -> RunReport {
    let (mut matched, mut looked_at): (Vec<(&Signature, Match)>, Vec<LookedAt>) = Default::default();
    let looked = |signature: &Signature, result: String| LookedAt {
        signature: signature.id.to_owned(),
        title: signature.title.to_owned(),
        result,
    };
    for signature in signatures() {
        match (signature.test)(evidence) {
            Seen::Yes(found) => matched.push((signature, found)),
            Seen::No => looked_at.push(looked(signature, "no".to_owned())),
            Seen::NoData => looked_at.push(looked(signature, "no data".to_owned())),
        }
    }
    let explained: Vec<(&str, &str)> = matched
        .iter()
        .flat_map(|(signature, found)| {
            let explains = found.explains.unwrap_or(signature.explains);
            explains.iter().map(move |id| (*id, signature.id))
        })
        .collect();
    let mut findings = Vec::new();
    for (signature, found) in matched {
        if let Some((_, by)) = explained.iter().find(|(id, _)| *id == signature.id) {
            looked_at.push(looked(signature, format!("explained by {by}")));
            continue;
        }
        let cures = match &found.cures {
            None => signature.cures.to_vec(),
            Some(places) => places
                .iter()
                .filter_map(|place| signature.cures.get(*place).copied())
                .collect(),
        };
        findings.push(RunFinding {
            signature: signature.id.to_owned(),
            title: signature.title.to_owned(),
            verdict: found.verdict,
            evidence: found.evidence,
            metrics: found.metrics,
            cause: signature.cause.to_owned(),
            cures,
        });
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    // One of each finding before a second of any.
    let rank = |place: usize| {
        findings
            .iter()
            .filter_map(move |finding| finding.cures.get(place).copied())
    };
    let unmatched = if evidence.has_steps() {
        Verdict::Healthy
    } else {
        Verdict::NotJudged
    };
    let recommendations = (0..MOST_CURES).flat_map(rank).take(MOST_CURES).collect();
    RunReport {
        run,
        verdict: findings.first().map_or(unmatched, |finding| finding.verdict),
        damage: evidence
            .history
            .damage()
            .map(|(lines, first)| format!("{lines} damaged lines were left out, the first is {first}")),
        steps: evidence.steps_text(),
        recommendations,
        findings,
        looked_at,
    }
}
