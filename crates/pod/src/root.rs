//! The directory below which all of the pod's paths are.

use std::path::{Path, PathBuf};

/// `/` in a pod; a directory of its own for a launcher on a laptop or in a test (`--root`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    dir: PathBuf,
    is_of_user: bool,
}

impl Default for Root {
    fn default() -> Self {
        Self::new("/")
    }
}

impl Root {
    /// The root at `dir`.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            is_of_user: false,
        }
    }

    /// The root at `dir` of the user who starts the launcher. A claim's image and the target of a
    /// backup may be links out of this root, which that user has made. `/` counts as a pod's root
    /// even so.
    #[must_use]
    pub fn of_user(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        let is_of_user = dir != Path::new("/");
        Self { dir, is_of_user }
    }

    pub(super) fn is_of_user(&self) -> bool {
        self.is_of_user
    }

    /// The real path of the pod's absolute `path`.
    #[must_use]
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.dir.join(path.strip_prefix("/").unwrap_or(path))
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The prefix of the pod's paths in the domain; empty in a pod.
    #[must_use]
    pub fn prefix(&self) -> String {
        if self.dir == Path::new("/") {
            String::default()
        } else {
            self.dir.to_string_lossy().trim_end_matches('/').into()
        }
    }

    /// The pod path of a real path, if it is below the root.
    #[must_use]
    pub fn strip<'p>(&self, real: &'p Path) -> Option<&'p Path> {
        real.strip_prefix(&self.dir).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_itself_has_no_prefix() {
        assert_eq!(Root::default().path("/dev/data"), Path::new("/dev/data"));
        assert_eq!(Root::default().prefix(), "");
    }

    #[test]
    fn a_root_of_its_own_is_before_every_path() {
        let root = Root::new("/tmp/vm/");
        assert_eq!(root.path("/dev/data"), Path::new("/tmp/vm/dev/data"));
        assert_eq!(root.prefix(), "/tmp/vm");
        assert_eq!(
            root.strip(Path::new("/tmp/vm/dev/data")),
            Some(Path::new("dev/data"))
        );
    }
}
