//! A file of inline records named in run.toml, prepared into the run directory once.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::{ConvertOptions, IndexOptions, PrepareError, PrepareReport, Source, convert, index};
use crate::task::sha256_hex;

/// Changes when the same records become other folders, so that an old preparation is not taken for a new one.
const CONVERTER: u32 = 2;

/// A source, prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// The task index.
    pub index: PathBuf,
    /// What became of the records.
    pub report: PrepareReport,
    /// Whether an earlier run had done it.
    pub reused: bool,
}

/// Prepares a file of inline records below `folder`, in a folder of its own named by the file's content: the
/// same records again are not converted again, changed ones are.
pub fn prepare_into(source: &Path, folder: &Path) -> Result<Prepared, PrepareError> {
    let bytes = fs::read(source)?;
    let digest = sha256_hex(format!("{CONVERTER}:{}", sha256_hex(&bytes)).as_bytes());
    let stem = source
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    let out = folder.join(format!("{stem}-{}", &digest[..16]));
    let (index_path, report_path) = (out.join("index.parquet"), out.join("prepare-report.json"));
    // The index is written last, so its being there says that all the rest is.
    if index_path.is_file() {
        let text = fs::read_to_string(&report_path)?;
        let report = serde_json::from_str(&text).map_err(|error| PrepareError::Report {
            name: report_path.display().to_string(),
            reason: error.to_string(),
        })?;
        return Ok(Prepared {
            index: index_path,
            report,
            reused: true,
        });
    }
    let input = Source::Stream(source.display().to_string(), Box::new(std::io::Cursor::new(bytes)));
    // Folders of a preparation that was cut short are whole, and those of the same records.
    let report = convert(input, &out, &ConvertOptions::default(), &mut |_| {
        ControlFlow::Continue(())
    })?;
    index(&[out], &index_path, &IndexOptions::default())?;
    Ok(Prepared {
        index: index_path,
        report,
        reused: false,
    })
}
