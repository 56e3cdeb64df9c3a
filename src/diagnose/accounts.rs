//! The loss ledger of a rollout (proxy.md §6): every sampled token in exactly one account, from the call logs.

use std::path::{Path, PathBuf};

use super::{AccountRow, compare};
use crate::config::{BuilderName, CaptureScope};
use crate::proxy::{ProxyError, recover_all};
use crate::trajectory::{Ledger, Segment};

/// Why the tokens of a try that was repeated do not train.
const EARLIER_TRY: &str = "earlier_try";
/// Why those of an episode without valid rows do not.
const NO_EPISODE: &str = "no_episode";
/// Why those of an episode do not whose rows are not what they must be.
const FAULTY_ROWS: &str = "faulty_rows";

/// Accounts of the sessions read so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Where every token went.
    pub ledger: Ledger,
    /// What the engines counted.
    pub sampled: u64,
    /// Sessions, repeated tries included.
    pub sessions: u64,
    /// Calls that began and were never ended in the log.
    pub unfinished_calls: u64,
    /// Sessions of a proxy run by hand that were never finished, by name.
    pub unfinished_sessions: Vec<String>,
}

/// An episode of the shards, as far as its accounts go.
pub(super) enum Rows {
    /// Its rows are what they must be.
    Sound {
        segments: Vec<Segment>,
        drop_reason: Option<String>,
    },
    /// They are not, as was told.
    Faulty,
}

impl Accounts {
    /// Adds a log's sessions, and says where it and its rows differ; `otherwise` is how its calls were made rows, where
    /// it does not say.
    pub(super) fn add(
        &mut self,
        log: &Path,
        rows: Option<&Rows>,
        otherwise: (CaptureScope, BuilderName),
    ) -> Result<Vec<String>, ProxyError> {
        let sessions = recover_all(log)?;
        let last = sessions.len().saturating_sub(1);
        let mut differences = Vec::new();
        for (index, session) in sessions.iter().enumerate() {
            let capture = session.as_captured(otherwise);
            let mut ledger = capture.ledger;
            let sampled = u64::from(session.usage.completion);
            let mut differ = |what: String| differences.push(format!("{}: {what}", log.display()));
            if ledger.total() != sampled {
                differ(format!(
                    "the accounts hold {} tokens, the engine counted {sampled}",
                    ledger.total()
                ));
            }
            match rows {
                _ if index < last => ledger.drop_trained(EARLIER_TRY),
                None => ledger.drop_trained(NO_EPISODE),
                Some(Rows::Faulty) => ledger.drop_trained(FAULTY_ROWS),
                Some(Rows::Sound { segments, drop_reason }) => {
                    let trained = trained(segments);
                    if trained != ledger.trained {
                        differ(format!(
                            "{} tokens train by the log, {trained} in the shards",
                            ledger.trained
                        ));
                    }
                    for difference in compare::differences(segments, &capture.segments) {
                        differ(difference);
                    }
                    if let Some(reason) = drop_reason {
                        ledger.drop_trained(reason);
                    }
                }
            }
            self.ledger.add(&ledger);
            self.sampled += sampled;
            self.sessions += 1;
            self.unfinished_calls += u64::from(session.unfinished_calls);
        }
        Ok(differences)
    }

    /// One row an account, those by reason behind their kind; nothing that is empty but `trained`.
    pub fn rows(&self) -> Vec<AccountRow> {
        let row = |account: String, tokens: u64| AccountRow {
            account,
            tokens: Some(tokens),
            episodes: None,
        };
        let by_reason = |kind: &'static str, reasons: &std::collections::BTreeMap<String, u64>| {
            reasons
                .iter()
                .map(|(reason, tokens)| row(format!("{kind}: {reason}"), *tokens))
                .collect::<Vec<_>>()
        };
        let ledger = &self.ledger;
        let mut rows = vec![row("trained".to_owned(), ledger.trained)];
        rows.extend(by_reason("masked", &ledger.masked));
        rows.extend(by_reason("dropped", &ledger.dropped));
        for (name, tokens) in [
            ("side conversation", ledger.side_conversation),
            ("aborted", ledger.aborted),
            ("duplicate", ledger.duplicate),
        ] {
            rows.push(row(name.to_owned(), tokens));
        }
        rows.retain(|row| row.tokens != Some(0) || row.account == "trained");
        rows
    }
}

/// Tokens with mask 1.
pub(super) fn trained(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| segment.trained_tokens() as u64).sum()
}

/// Call logs of the trials below a run's folder of trials, in order, of the steps that are `wanted` by their folder's name.
pub(super) fn call_logs(trials: &Path, wanted: impl Fn(&str) -> bool) -> std::io::Result<Vec<PathBuf>> {
    let mut logs = Vec::new();
    if !trials.is_dir() {
        return Ok(logs);
    }
    for step in sorted(trials)?.into_iter().filter(|path| path.is_dir()) {
        if !wanted(&step.to_string_lossy()) {
            continue;
        }
        let trials = sorted(&step)?;
        logs.extend(
            trials
                .into_iter()
                .map(|trial| trial.join("calls.jsonl"))
                .filter(|log| log.is_file()),
        );
    }
    Ok(logs)
}

/// Call logs that a proxy run by hand leaves in its folder of them, in order.
pub(super) fn captured_logs(calls: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !calls.is_dir() {
        return Ok(Vec::new());
    }
    let mut logs = sorted(calls)?;
    logs.retain(|log| log.extension().is_some_and(|extension| extension == "jsonl") && log.is_file());
    Ok(logs)
}

/// What a folder holds.
fn sorted(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = fs_err::read_dir(folder)?;
    let mut found = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_named_with_their_reasons() {
        let mut accounts = Accounts::default();
        accounts.ledger.side_conversation = 3;
        accounts.ledger.trained = 5;
        accounts.ledger.drop_trained("hack");
        accounts.ledger.trained = 7;
        let rows: Vec<_> = accounts
            .rows()
            .into_iter()
            .map(|row| (row.account, row.tokens.unwrap_or_default()))
            .collect();
        let expected = [("trained", 7), ("dropped: hack", 5), ("side conversation", 3)];
        assert_eq!(rows, expected.map(|(name, tokens)| (name.to_owned(), tokens)));
    }
}
