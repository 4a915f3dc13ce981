//! The directory below which all of the pod's paths are.

use std::path::{Path, PathBuf};

/// `/` in a pod; a directory of its own for a launcher on a laptop or in a test (`--root`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

impl Root {
    /// The root at `dir`.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self(dir.into())
    }

    /// Where the pod's absolute `path` really is.
    #[must_use]
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// What goes before the pod's paths in the domain: empty in a pod.
    #[must_use]
    pub fn prefix(&self) -> String {
        if self.0 == Path::new("/") {
            String::default()
        } else {
            self.0.to_string_lossy().trim_end_matches('/').into()
        }
    }

    /// The pod path of a real path, if it is below the root.
    #[must_use]
    pub fn strip<'p>(&self, real: &'p Path) -> Option<&'p Path> {
        real.strip_prefix(&self.0).ok()
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
