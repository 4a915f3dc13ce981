//! Putting files in their place: made beside it, then renamed, so that readers never see a part.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::PodError;
use super::ownership::give_to_qemu;
use super::safe_path::Dir;

/// A file on its way into a directory, of which there may be one for each name: a start keeps
/// others off until it makes no more. Dropped without [`Staged::commit`], it is removed.
#[derive(Debug)]
pub(super) struct Staged<'d> {
    dir: &'d Dir,
    name: String,
    temporary: String,
}

impl<'d> Staged<'d> {
    /// Begins the file `name`, after removing what an interrupted attempt has left.
    pub fn new(dir: &'d Dir, name: &str) -> Result<Self, PodError> {
        let staged = Self {
            dir,
            name: name.to_owned(),
            temporary: format!("{name}.staging"),
        };
        match unlinkat(dir, staged.temporary.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(staged),
            Err(e) => Err(PodError::io("remove the left-over", staged.path())(e)),
        }
    }

    /// The path at which the file is made.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join(&self.temporary)
    }

    /// Opens a new, empty file there.
    pub fn create(&self) -> Result<File, PodError> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(
            self.dir,
            self.temporary.as_str(),
            flags,
            Mode::from_raw_mode(0o600),
        )
        .map(File::from)
        .map_err(PodError::io("make", self.path()))
    }

    /// Gives the file its mode and owner and puts it in its place. The content need not reach the
    /// disk first, because the file lives as long as the pod, and the pod does not survive its
    /// node.
    pub fn commit(self, mode: u32) -> Result<(), PodError> {
        let file = self.reopen()?;
        fchmod(&file, Mode::from_raw_mode(mode))
            .map_err(PodError::io("set the mode of", self.path()))?;
        give_to_qemu(file.as_fd(), &self.path())?;
        renameat(
            self.dir,
            self.temporary.as_str(),
            self.dir,
            self.name.as_str(),
        )
        .map_err(PodError::io(
            "put in its place",
            self.dir.path().join(&self.name),
        ))?;
        std::mem::forget(self);
        Ok(())
    }

    /// Puts the file in its place, unless a file with the same content is there, which then stays.
    // D-disk-14 (docs/differences.md).
    pub fn commit_if_changed(self, mode: u32) -> Result<(), PodError> {
        let is_same = match self.dir.find(&self.name) {
            Ok(there) => same_content(&there.read()?, &self.reopen()?)
                .map_err(PodError::io("compare", self.path()))?,
            Err(_) => false,
        };
        if is_same { Ok(()) } else { self.commit(mode) }
    }

    fn reopen(&self) -> Result<File, PodError> {
        self.dir.find(&self.temporary)?.read()
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        // Best effort: the next attempt removes it as well.
        let _ = unlinkat(self.dir, self.temporary.as_str(), AtFlags::empty());
    }
}

/// Puts a file with `content` in its place, unless it is there already.
pub(super) fn write(dir: &Dir, name: &str, content: &[u8], mode: u32) -> Result<(), PodError> {
    let staged = Staged::new(dir, name)?;
    staged
        .create()?
        .write_all(content)
        .map_err(PodError::io("write", staged.path()))?;
    staged.commit_if_changed(mode)
}

/// Puts a file of `size` zero bytes in its place; it takes up the space.
pub(super) fn write_zeros(dir: &Dir, name: &str, size: u64, mode: u32) -> Result<(), PodError> {
    let staged = Staged::new(dir, name)?;
    let mut file = staged.create()?;
    let failed = PodError::io("write", staged.path());
    io::copy(&mut io::Read::take(io::repeat(0), size), &mut file).map_err(failed)?;
    staged.commit_if_changed(mode)
}

/// A symbolic link in its place, if it is not there already.
pub(super) fn link(dir: &Dir, name: &str, target: &Path) -> Result<(), PodError> {
    let place = dir.path().join(name);
    if fs::read_link(&place).is_ok_and(|there| there == target) {
        return Ok(());
    }
    let staged = Staged::new(dir, name)?;
    rustix::fs::symlinkat(target, dir, staged.temporary.as_str())
        .map_err(PodError::io("link", staged.path()))?;
    renameat(dir, staged.temporary.as_str(), dir, name)
        .map_err(PodError::io("put in its place", place))
}

fn same_content(a: &File, b: &File) -> io::Result<bool> {
    use std::os::unix::fs::FileExt;
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    const CHUNK: usize = 1 << 16;
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    let (length, mut at) = (a.metadata()?.len(), 0);
    while at < length {
        let chunk = usize::try_from(length - at).map_or(CHUNK, |rest| rest.min(CHUNK));
        left.truncate(chunk);
        right.truncate(chunk);
        a.read_exact_at(&mut left, at)?;
        b.read_exact_at(&mut right, at)?;
        if left != right {
            return Ok(false);
        }
        at += chunk as u64;
    }
    Ok(true)
}
