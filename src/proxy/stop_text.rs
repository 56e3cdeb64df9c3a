//! Finds the texts that a request wants its answer to end at, while the answer is being sampled.

/// A running search.
#[derive(Debug, Default)]
pub(super) struct StopText {
    stops: Vec<String>,
    /// The end of what came, which may be the beginning of a stop.
    held: String,
}

impl StopText {
    pub(super) fn new(stops: Vec<String>) -> Self {
        Self {
            stops,
            held: String::new(),
        }
    }

    /// Whether nothing is looked for.
    pub(super) fn is_empty(&self) -> bool {
        self.stops.is_empty()
    }

    /// Takes more text. Gives what is certain to stand before any stop, and the stop if there is one; behind
    /// it nothing counts.
    pub(super) fn push(&mut self, text: &str) -> (String, Option<String>) {
        if self.stops.is_empty() {
            return (text.to_owned(), None);
        }
        self.held.push_str(text);
        let first = self
            .stops
            .iter()
            .filter_map(|stop| Some((self.held.find(stop)?, stop)))
            .min_by_key(|&(at, stop)| (at, std::cmp::Reverse(stop.len())));
        if let Some((at, stop)) = first {
            let stop = stop.clone();
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), Some(stop));
        }
        let begun = (0..self.held.len())
            .filter(|&at| self.held.is_char_boundary(at))
            .find(|&at| self.stops.iter().any(|stop| stop.starts_with(&self.held[at..])))
            .unwrap_or(self.held.len());
        let rest = self.held.split_off(begun);
        (std::mem::replace(&mut self.held, rest), None)
    }

    /// The answer is over: what was held back is text.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(stops: &[&str], chunks: &[&str]) -> (String, Option<String>) {
        let mut search = StopText::new(stops.iter().map(|&stop| stop.to_owned()).collect());
        let mut all = String::new();
        for chunk in chunks {
            let (text, stop) = search.push(chunk);
            all.push_str(&text);
            if stop.is_some() {
                return (all, stop);
            }
        }
        (all + &search.finish(), None)
    }

    #[test]
    fn the_text_before_the_stop_remains() {
        let hit = |text: &str, stop: &str| (text.to_owned(), Some(stop.to_owned()));
        assert_eq!(run(&["END"], &["a E", "N", "Db"]), hit("a ", "END"));
        assert_eq!(run(&["END"], &["a E", "Nx"]), ("a ENx".to_owned(), None));
        assert_eq!(run(&["END"], &["a EN"]), ("a EN".to_owned(), None));
        assert_eq!(run(&["b", "bc"], &["abc"]), hit("a", "bc"));
        assert_eq!(run(&[], &["a", "b"]), ("ab".to_owned(), None));
    }

    proptest! {
        #[test]
        fn the_text_is_the_same_however_it_is_cut(text in "[ab🦀]{0,12}", stop in "[ab🦀]{1,3}") {
            let cut: Vec<String> = text.chars().map(String::from).collect();
            let chunks: Vec<&str> = cut.iter().map(String::as_str).collect();
            let wanted = text.find(&stop).map_or(text.as_str(), |at| &text[..at]);
            let (found, hit) = run(&[&stop], &chunks);
            prop_assert_eq!(found.as_str(), wanted);
            prop_assert_eq!(hit.is_some(), text.contains(&stop));
        }
    }
}
