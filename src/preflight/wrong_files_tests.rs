//! Files that cannot be a run's: each is refused with its line before any check looks at it. Together with the table of
//! `tests.rs`, whose files are read and found wrong.

use crate::config::{ConfigError, Layers, load};

#[path = "wrong_files_table.rs"]
mod table;

use table::WRONG;

#[test]
fn each_wrong_file_is_refused_with_its_line() {
    assert!(WRONG.len() >= 50);
    for (text, line, says) in WRONG {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        std::fs::write(&path, text).unwrap();
        let error = load(&Layers::file(&path)).expect_err(text);
        let ConfigError::Invalid { faults } = &error else {
            panic!("{text}: {error}");
        };
        let at = faults[0].at.as_ref().unwrap_or_else(|| panic!("{text}: no place"));
        assert_eq!(at.line_column().0, *line, "{text}: {error}");
        assert!(error.to_string().contains(says), "{text}: {error}");
    }
}
