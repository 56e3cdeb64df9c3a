//! What sessions do: a system prompt that all share, a prompt of their own, and turns of answers and tool results.

use std::sync::Arc;

use rand::{Rng, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::Recorded;

/// What is played.
#[derive(Debug, Clone, PartialEq)]
pub enum Load {
    /// Sessions that are drawn.
    Drawn(Workload),
    /// Sessions that were.
    Recorded(Arc<Recorded>),
}

impl Load {
    /// Tokens that every session begins with.
    pub fn shared(&self) -> u64 {
        match self {
            Self::Drawn(workload) => workload.shared,
            Self::Recorded(recorded) => recorded.shared(),
        }
    }

    /// Tokens of the longest conversation that may come.
    pub fn longest(&self) -> u64 {
        match self {
            Self::Drawn(workload) => workload.window,
            Self::Recorded(recorded) => recorded.shared() + recorded.longest(),
        }
    }

    /// The session of this number: the same whatever happens around it.
    pub(super) fn session(&self, seed: u64, number: u64) -> Session {
        match self {
            Self::Drawn(workload) => workload.session(seed, number),
            Self::Recorded(recorded) => recorded.session(number),
        }
    }
}

/// A mix of sessions. Lengths are in tokens, gaps in seconds; each is log-normal with this mean and this σ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    /// Tokens that every session begins with.
    pub shared: u64,
    /// Tokens of its own before the first turn.
    pub first: Spread,
    /// Turns.
    pub turns: Spread,
    /// Tokens of an answer.
    pub answer: Spread,
    /// Tokens of a tool's result.
    pub result: Spread,
    /// Seconds that a tool takes.
    pub gap: Spread,
    /// Tokens of a conversation at most.
    pub window: u64,
}

/// A log-normal quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Its mean.
    pub mean: f64,
    /// Standard deviation of its logarithm.
    pub sigma: f64,
    /// Its least value.
    pub least: f64,
    /// Its greatest value.
    pub most: f64,
}

impl Spread {
    const fn of(mean: f64, sigma: f64, most: f64) -> Self {
        Self {
            mean,
            sigma,
            least: 1.0,
            most,
        }
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> f64 {
        let centre = self.mean.ln() - self.sigma * self.sigma / 2.0;
        (centre + self.sigma * normal(rng)).exp().clamp(self.least, self.most)
    }

    fn count(&self, rng: &mut ChaCha8Rng) -> u64 {
        self.draw(rng).round() as u64
    }
}

/// A standard normal value, by Box and Muller.
pub(super) fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let (one, other): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
}

impl Workload {
    /// Coding agents as they were measured.
    pub const AGENTS: Self = Self {
        shared: 8_192,
        first: Spread::of(3_000.0, 0.5, 60_000.0),
        turns: Spread::of(40.0, 0.6, 150.0),
        answer: Spread::of(350.0, 0.7, 8_192.0),
        result: Spread::of(1_200.0, 1.0, 30_000.0),
        gap: Spread {
            mean: 3.0,
            sigma: 1.3,
            least: 0.0,
            most: 300.0,
        },
        window: 120_000,
    };

    /// The session of this number: the same whatever happens around it.
    pub fn session(&self, seed: u64, number: u64) -> Session {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(number);
        let wanted = self.turns.count(&mut rng);
        let mut context = self.shared + self.first.count(&mut rng);
        let mut turns = Vec::new();
        for _ in 0..wanted {
            let (answer, result) = (self.answer.count(&mut rng), self.result.count(&mut rng));
            let gap = self.gap.draw(&mut rng);
            if context + answer > self.window {
                break;
            }
            turns.push(Turn {
                prompt: context - self.shared,
                answer,
                kept: context - self.shared,
                gap,
            });
            context += answer + result;
        }
        Session { turns }
    }
}

/// One session.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// At least one.
    pub turns: Vec<Turn>,
}

/// One turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn {
    /// Tokens of its prompt that no other session shares.
    pub prompt: u64,
    /// Tokens that it samples.
    pub answer: u64,
    /// Tokens of its prompt, from the beginning, that may still be cached of its session's turns before.
    pub kept: u64,
    /// Seconds from its end to the next.
    pub gap: f64,
}
