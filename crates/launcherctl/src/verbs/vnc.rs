//! `vnc`: shows the guest's screen in a viewer, or prints an address for one.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use tokio::net::{TcpListener, UnixStream};
use tokio::process::Command;

use super::vm_args::{RunningVm, VmArgs};
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
    let vm = RunningVm::find(&args.vm.target(), "vnc").await?;
    let socket = vm.dir.path(&PodPaths::default().vnc_socket(vm.uid()));
    if !socket.exists() {
        let name = vm.name();
        fail!(
            "{name} has no screen: its VMI says autoattachGraphicsDevice: false, or it has ended"
        );
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port))
        .await
        .map_err(FileError::on(
            "listen on",
            format!("127.0.0.1:{}", args.port),
        ))?;
    let address = listener.local_addr().map_err(RuntimeError)?;
    let mut signals = EndSignals::listen().map_err(RuntimeError)?;
    let viewer = (!args.proxy_only).then(find_viewer).flatten();
    print(
        format,
        &json!({"address": format!("vnc://{address}")}),
        || {
            let hint = if viewer.is_some() || args.proxy_only {
                ""
            } else {
                "  (no viewer found: give this to any VNC viewer; Ctrl-C ends it)"
            };
            format!("vnc://{address}{hint}")
        },
    );
    let viewing = async {
        match viewer {
            Some(viewer) => viewer.show(address).await,
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

/// A viewer, and the format of its address argument.
struct Viewer {
    program: PathBuf,
    address: fn(SocketAddr) -> String,
}

impl Viewer {
    async fn show(self, address: SocketAddr) -> Result<(), FileError> {
        let viewer = Command::new(&self.program)
            .arg((self.address)(address))
            .kill_on_drop(true)
            .spawn();
        let mut viewer = viewer.map_err(FileError::on("start", &self.program))?;
        let ended = viewer.wait().await;
        ended
            .map(drop)
            .map_err(FileError::on("wait for", self.program))
    }
}

/// The first viewer on the search path, if there is a display; in virtctl's order.
fn find_viewer() -> Option<Viewer> {
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    if !has_display {
        return None;
    }
    let url: fn(SocketAddr) -> String = |address| format!("vnc://{address}");
    let host_and_port: fn(SocketAddr) -> String =
        |address| format!("{}::{}", address.ip(), address.port());
    let viewers = [
        ("remote-viewer", url),
        ("xtigervncviewer", host_and_port),
        ("vncviewer", host_and_port),
    ];
    viewers.into_iter().find_map(|(name, address)| {
        let program = find_on_path(name)?;
        Some(Viewer { program, address })
    })
}
