//! The end of a log, or what came after a place in it.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use serde_json::{Value, json};

use super::redact::redact;

/// Bytes of one answer at most.
const PIECE: u64 = 512 << 10;

/// What stands in `path` after `after`, or its end.
pub(super) fn read(path: &Path, after: Option<u64>) -> std::io::Result<Value> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    let from = after
        .filter(|after| *after <= length && length - after <= PIECE)
        .unwrap_or(length.saturating_sub(PIECE));
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(PIECE).read_to_end(&mut bytes)?;
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut text = redact(&String::from_utf8_lossy(&bytes[..end]));
    let cut = from > 0 && after != Some(from);
    if cut {
        // The first line may be half of one.
        text = text
            .split_once('\n')
            .map(|(_, rest)| rest.to_owned())
            .unwrap_or_default();
    }
    Ok(json!({"text": text, "next": from + end as u64, "length": length, "cut": cut}))
}
