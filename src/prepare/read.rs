//! Splits a source into records: JSON lines, one JSON array or Parquet, each record with its line.

use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::value::RawValue;

use super::PrepareError;

/// Where records come from.
pub enum Source {
    /// A file of JSON lines, of one JSON array, or Parquet.
    File(PathBuf),
    /// The same from a stream; the name is for messages.
    Stream(String, Box<dyn BufRead>),
}

impl Source {
    /// `-` is standard input, everything else a file.
    pub fn of(place: &Path) -> Self {
        if place.as_os_str() == "-" {
            Self::Stream("<stdin>".to_owned(), Box::new(BufReader::new(std::io::stdin())))
        } else {
            Self::File(place.to_owned())
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Stream(name, _) => name.clone(),
        }
    }
}

/// One record, still as bytes.
pub(super) struct RawRecord {
    /// Where it begins, from 1.
    pub(super) line: usize,
    /// Which element of an array it is, from 1.
    pub(super) element: Option<usize>,
    pub(super) bytes: Vec<u8>,
}

/// Calls `each` with every record in order. Blank lines are none.
pub(super) fn records(
    source: Source,
    each: &mut dyn FnMut(RawRecord) -> Result<(), PrepareError>,
) -> Result<(), PrepareError> {
    let name = source.name();
    let mut reader = match source {
        Source::File(path) => Box::new(BufReader::with_capacity(1 << 20, fs::File::open(path)?)),
        Source::Stream(_, reader) => reader,
    };
    let start = reader.fill_buf()?;
    if start.starts_with(b"PAR1") {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes)?;
        return super::parquet::rows(&name, bytes.into(), each);
    }
    if start.starts_with(b"\xef\xbb\xbf") {
        reader.consume(3);
    }
    let mut line = Vec::new();
    let (mut number, mut first) = (0, true);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        number += 1;
        let text = line.trim_ascii();
        if first && text.first() == Some(&b'[') {
            reader.read_to_end(&mut line)?;
            return array(&name, number, &line, each);
        }
        if !text.is_empty() {
            first = false;
            each(RawRecord {
                line: number,
                element: None,
                bytes: text.to_vec(),
            })?;
        }
    }
}

fn array(
    name: &str,
    first_line: usize,
    bytes: &[u8],
    each: &mut dyn FnMut(RawRecord) -> Result<(), PrepareError>,
) -> Result<(), PrepareError> {
    let wrong = |line: usize, reason: String| PrepareError::Source {
        name: name.to_owned(),
        line,
        reason,
    };
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = first_line + count_lines(&bytes[..error.valid_up_to()]);
        wrong(line, "not UTF-8".to_owned())
    })?;
    let elements: Vec<&RawValue> = serde_json::from_str(text)
        .map_err(|error| wrong(first_line + error.line() - 1, format!("invalid JSON: {error}")))?;
    let (mut line, mut seen) = (first_line, 0);
    for (at, element) in elements.into_iter().enumerate() {
        let start = element.get().as_ptr().addr() - text.as_ptr().addr();
        line += count_lines(&bytes[seen..start]);
        seen = start;
        each(RawRecord {
            line,
            element: Some(at + 1),
            bytes: element.get().as_bytes().to_vec(),
        })?;
    }
    Ok(())
}

fn count_lines(bytes: &[u8]) -> usize {
    bytes.split(|&byte| byte == b'\n').count() - 1
}
