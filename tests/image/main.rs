//! The launcher image against what KubeVirt expects of it: paths, owners, modes, capabilities,
//! links, contents, and whether the programs in it run.
//!
//! Run by `make test-image`, which builds the tree first: plain `cargo test` leaves this out. Needs
//! root. `IMAGE_TREE` names another tree than `target/image-tree`. One for another architecture has
//! no programs of ours; it passes the tests in `config`, `files` and `packages`.

mod config;
mod elf;
#[path = "../executable/mod.rs"]
mod executable;
mod files;
mod packages;
mod programs;
mod release;
mod run;

use std::ffi::OsStr;
use std::fs::{Metadata, read_to_string};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The tree.
fn tree() -> PathBuf {
    let tree = std::env::var_os("IMAGE_TREE").unwrap_or_else(|| "target/image-tree".into());
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join(tree);
    assert!(
        tree.is_dir(),
        "{} is not there: run \"make test-image\"",
        tree.display()
    );
    tree
}

/// A path of the image, such as "/usr/bin", below the tree.
fn at(path: &str) -> PathBuf {
    tree().join(path.trim_start_matches('/'))
}

/// Of the file itself, without following a link.
fn metadata(path: &str) -> Metadata {
    at(path)
        .symlink_metadata()
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn text(path: &str) -> String {
    read_to_string(at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Follows links inside the tree, as they are followed in the container.
fn resolve(path: &str) -> PathBuf {
    let mut found = PathBuf::from("/");
    let mut rest: Vec<_> = Path::new(path)
        .components()
        .rev()
        .map(|part| part.as_os_str().to_owned())
        .collect();
    let mut links = 0;
    while let Some(part) = rest.pop() {
        match part.as_bytes() {
            b"/" => found = PathBuf::from("/"),
            b"." => {}
            b".." => drop(found.pop()),
            _ => {
                found.push(&part);
                if let Ok(target) = at(&found.to_string_lossy()).read_link() {
                    links += 1;
                    assert!(links < 40, "{path}: too many links");
                    found.pop();
                    rest.extend(
                        target
                            .components()
                            .rev()
                            .map(|part| part.as_os_str().to_owned()),
                    );
                }
            }
        }
    }
    found
}

/// All files, directories and links below a path of the image.
fn walk(path: &str) -> Vec<String> {
    let output = Command::new("find")
        .arg(at(path))
        .args(["-xdev", "-printf", "%P\\0"])
        .output()
        .unwrap();
    let names = output
        .stdout
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    names
        .map(|name| {
            format!(
                "{}/{}",
                path.trim_end_matches('/'),
                OsStr::from_bytes(name).to_string_lossy()
            )
        })
        .collect()
}

/// `security.capability` of a file, as hex; empty if it has none.
fn capability(path: &str) -> String {
    let mut value = [0; 64];
    match rustix::fs::lgetxattr(at(path), "security.capability", &mut value[..]) {
        Ok(length) => value[..length]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => String::new(),
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Runs a shell script in a container of the tree, as the user `launcher` or `root`.
fn enter(user: &str, script: &str) -> Output {
    assert!(
        rustix::process::geteuid().is_root(),
        "a container of the tree needs root: run \"make test-image\" as root"
    );
    let dir = tempfile::tempdir().unwrap();
    let enter = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/image/enter");
    let mut command = Command::new(enter);
    command
        .arg(tree())
        .arg(dir.path())
        .args([user, "/bin/bash", "-euo", "pipefail", "-c", script]);
    command.output().unwrap()
}

/// What a script prints that succeeds.
fn output(user: &str, script: &str) -> String {
    let output = enter(user, script);
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(
        output.status.success(),
        "{script}: {}\n{stdout}\n{stderr}",
        output.status
    );
    stdout
}

/// The link has this text, and leads to something in the image.
#[track_caller]
fn assert_link(path: &str, target: &str) {
    assert_eq!(
        at(path)
            .read_link()
            .unwrap_or_else(|error| panic!("{path}: {error}")),
        Path::new(target),
        "{path}"
    );
    let end = resolve(path);
    assert!(
        at(&end.to_string_lossy()).exists(),
        "{path} leads to {}, which is not there",
        end.display()
    );
}

/// Directory (d) or file (f), mode, and number of user and group.
#[track_caller]
fn assert_owned(path: &str, kind: char, mode: u32, owner: u32) {
    let found = metadata(path);
    let found_kind = if found.is_dir() {
        'd'
    } else if found.is_file() {
        'f'
    } else {
        '?'
    };
    assert_eq!(
        (
            found_kind,
            format!("{:o}", found.mode() & 0o7777),
            found.uid(),
            found.gid()
        ),
        (kind, format!("{mode:o}"), owner, owner),
        "{path}"
    );
}

/// All users may run what the path leads to.
#[track_caller]
fn assert_executable(path: &str) {
    let end = resolve(path).to_string_lossy().into_owned();
    let found = metadata(&end);
    assert!(
        found.is_file() && found.mode() & 0o555 == 0o555,
        "{path}: {end} is not executable by all"
    );
}
