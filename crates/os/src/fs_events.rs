//! Waiting for files by inotify: no ticks, no polling.

use std::io;
use std::path::Path;

use rustix::fs::inotify;
use tokio::net::unix::pipe;

/// Wakes up when something appears, goes, is renamed or closed after writing in one of the watched directories.
#[derive(Debug)]
pub struct DirWatch {
    /// tokio's safe way to wait for a descriptor that is neither a socket nor really a pipe.
    fd: pipe::Receiver,
}

impl DirWatch {
    /// A watch on nothing yet.
    ///
    /// # Errors
    /// If the kernel has no inotify instance left.
    pub fn new() -> io::Result<Self> {
        let fd = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        Ok(Self {
            fd: pipe::Receiver::from_owned_fd_unchecked(fd)?,
        })
    }

    /// Watches one more directory; a directory that is watched already is not watched twice.
    ///
    /// # Errors
    /// If it is not there or cannot be read.
    pub fn add(&self, directory: &Path) -> io::Result<()> {
        Ok(self.watch(directory, inotify::WatchFlags::empty())?)
    }

    /// As [`Self::add`], and wakes up at each write to a file there too.
    ///
    /// # Errors
    /// If it is not there or cannot be read.
    pub fn add_with_writes(&self, directory: &Path) -> io::Result<()> {
        Ok(self.watch(directory, inotify::WatchFlags::MODIFY)?)
    }

    fn watch(&self, directory: &Path, more: inotify::WatchFlags) -> rustix::io::Result<()> {
        use inotify::WatchFlags as On;
        let changes = On::CREATE
            | On::MOVED_TO
            | On::DELETE
            | On::MOVED_FROM
            | On::ATTRIB
            | On::CLOSE_WRITE
            | On::DELETE_SELF;
        inotify::add_watch(&self.fd, directory, changes | more | On::ONLYDIR).map(drop)
    }

    /// Waits for the next change; several at once count as one.
    ///
    /// # Errors
    /// If the watch cannot be read.
    pub async fn changed(&self) -> io::Result<()> {
        // What changed does not matter, only that something did.
        let mut buffer = [0_u8; 4096];
        let mut any = false;
        loop {
            match self.fd.try_read(&mut buffer) {
                Ok(_) => any = true,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) if any => return Ok(()),
                Err(_) => self.fd.readable().await?,
            }
        }
    }
}

/// Waits until `path` exists. Directories on the way may be missing too.
///
/// # Errors
/// If no directory above it can be watched.
pub async fn appears(path: &Path) -> io::Result<()> {
    loop {
        let watch = DirWatch::new()?;
        // The nearest ancestor that is there; it may go between the look and the watch.
        let above = path
            .ancestors()
            .skip(1)
            .find(|ancestor| ancestor.is_dir())
            .unwrap_or(Path::new("/"));
        match watch.add(above) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        }
        // Looked at after the watch is in place, so that nothing is missed in between.
        while !path.exists() {
            let deeper = path.ancestors().skip(1).find(|ancestor| ancestor.is_dir());
            if deeper != Some(above) {
                break;
            }
            watch.changed().await?;
        }
        if path.exists() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(work)
    }

    #[test]
    fn a_file_that_is_there_is_no_wait() {
        let dir = tempfile::tempdir().unwrap();
        block_on(appears(dir.path())).unwrap();
    }

    #[test]
    fn a_file_in_directories_that_are_still_missing_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a/b/c");
        block_on(async {
            let maker = file.clone();
            let work = tokio::spawn(async move {
                tokio::task::yield_now().await;
                std::fs::create_dir_all(maker.parent().unwrap()).unwrap();
                tokio::task::yield_now().await;
                std::fs::write(&maker, "").unwrap();
            });
            appears(&file).await.unwrap();
            work.await.unwrap();
        });
        assert!(file.exists());
    }

    #[test]
    fn a_directory_that_is_missing_cannot_be_watched() {
        block_on(async {
            let error = DirWatch::new()
                .unwrap()
                .add(Path::new("/nonexistent/dir"))
                .unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        });
    }
}
