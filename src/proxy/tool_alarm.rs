//! Notices a policy whose tool calls never come out: every rollout would be one turn long, and its reward may look fine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Answers to requests that offer tools, all without a call, from which on it is worth a word.
const SILENCE: u64 = 32;

/// Counts over all closed sessions.
#[derive(Debug, Default)]
pub(super) struct ToolAlarm {
    answers: AtomicU64,
    calls: AtomicU64,
    malformed: AtomicU64,
    told: AtomicBool,
}

impl ToolAlarm {
    /// Adds a session's answers to requests that offered tools, its calls, and what was meant as a call and is none.
    /// Gives what a person should be told, once.
    pub(super) fn add(&self, answers: u32, calls: u32, malformed: u32) -> Option<String> {
        let add = |total: &AtomicU64, more: u32| total.fetch_add(more.into(), Ordering::Relaxed) + u64::from(more);
        let answers = add(&self.answers, answers);
        let calls = add(&self.calls, calls);
        let malformed = add(&self.malformed, malformed);
        if calls > 0 || answers < SILENCE || self.told.swap(true, Ordering::Relaxed) {
            return None;
        }
        let told = format!(
            "none of the first {answers} answers to requests that offer tools called one, and {malformed} began a call \
             that could not be read: does the policy write calls as `engine.tool_parser` reads them?"
        );
        Some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_speaks_once_and_only_where_no_call_ever_came() {
        let alarm = ToolAlarm::default();
        assert_eq!(alarm.add(31, 0, 2), None);
        let told = alarm.add(1, 0, 1).unwrap();
        assert!(told.contains("first 32 answers") && told.contains("3 began"), "{told}");
        assert_eq!(alarm.add(100, 0, 0), None);
        let calling = ToolAlarm::default();
        assert_eq!(calling.add(1, 1, 0), None);
        assert_eq!(calling.add(1000, 0, 0), None);
    }
}
