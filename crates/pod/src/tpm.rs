//! The state of a persistent TPM: swtpm's files. They are in no file system of the guest, so a
//! freeze does not flush them.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::PodError;

/// Directories below swtpm's: the domain's UUID, then the TPM's version.
const MAX_DEPTH: usize = 3;

/// Waits until what swtpm has written below libvirt's directory `dir` is on its volume.
///
/// # Errors
/// When a file cannot be read or written out.
pub fn sync_tpm_state(dir: &Path) -> Result<(), PodError> {
    // No TPM has been started.
    if matches!(dir.try_exists(), Ok(false)) {
        return Ok(());
    }
    let synced = match sync_dir(dir, MAX_DEPTH) {
        // swtpm has renamed a file meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => sync_dir(dir, MAX_DEPTH),
        synced => synced,
    };
    synced.map_err(PodError::io("write out the TPM's state in", dir))
}

fn sync_dir(dir: &Path, depth: usize) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_file() {
            File::open(entry.path())?.sync_all()?;
        } else if kind.is_dir() && depth > 1 {
            sync_dir(&entry.path(), depth - 1)?;
        }
    }
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_a_tpm_is_written_out() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("swtpm");
        sync_tpm_state(&dir).unwrap();
        let state = dir.join("uuid/tpm2");
        fs::create_dir_all(&state).unwrap();
        fs::write(state.join("tpm2-00.permall"), "state").unwrap();
        sync_tpm_state(&dir).unwrap();
        // A path that cannot be read is an error, and does not count as a missing TPM.
        let why = sync_tpm_state(&state.join("tpm2-00.permall")).unwrap_err();
        assert!(os::logging::chain(&why).contains("TPM's state"), "{why}");
    }
}
