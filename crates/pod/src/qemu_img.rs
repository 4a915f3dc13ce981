//! Running `qemu-img`.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use os::command::{CommandError, Limits, run};
use serde::Deserialize;

use super::safe_path::Found;
use super::{LauncherFlags, PodError};
use convert::context::DiskInfo;

const QEMU_IMG: &str = "qemu-img";
/// Limits for images that the launcher makes itself.
const OWN: Limits = Limits {
    memory: 0,
    cpu: 120,
    wall: Duration::from_secs(300),
};

/// Part of QEMU's error when it gets no thread.
const NO_THREAD: &str = "qemu_thread_create: Resource temporarily unavailable";

#[derive(Deserialize)]
struct Info {
    #[serde(rename = "format")]
    format: String,
    #[serde(rename = "backing-filename", default)]
    backing_file: String,
    #[serde(rename = "virtual-size")]
    virtual_size: u64,
}

/// Lets `qemu-img` check an image after its header was inspected.
///
/// # Errors
/// QEMU cannot read the image, or reads something else in it than we did.
pub(super) fn check(
    flags: &LauncherFlags,
    found: &Found,
    inspected: &DiskInfo,
) -> Result<(), PodError> {
    let info = info(flags, found, &inspected.format)?;
    let same = info.format == inspected.format
        && info.virtual_size == inspected.virtual_size
        && info.backing_file == inspected.backing_file;
    if !same {
        let reason = format!(
            "QEMU reads it as {} with {} bytes, but it has {} bytes as {}; it was changed while being inspected, or has a crafted header",
            info.format, info.virtual_size, inspected.virtual_size, inspected.format
        );
        return Err(PodError::invalid(found.path(), reason));
    }
    Ok(())
}

/// Checks a qcow2 overlay with its data in another file, which [`super::image::inspect`] refuses.
///
/// # Errors
/// QEMU cannot read the overlay, or it has a backing file.
pub(super) fn check_tracking(flags: &LauncherFlags, found: &Found) -> Result<(), PodError> {
    let info = info(flags, found, "qcow2")?;
    if !info.backing_file.is_empty() {
        let reason = format!(
            "it has the backing file {:?}, and an overlay that tracks changes has none",
            info.backing_file
        );
        return Err(PodError::invalid(found.path(), reason));
    }
    Ok(())
}

/// What QEMU reads in an image, under limits, because the image may be hostile
/// (`--disk-memory-limit`). `qemu-img` gets the open file and never a name, which could mean
/// another file by now, or a protocol (`json:`, `nbd:`). It also gets the format, so that it does
/// not probe.
fn info(flags: &LauncherFlags, found: &Found, format: &str) -> Result<Info, PodError> {
    let limits = Limits {
        memory: flags.disk_memory_limit,
        cpu: 10,
        wall: Duration::from_secs(30),
    };
    let arguments = ["info", "-U", "--output", "json", "-f", format, "/dev/stdin"];
    let output = run(QEMU_IMG, arguments, &[], Some(found.read()?), limits)
        .map_err(|error| failed_info(error, found.path(), format))?;
    serde_json::from_slice(&output)
        .map_err(|e| PodError::invalid(found.path(), format!("qemu-img info gave no answer: {e}")))
}

/// Translates a failure of `qemu-img info`.
fn failed_info(error: CommandError, path: &Path, format: &str) -> PodError {
    let why = match error {
        CommandError::Failed { stderr, .. } if stderr.contains(NO_THREAD) => {
            let reason = format!(
                "it cannot be inspected: {stderr}; the pod has as many processes as it may have \
                 (pids.max), or too little memory"
            );
            return PodError::invalid(path, reason);
        }
        CommandError::Failed { stderr, .. } if !stderr.is_empty() => {
            stderr.replace("/dev/stdin", "the image")
        }
        // This is not the image's fault. A program that is "not found" may have had too little
        // memory to be loaded.
        CommandError::Start { .. } | CommandError::Wait { .. } => return error.into(),
        other => other.to_string(),
    };
    PodError::invalid(
        path,
        format!("QEMU cannot use it as {format}: {why}; copy or build the image again"),
    )
}

