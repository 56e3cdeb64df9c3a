//! Plain aligned columns: no lines, no colours, so that a copied table stays readable.

use comfy_table::{CellAlignment, Table, presets};

/// A table with a header; `right` names the columns of numbers.
pub(crate) fn table(header: &[&str], right: &[usize], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for index in right {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_numbers_stand_right() {
        let text = table(
            &["STAGE", "OUT"],
            &[1],
            [vec!["convert".into(), "9".into()], vec!["x".into(), "1188".into()]],
        );
        assert_eq!(text, " STAGE     OUT\n convert     9\n x        1188\n");
    }
}
