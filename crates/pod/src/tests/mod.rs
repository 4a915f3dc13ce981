//! The crate as a whole, with the real helper programs, below a root of its own.

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

const QEMU: &[&str] = &["qemu-img"];

/// A pod in a temporary directory.
struct Pod {
    dir: tempfile::TempDir,
    flags: LauncherFlags,
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
        Some(Self::new())
    }

    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let flags = LauncherFlags {
            root: Root::new(dir.path()),
            ..LauncherFlags::default()
        };
        directories(&flags, "uid-1").unwrap();
        Self { dir, flags }
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
        super::collect::collect_on(&machine, &self.flags, vmi, &options, &known)
            .map_err(|error| os::logging::chain(&error))
    }

    /// All that happens before a start.
    fn prepare(&self, vmi: &str) -> Result<(), String> {
        let vmi: Vmi = serde_json::from_str(vmi).unwrap();
        let ctx = self.collect(&vmi)?;
        let data = cloud_init(&self.flags, &vmi).map_err(|error| os::logging::chain(&error))?;
        prepare(&self.flags, &vmi, &ctx, data.as_ref()).map_err(|error| os::logging::chain(&error))
    }

    /// Why a start is refused.
    fn refusal(&self, vmi: &str) -> String {
        self.prepare(vmi).unwrap_err()
    }

    /// The container disk's image: qcow2 of 32 MiB.
    fn container_disk(&self) -> PathBuf {
        let image = self.write("var/run/kubevirt/container-disks/disk_0.img", &[]);
        run(&format!(
            "qemu-img create -q -f qcow2 {} 32M",
            image.display()
        ));
        image
    }

    /// Where the overlay of this volume is.
    fn overlay(&self, volume: &str) -> PathBuf {
        let overlays = "var/run/kubevirt-ephemeral-disks/disk-data";
        self.path(&format!("{overlays}/{volume}/disk.qcow2"))
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

/// Runs a program with these words; what it prints.
fn run(line: &str) -> String {
    let mut words = line.split(' ');
    let program = words.next().unwrap();
    let output = Command::new(program).args(words).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs qemu-io's command on an image; what it prints.
fn qemu_io(command: &str, image: &Path) -> String {
    let mut qemu_io = Command::new("qemu-io");
    let output = qemu_io.args(["-c", command]).arg(image).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn info(path: &Path) -> serde_json::Value {
    let about = run(&format!("qemu-img info --output json {}", path.display()));
    serde_json::from_str(&about).unwrap()
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
