//! `virt-tail`: prints the guest's console log as it grows, for `kubectl logs -c
//! guest-console-log`.
//!
//! The log and its directory need not exist yet; virtlogd rotates the log. `os::log_file` finds
//! whole lines, also after a rotation or truncation. No runtime, no threads, no polling.

mod output;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};
use nix::sys::signal::Signal;
use rustix::fs::inotify::WatchFlags;

use self::output::{Output, Stop};
use os::inotify::DirChanges;
use os::log_file::{LogFile, LogReadError, Progress};
use os::logging;
use os::signals::SignalQueue;
use os::wait::wait;

const USAGE: &str = "Usage: virt-tail --logfile FILE [-v N]

Prints the lines of FILE as they are written, until SIGTERM. FILE may be rotated, and need not exist yet.";

/// Delay before an unreadable log is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug, PartialEq)]
enum Command {
    Help,
    Follow { path: PathBuf, verbosity: u8 },
}

/// Follows the log until SIGTERM or SIGINT. Exit status 0 then, 1 without a log's name or if
/// standard output is closed, 2 for unknown arguments.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    logging::init("virt-tail");
    let path = match parse(arguments) {
        Ok(Command::Follow { path, verbosity }) => {
            logging::set_verbosity(verbosity);
            path
        }
        Ok(Command::Help) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(text) = std::env::var_os(logging::VERBOSITY_VARIABLE) {
        logging::set_verbosity_of_label(&text.to_string_lossy());
    }
    match run(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(reason = %error, "virt-tail cannot go on");
            ExitCode::FAILURE
        }
    }
}

/// Ignores unknown flags with their values.
fn parse(arguments: Vec<OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = Parser::from_args(arguments);
    let (mut path, mut verbosity) = (PathBuf::new(), logging::DEFAULT_VERBOSITY);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("logfile") => path = parser.value()?.into(),
            Arg::Long("v") | Arg::Short('v') => verbosity = parser.value()?.parse()?,
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help),
            Arg::Long(_) => drop(parser.optional_value()),
            Arg::Short(_) | Arg::Value(_) => {}
        }
    }
    Ok(Command::Follow { path, verbosity })
}

fn run(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() {
        return Err(io::Error::other("--logfile is missing"));
    }
    let signals = SignalQueue::block(&[Signal::SIGTERM, Signal::SIGINT])?;
    match follow(&std::path::absolute(path)?, &signals) {
        Stop::Signal => Ok(()),
        Stop::Failed(error) => Err(error),
    }
}

// D-tool-2 (docs/differences.md).
fn follow(path: &Path, signals: &SignalQueue) -> Stop {
    let mut output = Output::new(signals);
    let mut changes = DirChanges::new();
    let mut log = LogFile::new(path);
    loop {
        watch_ancestors(path, &mut changes);
        let read = loop {
            match log.read(&mut |text| output.print(text)) {
                Ok(Progress::More) => {}
                other => break other,
            }
        };
        let timeout = match read {
            Ok(_) => changes.poll_interval(),
            Err(LogReadError::Reader(stop)) => return stop,
            Err(LogReadError::Log(error)) => {
                tracing::debug!(reason = %error, "{} cannot be read now", path.display());
                Some(RETRY_DELAY)
            }
        };
        if let Err(error) = wait(signals, &changes, None, timeout) {
            return Stop::Failed(error);
        }
        if signals.came() {
            return Stop::Signal;
        }
    }
}

/// Watches the log's directory, or the nearest existing one above it.
///
/// It also watches the parent: an open file keeps its removed directory alive, so the kernel
/// reports the directory's removal only to those who watch its parent.
fn watch_ancestors(path: &Path, changes: &mut DirChanges) {
    let parent = path.parent().unwrap_or(path);
    loop {
        let nearest = nearest_directory(parent);
        let more = if nearest == parent {
            WatchFlags::MODIFY | WatchFlags::ATTRIB
        } else {
            WatchFlags::empty()
        };
        match nearest.parent() {
            Some(above) => changes.watch_only(&[(above, WatchFlags::empty()), (nearest, more)]),
            None => changes.watch_only(&[(nearest, more)]),
        }
        // It may have appeared between the check and the watch.
        if nearest_directory(parent) == nearest {
            return;
        }
    }
}

fn nearest_directory(path: &Path) -> &Path {
    path.ancestors()
        .find(|above| above.is_dir())
        .unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Command, String> {
        parse(arguments.iter().map(OsString::from).collect()).map_err(|error| error.to_string())
    }

    fn follow(path: &str, verbosity: u8) -> Result<Command, String> {
        Ok(Command::Follow {
            path: path.into(),
            verbosity,
        })
    }

    #[test]
    fn the_log_in_all_its_spellings() {
        for arguments in [
            &["--logfile", "/l"][..],
            &["--logfile=/l"],
            &["--logfile", "/x", "--logfile", "/l"],
        ] {
            assert_eq!(parsed(arguments), follow("/l", 2), "{arguments:?}");
        }
        for arguments in [
            &["--logfile=/l", "-v", "4"][..],
            &["-v4", "--logfile=/l"],
            &["--v=4", "--logfile=/l", "more"],
        ] {
            assert_eq!(parsed(arguments), follow("/l", 4), "{arguments:?}");
        }
        assert_eq!(parsed(&[]), follow("", 2));
    }

    #[test]
    fn unknown_flags_are_ignored() {
        for arguments in [
            &["--other", "x", "--logfile", "/l"][..],
            &["--other=x", "--logfile=/l"],
            &["-x", "--logfile=/l"],
        ] {
            assert_eq!(parsed(arguments), follow("/l", 2), "{arguments:?}");
        }
    }

    #[test]
    fn a_flag_without_its_value_is_refused() {
        assert!(parsed(&["--logfile"]).unwrap_err().contains("--logfile"));
        assert!(parsed(&["-v", "high"]).is_err());
    }

    #[test]
    fn the_nearest_directory_is_found() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(nearest_directory(&dir.path().join("a/b")), dir.path());
        std::fs::write(dir.path().join("a"), "").unwrap();
        assert_eq!(nearest_directory(&dir.path().join("a/b")), dir.path());
        assert_eq!(nearest_directory(dir.path()), dir.path());
    }
}
