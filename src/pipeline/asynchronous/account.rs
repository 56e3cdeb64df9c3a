//! What a step's line says of both sides: who waited, how old the trained tokens are, what was dropped.

use std::collections::{BTreeMap, BTreeSet};

use crate::metrics::StepMetrics;
use crate::trajectory::{Episode, PolicyVersion};

/// Weights that the engine has served since this start, oldest first.
#[derive(Debug)]
pub(super) struct Served(Vec<PolicyVersion>);

impl Served {
    pub(super) fn new(first: PolicyVersion) -> Self {
        Self(vec![first])
    }

    pub(super) fn add(&mut self, version: PolicyVersion) {
        self.0.push(version);
    }

    /// What it serves now.
    pub(super) fn last(&self) -> PolicyVersion {
        self.0.last().copied().unwrap_or_default()
    }

    /// Publications since weights were served; those of an earlier start are at least one old.
    fn lag(&self, version: PolicyVersion) -> usize {
        self.0.len() - self.0.partition_point(|served| *served <= version)
    }

    /// How old the tokens of a batch are that is about to train, and over how many versions its episodes go.
    pub(super) fn measure(&self, metrics: &mut StepMetrics, episodes: &[Episode]) {
        let mut lags: BTreeMap<usize, u64> = BTreeMap::new();
        let mut stale_groups = BTreeSet::new();
        let (mut partial, mut widest) = (0usize, 0usize);
        for episode in episodes {
            let spans = episode.segments.iter().flat_map(|segment| &segment.weight_versions);
            let mut versions = BTreeSet::new();
            for span in spans {
                let lag = self.lag(span.version);
                *lags.entry(lag).or_default() += u64::from(span.end.saturating_sub(span.start));
                versions.insert(span.version);
                if lag > 0 {
                    stale_groups.insert(&episode.group_id);
                }
            }
            partial += usize::from(versions.len() > 1);
            widest = widest.max(versions.len());
        }
        let tokens: u64 = lags.values().sum();
        if tokens > 0 {
            let weighted: f64 = lags.iter().map(|(&lag, &tokens)| lag as f64 * tokens as f64).sum();
            metrics.set("fully_async/staleness/mean", weighted / tokens as f64);
            let oldest = lags.keys().next_back().copied().unwrap_or_default();
            metrics.set("fully_async/staleness/max", oldest as f64);
            for (lag, count) in lags {
                metrics.set(format!("fully_async/staleness/lag_{lag}"), count as f64 / tokens as f64);
            }
        }
        metrics.set("fully_async/count/stale_samples", stale_groups.len() as f64);
        if !episodes.is_empty() {
            metrics.set(
                "fully_async/partial/partial_ratio",
                partial as f64 / episodes.len() as f64,
            );
        }
        metrics.set("fully_async/partial/max_span", widest as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::fixture::episode;
    use crate::trajectory::{Segment, VersionSpan};

    #[test]
    fn the_age_of_a_token_is_in_publications() {
        let version = |lineage, update| PolicyVersion { lineage, update };
        let mut served = Served::new(version(1, 10));
        served.add(version(1, 14));
        served.add(version(1, 18));
        let ages = [version(1, 18), version(1, 14), version(1, 10), version(0, 12)].map(|at| served.lag(at));
        assert_eq!(ages, [0, 1, 2, 3]);

        let of = |id: &str, versions: &[(u32, u32, u64)]| Episode {
            segments: vec![Segment {
                weight_versions: versions
                    .iter()
                    .map(|&(start, end, update)| VersionSpan {
                        start,
                        end,
                        version: version(1, update),
                    })
                    .collect(),
                ..Segment::default()
            }],
            group_id: crate::trajectory::GroupId::training(id, 1),
            ..episode(id)
        };
        let mut metrics = StepMetrics::default();
        served.measure(
            &mut metrics,
            &[of("a", &[(0, 3, 14), (5, 6, 18)]), of("b", &[(0, 4, 18)])],
        );
        assert_eq!(metrics.unexplained(), Vec::<&str>::new());
        let get = |name: &str| metrics.get(&format!("fully_async/{name}")).unwrap();
        assert!((get("staleness/mean") - 0.375).abs() < 1e-12);
        for (name, expected) in [
            ("staleness/max", 1.0),
            ("staleness/lag_0", 0.625),
            ("staleness/lag_1", 0.375),
            ("count/stale_samples", 1.0),
            ("partial/partial_ratio", 0.5),
            ("partial/max_span", 2.0),
        ] {
            assert!((get(name) - expected).abs() < 1e-12, "{name}: {}", get(name));
        }
    }
}
