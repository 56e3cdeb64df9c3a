//! Finds where brackets are closed again, over text that arrives in pieces.

/// A running scanner over JSON or Python literals.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Balance {
    /// Bytes looked at.
    at: usize,
    depth: usize,
    /// The quote that closes the string that is open.
    quote: Option<u8>,
    escaped: bool,
}

impl Balance {
    /// Looks at what is new in `text`, from byte `from` at the earliest; the end of the value once it is there.
    ///
    /// `single`: whether `'` quotes too, as in Python.
    pub(super) fn advance(&mut self, text: &str, from: usize, single: bool) -> Option<usize> {
        self.at = self.at.max(from);
        while let Some(&byte) = text.as_bytes().get(self.at) {
            self.at += 1;
            match (self.quote, byte) {
                (Some(_), _) if self.escaped => self.escaped = false,
                (Some(_), b'\\') => self.escaped = true,
                (Some(quote), _) if quote == byte => self.quote = None,
                (None, b'"') => self.quote = Some(byte),
                (None, b'\'') if single => self.quote = Some(byte),
                (None, b'{' | b'[' | b'(') => self.depth += 1,
                (None, b'}' | b']' | b')') => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(self.at);
                    }
                }
                _ => {}
            }
        }
        None
    }
}
