//! Text for people on a terminal. Text from others (a guest, a sidecar) becomes harmless in it.
#![forbid(unsafe_code)]

mod line;
pub mod progress;
mod size;
mod table;
pub mod visible;

pub use line::{Line, joined, on_stderr, print, say, stdout_width};
pub use size::human_size;
pub use table::table;
