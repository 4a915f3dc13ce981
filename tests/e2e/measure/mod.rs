//! Measurements. They are ignored as tests: `make soak` and `make bench` run them, on a release
//! build.

mod bench;
mod chart;
mod density;
mod migration;
mod ping;
mod process;
mod rows;
mod scrape;
mod soak;

use std::path::PathBuf;

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text}: not a number")),
        _ => default,
    }
}

/// The launchers that are measured in turns, by name: ours, and the one in the directory
/// `REFERENCE` if that is set.
fn launchers() -> Vec<(&'static str, Option<PathBuf>)> {
    let mut launchers = vec![("ours", None)];
    let reference = std::env::var_os("REFERENCE").filter(|path| !path.is_empty());
    launchers.extend(reference.map(|path| ("reference", Some(path.into()))));
    launchers
}

/// Where results are written; it is made.
fn results(name: &str) -> PathBuf {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/measure")).join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}
