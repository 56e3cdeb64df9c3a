//! `[balance]`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HumanDuration;

/// Which replica serves a turn, and when a session may send its next one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BalanceSection {
    /// Which replica serves a session's turns (`engine.endpoints` names several).
    pub policy: PlacementPolicy,
    /// Whether turns are held until their session's tokens fit into the replica's cache beside those of the others. Where
    /// the size of that cache is not known, nothing is held, and a warning says so.
    pub scheduler: SessionScheduler,
    /// How long an idle session keeps its place although others wait (`lease`).
    pub lease: HumanDuration,
    /// How long a turn is held at most: `lease`: before it may take the place of any idle session, as long as `tax` allows;
    /// `watermark`: before it is sent, whatever is cached of it.
    pub max_hold: HumanDuration,
    /// Share of the time that computing displaced sessions again may take (`lease`).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub tax: f64,
    /// Tokens that one replica's cache holds; absent: what the engine says.
    #[schemars(range(min = 1))]
    pub capacity: Option<u64>,
    /// Idle sessions that nobody ended are forgotten after this time.
    pub idle_ttl: HumanDuration,
    /// Share of the cache, taken by turns that run or are reserved for, below which every turn is sent (`watermark`).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub high_watermark: f64,
    /// Share of a turn's prompt that must still be cached beyond it (`watermark`).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub hit_threshold: f64,
    /// How long a session that was sent for what was cached of it is sent at once again after its last turn (`watermark`).
    pub idle_grace: HumanDuration,
}

impl Default for BalanceSection {
    fn default() -> Self {
        Self {
            policy: PlacementPolicy::Sticky,
            scheduler: SessionScheduler::Off,
            lease: HumanDuration::from_secs(20),
            max_hold: HumanDuration::from_secs(600),
            tax: 0.05,
            capacity: None,
            idle_ttl: HumanDuration::from_secs(1800),
            high_watermark: 0.85,
            hit_threshold: 0.8,
            idle_grace: HumanDuration::from_secs(60),
        }
    }
}

/// Which replica serves a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementPolicy {
    /// A session stays with its replica; a new one goes to the replica with the fewest tokens of sessions.
    #[default]
    Sticky,
    /// As sticky, but a session goes where its whole context is computed sooner than its own replica comes to its turn, by what
    /// waits there and how fast each was seen to compute prompts.
    Priced,
    /// Each turn goes to the replica that has seen most of its beginning, unless that one has far more to do than others.
    Prefix,
    /// Each turn goes to the replica with the fewest tokens in flight.
    LeastLoad,
    /// Each turn goes to the next replica.
    RoundRobin,
    /// By a hash of the session, the same in every process; past a bound on its load, the next on the ring.
    ConsistentHash,
}

impl std::str::FromStr for PlacementPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        use serde::de::IntoDeserializer as _;
        let name: serde::de::value::StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
        Self::deserialize(name).map_err(|_| {
            format!(
                "`{text}` is no policy: expected `sticky`, `priced`, `prefix`, `least-load`, `round-robin` or `consistent-hash`"
            )
        })
    }
}

/// When a session may send its next turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SessionScheduler {
    /// At once.
    #[default]
    Off,
    /// Once its tokens fit beside those of the sessions that have a place; an idle one keeps its place for `lease`.
    Lease,
    /// Once what runs or is reserved leaves room below `high_watermark`, or `hit_threshold` of its prompt is still cached. The engine must
    /// say what it has cached: `embedded` does, servers do not.
    Watermark,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_by_name() {
        assert_eq!("least-load".parse(), Ok(PlacementPolicy::LeastLoad));
        let said = "LeastLoad".parse::<PlacementPolicy>().unwrap_err();
        assert!(said.contains("`consistent-hash`"), "{said}");
    }
}
