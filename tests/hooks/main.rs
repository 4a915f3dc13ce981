//! Hook sidecars, domain hooks of plugins, and the example sidecars: as processes and servers on
//! real sockets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test ends this way"
)]

mod conformance;
mod examples;
#[path = "../executable/mod.rs"]
mod executable;
mod hostile;
mod launcher_hooks;
mod plugin_programs;
mod plugins;
mod sidecars;
mod support;
