//! Output: text for people, JSON for programs.

pub mod output;
pub mod picture;
pub mod size;
pub mod visible;
