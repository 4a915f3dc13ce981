//! Disks that an earlier run has left in a directory of `--root`: they grow to the size that the
//! manifest has now. Smaller they would lose data.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::data_volumes;
use super::images::destination;
use super::registry::VmDir;
use crate::error::{CtlError, text_error};
use crate::files::absolute;
use crate::json::{copy_at, is_object_at};
use crate::manifest::Manifest;
use api::pod_paths::PodPaths;
use api::vmi::Quantity;
use os::command::{Limits, run};
use terminal::human_size;

const RESIZE_LIMITS: Limits = Limits {
    memory: 0,
    cpu: 60,
    wall: Duration::from_secs(60),
};

/// A disk that the launcher or `run` has made.
struct Disk {
    file: PathBuf,
    format: &'static str,
    /// Wanted size in bytes.
    wanted: u64,
}

/// Resizes the disks, with notes for the user. Call it before missing disks are made.
///
/// # Errors
/// A disk cannot be read or resized.
pub fn resize(manifest: &Manifest, dir: &VmDir, note: impl Fn(&str)) -> Result<(), CtlError> {
    for (index, (name, volume)) in manifest.volumes().enumerate() {
        let Some(disk) = disk(manifest, dir, (index, name, volume)) else {
            continue;
        };
        let is = disk.size()?;
        let (before, after) = (human_size(is), human_size(disk.wanted));
        if is < disk.wanted {
            disk.grow()?;
            note(&format!("{name} has grown from {before} to {after}"));
        } else if is > disk.wanted {
            let file = absolute(&disk.file);
            let file = file.display();
            note(&format!(
                "{name} keeps its {before}, as a disk does not shrink; remove {file}, and what the guest has written, to have {after}"
            ));
        }
    }
    Ok(())
}

/// The volume's disk, if it is there.
fn disk(
    manifest: &Manifest,
    dir: &VmDir,
    (index, name, volume): (usize, &str, &Value),
) -> Option<Disk> {
    const MIB: u64 = 1 << 20;
    let disk = if is_object_at(volume, "/emptyDisk") {
        let capacity = Quantity::deserialize(copy_at(volume, "/emptyDisk/capacity"));
        let bytes = u64::try_from(capacity.ok()?.value().ok()?).ok()?;
        Disk {
            file: dir.path(&PodPaths::default().empty_disk(name)),
            format: "qcow2",
            // As the launcher makes it.
            wanted: bytes / MIB * MIB,
        }
    } else {
        let data_volume = data_volumes::find(manifest.others(), volume)?;
        Disk {
            file: destination(dir, index, name, volume)?,
            format: "raw",
            wanted: data_volumes::size(data_volume)?,
        }
    };
    disk.file.exists().then_some(disk)
}

impl Disk {
    /// Its size in bytes, as the guest sees it.
    fn size(&self) -> Result<u64, CtlError> {
        let info = self.qemu_img(&["info", "-f", self.format, "--output=json"], None)?;
        let info: Value = serde_json::from_slice(&info).unwrap_or_default();
        let size = info.get("virtual-size").and_then(Value::as_u64);
        let unknown = || text_error!("{}: it has no size", self.file.display());
        Ok(size.ok_or_else(unknown)?)
    }

    fn grow(&self) -> Result<(), CtlError> {
        let wanted = self.wanted.to_string();
        self.qemu_img(&["resize", "-q", "-f", self.format], Some(&wanted))
            .map(drop)
    }

    fn qemu_img(&self, before: &[&str], after: Option<&str>) -> Result<Vec<u8>, CtlError> {
        let before = before.iter().map(Path::new);
        let after = after.map(Path::new);
        let arguments = before.chain([self.file.as_path()]).chain(after);
        let done = run("qemu-img", arguments, &[], None, RESIZE_LIMITS);
        Ok(done.map_err(|source| {
            text_error!("cannot resize the disk {}", self.file.display()).caused_by(source)
        })?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    use std::cell::RefCell;
    use std::fs;

    const VM: &str = "
kind: VirtualMachineInstance
metadata: {name: a}
spec:
  domain: {memory: {guest: 64Mi}}
  volumes:
  - {name: scratch, emptyDisk: {capacity: 2Mi}}
  - {name: data, dataVolume: {name: data-dv}}
---
kind: DataVolume
metadata: {name: data-dv}
spec: {source: {blank: {}}, storage: {resources: {requests: {storage: 3Mi}}}}
";

    #[test]
    fn kept_disks_grow_and_do_not_shrink() {
        let root = tempfile::tempdir().unwrap();
        let dir = VmDir::at(root.path().to_owned());
        let resized = |vm: &str| {
            let notes = RefCell::new(Vec::new());
            let manifest = Manifest::parse(vm).unwrap();
            resize(&manifest, &dir, |text| {
                notes.borrow_mut().push(text.to_owned());
            })
            .unwrap();
            notes.into_inner()
        };
        assert!(resized(VM).is_empty(), "they are not there yet");
        let scratch = dir.path(&PodPaths::default().empty_disk("scratch"));
        let data = dir.path(&PodPaths::default().claim_image("data"));
        for (file, format, size) in [(&scratch, "qcow2", "2M"), (&data, "raw", "3M")] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            let file = file.to_str().unwrap();
            let arguments = ["create", "-q", "-f", format, file, size];
            run("qemu-img", arguments, &[], None, RESIZE_LIMITS).unwrap();
        }
        assert!(resized(VM).is_empty());
        let larger = VM.replace("2Mi", "8Mi").replace("3Mi", "9Mi");
        let grown = [
            "scratch has grown from 2 MiB to 8 MiB",
            "data has grown from 3 MiB to 9 MiB",
        ];
        assert_eq!(resized(&larger), grown);
        assert!(resized(&larger).is_empty());
        let notes = resized(&larger.replace("8Mi", "4Mi"));
        assert!(notes[0].starts_with("scratch keeps its 8 MiB"), "{notes:?}");
        assert_eq!(notes.len(), 1);
    }
}
