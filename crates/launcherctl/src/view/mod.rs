//! Output: text for people, JSON for programs.

pub mod output;
