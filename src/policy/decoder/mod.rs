//! The decoder over packed weights: one forward pass that serves decoding and training alike.
//!
//! Tokens of many sequences lie side by side, row after row, with no padding; linear maps run over all of them at once,
//! attention sequence by sequence. This folder knows neither losses nor sampling.

pub(crate) mod backward;
pub(crate) mod experts;
pub(crate) mod experts_backward;
pub(crate) mod forward;
pub(crate) mod head;
pub(crate) mod learning;
pub(crate) mod packed;
mod value;

/// Neighbouring rows of a pass that belong to one sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// First row.
    pub(crate) start: usize,
    /// Number of rows.
    pub(crate) rows: usize,
}

impl Span {
    /// The floats of these rows where each row has `width`.
    pub(crate) fn floats(self, width: usize) -> std::ops::Range<usize> {
        self.start * width..(self.start + self.rows) * width
    }
}
