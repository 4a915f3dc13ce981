//! Copies QEMU's log and SeaBIOS's debug output to the launcher's log, line by line.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, mkfifoat};
use tokio::net::unix::pipe;
use tokio::task::yield_now;
use tokio::time::sleep;

use domain::xml::secrets::shown_command_line;
use os::inotify::{DirWatch, appears};
use os::lines;
use os::log_file::{LogFile, LogReadError, Progress};
use os::logging::foreign::QemuLines;

/// Delay before an unreadable log is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Follows the log at `path` and never returns: from its beginning, through rotations, and before
/// it exists.
pub async fn follow(path: PathBuf) {
    let mut qemu = QemuLines::new("");
    follow_into(&path, |line| qemu.log(&shown_command_line(line))).await;
}

async fn follow_into(path: &Path, mut log: impl FnMut(&str)) {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut file = LogFile::new(path);
    let mut each = |lines: &[u8]| {
        String::from_utf8_lossy(lines).lines().for_each(&mut log);
        Ok::<(), Infallible>(())
    };
    loop {
        appears(directory).await;
        let watch = DirWatch::new();
        if watch.add_with_writes(directory).is_err() {
            // The file was removed meanwhile.
            continue;
        }
        let mut has_failed = false;
        loop {
            match file.read(&mut each) {
                // Lets other tasks run during a flood.
                Ok(Progress::More) => yield_now().await,
                Ok(Progress::Done) if directory.is_dir() => watch.changed().await,
                Ok(Progress::Done) => break,
                Err(LogReadError::Reader(never)) => match never {},
                Err(LogReadError::Log(error)) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!(reason = %error, "QEMU's log {} cannot be read", path.display());
                    }
                    sleep(RETRY_DELAY).await;
                }
            }
        }
    }
}

/// Makes the FIFO for SeaBIOS's debug output and logs its lines.
pub async fn seabios(path: PathBuf) {
    match make_fifo(&path) {
        Ok(fifo) => {
            let mut log = QemuLines::new("[SeaBios]: ");
            lines::for_each(fifo, |line| log.log(line)).await;
        }
        Err(error) => {
            tracing::warn!(reason = %error, "SeaBIOS's debug output cannot be read from {}", path.display());
        }
    }
}

fn make_fifo(path: &Path) -> io::Result<pipe::Receiver> {
    // QEMU, the writer, may run as another user.
    let everyone = Mode::from_raw_mode(0o666);
    match mkfifoat(rustix::fs::CWD, path, everyone) {
        Ok(()) => rustix::fs::chmod(path, everyone)?,
        Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    // Also opened for writing, so that the exit of a QEMU causes no end of file.
    pipe::OpenOptions::new()
        .read_write(true)
        .open_receiver(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use tokio::sync::mpsc;

    fn append(path: &Path, text: &str) {
        File::options()
            .append(true)
            .create(true)
            .open(path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    #[tokio::test]
    async fn lines_come_as_they_are_written_and_through_a_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log/ns_vm.log");
        let (tx, mut lines) = mpsc::channel(16);
        let followed = path.clone();
        let task = tokio::spawn(async move {
            follow_into(&followed, |line| tx.try_send(line.to_owned()).unwrap()).await;
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
        // The directory was removed and made again.
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        append(&path, "anew\n");
        assert_eq!(lines.recv().await.unwrap(), "anew");
        task.abort();
    }

    #[tokio::test]
    async fn others_get_their_turn_during_a_flood() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ns_vm.log");
        append(&path, &("x".repeat(1023) + "\n").repeat(4096));
        let lines = std::rc::Rc::new(std::cell::Cell::new(0));
        let counted = lines.clone();
        let mut flood = std::pin::pin!(follow_into(&path, move |_| counted.set(counted.get() + 1)));
        let mut turns = 0;
        while lines.get() < 4096 {
            tokio::select! {
                biased;
                () = &mut flood => unreachable!(),
                () = tokio::task::yield_now() => turns += 1,
            }
        }
        assert!(turns > 10, "{turns} turns");
    }

    #[tokio::test]
    async fn fifo_is_open_to_everyone_and_made_once() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        for _ in 0..2 {
            let reader = tokio::spawn(seabios(path.clone()));
            appears(&path).await;
            tokio::task::yield_now().await;
            assert!(!reader.is_finished());
            reader.abort();
        }
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o666
        );
    }
}
