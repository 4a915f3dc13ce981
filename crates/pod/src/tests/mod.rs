//! The crate as a whole, with the real helper programs, below a root of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod block;
mod directories;
mod generated;
mod hostile;
mod images;
mod modes;
mod repeated;
mod tracking;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::machine::Machine;
use super::*;
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use convert::Context;

/// A pod in a temporary directory.
struct Pod {
    dir: tempfile::TempDir,
    cfg: LauncherFlags,
}

impl Pod {
    /// `None`, with a message, where a helper program is missing.
    fn with(programs: &[&str]) -> Option<Self> {
        for program in programs {
            if Command::new(program).arg("--version").output().is_err() {
                eprintln!("skipped: {program} is not installed");
                return None;
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let cfg = LauncherFlags {
            root: Root::new(dir.path()),
            ..LauncherFlags::default()
        };
        directories(&cfg, "uid-1").unwrap();
        Some(Self { dir, cfg })
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, content: &[u8]) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn link(&self, target: &str, path: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    fn collect(&self, vmi: &Vmi) -> Result<Context, String> {
        let machine = Machine {
            root: "/".into(),
            environment: BTreeMap::new(),
        };
        let (options, known) = (
            VirtualMachineOptions::default(),
            super::ContainerDisks::default(),
        );
        super::collect::collect_on(&machine, &self.cfg, vmi, &options, &known)
            .map_err(|error| os::logging::chain(&error))
    }

    /// All that happens before a start.
    fn prepare(&self, vmi: &str) -> Result<(), String> {
        let vmi: Vmi = serde_json::from_str(vmi).unwrap();
        let ctx = self.collect(&vmi)?;
        let data = cloud_init(&self.cfg, &vmi).map_err(|error| os::logging::chain(&error))?;
        prepare(&self.cfg, &vmi, &ctx, data.as_ref()).map_err(|error| os::logging::chain(&error))
    }

    /// Path, content and time of change of all files.
    fn files(&self) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
        let mut files = BTreeMap::new();
        walk(self.dir.path(), &mut |path| {
            let metadata = fs::symlink_metadata(path).unwrap();
            // Reading a pipe would wait for ever.
            let content = if metadata.is_file() {
                fs::read(path).unwrap()
            } else {
                Vec::new()
            };
            files.insert(path.to_owned(), (content, metadata.modified().unwrap()));
        });
        files
    }
}

fn walk(dir: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), each)
        } else {
            each(&entry.path())
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn info(path: &Path) -> serde_json::Value {
    serde_json::from_str(&run(
        "qemu-img",
        &["info", "--output", "json", path.to_str().unwrap()],
    ))
    .unwrap()
}

/// A VMI with one volume and a disk that uses it.
fn with_volume(volume: &str) -> String {
    let name: serde_json::Value = serde_json::from_str(volume).unwrap();
    let name = name["name"].as_str().unwrap();
    format!(
        r#"{{"metadata":{{"name":"web","namespace":"shop"}},
            "spec":{{"domain":{{"devices":{{"disks":[{{"name":"{name}","disk":{{}}}}]}}}},"volumes":[{volume}]}}}}"#
    )
}
