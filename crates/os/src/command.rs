//! Helper programs, run under limits.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::poll::poll_for;

/// More than any helper writes, a domain XML among it; a program that writes more is killed.
const MAX_OUTPUT_BYTES: usize = 8 << 20;
/// Exit status of a shell that does not find the program.
const NOT_FOUND: i32 = 127;

/// Why a helper program gave no result.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It cannot be started.
    #[error("cannot start {program}")]
    Start {
        /// Its name or path.
        program: String,
        #[source]
        source: io::Error,
    },
    /// It cannot be waited for.
    #[error("{program} could not be waited for")]
    Wait {
        /// Its name or path.
        program: String,
        #[source]
        source: io::Error,
    },
    /// It was killed after its time.
    #[error("{program} was killed after {} s: it took too long", after.as_secs())]
    TimedOut {
        /// Its name or path.
        program: String,
        /// The time it had.
        after: Duration,
    },
    /// It was killed because it wrote without end.
    #[error("{program} was killed: it wrote more than {MAX_OUTPUT_BYTES} bytes")]
    TooMuchOutput {
        /// Its name or path.
        program: String,
    },
    /// It is not installed.
    #[error("{program} failed ({status}): {stderr}; is it installed?")]
    NotFound {
        /// Its name or path.
        program: String,
        /// How the shell ended.
        status: ExitStatus,
        /// What the shell wrote to standard error.
        stderr: String,
    },
    /// It ended with an error.
    #[error("{program} failed ({status}): {stderr}")]
    Failed {
        /// Its name or path.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to standard error, or the lines of it that matter.
        stderr: String,
    },
}

/// What a helper may use up.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Address space in bytes; 0: any.
    pub memory: u64,
    /// CPU time in seconds.
    pub cpu: u64,
    /// Time altogether.
    pub wall: Duration,
}

/// Runs a helper, by its path or by its name on the search path, and returns its standard output.
///
/// The limits are set by the shell, which then becomes the helper: they hold from its first
/// instruction on, and the helper's arguments never pass through the shell's parser.
///
/// # Errors
/// If it cannot be started, exceeds its limits, or fails.
pub fn run<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = S>,
    environment: &[(&str, &str)],
    input: Option<File>,
    limits: Limits,
) -> Result<Vec<u8>, CommandError> {
    let name = || program.as_ref().display().to_string();
    // A lower limit that this process has cannot be raised, and stays.
    let memory = match limits.memory {
        0 => String::new(),
        bytes => format!("ulimit -v {} 2>/dev/null; ", bytes / 1024),
    };
    let cpu = limits.cpu;
    let script = format!("{memory}ulimit -t {cpu} 2>/dev/null; exec \"$0\" \"$@\"");
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(script)
        .arg(&program)
        .args(arguments)
        .env("LC_ALL", "C")
        .envs(environment.iter().copied())
        .stdin(input.map_or_else(Stdio::null, Stdio::from))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| CommandError::Start {
            program: name(),
            source,
        })?;
    let wait = |source| CommandError::Wait {
        program: name(),
        source,
    };
    let deadline = crate::time::deadline(limits.wall).into_std();
    let end = wait_for(&mut child, deadline);
    if !matches!(end, Ok(End::Exit { .. })) {
        child.kill().and_then(|()| child.wait()).map_err(wait)?;
    }
    match end.map_err(wait)? {
        End::TimedOut => Err(CommandError::TimedOut {
            program: name(),
            after: limits.wall,
        }),
        End::TooMuchOutput => Err(CommandError::TooMuchOutput { program: name() }),
        End::Exit { status, stdout, .. } if status.success() => Ok(stdout),
        End::Exit { status, stderr, .. } => {
            let said = String::from_utf8_lossy(&stderr);
            let stderr = reason_of_failure(&said);
            let program = name();
            if stderr != said.trim() {
                tracing::warn!(program, %status, stderr = said.trim(), "A helper program has failed");
            }
            Err(match status.code() {
                Some(NOT_FOUND) => CommandError::NotFound {
                    program,
                    status,
                    stderr,
                },
                _ => CommandError::Failed {
                    program,
                    status,
                    stderr,
                },
            })
        }
    }
}

/// The lines with the reason of the failure, if the helper marks lines with a severity, as xorriso
/// does; else all.
fn reason_of_failure(stderr: &str) -> String {
    let is_grave = |line: &&str| line.contains(" : FAILURE : ") || line.contains(" : FATAL : ");
    let grave: Vec<&str> = stderr.lines().filter(is_grave).collect();
    if grave.is_empty() {
        stderr.trim().to_owned()
    } else {
        grave.join("; ")
    }
}

enum End {
    Exit {
        status: ExitStatus,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
    },
    TimedOut,
    TooMuchOutput,
}

