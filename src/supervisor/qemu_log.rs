//! QEMU's own log, and SeaBIOS's, line by line into ours.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, mkfifoat};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;

use os::fs_events::{DirWatch, appears};
use os::logging::foreign::Qemu;

/// Follows the log at `path` for ever: from its beginning, through rotations, and before it exists.
pub async fn follow(path: PathBuf) {
    let mut qemu = Qemu::new("");
    if let Err(error) = follow_into(&path, |line| qemu.log(line)).await {
        tracing::warn!(reason = %error, "QEMU's log {} can't be followed", path.display());
    }
}

async fn follow_into(path: &Path, mut each: impl FnMut(&str)) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    appears(dir).await?;
    let watch = DirWatch::new()?;
    watch.add_with_writes(dir)?;
    let mut tail = Tail::default();
    loop {
        tail.read(path, &mut each)?;
        watch.changed().await?;
    }
}

/// An open log, and the line that is not complete yet.
#[derive(Default)]
struct Tail {
    open: Option<(u64, File)>,
    begun: Vec<u8>,
}

impl Tail {
    /// Reads what is new. A log that was rotated is read to its end before the new one is begun.
    fn read(&mut self, path: &Path, each: &mut impl FnMut(&str)) -> io::Result<()> {
        loop {
            self.drain(each)?;
            let there = match std::fs::metadata(path) {
                Ok(metadata) => metadata.ino(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
            if self.open.as_ref().is_some_and(|(inode, _)| *inode == there) {
                return Ok(());
            }
            let file = File::open(path)?;
            self.open = Some((file.metadata()?.ino(), file));
        }
    }

    fn drain(&mut self, each: &mut impl FnMut(&str)) -> io::Result<()> {
        /// A line that is longer is cut.
        const LONGEST: usize = 512 * 1024;
        let Some((_, file)) = &mut self.open else {
            return Ok(());
        };
        let mut buffer = [0; 4096];
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            for byte in buffer.get(..count).unwrap_or_default() {
                if *byte != b'\n' {
                    self.begun.push(*byte);
                }
                if *byte == b'\n' || self.begun.len() >= LONGEST {
                    each(&String::from_utf8_lossy(&self.begun));
                    self.begun.clear();
                }
            }
        }
    }
}

/// Makes the fifo for SeaBIOS's debug output and logs what comes.
pub async fn seabios(path: PathBuf) {
    if let Err(error) = read_fifo(&path).await {
        tracing::warn!(reason = %error, "SeaBIOS's debug output can't be read from {}", path.display());
    }
}

async fn read_fifo(path: &Path) -> io::Result<()> {
    // QEMU, which writes, may be another user.
    let everyone = Mode::from_raw_mode(0o666);
    match mkfifoat(rustix::fs::CWD, path, everyone) {
        Ok(()) => rustix::fs::chmod(path, everyone)?,
        Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    // Open for writing too: then it has no end each time that a QEMU ends.
    let fifo = pipe::OpenOptions::new()
        .read_write(true)
        .open_receiver(path)?;
    let mut lines = BufReader::with_capacity(512, fifo).split(b'\n');
    let mut log = Qemu::new("[SeaBios]: ");
    while let Some(line) = lines.next_segment().await? {
        log.log(String::from_utf8_lossy(&line).trim_end());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;
    use tokio::sync::mpsc;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(work)
    }

    fn append(path: &Path, text: &str) {
        File::options()
            .append(true)
            .create(true)
            .open(path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    #[test]
    fn lines_come_as_they_are_written_and_through_a_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log/ns_vm.log");
        block_on(async {
            let (tx, mut lines) = mpsc::unbounded_channel();
            let followed = path.clone();
            let task = tokio::spawn(async move {
                follow_into(&followed, |line| drop(tx.send(line.to_owned()))).await
            });
            tokio::task::yield_now().await;
            std::fs::create_dir(path.parent().unwrap()).unwrap();
            append(&path, "first\nsec");
            assert_eq!(lines.recv().await.unwrap(), "first");
            append(&path, "ond\nthird\n");
            assert_eq!(lines.recv().await.unwrap(), "second");
            assert_eq!(lines.recv().await.unwrap(), "third");
            append(&path, "before\n");
            std::fs::rename(&path, path.with_extension("log.0")).unwrap();
            append(&path, "after\n");
            assert_eq!(lines.recv().await.unwrap(), "before");
            assert_eq!(lines.recv().await.unwrap(), "after");
            task.abort();
        });
    }

    #[test]
    fn fifo_is_open_to_everyone_and_made_once() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        block_on(async {
            for _ in 0..2 {
                let reader = tokio::spawn(seabios(path.clone()));
                appears(&path).await.unwrap();
                tokio::task::yield_now().await;
                assert!(!reader.is_finished());
                reader.abort();
            }
        });
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o666
        );
    }
}
