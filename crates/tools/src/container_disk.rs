//! `container-disk`: keeps the container of a disk image alive, and shows its place by a socket.
//!
//! virt-handler connects to the socket, reads the process ID of its peer, and so finds the image's
//! files. No data is exchanged. Removing the socket ends the container.
//!
//! It runs in foreign images with a hundredth of a CPU: no runtime, no threads, no polling.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use jiff::Timestamp;
use lexopt::{Arg, Parser};
use nix::sys::signal::Signal;
use rustix::fs::inotify::WatchFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use os::inotify::DirChanges;
use os::signals::SignalQueue;
use os::wait::wait;

/// With `.sock` and the terminating zero byte this fills a socket address.
const MAX_PATH_BYTES: usize = 102;

const BACKLOG: usize = 50;

/// Why it fails (exit status 1).
#[derive(Debug, thiserror::Error)]
enum DiskError {
    #[error("{0}")]
    Usage(#[from] lexopt::Error),
    #[error("copy path can not be longer than {MAX_PATH_BYTES} characters")]
    LongPath,
    #[error("copy path is missing, give it by --copy-path")]
    NoPath,
    #[error("failed to register SIGTERM callback: {0}")]
    Signals(#[source] io::Error),
    #[error("failed to create disk directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("failed to {what} socket {}: {source}", path.display())]
    Socket {
        what: &'static str,
        path: PathBuf,
        source: Errno,
    },
    #[error("failed to accept connections on the socket: {}", .0.raw_os_error())]
    Accept(Errno),
    #[error("failed to wait for connections: {0}")]
    Wait(#[source] io::Error),
}

#[derive(Debug, PartialEq)]
enum Command {
    /// Does nothing: the container exists so that the image is pulled.
    NoOp,
    Serve(PathBuf),
}

/// Why it ends (exit status 0).
#[derive(Debug, PartialEq)]
enum Ended {
    Terminated,
    SocketGone,
}

/// Serves the socket until SIGTERM or its removal. Exit status 0 then, 1 on failure.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    match parse(arguments).and_then(|command| match command {
        Command::NoOp => Ok(()),
        Command::Serve(path) => run(&path),
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Follows getopt: long names may be shortened, words that are not options are ignored, and the
/// first option that ends the program counts.
fn parse(arguments: Vec<OsString>) -> Result<Command, DiskError> {
    let mut parser = Parser::from_args(arguments);
    parser.set_short_equals(false);
    let mut path = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('c') => path = Some(checked_length(parser.value()?)?),
            Arg::Long(name) if is_short_for(name, "copy-path") => {
                path = Some(checked_length(parser.value()?)?)
            }
            Arg::Long(name) if is_short_for(name, "no-op") => {
                return match parser.optional_value() {
                    None => Ok(Command::NoOp),
                    Some(value) => Err(lexopt::Error::UnexpectedValue {
                        option: "--no-op".to_owned(),
                        value,
                    }
                    .into()),
                };
            }
            Arg::Value(_) => {}
            other => return Err(other.unexpected().into()),
        }
    }
    path.map(Command::Serve).ok_or(DiskError::NoPath)
}

fn is_short_for(name: &str, option: &str) -> bool {
    !name.is_empty() && option.starts_with(name)
}

fn checked_length(path: OsString) -> Result<PathBuf, DiskError> {
    if path.as_bytes().len() > MAX_PATH_BYTES {
        Err(DiskError::LongPath)
    } else {
        Ok(path.into())
    }
}

fn run(path: &Path) -> Result<(), DiskError> {
    let signals = SignalQueue::block(&[Signal::SIGTERM]).map_err(DiskError::Signals)?;
    make_directory(path)?;
    let mut socket = path.as_os_str().to_owned();
    socket.push(".sock");
    let socket = PathBuf::from(socket);
    let listener = listen(&socket)?;
    match serve(&socket, &listener, &signals)? {
        Ended::Terminated => {
            // It may be gone already.
            let _ = std::fs::remove_file(&socket);
        }
        Ended::SocketGone => log(&format!(
            "socket {} does not exist anymore",
            socket.display()
        )),
    }
    Ok(())
}

/// One level, open to everyone within the umask.
fn make_directory(copy_path: &Path) -> Result<(), DiskError> {
    let path = directory_of(copy_path);
    if std::fs::metadata(path).is_ok() {
        return Ok(());
    }
    std::fs::create_dir(path).map_err(|source| DiskError::Directory {
        path: path.to_path_buf(),
        source,
    })
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != OsStr::new("") => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

fn listen(path: &Path) -> Result<OwnedFd, DiskError> {
    let failed = |what: &'static str| {
        move |source: Errno| DiskError::Socket {
            what,
            path: path.to_path_buf(),
            source,
        }
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(failed("create"))?;
    let address = SocketAddrUnix::new(path).map_err(failed("bind"))?;
    rustix::net::bind(&socket, &address).map_err(failed("bind"))?;
    rustix::net::listen(&socket, i32::try_from(BACKLOG).unwrap_or(i32::MAX))
        .map_err(failed("listen"))?;
    Ok(socket)
}

// D-tool-1 (docs/differences.md).
fn serve(path: &Path, listener: &OwnedFd, signals: &SignalQueue) -> Result<Ended, DiskError> {
    let mut changes = DirChanges::new();
    loop {
        changes.watch_only(&[(directory_of(path), WatchFlags::empty())]);
        if signals.came() {
            return Ok(Ended::Terminated);
        }
        if std::fs::metadata(path).is_err() {
            return Ok(Ended::SocketGone);
        }
        accept_and_close(listener)?;
        wait(
            signals,
            &changes,
            Some(listener.as_fd()),
            changes.poll_interval(),
        )
        .map_err(DiskError::Wait)?;
    }
}

/// Accepts and closes waiting connections, up to a limit between checks for signals.
fn accept_and_close(listener: &OwnedFd) -> Result<(), DiskError> {
    for _ in 0..BACKLOG {
        match rustix::net::accept(listener) {
            Ok(_) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(DiskError::Accept(error)),
        }
    }
    Ok(())
}

/// The C library's date, then the message.
// D-log-3 (docs/differences.md).
fn log(message: &str) {
    let now = Timestamp::now().strftime("%a %b %e %H:%M:%S %Y");
    // Nobody could report a closed standard error.
    let _ = io::stderr().write_all(format!("{now}\nerror: {message}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Command, String> {
        parse(arguments.iter().map(OsString::from).collect()).map_err(|error| error.to_string())
    }

    fn serve_at(path: &str) -> Result<Command, String> {
        Ok(Command::Serve(path.into()))
    }

    #[test]
    fn the_path_in_all_its_spellings() {
        for arguments in [
            &["--copy-path", "/a/b"][..],
            &["--copy-path=/a/b"],
            &["--copy=/a/b"],
            &["-c", "/a/b"],
            &["-c/a/b"],
        ] {
            assert_eq!(parsed(arguments), serve_at("/a/b"), "{arguments:?}");
        }
        assert_eq!(parsed(&["-c=/a"]), serve_at("=/a"));
        assert_eq!(parsed(&["-c", "-x"]), serve_at("-x"));
        assert_eq!(
            parsed(&["word", "-c", "/a", "word", "-c", "/b", "--", "--no-op"]),
            serve_at("/b")
        );
    }

    #[test]
    fn no_op_ends_at_once() {
        for arguments in [
            &["--no-op"][..],
            &["--no"],
            &["-c", "/a", "--no-op"],
            &["--no-op", "--unknown"],
        ] {
            assert_eq!(parsed(arguments), Ok(Command::NoOp), "{arguments:?}");
        }
    }

    #[test]
    fn other_command_lines_are_refused() {
        let long = "x".repeat(103);
        for (arguments, why) in [
            (&[][..], "copy path is missing"),
            (&["--unknown", "--no-op"], "--unknown"),
            (&["-n"], "-n"),
            (&["--copy-path"], "--copy-path"),
            (&["-c"], "-c"),
            (&["--no-op=1"], "--no-op"),
            (&["--=1"], "--"),
            (
                &["-c", &long, "--no-op"],
                "can not be longer than 102 characters",
            ),
        ] {
            let error = parsed(arguments).unwrap_err();
            assert!(error.contains(why), "{arguments:?}: {error}");
        }
        assert!(parsed(&["-c", &long[1..]]).is_ok());
    }

    #[test]
    fn one_missing_directory_is_made() {
        let dir = tempfile::tempdir().unwrap();
        make_directory(&dir.path().join("new/disk_0")).unwrap();
        assert!(dir.path().join("new").is_dir());
        make_directory(&dir.path().join("new/disk_1")).unwrap();
        let error = make_directory(&dir.path().join("a/b/disk_0")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("failed to create disk directory "),
            "{error}"
        );
    }

    #[test]
    fn a_socket_that_is_there_already_is_not_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk_0.sock");
        let first = listen(&path).unwrap();
        drop(first);
        let error = listen(&path).unwrap_err();
        assert!(
            error.to_string().starts_with("failed to bind socket "),
            "{error}"
        );
    }

    #[test]
    fn the_directory_of_a_bare_name_is_the_present_one() {
        assert_eq!(directory_of(Path::new("disk_0")), Path::new("."));
        assert_eq!(directory_of(Path::new("/disk_0")), Path::new("/"));
        assert_eq!(directory_of(Path::new("/")), Path::new("/"));
    }
}
