//! Programs of this build beside a test, and their directories.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::TEST_TIMEOUT;

/// A directory with a short path: the sockets below it must fit in 107 bytes.
pub fn short_dir() -> tempfile::TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix("vt").rand_bytes(4);
    builder.tempdir_in("/tmp").unwrap()
}

/// One of the small tools.
pub fn pod_tool(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pod-tools"));
    command.arg(name);
    command
}

/// Runs a command to its end while the test's own tasks go on.
pub async fn output_of(mut command: Command) -> Output {
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    output.await.unwrap()
}

/// Waits until this holds, which has no event.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + TEST_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
