//! How fast a replica computes prompts, as far as the first tokens of answers tell.

/// Tokens from which on the time of a prompt says something of the replica's speed.
const TELLING: u64 = 256;
/// What is left of the fastest speed seen with each one that follows.
const FADES: f64 = 0.99;

/// See the module.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PrefillRate(Option<f64>);

impl PrefillRate {
    /// So many tokens of a prompt, not cached, took so many seconds to the first token of the answer. The fastest is the one
    /// that waited for nobody else. Tells the rate where it has changed.
    pub fn saw(&mut self, tokens: u64, seconds: f64) -> Option<f64> {
        if tokens < TELLING || seconds <= 0.0 {
            return None;
        }
        let seen = tokens as f64 / seconds;
        self.0 = Some(self.0.map_or(seen, |rate| seen.max(rate * FADES)));
        self.0
    }

    /// Tokens a second; 0: nothing was seen.
    pub fn get(self) -> f64 {
        self.0.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_counts_and_fades() {
        let mut rate = PrefillRate::default();
        assert_eq!((rate.saw(100, 1.0), rate.get()), (None, 0.0));
        assert_eq!(rate.saw(1_000, 1.0), Some(1_000.0));
        // It waited for others.
        assert_eq!(rate.saw(1_000, 9.0), Some(990.0));
        assert_eq!(rate.saw(3_000, 1.0), Some(3_000.0));
    }
}
