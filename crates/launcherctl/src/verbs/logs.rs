//! `logs`: the log of a launcher of `run`, or the guest's console output.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::target::{RunningVm, VmArgs};
use crate::error::{CtlError, RuntimeError, fail};
use crate::host::control::ControlClient;
use crate::host::failure::console_log;
use crate::host::log_follower::LogFollower;
use crate::json::text_at;
use crate::view::output::{Format, joined, print_bytes, print_document, print_json};
use os::signals::EndSignals;
use terminal::visible;

/// Arguments of `logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    #[command(flatten)]
    vm: VmArgs,
    /// Print what follows too, until the VM ends
    #[arg(short, long)]
    follow: bool,
    /// What the guest has written to its serial console, instead of the launcher's log
    #[arg(long)]
    console: bool,
}

/// `logs`.
///
/// # Errors
/// There is no such VM, or its log is unreadable.
pub async fn logs(args: &LogsArgs, format: Format) -> Result<ExitCode, CtlError> {
    let dir = args.vm.target().resolve()?;
    let path = if args.console {
        let mut uid = dir.uid();
        if uid.is_empty() {
            // In a pod.
            let vm = RunningVm::connect(dir.clone()).await?;
            uid = vm.guest().await?.meta.uid;
        }
        console_log(&dir, &uid)
    } else {
        dir.log_file()
    };
    if !path.exists() {
        let why = match args.console {
            true => "the VM has no serial console, or its guest was not started",
            false => "in a pod it is the container's own: kubectl logs POD -c compute",
        };
        fail!("there is no log at {}: {why}", path.display());
    }
    let mut log = LogFollower::open(&path)?;
    let show = |text: String| match (format, args.console) {
        _ if text.is_empty() => Ok(()),
        (Format::Json, true) => {
            print_json(&json!({"console": text}));
            Ok(())
        }
        // The launcher's log has one JSON object per line; the console's content is the guest's.
        (_, true) => print_bytes(text.as_bytes()),
        (Format::Json, false) => print_bytes(visible::json(&text).as_bytes()),
        _ => print_document(&(joined(readable(&text)) + "\n")),
    };
    show(log.read_new())?;
    if !args.follow {
        return Ok(ExitCode::SUCCESS);
    }
    let mut signals = EndSignals::listen().map_err(RuntimeError)?;
    let is_supervised = dir.is_supervised();
    let ended = ControlClient::wait_for_end(&dir, Duration::MAX);
    tokio::pin!(ended);
    loop {
        tokio::select! {
            () = log.changed() => show(log.read_new())?,
            () = &mut ended, if is_supervised => break,
            _ = signals.next() => break,
        }
    }
    show(log.read_new())?;
    Ok(ExitCode::SUCCESS)
}

/// A JSON log's lines for people: time, level, message, and the error's reason.
fn readable(text: &str) -> Vec<String> {
    text.lines().map(entry).collect()
}

/// Fields that each line has, or that name the VM.
const WITHOUT: &str =
    "component kind level msg name namespace pos reason subcomponent thread timestamp uid";

/// A line that is not JSON stays as it is.
fn entry(line: &str) -> String {
    let Ok(entry) = serde_json::from_str::<Value>(line) else {
        return line.to_owned();
    };
    let time = text_at(&entry, "/timestamp");
    let time = time.split_once('T').map_or(time, |(_, time)| time);
    let (level, message) = (text_at(&entry, "/level"), text_at(&entry, "/msg"));
    let reason = match text_at(&entry, "/reason") {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    let fields = entry.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, _)| !WITHOUT.split(' ').any(|it| it == *name));
    let fields = fields.map(|(name, value)| match value {
        Value::String(text) => format!("; {name}: {text}"),
        other => format!("; {name}: {other}"),
    });
    let fields: String = fields.collect();
    format!("{time} {level:<7} {message}{reason}{fields}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_log_is_readable() {
        let log = concat!(
            r#"{"level":"error","msg":"no disk","reason":"EIO","timestamp":"2026-01-01T10:00:00.000001Z"}"#,
            "\nplain\n"
        );
        assert_eq!(
            readable(log),
            ["10:00:00.000001Z error   no disk: EIO", "plain"]
        );
    }
}
