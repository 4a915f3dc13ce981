//! `launcherctl`: does a cluster's part with a launcher, for a person or a program on one machine.
//!
//! ```text
//!  cli ─► verbs ─► host ─► reports ─► manifest ─► view ─► error, files, json, …
//! ```
//!
//! A file imports from its own layer and from those to its right; `tests/repository` checks that.
//! All use the `client` crate, which has the calls of a launcher's cmd socket.

#![forbid(unsafe_code)]
// `view::output` and `verbs::screen` print: they escape text from others.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod cli;
mod error;
mod files;
mod host;
mod json;
mod manifest;
mod reports;
mod similar;
mod verbs;
mod view;

pub use cli::main;
