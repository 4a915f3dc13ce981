//! Following a log file that is written, rotated and truncated while it is read.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::small_file::{self, Links};

/// Longer lines are handed on in parts; the bytes are the same.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// How many rotated logs (`FILE.0`, `FILE.1`, …) are searched for the one that is being read.
/// virtlogd keeps three.
const MAX_ROTATED: usize = 10;

/// Whether there is more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Another call goes on at once.
    More,
    /// All that is written was read.
    Done,
}

/// Why reading did not come to the end; `E` is the reader's own error.
#[derive(Debug)]
pub enum LogReadError<E> {
    /// The reader takes no more.
    Reader(E),
    /// The log cannot be read, for now.
    Log(io::Error),
}

impl<E> From<io::Error> for LogReadError<E> {
    fn from(error: io::Error) -> Self {
        Self::Log(error)
    }
}

type Each<'a, E> = dyn FnMut(&[u8]) -> Result<(), E> + 'a;

/// Which file it is, whatever its name. It cannot become another's while the file is open.
type Identity = (u64, u64);

/// A log file, and how far it has been read.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    open: Option<Open>,
    /// Begins with the unfinished line that was read last.
    buffer: Vec<u8>,
    begun: usize,
    /// Whether a part of that line has been handed on already.
    cut: bool,
}

#[derive(Debug)]
struct Open {
    file: File,
    identity: Identity,
    position: u64,
}

impl LogFile {
    /// The log at `path`, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            open: None,
            buffer: vec![0; MAX_LINE_BYTES],
            begun: 0,
            cut: false,
        }
    }

    /// Follows from the beginning of the log that was rotated last, if that can be read.
    #[must_use]
    pub fn with_rotated(path: &Path) -> Self {
        Self {
            open: opened(&rotated(path, 0)).ok().flatten(),
            ..Self::new(path)
        }
    }

    /// Hands on whole lines that are new, from rotated logs too. One call reads [`MAX_LINE_BYTES`]
    /// at most, so that a flood does not keep its caller from all else.
    ///
    /// # Errors
    /// If `each` refuses, or a file cannot be read; that can be tried again.
    pub fn read<E>(&mut self, each: &mut Each<'_, E>) -> Result<Progress, LogReadError<E>> {
        match self.read_open(each) {
            Ok(Progress::More) => Ok(Progress::More),
            Err(LogReadError::Reader(error)) => Err(LogReadError::Reader(error)),
            Ok(Progress::Done) => {
                if let Some(next) = self.successor()? {
                    // Lines that were written between the last read and the rotation.
                    if self.read_open(each)? == Progress::Done {
                        self.open = Some(next);
                    }
                    return Ok(Progress::More);
                }
                Ok(Progress::Done)
            }
            // What cannot be read is not waited for when there is something newer.
            Err(LogReadError::Log(error)) => match self.successor()? {
                Some(next) => {
                    self.open = Some(next);
                    Ok(Progress::More)
                }
                None => Err(LogReadError::Log(error)),
            },
        }
    }

    /// Reads the open file once.
    fn read_open<E>(&mut self, each: &mut Each<'_, E>) -> Result<Progress, LogReadError<E>> {
        let Some(open) = &mut self.open else {
            return Ok(Progress::Done);
        };
        let is_truncated = open.file.metadata()?.len() < open.position;
        if is_truncated {
            open.file.rewind()?;
            open.position = 0;
            self.end_line(each).map_err(LogReadError::Reader)?;
        }
        let (Some(open), Some(free)) = (&mut self.open, self.buffer.get_mut(self.begun..)) else {
            return Ok(Progress::Done);
        };
        let count = match open.file.read(free) {
            Ok(0) => return Ok(Progress::Done),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Progress::More),
            Err(error) => return Err(error.into()),
        };
        open.position += count as u64;
        self.hand_on(self.begun + count, each)
            .map_err(LogReadError::Reader)?;
        Ok(Progress::More)
    }

    /// Hands on the whole lines in the first `filled` bytes.
    fn hand_on<E>(&mut self, filled: usize, each: &mut Each<'_, E>) -> Result<(), E> {
        let read = self.buffer.get(..filled).unwrap_or_default();
        let whole = match read.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if filled == self.buffer.len() => filled,
            None => 0,
        };
        if let Some(lines @ [.., last]) = self.buffer.get(..whole) {
            each(lines)?;
            self.cut = *last != b'\n';
        }
        self.buffer.copy_within(whole..filled, 0);
        self.begun = filled - whole;
        Ok(())
    }

    /// Hands on the last line, which has no end.
    fn end_line<E>(&mut self, each: &mut Each<'_, E>) -> Result<(), E> {
        if self.begun > 0 || self.cut {
            let mut line = self.buffer.get(..self.begun).unwrap_or_default().to_vec();
            line.push(b'\n');
            each(&line)?;
            (self.begun, self.cut) = (0, false);
        }
        Ok(())
    }

    /// The log that was begun after the open one. Several rotations may have passed.
    // D-log-1 (docs/differences.md).
    fn successor(&self) -> io::Result<Option<Open>> {
        let Some(ours) = self.open.as_ref().map(|open| open.identity) else {
            return opened(&self.path);
        };
        loop {
            if identity(&self.path)? == Some(ours) {
                return Ok(None);
            }
            let mut newer = self.path.clone();
            let mut found = None;
            for number in 0..MAX_ROTATED {
                let older = rotated(&self.path, number);
                match identity(&older)? {
                    Some(there) if there == ours => {
                        found = Some(older);
                        break;
                    }
                    Some(_) => newer = older,
                    None => {}
                }
            }
            let Some(name) = found else {
                return opened(&self.path);
            };
            let next = opened(&newer)?;
            // Oldest first is renamed: where ours has kept its name the newer one had too.
            if identity(&name)? == Some(ours) {
                return Ok(next);
            }
        }
    }
}

/// The name of a rotated log: the lower the number, the newer.
#[must_use]
pub fn rotated(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// The file at `path`, if there is one.
///
/// # Errors
/// If it cannot be opened, or is not a regular file: a FIFO would be waited for.
pub fn open_regular(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    unless_missing(small_file::open(path, options.read(true), Links::Follow))
}

fn opened(path: &Path) -> io::Result<Option<Open>> {
    let Some(file) = open_regular(path)? else {
        return Ok(None);
    };
    let identity = identity_of(&file.metadata()?);
    Ok(Some(Open {
        file,
        identity,
        position: 0,
    }))
}

fn identity(path: &Path) -> io::Result<Option<Identity>> {
    Ok(unless_missing(std::fs::metadata(path))?
        .as_ref()
        .map(identity_of))
}

fn identity_of(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

fn unless_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        // The directory's place may have been taken by a file, for a while.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
