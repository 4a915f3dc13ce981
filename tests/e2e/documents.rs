//! The commands in docs/ are run as they stand there: the blocks that begin with ```` ```sh tested
//! ````, page by page, in a directory with the test guest's image as `guest.img`. A line `# prints:
//! TEXT` behind a command is what the block's output must have.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::executable::write_script;
use crate::harness::{guest_image, short_dir};

const OPEN: &str = "```sh tested\n";
const PRINTS: &str = "# prints: ";

/// Programs that a reader has: both launchers, which emulate the processor here, and a kubectl
/// whose pod is this machine.
const PROGRAMS: [(&str, &str); 4] = [
    (
        "launcherctl",
        "case $1 in run) shift; set -- run --emulate \"$@\";; esac\nexec POD_TOOLS launcherctl \"$@\"",
    ),
    (
        "virt-launcher",
        "exec VIRT_LAUNCHER --force-emulation \"$@\"",
    ),
    // The distribution's, for which scripts/setup installs gRPC.
    ("python3", "exec /usr/bin/python3 \"$@\""),
    (
        "kubectl",
        "case $1 in get) echo pod/virt-launcher-web;; exec) while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\";; esac",
    ),
];

/// A directory for the commands of a page, on the search path of which are [`PROGRAMS`].
struct Reader {
    home: tempfile::TempDir,
}

impl Reader {
    fn new() -> Self {
        let home = short_dir();
        let reader = Self { home };
        std::fs::create_dir(reader.path("bin")).unwrap();
        std::fs::create_dir(reader.path("work")).unwrap();
        let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
        std::os::unix::fs::symlink(proto, reader.path("work/proto")).unwrap();
        std::fs::copy(guest_image(), reader.path("work/guest.img")).unwrap();
        for (name, script) in PROGRAMS {
            let script = script
                .replace("POD_TOOLS", env!("CARGO_BIN_EXE_pod-tools"))
                .replace("VIRT_LAUNCHER", env!("CARGO_BIN_EXE_virt-launcher"));
            let program = reader.path("bin").join(name);
            write_script(&program, &format!("#!/bin/sh\n{script}\n"));
        }
        reader
    }

    fn path(&self, path: &str) -> PathBuf {
        self.home.path().join(path)
    }

    /// What the commands print; they must succeed, one after the other.
    fn run(&self, script: &str) -> String {
        let path = std::env::var("PATH").unwrap();
        // What the script has left in the background must not outlive it.
        let prepare =
            "exec 2>&1; set -e -o pipefail; trap 'kill $(jobs -p) 2>/dev/null || true' EXIT";
        let output = Command::new("bash")
            .args(["-c", &format!("{prepare}\n{script}")])
            .current_dir(self.path("work"))
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("XDG_RUNTIME_DIR", self.home.path())
            // The sockets of a migration need short paths.
            .env("TMPDIR", "/tmp")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{script}\n{text}");
        text
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let stop = format!(
            "{} launcherctl stop --all --force",
            env!("CARGO_BIN_EXE_pod-tools")
        );
        let _ = Command::new("sh")
            .args(["-c", &stop])
            .env("XDG_RUNTIME_DIR", self.home.path())
            .output();
    }
}

fn blocks(page: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = std::fs::read_to_string(page).unwrap();
    let blocks = text.split(OPEN).skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

/// Runs the page's blocks, after the first one of `before`.
fn check(before: Option<&str>, page: &str) {
    let reader = Reader::new();
    if let Some(before) = before {
        reader.run(&blocks(before)[0]);
    }
    let blocks = blocks(page);
    assert!(!blocks.is_empty(), "{page} has no tested commands");
    for block in blocks {
        let output = reader.run(&block);
        for wanted in block.lines().filter_map(|line| line.strip_prefix(PRINTS)) {
            assert!(
                output.contains(wanted),
                "{wanted:?} is not printed by\n{block}\nbut\n{output}"
            );
        }
    }
}

#[test]
fn run() {
    check(None, "docs/run.md");
}

#[test]
fn network() {
    check(None, "docs/network.md");
}

#[test]
fn volumes() {
    check(None, "docs/volumes.md");
}

#[test]
fn secrets() {
    check(None, "docs/secrets.md");
}

#[test]
fn migrate() {
    check(None, "docs/migrate.md");
}

#[test]
fn plugins() {
    check(None, "docs/plugins.md");
}

#[test]
fn in_a_pod() {
    check(Some("docs/run.md"), "docs/in-a-pod.md");
}

#[test]
fn troubleshooting() {
    check(Some("docs/run.md"), "docs/troubleshooting.md");
}
