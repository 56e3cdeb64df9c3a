//! Which experts of a mixture each position went through, as the engine said. Absent where it said nothing: expert 0 is an
//! expert, so that nothing is ever padded.

use serde::{Deserialize, Serialize};

/// The shape of a mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Experts {
    /// Decoder layers; a row holds all of them, those without experts too.
    pub layers: u16,
    /// Experts that a token goes through in a layer.
    pub top_k: u16,
    /// Experts in a layer.
    pub count: u16,
}

impl Experts {
    /// Bytes of one index.
    pub fn index_bytes(self) -> usize {
        if self.count <= 256 { 1 } else { 2 }
    }

    /// Bytes of one position.
    pub fn row_bytes(self) -> usize {
        usize::from(self.layers) * usize::from(self.top_k) * self.index_bytes()
    }
}

/// Expert indices of a run of positions, prompt and response counted together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutedRows {
    /// The first position.
    pub start: u32,
    /// What a row looks like.
    pub experts: Experts,
    /// `[positions, layers, top_k]` indices, little-endian; base64 in JSON.
    #[serde(with = "base64_text")]
    pub rows: Vec<u8>,
}

impl RoutedRows {
    /// One past the last position.
    pub fn end(&self) -> usize {
        self.start as usize + self.rows.len() / self.experts.row_bytes().max(1)
    }

    /// The positions from `from` up to `to`; none if there is none.
    #[must_use]
    pub fn within(&self, from: usize, to: usize) -> Option<Self> {
        let (start, end) = (from.max(self.start as usize), to.min(self.end()));
        let bytes = self.experts.row_bytes();
        let at = |position: usize| (position - self.start as usize) * bytes;
        (start < end).then(|| Self {
            start: start as u32,
            experts: self.experts,
            rows: self.rows[at(start)..at(end)].to_vec(),
        })
    }
}

mod base64_text {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(rows: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(rows))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(de::Error::custom)
    }
}
