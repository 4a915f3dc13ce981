//! A table for people: each column is as wide as its content.

use textwrap::core::display_width;

use super::{Line, visible};

/// Between two columns.
const GAP: &str = "  ";

/// The header and the rows, whose cells are separated by tabs. Columns of numbers stand at the
/// right.
pub fn table(header: &str, rows: impl IntoIterator<Item = String>) -> Vec<Line> {
    let rows: Vec<String> = rows.into_iter().map(|row| visible::line(&row)).collect();
    let columns = header.split('\t').count();
    let mut widths = vec![0; columns];
    for row in rows.iter().map(String::as_str).chain([header]) {
        for (cell, width) in row.splitn(columns, '\t').zip(&mut widths) {
            *width = display_width(cell).max(*width);
        }
    }
    let has_numbers = |column: usize| {
        let mut cells = rows.iter().filter_map(|row| row.split('\t').nth(column));
        let is_text = |cell: &str| cell.starts_with(|c: char| c.is_alphabetic() || c == '/');
        let is_number = |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit());
        cells.clone().any(is_number) && !cells.any(is_text)
    };
    let numbers: Vec<bool> = (0..columns).map(has_numbers).collect();
    let line = |cells: &str| {
        let cells = cells.splitn(columns, '\t').zip(widths.iter().zip(&numbers));
        let cells = cells.map(|(cell, (width, are_numbers))| {
            let padding = " ".repeat(width.saturating_sub(display_width(cell)));
            if *are_numbers {
                padding + cell
            } else {
                cell.to_owned() + &padding
            }
        });
        cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    let body = rows.iter().map(|row| Line::Row(line(row)));
    [Line::Header(line(header))]
        .into_iter()
        .chain(body)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::joined;

    #[test]
    fn columns_are_as_wide_as_their_content_and_numbers_stand_at_the_right() {
        let rows = [
            "web\t2\t-\t/tmp/vm-1",
            "größe\t16\tS\t\u{1b}[2J",
            "db\t-\t-\t",
        ];
        let expected = "\
NAME   CPUS  SERIAL  DIRECTORY
web       2  -       /tmp/vm-1
größe    16  S       \\u{1b}[2J
db        -  -";
        let header = "NAME\tCPUS\tSERIAL\tDIRECTORY";
        assert_eq!(joined(table(header, rows.map(str::to_owned))), expected);
    }
}
