//! Which replica a session is with.

use std::collections::{BTreeMap, HashMap};

use super::ReplicaId;
use crate::trajectory::PolicyVersion;

/// Sessions remembered at most; the one that was quiet for longest is forgotten first.
const REMEMBERED: usize = 65_536;

/// Sessions and their replicas.
#[derive(Debug)]
pub(super) struct Homes {
    places: HashMap<String, Home>,
    /// Sessions by when they were last used.
    quiet: BTreeMap<u64, String>,
    /// Of each replica.
    sums: HashMap<ReplicaId, Sum>,
    clock: u64,
    most: usize,
}

/// What a replica's sessions come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sum {
    pub(super) tokens: u64,
    pub(super) sessions: usize,
}

/// Where a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// Its replica.
    pub replica: ReplicaId,
    /// Tokens of its last turn.
    pub tokens: u64,
    /// The newest weights that sampled any of it.
    pub version: PolicyVersion,
    /// Tokens that its replica may have cached of it.
    pub cached: u64,
    used: u64,
}

impl Home {
    /// Tokens of a turn that was placed just now which its replica cannot have cached.
    pub fn fresh(&self) -> u64 {
        self.tokens.saturating_sub(self.cached)
    }
}

impl Default for Homes {
    fn default() -> Self {
        Self {
            places: HashMap::new(),
            quiet: BTreeMap::new(),
            sums: HashMap::new(),
            clock: 0,
            most: REMEMBERED,
        }
    }
}

impl Homes {
    pub(super) fn get(&self, session: &str) -> Option<Home> {
        self.places.get(session).copied()
    }

    pub(super) fn sum(&self, replica: ReplicaId) -> Sum {
        self.sums.get(&replica).copied().unwrap_or_default()
    }

    /// The session is with this replica from now on, and has so many tokens.
    pub(super) fn set(&mut self, session: &str, replica: ReplicaId, tokens: u64) {
        let (name, version, cached) = match self.take(session) {
            Some((name, before)) if before.replica == replica => (name, before.version, before.cached),
            Some((name, before)) => (name, before.version, 0),
            None => (session.to_owned(), PolicyVersion::default(), 0),
        };
        if self.places.len() >= self.most
            && let Some((_, quietest)) = self.quiet.first_key_value()
        {
            let quietest = quietest.clone();
            self.take(&quietest);
        }
        self.clock += 1;
        let used = self.clock;
        let sum = self.sums.entry(replica).or_default();
        sum.tokens += tokens;
        sum.sessions += 1;
        self.quiet.insert(used, name.clone());
        let home = Home {
            replica,
            tokens,
            version,
            cached,
            used,
        };
        self.places.insert(name, home);
    }

    /// All of the session's tokens have been computed where it is.
    pub(super) fn computed(&mut self, session: &str) {
        if let Some(home) = self.places.get_mut(session) {
            home.cached = home.tokens;
        }
    }

    /// What the replica had cached is gone.
    pub(super) fn forget_cache(&mut self, replica: ReplicaId) {
        for home in self.places.values_mut().filter(|home| home.replica == replica) {
            home.cached = 0;
        }
    }

    /// These weights have sampled something of the session.
    pub(super) fn saw(&mut self, session: &str, version: PolicyVersion) {
        if let Some(home) = self.places.get_mut(session) {
            home.version = home.version.max(version);
        }
    }

    /// Forgets a session; tells where it was.
    pub(super) fn take(&mut self, session: &str) -> Option<(String, Home)> {
        let (name, home) = self.places.remove_entry(session)?;
        self.quiet.remove(&home.used);
        if let Some(sum) = self.sums.get_mut(&home.replica) {
            sum.tokens -= home.tokens;
            sum.sessions -= 1;
        }
        Some((name, home))
    }

    /// All of them, those that were quiet for longest first.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, Home)> {
        self.quiet
            .values()
            .filter_map(|name| Some((name.as_str(), *self.places.get(name)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quietest_session_is_forgotten_first() {
        let mut homes = Homes {
            most: 2,
            ..Homes::default()
        };
        for name in ["a", "b", "a", "c"] {
            homes.set(name, 7, 10);
        }
        let left: Vec<&str> = homes.all().map(|(name, _)| name).collect();
        assert_eq!(left, ["a", "c"]);
        assert_eq!(
            homes.sum(7),
            Sum {
                tokens: 20,
                sessions: 2
            }
        );
        homes.set("a", 8, 4);
        assert_eq!(
            homes.sum(7),
            Sum {
                tokens: 10,
                sessions: 1
            }
        );
        assert_eq!(homes.take("c").map(|(_, home)| home.replica), Some(7));
        assert_eq!(homes.take("c"), None);
        assert_eq!((homes.sum(7), homes.sum(8).tokens), (Sum::default(), 4));
    }
}
