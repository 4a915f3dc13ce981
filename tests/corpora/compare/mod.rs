//! Comparisons of documents by their meaning.

pub mod json;
mod tests;
pub mod xml;

pub use tests::tests;
