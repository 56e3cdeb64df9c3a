//! Rows of experts as servers send them, in either of two forms.
//!
//! vLLM: base64 of a `.npy` file, u8 up to 256 experts, else u16. `SGLang`: base64 of little-endian int32 alone. The
//! first bytes tell which it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::trajectory::{Experts, RoutedRows};

/// How a `.npy` file begins.
const MAGIC: &[u8] = b"\x93NUMPY";

/// What was asked, and how much there is to tell.
#[derive(Debug, Clone, Copy)]
pub(in crate::inference) struct Asked {
    /// The first position.
    pub(in crate::inference) from: u32,
    pub(in crate::inference) experts: Experts,
}

/// Reads the rows of `tokens` tokens, prompt and answer together: the last one has been fed to no layer. Nothing is
/// repaired.
pub(in crate::inference) fn decode(text: &str, asked: Asked, tokens: usize) -> Result<RoutedRows, String> {
    let Asked { from, experts } = asked;
    let bytes = STANDARD
        .decode(text.trim())
        .map_err(|error| format!("rows of experts are no base64: {error}"))?;
    let expected = tokens.saturating_sub(1).saturating_sub(from as usize);
    let (layers, top_k) = (usize::from(experts.layers), usize::from(experts.top_k));
    let (width, data) = match bytes.strip_prefix(MAGIC) {
        Some(rest) => npy(rest, [expected, layers, top_k])?,
        None => (4, &bytes[..]),
    };
    let found = data.len() / (layers * top_k * width).max(1);
    if data.len() != expected * layers * top_k * width {
        return Err(format!(
            "rows of experts for {found} positions ({} bytes), {tokens} tokens from {from} on have {expected} of \
             {layers} layers and {top_k} experts",
            data.len()
        ));
    }
    let mut rows = Vec::with_capacity(expected * experts.row_bytes());
    for index in data.chunks_exact(width) {
        let mut wide = [0; 4];
        wide[..width].copy_from_slice(index);
        let index = u32::from_le_bytes(wide);
        // A negative int32 is one too.
        if index >= experts.count.into() {
            return Err(format!("expert {} of {}", index.cast_signed(), experts.count));
        }
        rows.extend_from_slice(&index.to_le_bytes()[..experts.index_bytes()]);
    }
    Ok(RoutedRows {
        start: from,
        experts,
        rows,
    })
}

/// The width of an index, and the indices, of a `.npy` file behind its magic (numpy.lib.format, versions 1 to 3).
fn npy(rest: &[u8], expected: [usize; 3]) -> Result<(usize, &[u8]), String> {
    let torn = || "rows of experts: a torn .npy file".to_owned();
    let (&major, rest) = rest.split_first().ok_or_else(torn)?;
    let rest = rest.get(1..).ok_or_else(torn)?;
    let size = if major == 1 { 2 } else { 4 };
    let (length, rest) = rest.split_at_checked(size).ok_or_else(torn)?;
    let length = length.iter().rev().fold(0, |all, &byte| all << 8 | usize::from(byte));
    let (header, data) = rest.split_at_checked(length).ok_or_else(torn)?;
    let header: String = String::from_utf8_lossy(header).split_whitespace().collect();
    let width = match () {
        () if header.contains("'descr':'|u1'") => 1,
        () if header.contains("'descr':'<u2'") => 2,
        () => return Err(format!("rows of experts: expected |u1 or <u2, found {header}")),
    };
    let [rows, layers, top_k] = expected;
    let shape = format!("'shape':({rows},{layers},{top_k})");
    if !header.contains("'fortran_order':False") || !header.contains(&shape) {
        return Err(format!("rows of experts: expected {shape} in C order, found {header}"));
    }
    Ok((width, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Experts = Experts {
        layers: 2,
        top_k: 2,
        count: 8,
    };
    const MANY: Experts = Experts { count: 300, ..FEW };

    fn file(descr: &str, shape: &str, data: &[u8]) -> String {
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        header += &" ".repeat(63 - (header.len() + 10) % 64);
        header.push('\n');
        let length = (header.len() as u16).to_le_bytes();
        STANDARD.encode([MAGIC, &[1, 0], &length, header.as_bytes(), data].concat())
    }

    fn raw(values: &[i32]) -> String {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        STANDARD.encode(bytes)
    }

    fn asked(from: u32, experts: Experts) -> Asked {
        Asked { from, experts }
    }

    #[test]
    fn both_forms_are_the_same_rows() {
        // 5 tokens have 4 rows, of which the last 2 were asked for.
        let values = [0, 1, 2, 3, 4, 5, 6, 7];
        let file = file("|u1", "(2, 2, 2)", &values.map(|value| value as u8));
        let rows = decode(&file, asked(2, FEW), 5).unwrap();
        assert_eq!((rows.start, rows.end()), (2, 4));
        assert_eq!(rows.rows, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(decode(&raw(&values), asked(2, FEW), 5).unwrap(), rows);
    }

    #[test]
    fn more_than_256_experts_take_two_bytes() {
        let values = [0, 299, 256, 1];
        let bytes: Vec<u8> = values.iter().flat_map(|&value| (value as u16).to_le_bytes()).collect();
        let rows = decode(&file("<u2", "(1, 2, 2)", &bytes), asked(0, MANY), 2).unwrap();
        assert_eq!(rows.rows, [0, 0, 43, 1, 0, 1, 1, 0]);
        assert_eq!(decode(&raw(&values), asked(0, MANY), 2).unwrap(), rows);
    }

    #[test]
    fn what_does_not_agree_is_refused() {
        let eight = [0; 8];
        for (text, says) in [
            (raw(&[0; 4]), "for 1 positions"),
            (raw(&[0; 7]), "28 bytes"),
            (raw(&[0, 0, 0, 0, 0, 0, 0, 8]), "expert 8 of 8"),
            (raw(&[0, 0, 0, 0, 0, 0, 0, -1]), "expert -1 of 8"),
            (file("|u1", "(3, 2, 2)", &eight), "expected 'shape':(2,2,2)"),
            (file("<f4", "(2, 2, 2)", &eight), "expected |u1 or <u2"),
            (file("|u1", "(2, 2, 2)", &eight[1..]), "7 bytes"),
            (STANDARD.encode(b"\x93NUMPY\x01"), "torn"),
            ("?".to_owned(), "no base64"),
        ] {
            let said = decode(&text, asked(2, FEW), 5).unwrap_err();
            assert!(said.contains(says), "{says}: {said}");
        }
    }
}
