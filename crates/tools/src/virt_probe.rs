//! `virt-probe`: probes a guest through its agent, for the kubelet (readiness and liveness probes).
//! virt-controller writes the command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::{Arg, Parser, ValueExt};

use api::pod_paths::PodPaths;
use api::proto::cmd::v1::{ExecRequest, GuestPingRequest};
use client::{CallError, Client, exit_code};
use os::logging;

const USAGE: &str = "Usage: virt-probe --domainName NAME [--timeoutSeconds N] (--guestAgentPing | --command PROGRAM [-- ARGUMENTS]) [--socket PATH] [-v N]

Pings the guest agent, or runs a program in the guest: its output and exit status are then this program's.";

/// No launcher accepts connections.
const NO_LAUNCHER: u8 = 1;
/// The guest was not asked or does not answer; also for unknown arguments.
const FAILED: u8 = 2;

#[derive(Debug, PartialEq, Eq)]
struct Options {
    socket: PathBuf,
    domain: String,
    command: String,
    arguments: Vec<String>,
    timeout: i32,
    ping: bool,
    verbosity: u8,
    help: bool,
}

#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    logging::init("virt-probe");
    let options = match parse(arguments) {
        Ok(options) if options.help => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(FAILED);
        }
    };
    logging::set_verbosity(options.verbosity);
    let probed = match crate::block_on(probe(options)) {
        Ok(probed) => probed,
        Err(error) => {
            tracing::error!(reason = %error, "The probe has no runtime");
            return ExitCode::from(FAILED);
        }
    };
    match probed {
        Ok(code) => code,
        Err(error @ CallError::Connect { .. }) => {
            tracing::error!(reason = %logging::chain(&error), "Failed to connect cmd client");
            ExitCode::from(NO_LAUNCHER)
        }
        Err(error) => {
            tracing::error!(reason = %logging::chain(&error), "The probe of the guest failed");
            ExitCode::from(FAILED)
        }
    }
}

async fn probe(options: Options) -> Result<ExitCode, CallError> {
    let client = Client::connect(&options.socket).await?;
    if options.ping {
        let ping = GuestPingRequest {
            domain_name: options.domain,
            timeout_seconds: options.timeout,
        };
        client.guest_ping(ping).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let command = ExecRequest {
        domain_name: options.domain,
        command: options.command,
        args: options.arguments,
        timeout_seconds: options.timeout,
    };
    let done = client.exec(command).await?;
    let (code, stdout) = (done.exit_code, done.std_out);
    if !stdout.is_empty() {
        println!("{stdout}");
    }
    Ok(exit_code(code))
}

fn parse(arguments: Vec<OsString>) -> Result<Options, lexopt::Error> {
    let mut options = Options {
        socket: PodPaths::default()
            .shared(api::pod_paths::COMMAND_SOCKET)
            .into(),
        domain: String::new(),
        command: String::new(),
        arguments: Vec::new(),
        timeout: 1,
        ping: false,
        verbosity: logging::DEFAULT_VERBOSITY,
        help: false,
    };
    let mut parser = Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("socket") => options.socket = parser.value()?.into(),
            Arg::Long("domainName") => options.domain = parser.value()?.string()?,
            Arg::Long("command") => options.command = parser.value()?.string()?,
            Arg::Long("timeoutSeconds") => options.timeout = parser.value()?.parse()?,
            Arg::Long("guestAgentPing") => options.ping = switch(&mut parser)?,
            // Go's memory profile, which does not exist here.
            Arg::Long("memProfile") => drop(parser.value()?),
            Arg::Short('v') | Arg::Long("v") => options.verbosity = parser.value()?.parse()?,
            Arg::Short('h') | Arg::Long("help") => options.help = true,
            Arg::Value(word) => options.arguments.push(word.string()?),
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

/// A switch of pflag: alone, or with a value after `=`.
pub(crate) fn switch(parser: &mut Parser) -> Result<bool, lexopt::Error> {
    parser.optional_value().map_or(Ok(true), |value| {
        value.parse_with(|word| match word {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
            _ => Err("true or false is expected"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Options {
        parse(words.iter().map(OsString::from).collect()).unwrap()
    }

    #[test]
    fn command_lines_of_virt_controller() {
        let ping = parsed(&[
            "--domainName",
            "ns_vm",
            "--timeoutSeconds",
            "5",
            "--guestAgentPing",
        ]);
        assert_eq!(
            (ping.domain.as_str(), ping.timeout, ping.ping),
            ("ns_vm", 5, true)
        );
        assert_eq!(
            ping.socket,
            PathBuf::from("/var/run/kubevirt/sockets/launcher-sock")
        );
        let exec = parsed(&[
            "--command",
            "cat",
            "--domainName=ns_vm",
            "--",
            "--help",
            "/tmp/x",
        ]);
        assert_eq!(exec.command, "cat");
        assert_eq!(exec.arguments, ["--help", "/tmp/x"]);
        assert_eq!((exec.timeout, exec.ping), (1, false));
        assert!(!parsed(&["--guestAgentPing=false"]).ping);
    }

    #[test]
    fn unknown_arguments_are_refused() {
        assert!(parse(vec!["--other".into()]).is_err());
        assert!(parse(vec!["--timeoutSeconds".into(), "soon".into()]).is_err());
        assert!(parse(vec!["--guestAgentPing=maybe".into()]).is_err());
    }
}
