//! Where a call begins in text that is still growing.

/// Whether text at the start of an answer begins a call; `None` while more text is needed to tell.
pub(super) type BeginsCall = fn(&str) -> Option<bool>;

/// How calls of one format begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening {
    /// Marks that begin a call.
    marks: &'static [&'static str],
    /// Marks around calls, which are neither text nor calls.
    noise: &'static [&'static str],
    /// Calls without a mark: only at the start of an answer, or right behind another call.
    at_start: Option<BeginsCall>,
}

/// What comes next in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// A call begins at `at`; its body comes behind `mark`.
    Call { at: usize, mark: &'static str },
    /// A mark that is no text.
    Noise { at: usize, length: usize },
    /// All before `at` is text; what comes behind may yet become a call.
    Text { until: usize },
}

impl Opening {
    pub(super) fn marks(marks: &'static [&'static str]) -> Self {
        Self {
            marks,
            noise: &[],
            at_start: None,
        }
    }

    pub(super) fn or_at_start(self, begins: BeginsCall) -> Self {
        Self {
            at_start: Some(begins),
            ..self
        }
    }

    pub(super) fn with_noise(self, noise: &'static [&'static str]) -> Self {
        Self { noise, ..self }
    }

    /// Looks at `text`. `start`: nothing but space and calls came before it. `space` is what does not count
    /// as text around calls.
    pub(super) fn next(&self, text: &str, start: bool, space: impl Fn(char) -> bool) -> Next {
        let bare = text.trim_start_matches(space);
        if start
            && let Some(begins) = self.at_start
            && !bare.is_empty()
        {
            let at = text.len() - bare.len();
            match begins(bare) {
                Some(true) => return Next::Call { at, mark: "" },
                None => return Next::Text { until: 0 },
                Some(false) => {}
            }
        }
        let first = |marks: &'static [&'static str]| {
            let found = marks.iter().filter_map(|mark| Some((text.find(mark)?, *mark)));
            found.min_by_key(|(at, _)| *at)
        };
        match (first(self.marks), first(self.noise)) {
            (Some((at, mark)), noise) if noise.is_none_or(|(other, _)| at < other) => Next::Call { at, mark },
            (_, Some((at, mark))) => Next::Noise { at, length: mark.len() },
            _ => Next::Text {
                until: text.len() - self.partial(text),
            },
        }
    }

    /// Length of the longest end of `text` with which a mark begins.
    fn partial(&self, text: &str) -> usize {
        let marks = self.marks.iter().chain(self.noise);
        marks.map(|mark| partial_mark(text, mark)).max().unwrap_or(0)
    }
}

/// Length of the longest end of `text` with which `mark` begins.
fn partial_mark(text: &str, mark: &str) -> usize {
    let lengths = mark.char_indices().map(|(at, _)| at).rev();
    lengths
        .into_iter()
        .find(|&length| text.ends_with(&mark[..length]))
        .unwrap_or(0)
}
