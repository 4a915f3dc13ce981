//! What measurements give, and the table of it.

use crate::harness::run;

/// What one measurement gives: names with their units, and numbers.
pub type Row = Vec<(String, f64)>;

/// The row that an asynchronous measurement gives.
pub fn measured(work: impl AsyncFnOnce() -> Row) -> Row {
    let mut row = None;
    run(async { row = Some(work().await) });
    row.unwrap()
}

/// The rows of all that was measured, by what it was.
#[derive(Default)]
pub struct Rows(Vec<(String, Vec<Row>)>);

impl Rows {
    /// Keeps a row, and shows that it is there.
    pub fn push(&mut self, name: String, row: Row) {
        println!("measured: {name} {row:.1?}");
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => self.0.push((name, vec![row])),
        }
    }

    /// Prints medians and spread. What was measured, the name of the number, and its median.
    pub fn print(&self) -> Vec<(String, String, f64)> {
        println!(
            "{:<56} {:>10} {:>10} {:>10}  runs",
            "", "median", "least", "most"
        );
        let mut lines = Vec::new();
        for (what, rows) in &self.0 {
            for (index, (name, _)) in rows[0].iter().enumerate() {
                let mut values: Vec<f64> = rows.iter().map(|row| row[index].1).collect();
                values.sort_by(f64::total_cmp);
                let (median, most) = (values[values.len() / 2], values[values.len() - 1]);
                let title = format!("{what}: {name}");
                println!(
                    "{title:<56} {median:>10.1} {:>10.1} {most:>10.1}  {}",
                    values[0],
                    values.len()
                );
                lines.push((what.clone(), name.clone(), median));
            }
        }
        lines
    }
}
