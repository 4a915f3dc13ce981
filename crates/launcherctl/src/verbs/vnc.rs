//! `vnc`: serves the guest's screen to VNC viewers, and prints the address.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use tokio::net::{TcpListener, UnixStream};

use super::target::VmArgs;
use crate::error::{CtlError, RuntimeError, fail};
use crate::files::FileError;
use crate::view::output::{Format, print};
use api::pod_paths::PodPaths;
use os::accept::Acceptor;
use os::signals::EndSignals;

/// Arguments of `vnc`.
#[derive(Debug, Args)]
pub struct VncArgs {
    #[command(flatten)]
    vm: VmArgs,
    /// The port of the address; without it, a free one
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
}

/// `vnc`: runs until a signal, or the guest's end. Each connection to the address is one to QEMU's
/// socket.
///
/// # Errors
/// The VM has no screen, or the port is in use.
pub async fn vnc(args: &VncArgs, format: Format) -> Result<ExitCode, CtlError> {
    let vm = args.vm.target().connect().await?;
    let domain = vm.guest().await?;
    let socket = vm
        .dir
        .path(&PodPaths::default().vnc_socket(&domain.meta.uid));
    if !socket.exists() {
        fail!(
            "{} has no screen: its VMI says autoattachGraphicsDevice: false, or it has ended",
            domain.meta.name
        );
    }
    let place = format!("127.0.0.1:{}", args.port);
    let listener = TcpListener::bind(&place).await;
    let listener = listener.map_err(FileError::on("listen on", place))?;
    let address = listener.local_addr().map_err(RuntimeError)?;
    let mut signals = EndSignals::listen().map_err(RuntimeError)?;
    let address = format!("vnc://{address}");
    let text = format!("{address}  (for any VNC viewer; Ctrl-C ends it)");
    print(format, &json!({"address": address}), || [text]);
    tokio::select! {
        () = forward(listener, &socket) => {}
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
