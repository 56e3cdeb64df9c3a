//! Which replica a session is with.

use std::collections::HashMap;

use crate::trajectory::SessionKey;

/// Sessions remembered at most; the one that was quiet for longest is forgotten first.
const REMEMBERED: usize = 16_384;

/// Sessions and their replicas.
pub(super) struct Sessions {
    homes: HashMap<SessionKey, Home>,
    /// Sessions of each replica.
    counts: Vec<usize>,
    clock: u64,
    most: usize,
}

struct Home {
    replica: usize,
    used: u64,
}

impl Sessions {
    pub(super) fn new(replicas: usize) -> Self {
        Self {
            homes: HashMap::new(),
            counts: vec![0; replicas],
            clock: 0,
            most: REMEMBERED,
        }
    }

    /// The session's replica if it is among these, or else the one of these with the fewest sessions, which it stays
    /// with from now on.
    pub(super) fn place(&mut self, session: &SessionKey, among: &[usize]) -> Option<usize> {
        self.clock += 1;
        let clock = self.clock;
        if let Some(home) = self.homes.get_mut(session)
            && among.contains(&home.replica)
        {
            home.used = clock;
            return Some(home.replica);
        }
        let replica = among.iter().copied().min_by_key(|&at| self.counts[at])?;
        self.end(session);
        if self.homes.len() >= self.most {
            let oldest = self.homes.iter().min_by_key(|(_, home)| home.used);
            if let Some(oldest) = oldest.map(|(session, _)| session.clone()) {
                self.end(&oldest);
            }
        }
        self.counts[replica] += 1;
        self.homes.insert(session.clone(), Home { replica, used: clock });
        Some(replica)
    }

    /// Forgets a session.
    pub(super) fn end(&mut self, session: &SessionKey) {
        if let Some(home) = self.homes.remove(session) {
            self.counts[home.replica] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SessionKey {
        SessionKey::from(name)
    }

    #[test]
    fn sessions_spread_stay_and_move_when_they_must() {
        let mut sessions = Sessions::new(2);
        assert_eq!(sessions.place(&key("a"), &[0, 1]), Some(0));
        assert_eq!(sessions.place(&key("b"), &[0, 1]), Some(1));
        assert_eq!(sessions.place(&key("c"), &[0, 1]), Some(0));
        for _ in 0..3 {
            assert_eq!(sessions.place(&key("a"), &[0, 1]), Some(0), "it stays");
        }
        assert_eq!(sessions.place(&key("a"), &[1]), Some(1), "its replica is out");
        assert_eq!(sessions.place(&key("a"), &[0, 1]), Some(1), "and it stays there");
        sessions.end(&key("a"));
        sessions.end(&key("b"));
        sessions.end(&key("unknown"));
        assert_eq!(sessions.counts, [1, 0]);
        assert_eq!(sessions.place(&key("d"), &[0, 1]), Some(1));
        assert_eq!(sessions.place(&key("e"), &[]), None);
    }

    #[test]
    fn the_quietest_session_is_forgotten_first() {
        let mut sessions = Sessions::new(1);
        sessions.most = 2;
        for name in ["a", "b", "a", "c"] {
            sessions.place(&key(name), &[0]);
        }
        assert!(sessions.homes.contains_key(&key("a")) && !sessions.homes.contains_key(&key("b")));
        assert_eq!((sessions.homes.len(), sessions.counts[0]), (2, 2));
    }
}
