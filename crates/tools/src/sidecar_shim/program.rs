//! Runs an author's program: finds it in `$PATH`, limits its output, and kills it with all its
//! descendants when its answer is no longer needed.

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

/// Limit of standard output.
const MAX_OUTPUT_BYTES: usize = 8 << 20;
/// After the program's exit: how long to wait for more output from a process that it left running.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(3);
/// After the program's exit: how long to read what is left of its standard error.
const STDERR_TIMEOUT: Duration = Duration::from_millis(200);
/// How much of the end of standard error the error contains.
const MAX_ERROR_BYTES: usize = 1 << 10;
/// How much of the beginning of a longer standard error it contains: a usage error names the cause
/// first, and then repeats the script's long arguments.
const MAX_BEGINNING_BYTES: usize = 200;

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("{name} is not in $PATH ({path}), or is not executable")]
    NotFound {
        name: &'static str,
        /// The searched `$PATH`.
        path: String,
    },
    /// The kernel refuses to run it.
    #[error("{} cannot be started: {reason}", path.display())]
    Start { path: PathBuf, reason: String },
    /// It exited with an error.
    #[error("{name} ended with {status}{stderr_end}")]
    Failed {
        name: &'static str,
        /// The exit status or the signal.
        status: String,
        /// The end of its standard error.
        stderr_end: String,
    },
    #[error("{name} printed more than {MAX_OUTPUT_BYTES} bytes")]
    TooMuch { name: &'static str },
    /// It exited, but a process that it left running keeps its output open.
    #[error(
        "{name} has ended and printed nothing; a process that it started and left running keeps its standard output open: start that one with >/dev/null"
    )]
    NoAnswer { name: &'static str },
    /// Its output is unreadable.
    #[error("the output of {name} cannot be read")]
    Output {
        name: &'static str,
        source: io::Error,
    },
}

/// Finds the first executable file of that name in `$PATH`. Ignores relative entries.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let candidates = std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name));
    candidates
        .into_iter()
        .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
}

/// Runs the program and returns its output. Dropping the future kills the program and its
/// descendants.
///
/// # Errors
/// See [`ProgramError`].
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
                // Processes that it left running may keep its standard error open; they are not
                // awaited.
                let _ = timeout(STDERR_TIMEOUT, logged).await;
                ended?
            }
        }
    };
    // Processes left in the background may go on, as with KubeVirt's shim.
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

/// Returns the program's output and its exit status.
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

/// A program and its descendants.
struct Group {
    child: Child,
    leader: Option<Pid>,
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            // It may be gone already.
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
        reason: refused(&error, path, arguments),
    })?;
    let leader = pid_of(&child);
    Ok(Group { child, leader })
}

fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}

fn refused(error: &io::Error, path: &Path, arguments: &[&str]) -> String {
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
            // Of a script that is not there, the error names the path.
            let script = std::fs::read(path).unwrap_or_default();
            let line = script
                .split(|byte| *byte == b'\n')
                .next()
                .unwrap_or_default();
            match line.ends_with(b"\r") {
                true => format!(
                    "{error}: its lines end with CR LF, and Linux takes the CR for a part of the interpreter's name: sed -i 's/\\r$//' mends it"
                ),
                false => format!(
                    "{error}: is the interpreter of its first line installed? {}",
                    String::from_utf8_lossy(line)
                ),
            }
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            format!("{error}: a script starts with a line like #!/bin/sh")
        }
        _ => error.to_string(),
    }
}

/// Reads the program's output. Returns true if it was still open some time after the exit.
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

/// Logs standard error line by line and keeps its end in `last`.
async fn log(errors: Option<impl AsyncRead + Unpin>, hook: &str, last: &mut String) {
    let Some(errors) = errors else { return };
    let each = |line: &str| {
        tracing::info!(hook, "{line}");
        last.push('\n');
        last.push_str(line);
        let surplus = last.len().saturating_sub(MAX_ERROR_BYTES);
        if surplus > 0 {
            let beginning = last.floor_char_boundary(MAX_BEGINNING_BYTES);
            let end = last.ceil_char_boundary(surplus.saturating_add(beginning));
            last.replace_range(beginning..end.max(beginning), " … ");
        }
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
