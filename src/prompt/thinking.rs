//! Splits off thinking: `<think>…</think>` at the beginning of an answer.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// What a template makes of thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// It knows none: tags are text.
    None,
    /// The policy opens it.
    Tagged,
    /// The prompt ends with the opening tag.
    Opened,
}

/// A running splitter; the same result however the text is cut.
#[derive(Debug, Clone)]
pub(super) struct ThinkingSplitter {
    state: State,
    held: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but space so far, or the beginning of the tag.
    Undecided,
    /// Inside, before the first character that is no space.
    Opened,
    Thinking,
    /// Behind the thinking, before the text.
    Closed,
    Text,
}

/// One side or the other.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Thinking(String),
    Text(String),
}

impl ThinkingSplitter {
    pub(super) fn new(thinking: Thinking) -> Self {
        let state = match thinking {
            Thinking::None => State::Text,
            Thinking::Tagged => State::Undecided,
            Thinking::Opened => State::Opened,
        };
        Self {
            state,
            held: String::new(),
        }
    }

    pub(super) fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        let mut parts = Vec::new();
        while self.step(&mut parts) {}
        parts
    }

    pub(super) fn finish(&mut self) -> Vec<Part> {
        let rest = std::mem::take(&mut self.held);
        match self.state {
            State::Undecided | State::Text if !rest.is_empty() => vec![Part::Text(rest)],
            State::Opened | State::Thinking if !rest.trim_end().is_empty() => {
                vec![Part::Thinking(rest.trim_end().to_owned())]
            }
            _ => Vec::new(),
        }
    }

    fn step(&mut self, parts: &mut Vec<Part>) -> bool {
        match self.state {
            State::Undecided => {
                let start = self.held.trim_start();
                if start.starts_with(OPEN) {
                    let at = self.held.len() - start.len() + OPEN.len();
                    self.held.drain(..at);
                    self.state = State::Opened;
                } else if OPEN.starts_with(start) {
                    return false;
                } else {
                    self.state = State::Text;
                }
                true
            }
            State::Opened | State::Closed => {
                let space = self.held.len() - self.held.trim_start().len();
                self.held.drain(..space);
                // A policy may open once more what the prompt has opened.
                if self.state == State::Opened && self.held.starts_with(OPEN) {
                    self.held.drain(..OPEN.len());
                    return true;
                }
                let undecided = self.state == State::Opened && OPEN.starts_with(&self.held);
                if self.held.is_empty() || undecided {
                    return false;
                }
                self.state = if self.state == State::Opened {
                    State::Thinking
                } else {
                    State::Text
                };
                true
            }
            State::Thinking => {
                if let Some(at) = self.held.find(CLOSE) {
                    let thinking = self.held[..at].trim_end().to_owned();
                    self.held.drain(..at + CLOSE.len());
                    self.state = State::Closed;
                    push(parts, Part::Thinking, thinking);
                    return true;
                }
                let partial = (1..CLOSE.len())
                    .rev()
                    .find(|&length| self.held.ends_with(&CLOSE[..length]))
                    .unwrap_or(0);
                let certain = self.held[..self.held.len() - partial].trim_end().len();
                let thinking = self.held.drain(..certain).collect();
                push(parts, Part::Thinking, thinking);
                false
            }
            State::Text => {
                push(parts, Part::Text, std::mem::take(&mut self.held));
                false
            }
        }
    }
}

fn push(parts: &mut Vec<Part>, kind: fn(String) -> Part, text: String) {
    if !text.is_empty() {
        parts.push(kind(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thinking and text of an answer that arrives byte by byte, checked against the answer in one piece.
    fn split(thinking: Thinking, answer: &str) -> (String, String) {
        let run = |chunks: &[&str]| {
            let mut splitter = ThinkingSplitter::new(thinking);
            let mut parts: Vec<Part> = chunks.iter().flat_map(|chunk| splitter.push(chunk)).collect();
            parts.extend(splitter.finish());
            parts
                .into_iter()
                .fold((String::new(), String::new()), |(mut thinking, mut text), part| {
                    match part {
                        Part::Thinking(more) => thinking.push_str(&more),
                        Part::Text(more) => text.push_str(&more),
                    }
                    (thinking, text)
                })
        };
        let whole = run(&[answer]);
        let chunks: Vec<&str> = answer.split("").collect();
        assert_eq!(run(&chunks), whole, "{answer:?}");
        whole
    }

    #[test]
    fn thinking_comes_first_or_not_at_all() {
        let pair = |thinking: &str, text: &str| (thinking.to_owned(), text.to_owned());
        assert_eq!(
            split(Thinking::Tagged, "<think>\na < b\n</think>\n\nDone."),
            pair("a < b", "Done.")
        );
        assert_eq!(
            split(Thinking::Tagged, "\n Done <think>."),
            pair("", "\n Done <think>.")
        );
        assert_eq!(
            split(Thinking::Tagged, "<think>\n\n</think>\n\nDone."),
            pair("", "Done.")
        );
        assert_eq!(split(Thinking::Tagged, "<think>cut </thi"), pair("cut </thi", ""));
        assert_eq!(split(Thinking::Tagged, "<thin"), pair("", "<thin"));
        assert_eq!(split(Thinking::Opened, "hm\n</think>Done."), pair("hm", "Done."));
        assert_eq!(
            split(Thinking::Opened, "<think>\n<b> hm</think>\n\nDone."),
            pair("<b> hm", "Done.")
        );
        assert_eq!(split(Thinking::Opened, "\n</think>\n\nDone."), pair("", "Done."));
        assert_eq!(split(Thinking::Opened, "<th"), pair("<th", ""));
        assert_eq!(
            split(Thinking::None, "<think>hm</think>Done."),
            pair("", "<think>hm</think>Done.")
        );
    }
}
