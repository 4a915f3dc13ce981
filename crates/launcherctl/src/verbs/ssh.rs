//! `ssh`: opens a shell or runs a command in the guest, through the port that `run` forwards to its
//! SSH server.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;

use super::target::RunningVm;

use crate::error::{CtlError, fail};
use crate::files::FileError;
use crate::host::network::HostNetwork;
use crate::host::registry;
use client::running::check_runs;

/// How long ssh(1) waits for the guest's server, which may be slow without KVM.
const CONNECT_TIMEOUT: &str = "ConnectTimeout=30";

/// Arguments of `ssh`.
#[derive(Debug, Args)]
pub struct SshArgs {
    /// The VM, and the user to log in as; without one, this machine's
    #[arg(value_name = "[USER@]VM")]
    vm: String,
    /// The private key
    #[arg(short, long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// A command for the guest; without one, a shell
    #[arg(last = true)]
    command: Vec<String>,
}

/// `ssh`: runs ssh(1). The VM's directory keeps the guest's host key, which is checked for the VM's
/// life.
///
/// # Errors
/// There is no such VM, its guest does not run, it has no network, or there is no ssh.
pub async fn ssh(args: &SshArgs) -> Result<ExitCode, CtlError> {
    let (user, name) = match args.vm.rsplit_once('@') {
        Some((user, name)) => (Some(user), name),
        None => (None, args.vm.as_str()),
    };
    let RunningVm { dir, client } = RunningVm::connect(registry::find(name)?).await?;
    // A paused guest would silently block ssh.
    check_runs(client.domain().await?.as_ref())?;
    let network = HostNetwork::load(&dir)?;
    let Some(forward) = network.as_ref().and_then(HostNetwork::ssh) else {
        fail!(
            "{name} has no network that leads to its SSH server; was it started with --network none, or by an older launcherctl?"
        );
    };
    let known_hosts = dir.path("/known_hosts");
    let mut ssh = Command::new("ssh");
    ssh.args(["-p", &forward.host.to_string()])
        .args(["-o", &format!("HostKeyAlias={name}")])
        .arg("-o")
        .arg(format!("UserKnownHostsFile={}", known_hosts.display()))
        .args(["-o", "StrictHostKeyChecking=accept-new"])
        .args(["-o", CONNECT_TIMEOUT])
        .args(user.map(|user| format!("-l{user}")));
    if let Some(key) = &args.identity {
        ssh.arg("-i").arg(key);
    }
    ssh.arg(forward.address.to_string()).args(&args.command);
    // It takes this process's place, with its terminal and its signals.
    Err(FileError::on("start", "ssh")(ssh.exec()).into())
}
