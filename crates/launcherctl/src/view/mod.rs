//! Output: text for people, JSON for programs.

pub mod output;
pub mod size;
pub mod visible;