/// Runs `qemu-img` on files of the launcher's own.
fn own(words: &[&[&str]], input: Option<File>) -> Result<(), PodError> {
    run(QEMU_IMG, words.concat(), &[], input, OWN)?;
    Ok(())
}

/// Makes a qcow2 image at `path`.
fn create_with(options: &[&str], path: &Path, size: u64) -> Result<(), PodError> {
    let (path, size) = (file_name(path)?, size.to_string());
    let create = ["create", "-q", "-f", "qcow2"];
    own(&[&create, options, &[path, &size]], None)
}

/// Makes a qcow2 overlay at `path` over `backing`, which is not opened: its size is given.
pub(super) fn create_overlay(
    path: &Path,
    backing: &Path,
    backing_format: &str,
    size: u64,
) -> Result<(), PodError> {
    let backing = file_name(backing)?;
    create_with(&["-u", "-b", backing, "-F", backing_format], path, size)
}

/// Makes an empty qcow2 image.
pub(super) fn create(path: &Path, size: u64) -> Result<(), PodError> {
    create_with(&[], path, size)
}

/// Cluster size of overlays for tracking, as in KubeVirt v1.10: a disk of more than 10 GiB has a
/// quarter of the metadata that QEMU's default makes (v1.9), which must fit into the backend claim.
const TRACKING_CLUSTER: &str = "256k";

/// Makes a qcow2 image with its data in the raw image `data`, which is not touched.
/// `qemu-img create` would empty `data`, so the image is made over a sparse stand-in and then gets
/// the path of its data.
pub(super) fn create_tracking(
    path: &Path,
    stand_in: &Path,
    data: &Path,
    size: u64,
) -> Result<(), PodError> {
    // In a list of options a comma is written twice.
    let data_file = |data: &Path| {
        Ok::<_, PodError>(format!("data_file={}", file_name(data)?.replace(',', ",,")))
    };
    let stand_in = data_file(stand_in)?;
    let options = format!("{stand_in},data_file_raw=on,cluster_size={TRACKING_CLUSTER}");
    create_with(&["-o", &options], path, size)?;
    let (path, data) = (file_name(path)?, data_file(data)?);
    own(
        &[&["amend", "-q", "-f", "qcow2", "-o"], &[&data, path]],
        None,
    )
}

/// Grows an image. Preallocated ones stay so.
pub(super) fn grow_raw(found: &Found, size: u64, preallocate: bool) -> Result<(), PodError> {
    let file = found.open(rustix::fs::OFlags::RDWR)?;
    let preallocation = if preallocate {
        "--preallocation=falloc"
    } else {
        "--preallocation=off"
    };
    let resize = ["resize", "-q", "-f", "raw", preallocation];
    own(&[&resize, &["/dev/stdin", &size.to_string()]], Some(file))
}

/// A path as `qemu-img` takes it. Refuses a relative path, which could be read as a protocol.
fn file_name(path: &Path) -> Result<&str, PodError> {
    match path.to_str() {
        Some(text) if path.is_absolute() => Ok(text),
        Some(_) => Err(PodError::invalid(path, "the path is not absolute")),
        None => Err(PodError::invalid(path, "the path is not UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn only_what_is_wrong_with_the_image_is_to_be_mended_there() {
        let refusal = |stderr: &str| {
            let error = CommandError::Failed {
                program: QEMU_IMG.into(),
                status: ExitStatus::from_raw(6),
                stderr: stderr.to_owned(),
            };
            os::logging::chain(&failed_info(error, Path::new("/disk.img"), "qcow2"))
        };
        let of_image = refusal("qemu-img: Could not open '/dev/stdin': Image is corrupt");
        assert!(of_image.contains("build the image again"), "{of_image}");
        let of_pod = refusal("qemu: qemu_thread_create: Resource temporarily unavailable");
        assert!(of_pod.contains("pids.max"), "{of_pod}");
        assert!(!of_pod.contains("again"), "{of_pod}");
    }
}