/// A pipe from the helper, until its end.
struct Pipe {
    fd: Option<OwnedFd>,
    data: Vec<u8>,
}

impl Pipe {
    fn new(fd: Option<impl Into<OwnedFd>>) -> Self {
        Self {
            fd: fd.map(Into::into),
            data: Vec::new(),
        }
    }

    /// Reads the bytes that have arrived; closes a pipe that has ended.
    fn read(&mut self) -> io::Result<()> {
        let Some(fd) = &self.fd else { return Ok(()) };
        let mut buffer = [0; 8192];
        let count = rustix::io::retry_on_intr(|| rustix::io::read(fd, &mut buffer))?;
        self.data
            .extend_from_slice(buffer.get(..count).unwrap_or_default());
        if count == 0 {
            self.fd = None;
        }
        Ok(())
    }
}

/// Reads both pipes to their ends, and waits for the child.
fn wait_for(child: &mut Child, deadline: Instant) -> io::Result<End> {
    let left = || Some(deadline.saturating_duration_since(Instant::now()));
    let mut pipes = [
        Pipe::new(child.stdout.take()),
        Pipe::new(child.stderr.take()),
    ];
    while pipes.iter().any(|pipe| pipe.fd.is_some()) {
        let open = pipes.iter().filter_map(|pipe| pipe.fd.as_ref());
        let mut fds: Vec<_> = open.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        if !poll_for(&mut fds, left())? {
            return Ok(End::TimedOut);
        }
        let mut ready = fds
            .iter()
            .map(|fd| !fd.revents().is_empty())
            .collect::<Vec<_>>()
            .into_iter();
        for pipe in pipes.iter_mut().filter(|pipe| pipe.fd.is_some()) {
            if ready.next() == Some(true) {
                pipe.read()?;
            }
        }
        if pipes.iter().map(|pipe| pipe.data.len()).sum::<usize>() > MAX_OUTPUT_BYTES {
            return Ok(End::TooMuchOutput);
        }
    }
    // Both pipes are closed; the process may still run.
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    if !poll_for(&mut [PollFd::new(&process, PollFlags::IN)], left())? {
        return Ok(End::TimedOut);
    }
    let [stdout, stderr] = pipes.map(|pipe| pipe.data);
    Ok(End::Exit {
        status: child.wait()?,
        stdout,
        stderr,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: Limits = Limits {
        memory: 0,
        cpu: 60,
        wall: Duration::from_secs(60),
    };

    fn sh(script: &str, limits: Limits) -> Result<String, String> {
        run("sh", ["-c", script], &[], None, limits)
            .map(|output| String::from_utf8(output).unwrap())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn output_is_returned_and_arguments_stay_apart() {
        let output = run(
            "printf",
            ["%s|", "a b", "$(id)", ";", "\"'"],
            &[],
            None,
            PLENTY,
        )
        .unwrap();
        assert_eq!(output, b"a b|$(id)|;|\"'|");
    }

    #[test]
    fn a_failure_says_what_the_helper_said() {
        assert_eq!(
            sh("echo oops >&2; exit 3", PLENTY).unwrap_err(),
            "sh failed (exit status: 3): oops"
        );
    }

    #[test]
    fn of_a_helper_whose_lines_have_a_severity_only_the_failure_is_reported() {
        let error = sh(
            "echo 'x : NOTE : hello' >&2; echo 'x : FAILURE : too long' >&2; exit 5",
            PLENTY,
        )
        .unwrap_err();
        assert_eq!(error, "sh failed (exit status: 5): x : FAILURE : too long");
    }

    #[test]
    fn a_helper_that_is_not_installed_is_named() {
        let error = run::<&str>("no-such-helper", [], &[], None, PLENTY)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("no-such-helper failed (exit status: 127)")
                && error.ends_with("is it installed?"),
            "{error}"
        );
    }

    #[test]
    fn a_helper_that_takes_too_long_is_killed() {
        let brief = Limits {
            wall: Duration::from_millis(50),
            ..PLENTY
        };
        assert!(
            sh("sleep 600", brief)
                .unwrap_err()
                .contains("it took too long")
        );
        // Also one that has closed its output.
        assert!(
            sh("exec >&- 2>&-; sleep 600", brief)
                .unwrap_err()
                .contains("it took too long")
        );
    }

    #[test]
    fn a_helper_that_writes_without_end_is_killed() {
        assert!(
            sh("while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done", PLENTY)
                .unwrap_err()
                .contains("it wrote more than")
        );
    }

    #[test]
    fn a_helper_gets_no_more_memory_and_cpu_time_than_allowed() {
        assert_eq!(
            sh(
                "ulimit -v; ulimit -t",
                Limits {
                    memory: 64 << 20,
                    cpu: 7,
                    ..PLENTY
                }
            )
            .unwrap(),
            "65536\n7\n"
        );
    }
}
