//! Text for people on a terminal. Text from others (a guest, a sidecar) becomes harmless in it.
#![forbid(unsafe_code)]

mod line;
mod size;
mod table;
pub mod visible;

pub use line::{Line, joined, on_stderr, print, say};
pub use size::human_size;
pub use table::table;
