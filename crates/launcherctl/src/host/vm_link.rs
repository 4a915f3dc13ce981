//! A name below the launcher's root for something outside it.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::registry::VmDir;
use crate::files::FileError;
use api::pod_paths::PRIVATE_DIR;

/// A symbolic link in a VM's directory that lets the launcher use a user's file or directory.
/// Removed on drop.
#[derive(Debug)]
pub struct VmLink {
    link: PathBuf,
    name: String,
}

impl VmLink {
    /// Makes a link to `target`. Its name, which begins with `what`, is never reused: the launcher
    /// knows memory dumps by their names.
    ///
    /// # Errors
    /// It cannot be made, such as in another user's directory.
    pub fn make(dir: &VmDir, what: &str, target: &Path) -> Result<Self, FileError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let nanoseconds = now.map_or(0, |now| now.as_nanos());
        let name = format!("{what}-{}-{nanoseconds}", std::process::id());
        let link = dir.path(PRIVATE_DIR).join(&name);
        symlink(target, &link).map_err(FileError::on("make the link", &link))?;
        Ok(Self { link, name })
    }

    /// The path for the launcher.
    pub fn pod_path(&self) -> String {
        format!("{PRIVATE_DIR}/{}", self.name)
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for VmLink {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.link);
    }
}
