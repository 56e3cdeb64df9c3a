//! A signature: what it needs to be claimed, how it is tested, and what cures it. The table is the whole list.

use serde::Serialize;

use super::evidence::Evidence;
use super::signatures::{capture, crash, environment, learning, speed};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There is no step to judge, and nothing beside them is wrong.
    NotJudged,
    /// No known signature matched.
    Healthy,
    /// It runs on, and learns less than it could, or will soon not.
    AtRisk,
    /// What it does from here on is of no use.
    StopRecommended,
}

/// What to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Cure {
    /// The key of run.toml, or the command.
    pub key: &'static str,
    /// What to do with it.
    pub text: &'static str,
}

/// What a test saw.
pub(super) enum Seen {
    /// What it needs is not there.
    NoData,
    /// It is not that.
    No,
    /// It is.
    Yes(Match),
}

/// A signature that matched.
pub(super) struct Match {
    pub(super) verdict: Verdict,
    /// Sentences with numbers and places.
    pub(super) evidence: Vec<String>,
    /// Metrics to look at.
    pub(super) metrics: Vec<String>,
    /// Of the signature's cures those that the evidence speaks for, by their places; `None`: all.
    pub(super) cures: Option<Vec<usize>>,
    /// What follows from it on this evidence; `None`: all that the signature explains.
    pub(super) explains: Option<&'static [&'static str]>,
}

impl Seen {
    /// Only these cures are told, by their places.
    pub(super) fn with_cures(mut self, places: impl IntoIterator<Item = usize>) -> Self {
        if let Self::Yes(found) = &mut self {
            found.cures = Some(places.into_iter().collect());
        }
        self
    }

    /// Only these follow from it.
    pub(super) fn with_explains(mut self, explains: &'static [&'static str]) -> Self {
        if let Self::Yes(found) = &mut self {
            found.explains = Some(explains);
        }
        self
    }
}

impl Match {
    pub(super) fn at_risk(metrics: &[&str], evidence: Vec<String>) -> Seen {
        Self::of(Verdict::AtRisk, metrics, evidence)
    }

    pub(super) fn stop(metrics: &[&str], evidence: Vec<String>) -> Seen {
        Self::of(Verdict::StopRecommended, metrics, evidence)
    }

    fn of(verdict: Verdict, metrics: &[&str], evidence: Vec<String>) -> Seen {
        Seen::Yes(Self {
            verdict,
            evidence,
            metrics: metrics.iter().map(|name| (*name).to_owned()).collect(),
            cures: None,
            explains: None,
        })
    }
}

/// A way for a run to go wrong.
#[derive(Serialize)]
pub struct Signature {
    /// Stable name.
    pub id: &'static str,
    /// In a few words.
    pub title: &'static str,
    /// The evidence without which it is never claimed.
    pub needs: &'static str,
    /// What is behind it.
    pub cause: &'static str,
    /// The first first. Of several causes each has its own; which are told then depends on the evidence.
    pub cures: &'static [Cure],
    /// Signatures that follow from it and are not told beside it.
    #[serde(skip)]
    pub(super) explains: &'static [&'static str],
    #[serde(skip)]
    pub(super) test: fn(&Evidence<'_>) -> Seen,
}

/// All of them, in the order in which they are told.
pub fn signatures() -> impl Iterator<Item = &'static Signature> {
    crash::SIGNATURES
        .iter()
        .chain(environment::SIGNATURES)
        .chain(capture::SIGNATURES)
        .chain(learning::SIGNATURES)
        .chain(speed::SIGNATURES)
}
