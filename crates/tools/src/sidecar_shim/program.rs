//! Running an author's program: found in `$PATH`, given arguments, bounded in what it prints, and
//! ended with all that it started when its answer is not needed any more.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use os::lines;
use os::process::Process;
use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

/// Most bytes that are read from standard output.
const MAX_OUTPUT_BYTES: usize = 8 << 20;
/// After the program's end: for the next bytes of its answer from a process that it has left
/// running.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(3);
/// For what is left in standard error's pipe when the program has ended.
const STDERR_TIMEOUT: Duration = Duration::from_millis(200);
/// How much of standard error's end goes into the error.
const MAX_ERROR_BYTES: usize = 1 << 10;

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No such executable file.
    #[error("{name} is not in $PATH ({path}), or is not executable")]
    NotFound {
        /// The program.
        name: &'static str,
        /// Where it was looked for.
        path: String,
    },
    /// The kernel refuses it.
    #[error("{} cannot be started: {reason}", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// Why, and what may help.
        reason: String,
    },
    /// It ended with an error.
    #[error("{name} ended with {status}{stderr_end}")]
    Failed {
        /// The program.
        name: &'static str,
        /// Its exit status, or the signal.
        status: String,
        /// The end of its standard error.
        stderr_end: String,
    },
    /// It printed too much.
    #[error("{name} printed more than {MAX_OUTPUT_BYTES} bytes")]
    TooMuch {
        /// The program.
        name: &'static str,
    },
    /// It ended, and what it left running keeps its output open.
    #[error(
        "{name} has ended and printed nothing; a process that it started and left running keeps its standard output open: start that one with >/dev/null"
    )]
    NoAnswer {
        /// The program.
        name: &'static str,
    },
    /// Its output cannot be read.
    #[error("the output of {name} cannot be read")]
    Output {
        /// The program.
        name: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// The first executable file of that name in `$PATH`. Relative entries are ignored.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let candidates = std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name));
    candidates
        .into_iter()
        .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
}

/// Runs the program and returns what it printed.
///
/// # Errors
/// See [`ProgramError`]. When the future is dropped, the program and its children are killed.
pub async fn run(name: &'static str, arguments: [&str; 4]) -> Result<Vec<u8>, ProgramError> {
    let path = find(name).ok_or_else(|| ProgramError::NotFound {
        name,
        path: std::env::var("PATH").unwrap_or_else(|_| "which is not set".into()),
    })?;
    tracing::info!("Executing {name}");
    let mut group = start(&path, &arguments)?;
    let (stdout, stderr) = (group.child.stdout.take(), group.child.stderr.take());
    let mut stderr_end = String::new();
    let (printed, status) = {
        let mut ended = pin!(ended(name, &mut group.child, stdout));
        let mut logged = pin!(log(stderr, name, &mut stderr_end));
        tokio::select! {
            biased;
            () = &mut logged => ended.await?,
            ended = &mut ended => {
                // What it left running may keep its standard error open, and is not waited for.
                let _ = timeout(STDERR_TIMEOUT, logged).await;
                ended?
            }
        }
    };
    // What it left running in the background may go on, as under KubeVirt's shim.
    group.leader = None;
    if status.success() {
        Ok(printed)
    } else {
        Err(ProgramError::Failed {
            name,
            status: described(status),
            stderr_end: quoted(&stderr_end),
        })
    }
}

/// What the program printed, and how it ended.
// D-hook-14 (docs/differences.md).
async fn ended(
    name: &'static str,
    child: &mut Child,
    stdout: Option<ChildStdout>,
) -> Result<(Vec<u8>, ExitStatus), ProgramError> {
    let unreadable = |source| ProgramError::Output { name, source };
    let process = pid_of(child).and_then(|pid| Process::open(pid).ok());
    let (printed, is_open) = read(stdout, process.as_ref()).await.map_err(unreadable)?;
    if printed.len() > MAX_OUTPUT_BYTES {
        return Err(ProgramError::TooMuch { name });
    }
    if is_open && printed.is_empty() {
        return Err(ProgramError::NoAnswer { name });
    }
    if is_open {
        tracing::warn!(
            "{name} has ended, but a process that it left running keeps its standard output open; what was printed so far is the answer"
        );
    }
    Ok((printed, child.wait().await.map_err(unreadable)?))
}

/// A program and all that it starts.
struct Group {
    child: Child,
    leader: Option<Pid>,
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            // Already gone is as good.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

// D-hook-13 (docs/differences.md).
fn start(path: &Path, arguments: &[&str]) -> Result<Group, ProgramError> {
    let mut command = Command::new(path);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let child = command.spawn().map_err(|error| ProgramError::Start {
        path: path.to_path_buf(),
        reason: refused(&error, arguments),
    })?;
    let leader = pid_of(&child);
    Ok(Group { child, leader })
}

fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}

fn refused(error: &io::Error, arguments: &[&str]) -> String {
    let longest = arguments
        .iter()
        .map(|argument| argument.len())
        .max()
        .unwrap_or_default();
    match error.kind() {
        io::ErrorKind::ArgumentListTooLong => {
            format!("{error}: an argument has {longest} bytes, Linux takes 131071")
        }
        io::ErrorKind::NotFound => {
            format!("{error}: is the interpreter of its first line installed?")
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            format!("{error}: a script starts with a line like #!/bin/sh")
        }
        _ => error.to_string(),
    }
}

/// What the program prints; true if its output was still open a while after its end.
async fn read(
    output: Option<impl AsyncRead + Unpin>,
    process: Option<&Process>,
) -> io::Result<(Vec<u8>, bool)> {
    let mut printed = Vec::new();
    let Some(output) = output else {
        return Ok((printed, false));
    };
    let mut output = output.take(MAX_OUTPUT_BYTES as u64 + 1);
    loop {
        let silent_after_end = async {
            match process {
                Some(process) => process.ended().await,
                None => std::future::pending().await,
            }
            sleep(OUTPUT_TIMEOUT).await;
        };
        tokio::select! {
            read = output.read_buf(&mut printed) => if read? == 0 {
                return Ok((printed, false));
            },
            () = silent_after_end => return Ok((printed, true)),
        }
    }
}

/// Logs standard error line by line, and keeps its end in `last`.
async fn log(errors: Option<impl AsyncRead + Unpin>, hook: &str, last: &mut String) {
    let Some(errors) = errors else { return };
    let each = |line: &str| {
        tracing::info!(hook, "{line}");
        last.push('\n');
        last.push_str(line);
        let surplus = last.len().saturating_sub(MAX_ERROR_BYTES);
        let cut = (surplus..)
            .find(|&at| last.is_char_boundary(at))
            .unwrap_or_default();
        last.drain(..cut);
    };
    lines::for_each(errors, each).await;
}

fn quoted(stderr_end: &str) -> String {
    let last = stderr_end.trim();
    if last.is_empty() {
        String::new()
    } else {
        format!(": {last}")
    }
}

fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
