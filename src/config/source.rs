//! Where a value was written: the text it stands in and the span it covers.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A text that holds values: a file, one environment variable, or one flag.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// What people call it: the file's path as given, `environment`, or the flag.
    pub name: String,
    /// All of its text.
    pub text: String,
    /// What relative paths in it start from.
    pub base: PathBuf,
    /// Which kind of layer it is.
    pub kind: SourceKind,
}

/// Kinds of layers; later ones win.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceKind {
    /// run.toml or one of its bases.
    File,
    /// `LEGO_<SECTION>__<KEY>`.
    Environment,
    /// `--set`, or a flag that stands for one key.
    Flag,
}

/// A place in a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The text.
    pub source: Arc<Source>,
    /// Bytes of it.
    pub span: Range<usize>,
}

impl Location {
    /// Line and column of the first byte, from 1; columns count characters.
    pub fn line_column(&self) -> (usize, usize) {
        let end = self.span.start.min(self.source.text.len());
        let before = self.source.text.get(..end).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (
            before.matches('\n').count() + 1,
            before[line_start..].chars().count() + 1,
        )
    }

    /// The whole line that holds the first byte, trimmed.
    pub fn line_text(&self) -> &str {
        self.source
            .text
            .lines()
            .nth(self.line_column().0 - 1)
            .unwrap_or_default()
            .trim()
    }

    /// Where it is, without the column: `run.toml:31`, `LEGO_TRAIN__LR`, `--set train.lr`.
    pub fn short(&self) -> String {
        match self.source.kind {
            SourceKind::File => format!("{}:{}", self.source.name, self.line_column().0),
            SourceKind::Environment | SourceKind::Flag => self.source.name.clone(),
        }
    }
}

/// `run.toml:31:5`; for what is no file, its name.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source.kind {
            SourceKind::File => {
                let (line, column) = self.line_column();
                write!(f, "{}:{line}:{column}", self.source.name)
            }
            SourceKind::Environment | SourceKind::Flag => f.write_str(&self.source.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_and_in_characters() {
        let source = Arc::new(Source {
            name: "run.toml".to_owned(),
            text: "a = 1\n[é]\nöö = 2\n".to_owned(),
            base: PathBuf::new(),
            kind: SourceKind::File,
        });
        let at = |needle: &str| {
            let start = source.text.find(needle).unwrap();
            Location {
                source: Arc::clone(&source),
                span: start..start + 1,
            }
        };
        assert_eq!(at("a").line_column(), (1, 1));
        assert_eq!(at("2").line_column(), (3, 6));
        assert_eq!(at("2").to_string(), "run.toml:3:6");
        assert_eq!(at("2").line_text(), "öö = 2");
    }
}
