//! Who works on a group, and whether it still lives.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Meeting, MeetingError};

/// That a rollouter works on a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// Its name.
    pub rollouter: String,
}

/// That a rollouter is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rollouter {
    /// Its name.
    pub name: String,
    /// Its machine.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// Counted up while it lives.
    pub beat: u64,
    /// Whether it has ended by itself: what it had claimed and not finished is free.
    pub ended: bool,
    /// Groups that it works on.
    pub groups: u64,
}

impl Meeting {
    /// Says that a rollouter is alive, or has ended.
    pub async fn pulse(&self, rollouter: &Rollouter) -> Result<(), MeetingError> {
        self.put(&format!("rollouters/{}.json", rollouter.name), rollouter)
            .await
    }

    /// What a rollouter said last.
    pub async fn rollouter(&self, name: &str) -> Result<Option<Rollouter>, MeetingError> {
        self.get(&format!("rollouters/{name}.json"), "a rollouter").await
    }

    /// Every rollouter that ever said something.
    pub async fn rollouters(&self) -> Result<Vec<Rollouter>, MeetingError> {
        let mut all = Vec::new();
        for name in self.names("rollouters").await? {
            all.extend(self.get(&format!("rollouters/{name}"), "a rollouter").await?);
        }
        Ok(all)
    }

    /// Claims a group, if nobody has: its `number`, and how often it was `taken_over` before. Gives the name of the one that
    /// has it: one's own where it worked.
    pub async fn claim(&self, number: u64, taken_over: u32, rollouter: &str) -> Result<String, MeetingError> {
        let name = format!("claims/{number:09}.{taken_over}.json");
        let claim = Claim {
            rollouter: rollouter.to_owned(),
        };
        if self.create(&name, &claim).await? {
            return Ok(claim.rollouter);
        }
        let found: Option<Claim> = self.get(&name, "a claim").await?;
        Ok(found.map_or_else(String::new, |claim| claim.rollouter))
    }
}

/// Whether others live, by a clock of one's own: who does not count up for a while is dead.
#[derive(Debug)]
pub struct Pulse {
    patience: Duration,
    seen: HashMap<String, (u64, Instant)>,
}

impl Pulse {
    /// Who has not counted up for so long is dead.
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            seen: HashMap::new(),
        }
    }

    /// Takes in what one says; whether it lives.
    pub fn beats(&mut self, name: &str, beat: u64) -> bool {
        let now = Instant::now();
        let (last, since) = self.seen.entry(name.to_owned()).or_insert((beat, now));
        if *last != beat {
            (*last, *since) = (beat, now);
        }
        now.duration_since(*since) < self.patience
    }
}
