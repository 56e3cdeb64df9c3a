//! Warnings that many records or tasks would repeat, each told once.

use std::collections::BTreeMap;

/// Texts, with the first place of each and how often it was seen.
#[derive(Debug, Default)]
pub(super) struct Warnings(BTreeMap<String, (String, usize)>);

impl Warnings {
    /// One more of this text, here.
    pub(super) fn add(&mut self, text: &str, place: impl FnOnce() -> String) {
        match self.0.get_mut(text) {
            Some((_, count)) => *count += 1,
            None => {
                self.0.insert(text.to_owned(), (place(), 1));
            }
        }
    }

    /// A line a text: its first place, and how many of `what` have it where those are several.
    pub(super) fn lines(self, what: &str) -> Vec<String> {
        let line = |(text, (place, count))| match count {
            1 => format!("{place}: {text}"),
            _ => format!("{place}: {text} ({count} {what})"),
        };
        self.0.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_told_once_with_its_first_place() {
        let mut warnings = Warnings::default();
        for (place, text) in [("line 1", "no `b`"), ("line 2", "no `a`"), ("line 3", "no `b`")] {
            warnings.add(text, || place.to_owned());
        }
        assert_eq!(
            warnings.lines("records"),
            ["line 2: no `a`", "line 1: no `b` (2 records)"]
        );
    }
}
