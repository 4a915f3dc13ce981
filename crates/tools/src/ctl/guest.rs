//! `guest …`, `freeze`, `unfreeze`: what the guest agent knows and does, as virtctl has it in a cluster.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::error::{CtlError, TargetError};
use super::json::{list_at, text_at, text_or_dash};
use super::output::{Format, print};
use super::target::{Target, VmiTarget};
use api::proto::cmd::v1::{ExecRequest, GuestPingRequest};

/// What the guest is asked for.
#[derive(Debug, Subcommand)]
pub enum GuestVerb {
    /// Print what the guest agent knows: operating system, host name, agent
    Info(Target),
    /// List the users who are logged in
    Users(Target),
    /// List the mounted file systems
    Filesystems(Target),
    /// Run a command in the guest; its output and exit status are the command's
    Exec(ExecArgs),
    /// Check that the guest agent answers
    Ping(GuestPingArgs),
}

/// Arguments of `guest exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    #[command(flatten)]
    target: Target,
    /// Seconds that the command may take
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(i32).range(1..))]
    timeout: i32,
    /// The program, as a path in the guest, and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Arguments of `guest ping`.
#[derive(Debug, Args)]
pub struct GuestPingArgs {
    #[command(flatten)]
    target: Target,
    /// Seconds to wait for the answer
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(i32).range(1..))]
    timeout: i32,
}

/// Arguments of `freeze`.
#[derive(Debug, Args)]
pub struct FreezeArgs {
    #[command(flatten)]
    target: VmiTarget,
    /// Seconds after which the guest is thawed if nobody does so before; 0 is never
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(i32).range(0..))]
    timeout: i32,
}

/// `guest …`.
///
/// # Errors
/// If there is no launcher, or the guest agent does not do it.
pub async fn guest(verb: &GuestVerb, format: Format) -> Result<ExitCode, CtlError> {
    match verb {
        GuestVerb::Info(target) => {
            let info = target.connect().await?.guest_info().await?;
            print(format, &info, || summary(&info));
        }
        GuestVerb::Users(target) => {
            let users = target.connect().await?.users().await?;
            print(format, &users, || lines(&users, user));
        }
        GuestVerb::Filesystems(target) => {
            let all = target.connect().await?.filesystems().await?;
            print(format, &all, || lines(&all, filesystem));
        }
        GuestVerb::Exec(args) => return exec(args, format).await,
        GuestVerb::Ping(args) => {
            let ping = GuestPingRequest {
                domain_name: String::new(),
                timeout_seconds: args.timeout,
            };
            let client = args.target.connect().await?;
            client.guest_ping(with_domain(&client, ping).await?).await?;
            print(format, &json!({"success": true}), || "ok".into());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The reference's launcher wants the domain's name.
async fn domain_name(client: &super::client::Client) -> Result<String, CtlError> {
    let domain = client.domain().await?.ok_or(TargetError::NoDomain)?;
    Ok(text_at(&domain, "/Spec/Name").to_owned())
}

async fn with_domain(
    client: &super::client::Client,
    ping: GuestPingRequest,
) -> Result<GuestPingRequest, CtlError> {
    Ok(GuestPingRequest {
        domain_name: domain_name(client).await?,
        ..ping
    })
}

async fn exec(args: &ExecArgs, format: Format) -> Result<ExitCode, CtlError> {
    let client = args.target.connect().await?;
    let mut words = args.command.iter().cloned();
    let request = ExecRequest {
        domain_name: domain_name(&client).await?,
        command: words.next().unwrap_or_default(),
        args: words.collect(),
        timeout_seconds: args.timeout,
    };
    let (code, stdout) = client.exec(request).await?;
    match format {
        Format::Json => print(
            format,
            &json!({"exitCode": code, "stdout": stdout}),
            String::new,
        ),
        // As it is: it need not end with a line.
        Format::Text => {
            let mut out = std::io::stdout().lock();
            // A reader that has gone needs no more.
            drop(out.write_all(stdout.as_bytes()).and_then(|()| out.flush()));
        }
    }
    Ok(exit_code(code))
}

/// The guest's exit status as this process's, which has 8 bits; a failure stays one.
pub(crate) fn exit_code(code: i32) -> ExitCode {
    let byte = code.to_le_bytes()[0];
    ExitCode::from(if byte == 0 && code != 0 { 1 } else { byte })
}

/// `freeze`: freezes the guest's file systems.
///
/// # Errors
/// If there is no launcher, or the guest agent does not do it.
pub async fn freeze(args: &FreezeArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (client, vmi) = args.target.connect_by_identity().await?;
    let vmi = vmi.ok_or(TargetError::NoDomain)?;
    client.freeze(&vmi, args.timeout).await?;
    print(format, &json!({"success": true}), || "frozen".into());
    Ok(ExitCode::SUCCESS)
}

/// `unfreeze`: thaws the guest's file systems.
///
/// # Errors
/// If there is no launcher, or the guest agent does not do it.
pub async fn unfreeze(target: &VmiTarget, format: Format) -> Result<ExitCode, CtlError> {
    let (client, vmi) = target.connect_by_identity().await?;
    client.unfreeze(&vmi.ok_or(TargetError::NoDomain)?).await?;
    print(format, &json!({"success": true}), || "thawed".into());
    Ok(ExitCode::SUCCESS)
}

fn summary(info: &Value) -> String {
    let part = |pointer| text_or_dash(info, pointer);
    let commands = list_at(info, "/supportedCommands");
    let enabled = commands.iter().filter(|one| one.get("enabled").is_some());
    [
        format!("os           {}", part("/os/prettyName")),
        format!("kernel       {}", part("/os/kernelRelease")),
        format!("host name    {}", part("/hostname")),
        format!("time zone    {}", part("/timezone")),
        format!("file systems {}", part("/fsFreezeStatus")),
        format!(
            "agent        {}, {} commands",
            part("/guestAgentVersion"),
            enabled.count()
        ),
    ]
    .join("\n")
}

fn lines(list: &Value, line: fn(&Value) -> String) -> String {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn user(user: &Value) -> String {
    let since = user.get("loginTime").and_then(Value::as_f64);
    let domain = text_at(user, "/domain");
    let name = text_at(user, "/userName");
    let account = if domain.is_empty() {
        name.to_owned()
    } else {
        format!("{domain}\\{name}")
    };
    match since {
        Some(since) => format!("{account}  since {since:.0}"),
        None => account,
    }
}

fn filesystem(one: &Value) -> String {
    let bytes = |name| one.get(name).and_then(Value::as_i64).unwrap_or_default();
    format!(
        "{}  {}  {}  {} of {} MiB",
        text_at(one, "/diskName"),
        text_at(one, "/mountPoint"),
        text_at(one, "/fileSystemType"),
        bytes("usedBytes") >> 20,
        bytes("totalBytes") >> 20
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_stays_a_failure() {
        let as_text = |code| format!("{:?}", exit_code(code));
        assert_eq!(as_text(0), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(as_text(3), format!("{:?}", ExitCode::from(3)));
        assert_eq!(as_text(256), format!("{:?}", ExitCode::from(1)));
        assert_eq!(as_text(-1), format!("{:?}", ExitCode::from(255)));
    }

    #[test]
    fn a_user_of_a_domain_is_shown_with_it() {
        let shown = user(&json!({"userName": "demo", "domain": "CORP", "loginTime": 1.5}));
        assert_eq!(shown, "CORP\\demo  since 2");
        assert_eq!(user(&json!({"userName": "root"})), "root");
    }
}
