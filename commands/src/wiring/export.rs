//! `lego train --export` over the library.

use std::path::Path;

use lego::config::Loaded;
use lego::pipeline::ExportedFile;
use lego::train::checkpoint::Wanted;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{FormatArg, Printer, table};

/// Writes a checkpoint of the run as a plain folder, and names what was written.
pub(crate) fn export(
    printer: &Printer,
    loaded: &Loaded,
    wanted: Wanted,
    to: &Path,
    format: FormatArg,
) -> Result<Exit, Failure> {
    let files = lego::pipeline::export(&loaded.config, wanted, to)?;
    if let Some(first) = files.first() {
        printer.note(format_args!(
            "step {}, weights {}: {} files in {}",
            first.step,
            first.version,
            files.len(),
            to.display()
        ));
    }
    printer.rows(format.format, &files, |files| {
        let row = |file: &ExportedFile| vec![file.path.display().to_string(), file.bytes.to_string()];
        table(&["FILE", "BYTES"], &[1], files.iter().map(row))
    })?;
    Ok(Exit::Ok)
}
