//! TensorBoard event files: length-prefixed records of `Event` messages with scalar summaries, written by hand since
//! three message types need no protobuf library.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use jiff::Timestamp;

use super::crc32c::masked;
use super::lock::host;
use crate::metrics::StepMetrics;

/// Appends scalars to one event file.
pub struct EventWriter {
    file: fs::File,
    path: PathBuf,
}

impl EventWriter {
    /// Starts a file in `folder` for a run that goes on with step `first`; TensorBoard forgets what earlier
    /// files say of that step and later ones.
    pub fn create(folder: &Path, first: u64) -> std::io::Result<Self> {
        fs::create_dir_all(folder)?;
        let now = Timestamp::now();
        let name = format!(
            "events.out.tfevents.{}.{}.{}.",
            now.as_second(),
            host(),
            std::process::id()
        );
        let mut number = 0;
        let (file, path) = loop {
            let path = folder.join(format!("{name}{number}"));
            match fs::OpenOptions::new().append(true).create_new(true).open(&path) {
                Ok(file) => break (file, path),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        };
        let mut writer = Self { file, path };
        let mut version = header(now, 0);
        bytes_field(&mut version, 3, b"brain.Event:2");
        writer.record(&version)?;
        if first > 0 {
            // SessionLog { status: START } is how a restart at a step is told.
            let mut restart = header(now, first);
            bytes_field(&mut restart, 7, &[0x08, 1]);
            writer.record(&restart)?;
        }
        Ok(writer)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All metrics of a step, as one event.
    pub fn scalars(&mut self, metrics: &StepMetrics) -> std::io::Result<()> {
        let mut summary = Vec::new();
        for (name, value) in metrics.iter() {
            let mut scalar = Vec::with_capacity(name.len() + 8);
            bytes_field(&mut scalar, 1, name.as_bytes());
            scalar.push(2 << 3 | 5);
            scalar.extend_from_slice(&(value as f32).to_le_bytes());
            bytes_field(&mut summary, 1, &scalar);
        }
        let mut event = header(metrics.time, metrics.step);
        bytes_field(&mut event, 5, &summary);
        self.record(&event)
    }

    /// Length, its checksum, data, its checksum; in one write, so that a reader sees whole records.
    fn record(&mut self, data: &[u8]) -> std::io::Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        let mut record = Vec::with_capacity(data.len() + 16);
        record.extend_from_slice(&length);
        record.extend_from_slice(&masked(&length).to_le_bytes());
        record.extend_from_slice(data);
        record.extend_from_slice(&masked(data).to_le_bytes());
        self.file.write_all(&record)
    }
}

/// `Event { wall_time = 1: double, step = 2: int64 }`.
fn header(time: Timestamp, step: u64) -> Vec<u8> {
    let mut event = vec![1 << 3 | 1];
    event.extend_from_slice(&(time.as_microsecond() as f64 / 1e6).to_le_bytes());
    event.push(2 << 3);
    varint(&mut event, step);
    event
}

/// A field of bytes, text or a message.
fn bytes_field(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
