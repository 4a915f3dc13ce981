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

pub fn print_head(title: &str) {
    println!(
        "{title:<60} {:>10} {:>10} {:>10}  runs",
        "median", "least", "most"
    );
}

/// Prints what one number was in all runs. Returns its median.
pub fn print_line(title: &str, mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (median, most) = (values[values.len() / 2], values[values.len() - 1]);
    let (least, runs) = (values[0], values.len());
    println!("{title:<60} {median:>10.1} {least:>10.1} {most:>10.1}  {runs}");
    median
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

    /// Prints medians and spread. Returns what was measured, the number's name, and its median.
    pub fn print(&self) -> Vec<(String, String, f64)> {
        print_head("");
        let mut lines = Vec::new();
        for (what, rows) in &self.0 {
            for (index, (name, _)) in rows[0].iter().enumerate() {
                let values = rows.iter().map(|row| row[index].1).collect();
                let median = print_line(&format!("{what}: {name}"), values);
                lines.push((what.clone(), name.clone(), median));
            }
        }
        lines
    }
}
