//! `vnc`: shows the guest's screen in a viewer, or prints an address for one.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use tokio::net::{TcpListener, UnixStream};
use tokio::process::Command;

use super::target::{RunningVm, VmArgs};
use crate::error::{CtlError, RuntimeError, fail};
use crate::files::FileError;
use crate::host::processes::find_on_path;
use crate::view::output::{Format, print};
use api::pod_paths::PodPaths;
use os::accept::Acceptor;
use os::signals::EndSignals;

/// Arguments of `vnc`.
#[derive(Debug, Args)]
pub struct VncArgs {
    #[command(flatten)]
    vm: VmArgs,
    /// Print the address, and start no viewer
    #[arg(long)]
    proxy_only: bool,
    /// The port of the address; without it, a free one
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
}

/// `vnc`: runs until the viewer ends, or a signal. Each connection to the address is one to QEMU's
/// socket.
///
/// # Errors
/// The VM has no screen, or the port is in use.
pub async fn vnc(args: &VncArgs, format: Format) -> Result<ExitCode, CtlError> {
    let vm = RunningVm::find(&args.vm.target()).await?;
    let socket = vm.dir.path(&PodPaths::default().vnc_socket(&vm.uid));
    if !socket.exists() {
        fail!(
            "{} has no screen: its VMI says autoattachGraphicsDevice: false, or it has ended",
            vm.name
        );
    }
    let place = format!("127.0.0.1:{}", args.port);
    let listener = TcpListener::bind(&place).await;
    let listener = listener.map_err(FileError::on("listen on", place))?;
    let address = listener.local_addr().map_err(RuntimeError)?;
    let mut signals = EndSignals::listen().map_err(RuntimeError)?;
    let viewer = (!args.proxy_only).then(|| find_viewer(address)).flatten();
    let hint = if viewer.is_some() || args.proxy_only {
        ""
    } else {
        "  (no viewer found: give this to any VNC viewer; Ctrl-C ends it)"
    };
    let json = json!({"address": format!("vnc://{address}")});
    print(format, &json, || [format!("vnc://{address}{hint}")]);
    let viewing = async {
        match viewer {
            Some((program, argument)) => show(&program, &argument).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = forward(listener, &socket) => {}
        ended = viewing => ended?,
        _ = signals.next() => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn forward(listener: TcpListener, socket: &Path) {
    let mut viewers = Acceptor::new(listener, "the VNC port");
    loop {
        let mut client = viewers.accept().await;
        let Ok(mut qemu) = UnixStream::connect(socket).await else {
            // The guest has ended.
            return;
        };
        tokio::spawn(async move {
            // Either side may end it.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut qemu).await;
        });
    }
}

/// Runs a viewer to its end.
async fn show(program: &Path, argument: &str) -> Result<(), FileError> {
    let mut viewer = Command::new(program);
    let viewer = viewer.arg(argument).kill_on_drop(true).spawn();
    let mut viewer = viewer.map_err(FileError::on("start", program))?;
    let ended = viewer.wait().await.map(drop);
    ended.map_err(FileError::on("wait for", program))
}

/// The first viewer on the search path, with its argument, if there is a display; in virtctl's
/// order.
fn find_viewer(address: SocketAddr) -> Option<(PathBuf, String)> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") {
        return None;
    }
    if let Some(program) = find_on_path("remote-viewer") {
        return Some((program, format!("vnc://{address}")));
    }
    let mut others = ["xtigervncviewer", "vncviewer"].into_iter();
    let argument = format!("{}::{}", address.ip(), address.port());
    Some((others.find_map(find_on_path)?, argument))
}
