//! Running helper programs under limits.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::PodError;

/// More than any helper has to say; a program that says more is stopped.
const MOST_OUTPUT: usize = 1 << 20;

/// What a helper may use up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Address space in bytes; 0: any.
    pub memory: u64,
    /// CPU time in seconds.
    pub cpu: u64,
    /// Time altogether.
    pub wall: Duration,
}

/// Runs a helper and returns its standard output.
///
/// The limits are set by the shell, which then becomes the helper: they hold from its first
/// instruction on, and the helper's arguments never pass through the shell's parser.
pub(super) fn run<S: AsRef<OsStr>>(
    program: &'static str,
    arguments: impl IntoIterator<Item = S>,
    environment: &[(&str, &str)],
    input: Option<File>,
    limits: Limits,
) -> Result<Vec<u8>, PodError> {
    let failed = |status: String, output: String| PodError::Tool {
        program,
        status,
        output,
    };
    let memory = if limits.memory == 0 {
        String::new()
    } else {
        format!("ulimit -v {} && ", limits.memory / 1024)
    };
    let script = format!("{memory}ulimit -t {} && exec \"$0\" \"$@\"", limits.cpu);
    let child = Command::new("/bin/sh")
        .arg("-c")
        .arg(script)
        .arg(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .envs(environment.iter().copied())
        .stdin(input.map_or_else(Stdio::null, Stdio::from))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.map_err(|e| failed("not started".to_owned(), e.to_string()))?;
    let end = collect(child, os::time::deadline(limits.wall).into_std())
        .map_err(|e| failed("not heard of any more".to_owned(), e.to_string()))?;
    match end {
        End::Late => Err(failed(
            format!("stopped after {} s", limits.wall.as_secs()),
            "it took too long".to_owned(),
        )),
        End::Loud => Err(failed(
            "stopped".to_owned(),
            format!("it wrote more than {MOST_OUTPUT} bytes"),
        )),
        End::Exit(status, output, _) if status.success() => Ok(output),
        End::Exit(status, _, errors) => {
            let errors = String::from_utf8_lossy(&errors);
            let hint = if status.code() == Some(127) {
                "; is it installed?"
            } else {
                ""
            };
            Err(failed(
                status.to_string(),
                format!("{}{hint}", failures(&errors)),
            ))
        }
    }
}

/// Of a helper that says how much each line matters, as xorriso does, the lines that do; else all.
fn failures(errors: &str) -> String {
    let grave: Vec<&str> = errors
        .lines()
        .filter(|line| {
            [" : FAILURE : ", " : FATAL : "]
                .iter()
                .any(|grade| line.contains(grade))
        })
        .collect();
    if grave.is_empty() {
        errors.trim().to_owned()
    } else {
        grave.join("; ")
    }
}

enum End {
    Exit(ExitStatus, Vec<u8>, Vec<u8>),
    Late,
    Loud,
}

/// Reads both pipes until they end, then waits for the child; kills it at the deadline.
fn collect(mut child: Child, deadline: Instant) -> io::Result<End> {
    let result = listen(&mut child, deadline);
    if !matches!(result, Ok(End::Exit(..))) {
        child.kill()?;
        child.wait()?;
    }
    result
}

fn listen(child: &mut Child, deadline: Instant) -> io::Result<End> {
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let mut buffer = [0; 8192];
    while out.is_some() || err.is_some() {
        let mut waiting: Vec<PollFd<'_>> = Vec::with_capacity(2);
        waiting.extend(out.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        waiting.extend(err.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        if !ready(&mut waiting, deadline)? {
            return Ok(End::Late);
        }
        let ready = |pipe: Option<&PollFd<'_>>| pipe.is_some_and(|pipe| !pipe.revents().is_empty());
        let (out_ready, err_ready) = (
            out.is_some() && ready(waiting.first()),
            err.is_some() && ready(waiting.last()),
        );
        if out_ready {
            read(&mut out, &mut output, &mut buffer)?;
        }
        if err_ready {
            read(&mut err, &mut errors, &mut buffer)?;
        }
        if output.len() + errors.len() > MOST_OUTPUT {
            return Ok(End::Loud);
        }
    }
    // Both pipes are closed; the process may still live.
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("no process number"))?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    if !ready(
        &mut [PollFd::new(&process.as_fd(), PollFlags::IN)],
        deadline,
    )? {
        return Ok(End::Late);
    }
    Ok(End::Exit(child.wait()?, output, errors))
}

/// Waits until one of them is ready; false at the deadline.
fn ready(waiting: &mut [PollFd<'_>], deadline: Instant) -> io::Result<bool> {
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now()))
            .map_err(io::Error::other)?;
        match poll(waiting, Some(&left)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Reads once; a pipe that has ended is let go.
fn read<R: Read>(pipe: &mut Option<R>, into: &mut Vec<u8>, buffer: &mut [u8]) -> io::Result<()> {
    let Some(reader) = pipe else { return Ok(()) };
    match reader.read(buffer) {
        Ok(0) => *pipe = None,
        Ok(n) => into.extend_from_slice(buffer.get(..n).unwrap_or_default()),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
        Err(e) => return Err(e),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PLENTY: Limits = Limits {
        memory: 0,
        cpu: 60,
        wall: Duration::from_secs(60),
    };

    fn sh(script: &str, limits: Limits) -> Result<String, String> {
        run("sh", ["-c", script], &[], None, limits)
            .map(|output| String::from_utf8(output).unwrap())
            .map_err(|e| e.to_string())
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
    fn of_a_talkative_helper_only_the_failure_is_told() {
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
    fn a_helper_that_takes_too_long_is_stopped() {
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
    fn a_helper_that_never_stops_talking_is_stopped() {
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
