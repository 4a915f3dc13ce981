//! A log file that is written, rotated and truncated while it is read.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::output::Stop;

/// Longer lines are handed on in parts; the bytes are the same.
const LONGEST_LINE: usize = 64 * 1024;

/// How many rotated logs (`FILE.0`, `FILE.1`, …) are looked through for the one that is being read. virtlogd keeps three.
const ROTATED: usize = 10;

/// Why reading did not come to the end.
#[derive(Debug)]
pub enum Trouble {
    /// Nothing more can be handed on.
    Stop(Stop),
    /// The log cannot be read, for now.
    Log(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Log(error)
    }
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

type Each<'a> = dyn FnMut(&[u8]) -> Result<(), Stop> + 'a;

/// Which file it is, whatever its name. It cannot become another's while the file is open.
type Identity = (u64, u64);

/// A log, and how far it has been read.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    open: Option<Open>,
    /// Begins with what has been read and not been handed on: the beginning of a line.
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

impl Log {
    /// Of a log that need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            open: None,
            buffer: vec![0; LONGEST_LINE],
            begun: 0,
            cut: false,
        }
    }

    /// Hands on the whole lines that are new, from rotated logs too.
    ///
    /// # Errors
    /// If `each` refuses, or a file cannot be read; that can be tried again.
    pub fn read(&mut self, each: &mut Each<'_>) -> Result<(), Trouble> {
        loop {
            let drained = self.drain(each);
            if matches!(drained, Err(Trouble::Stop(_))) {
                return drained;
            }
            // What cannot be read is not waited for when there is something newer.
            let Some(next) = self.successor()? else {
                return drained;
            };
            // What came between the last look and the rotation.
            if drained.is_ok() {
                self.drain(each)?;
            }
            self.open = Some(next);
        }
    }

    fn drain(&mut self, each: &mut Each<'_>) -> Result<(), Trouble> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        if open.file.metadata()?.len() < open.position {
            open.file.rewind()?;
            open.position = 0;
            self.end_line(each)?;
        }
        while let Some(open) = &mut self.open {
            let room = self.buffer.get_mut(self.begun..).unwrap_or_default();
            let count = match open.file.read(room) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            open.position += count as u64;
            self.hand_on(self.begun + count, each)?;
        }
        Ok(())
    }

    /// Hands on what is whole of the first `filled` bytes.
    fn hand_on(&mut self, filled: usize, each: &mut Each<'_>) -> Result<(), Stop> {
        let read = self.buffer.get(..filled).unwrap_or_default();
        let whole = match read.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if filled == self.buffer.len() => filled,
            None => 0,
        };
        let lines = read.get(..whole).unwrap_or_default();
        if let Some(last) = lines.last() {
            each(lines)?;
            self.cut = *last != b'\n';
        }
        self.buffer.copy_within(whole..filled, 0);
        self.begun = filled - whole;
        Ok(())
    }

    /// Ends a line whose end was never written.
    fn end_line(&mut self, each: &mut Each<'_>) -> Result<(), Stop> {
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
            for number in 0..ROTATED {
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

fn rotated(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn opened(path: &Path) -> io::Result<Option<Open>> {
    let Some(file) = unless_missing(File::open(path))? else {
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    /// A log in a directory of its own, read by hand.
    struct Bench {
        _dir: tempfile::TempDir,
        path: PathBuf,
        log: Log,
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("virt-serial0-log");
            Self {
                log: Log::new(&path),
                path,
                _dir: dir,
            }
        }

        fn write(&self, text: &str) {
            File::options()
                .append(true)
                .create(true)
                .open(&self.path)
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
        }

        fn rotate(&self) {
            for number in (0..2)
                .rev()
                .filter(|number| rotated(&self.path, *number).exists())
            {
                std::fs::rename(rotated(&self.path, number), rotated(&self.path, number + 1))
                    .unwrap();
            }
            std::fs::rename(&self.path, rotated(&self.path, 0)).unwrap();
        }

        fn read(&mut self) -> String {
            let mut text = Vec::new();
            self.log
                .read(&mut |part| {
                    text.extend_from_slice(part);
                    Ok(())
                })
                .unwrap();
            String::from_utf8(text).unwrap()
        }
    }

    #[test]
    fn only_whole_lines_are_handed_on() {
        let mut bench = Bench::new();
        assert_eq!(bench.read(), "");
        bench.write("one\r\n\ntw");
        assert_eq!(bench.read(), "one\r\n\n");
        bench.write("o\nlogin: ");
        assert_eq!(bench.read(), "two\n");
        assert_eq!(bench.read(), "");
    }

    #[test]
    fn a_line_that_a_rotation_splits_is_whole() {
        let mut bench = Bench::new();
        bench.write("one\ntw");
        assert_eq!(bench.read(), "one\n");
        bench.write("o, ");
        bench.rotate();
        assert_eq!(bench.read(), "");
        bench.write("still two\n");
        assert_eq!(bench.read(), "two, still two\n");
    }

    #[test]
    fn several_rotations_between_two_looks_lose_nothing() {
        let mut bench = Bench::new();
        bench.write("0\n");
        assert_eq!(bench.read(), "0\n");
        let mut expected = String::new();
        for number in 1..=3 {
            bench.write(&format!("{number} before\n"));
            expected += &format!("{number} before\n");
            if number < 3 {
                bench.rotate();
            }
        }
        assert_eq!(bench.read(), expected);
        bench.write("4\n");
        assert_eq!(bench.read(), "4\n");
    }

    #[test]
    fn a_rotation_that_has_not_made_the_new_log_yet_is_waited_for() {
        let mut bench = Bench::new();
        bench.write("1\n");
        bench.read();
        bench.rotate();
        bench.write("2\n");
        bench.rotate();
        assert_eq!(bench.read(), "2\n");
        bench.write("3\n");
        assert_eq!(bench.read(), "3\n");
    }

    #[test]
    fn older_logs_are_not_of_this_guest() {
        let mut bench = Bench::new();
        bench.write("old\n");
        bench.rotate();
        bench.write("new\n");
        assert_eq!(bench.read(), "new\n");
        std::fs::remove_file(&bench.path).unwrap();
        assert_eq!(bench.read(), "");
        bench.write("newer\n");
        assert_eq!(bench.read(), "newer\n");
    }

    #[test]
    // D-log-2 (docs/differences.md).
    fn a_truncated_log_is_read_from_its_beginning() {
        let mut bench = Bench::new();
        bench.write("one\nbegun");
        assert_eq!(bench.read(), "one\n");
        File::create(&bench.path).unwrap();
        assert_eq!(bench.read(), "begun\n");
        bench.write("two\n");
        assert_eq!(bench.read(), "two\n");
    }

    #[test]
    fn a_very_long_line_comes_in_parts() {
        let mut bench = Bench::new();
        let long = "x".repeat(LONGEST_LINE * 3 + 5);
        bench.write(&long);
        let first = bench.read();
        assert_eq!(first.len(), LONGEST_LINE * 3);
        bench.write("\nshort\nx");
        assert_eq!(first + &bench.read(), long + "\nshort\n");
        assert_eq!(bench.log.buffer.len(), LONGEST_LINE);
    }

    #[test]
    fn a_refusal_and_an_unreadable_log_are_told_apart() {
        let mut bench = Bench::new();
        bench.write("one\n");
        assert!(matches!(
            bench.log.read(&mut |_| Err(Stop::Signal)),
            Err(Trouble::Stop(Stop::Signal))
        ));
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::new(dir.path());
        assert!(matches!(log.read(&mut |_| Ok(())), Err(Trouble::Log(_))));
        log.path = bench.path.clone();
        assert!(log.read(&mut |_| Ok(())).is_ok());
    }
}
