//! ISO 9660 images with Joliet and Rock Ridge names, by `xorrisofs`.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::PodError;
use super::safe_path::Dir;
use super::staged::Staged;
use os::command::{CommandError, Limits, run};
use rustix::io::Errno;

const LIMITS: Limits = Limits {
    memory: 0,
    cpu: 60,
    wall: Duration::from_secs(60),
};
/// Part of xorriso's error if the file system is full.
const NO_SPACE: &str = "exceeds free space on media";
const FIRST_SECTOR: u64 = 16 * 2048;
/// Creation date in the volume descriptor: `YYYYMMDDhhmmsscc` and a time zone.
const CREATION: usize = 813;

/// What goes into an image.
#[derive(Debug)]
pub(super) enum Tree<'t> {
    /// All that is below a directory.
    Directory(&'t Path),
    /// These files and directories under these names; links are followed.
    Files(&'t [(String, std::path::PathBuf)]),
}

/// Makes `name` in `dir`, with the given volume label. An image with the same content stays as it
/// is. An image is dated by the first time that it was made, so the same content gives the same
/// bytes.
// D-disk-19 (docs/differences.md).
pub(super) fn make(dir: &Dir, name: &str, label: &str, tree: &Tree<'_>) -> Result<(), PodError> {
    let staged = Staged::new(dir, name)?;
    let path = staged.path();
    let mut arguments: Vec<String> = vec![
        "-quiet".into(),
        "-output".into(),
        path.to_string_lossy().into_owned(),
    ];
    if matches!(tree, Tree::Files(_)) {
        arguments.push("-follow-links".into());
    }
    arguments.extend(["-volid", label, "-joliet", "-rock"].map(str::to_owned));
    if matches!(tree, Tree::Files(_)) {
        arguments.push("-graft-points".into());
    }
    arguments.extend(["-partition_cyl_align", "on"].map(str::to_owned));
    let date = date_of(dir, name).unwrap_or_else(now).to_string();
    arguments.extend(["--set_all_file_dates".to_owned(), format!("={date}")]);
    match tree {
        Tree::Directory(path) => arguments.push(path.to_string_lossy().into_owned()),
        Tree::Files(files) => {
            // From the root: a name may begin with "-", and is not an option.
            arguments.extend(files.iter().map(|(name, path)| {
                format!("/{}={}", escape(name), escape(&path.to_string_lossy()))
            }))
        }
    }
    run(
        "xorrisofs",
        &arguments,
        &[("SOURCE_DATE_EPOCH", &date)],
        None,
        LIMITS,
    )
    .map_err(|error| failure(error, &path))?;
    staged.commit_if_changed(0o600)
}

/// Replaces xorriso's error about a full file system: its count of free sectors changes with each
/// attempt.
// D-vm-18 (docs/differences.md).
fn failure(error: CommandError, path: &Path) -> PodError {
    match error {
        CommandError::Failed { stderr, .. } if stderr.contains(NO_SPACE) => {
            PodError::io("write", path)(Errno::NOSPC)
        }
        error => error.into(),
    }
}

/// `=` and `\` mean something in a graft point.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('=', "\\=")
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// When the image that is there was made, in seconds since 1970.
fn date_of(dir: &Dir, name: &str) -> Option<u64> {
    let file = dir.find(name).ok()?.read().ok()?;
    let mut descriptor = [0; 2048];
    file.read_exact_at(&mut descriptor, FIRST_SECTOR).ok()?;
    let digits = std::str::from_utf8(descriptor.get(CREATION..CREATION + 14)?).ok()?;
    let date = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", digits).ok()?;
    date.to_zoned(jiff::tz::TimeZone::UTC)
        .ok()?
        .timestamp()
        .as_second()
        .try_into()
        .ok()
}
