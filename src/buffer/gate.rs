//! How far sampling may be ahead of the trainer.

/// Bound and counts of groups that were begun and not trained on yet.
///
/// Groups begun since the last publication, those included that it found running or waiting, are at most
/// `int((1 + staleness) × trigger × required)`. It holds for every publication, also the first one after a resume, where
/// what an earlier start left counts as waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalenessGate {
    capacity: u64,
    begun: u64,
    settled: u64,
    /// Of the settled ones, those that count no more.
    released: u64,
}

impl StalenessGate {
    /// `required` groups an update, `trigger` updates between two publications. Never below `required`, without which no
    /// update could begin.
    pub fn new(required: u32, trigger: u32, staleness: f64) -> Self {
        let between = f64::from(required) * f64::from(trigger);
        Self {
            capacity: ((between * (1.0 + staleness)) as u64).max(u64::from(required)),
            begun: 0,
            settled: 0,
            released: 0,
        }
    }

    /// Groups that may be begun, running, or waiting between two publications.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Groups that count against the bound now.
    pub fn ahead(&self) -> u64 {
        self.begun - self.released
    }

    /// Groups that were settled and count no more.
    pub fn released(&self) -> u64 {
        self.released
    }

    /// Whether another group may begin.
    pub fn is_open(&self) -> bool {
        self.ahead() < self.capacity
    }

    /// A group begins, or an earlier start's is taken up.
    pub fn begin(&mut self) {
        self.begun += 1;
    }

    /// An update has taken so many.
    pub fn consumed(&mut self, groups: u64) {
        self.settled += groups;
    }

    /// So many were dropped: others may begin in their place at once.
    pub fn dropped(&mut self, groups: u64) {
        self.settled += groups;
        self.released += groups;
    }

    /// The weights of all updates so far are served.
    pub fn published(&mut self) {
        self.released = self.settled;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bound_is_the_formula() {
        for (required, trigger, staleness, capacity) in [
            (8, 1, 0.0, 8),
            (8, 1, 0.5, 12),
            (8, 4, 1.0, 64),
            (1, 1, 0.3, 1),
            (3, 1, 0.5, 4),
        ] {
            assert_eq!(StalenessGate::new(required, trigger, staleness).capacity(), capacity);
        }
    }

    #[test]
    fn without_staleness_nothing_begins_before_the_weights_are_served() {
        let mut gate = StalenessGate::new(2, 1, 0.0);
        gate.begin();
        gate.begin();
        assert!(!gate.is_open());
        gate.consumed(2);
        assert!(!gate.is_open());
        gate.published();
        assert_eq!(gate.ahead(), 0);
        // What is dropped makes room at once, or an update could wait for it for ever.
        gate.begin();
        gate.begin();
        gate.dropped(1);
        assert!(gate.is_open());
    }

    proptest! {
        /// Whatever the trainer does and whenever it publishes, what is ahead stays within the bound, and a trainer
        /// that waits for groups gets them.
        #[test]
        fn the_bound_holds_and_nothing_starves(
            required in 1u32..6,
            trigger in 1u32..4,
            staleness in 0.0f64..3.0,
            choices in prop::collection::vec(0u8..4, 1..200),
        ) {
            let mut gate = StalenessGate::new(required, trigger, staleness);
            let (mut waiting, mut updates) = (0u64, 0u32);
            for choice in choices {
                match choice {
                    0 if gate.is_open() => {
                        gate.begin();
                        waiting += 1;
                    }
                    1 if waiting > 0 => {
                        gate.dropped(1);
                        waiting -= 1;
                    }
                    _ if waiting >= u64::from(required) => {
                        gate.consumed(required.into());
                        waiting -= u64::from(required);
                        updates += 1;
                        if updates % trigger == 0 {
                            gate.published();
                            prop_assert_eq!(gate.ahead(), waiting);
                        }
                    }
                    _ => {}
                }
                prop_assert!(gate.ahead() <= gate.capacity());
                prop_assert!(waiting >= u64::from(required) || gate.is_open(), "neither side can go on");
            }
        }
    }
}
