//! `memory-dump`: the guest's memory, as an ELF file.
//!
//! QEMU writes into a pipe of this program, which writes the file:
//!
//! ```text
//!   QEMU ─► pipe ◄─ /proc/PID/fd/N ◄─ link below the launcher's root
//!            └────► FILE.partial ─► FILE, when the launcher reports the dump as complete
//! ```
//!
//! libvirt cannot abort a memory dump, but closing the pipe's reader does: QEMU cannot write, and
//! the guest continues. So a dump ends with this program in any case, and its size is known
//! meanwhile.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;

use super::target::{Target, check_processes};
use crate::error::{CtlError, RuntimeError, fail};
use crate::files::FileError;
use crate::host::vm_link::VmLink;
use crate::new_file::{NewFile, check_overwrite};
use crate::view::output::{Format, answer, say};
use client::{Client, DomainChanges, is_down, refusal};
use domain::Domain;
use domain::memory::Memory;
use domain::metadata::MemoryDumpMetadata;
use os::signals::EndSignals;
use terminal::human_size;
use terminal::progress::of_bytes;

/// Bytes read at a time; also the pipe's size, if permitted.
const BUFFER_BYTES: usize = 1 << 20;
/// Limit for QEMU to see that nobody reads its dump any more.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(30);

/// What cannot be made, in an error.
const PIPE: &str = "a pipe for the memory dump";
/// The arguments of `memory-dump`.
#[derive(Debug, Args)]
pub struct MemoryDumpArgs {
    /// Where the memory is written, as an ELF core file; `-` is standard output
    file: PathBuf,
    /// Overwrite FILE if it is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: Target,
}

/// `memory-dump`.
///
/// # Errors
/// FILE exists, no guest runs, another job runs, or the dump fails or is cancelled. Then no file is
/// written.
pub async fn memory_dump(args: &MemoryDumpArgs, format: Format) -> Result<ExitCode, CtlError> {
    check_overwrite(&args.file, args.force)?;
    let (dir, client, vmi) = args.target.connect_to_vm().await?;
    check_processes(&dir)?;
    let mut stop = EndSignals::listen().map_err(RuntimeError)?;
    let mut output = None;
    if args.file != Path::new("-") {
        output = Some(NewFile::create(&args.file)?);
    }
    let (pipe, writer) = new_pipe().map_err(FileError::on("make", PIPE))?;
    let end = format!("/proc/{}/fd/{}", std::process::id(), writer.as_raw_fd());
    let link = VmLink::make(&dir, "memory-dump", Path::new(&end))?;
    let mut dump = Dump {
        name: link.name().to_owned(),
        changes: client.domain_changes().await?,
        pipe,
        writer: Some(writer),
    };
    let domain = dump.changes.next().await?.flatten();
    let running = domain.filter(|domain| !is_down(Some(domain)));
    let (Some(domain), Some(vmi)) = (running, vmi) else {
        fail!("no guest runs, so there is no memory to dump");
    };
    client.dump_memory(&vmi, &link.pod_path()).await?;
    check_begun(&client, &dump.name).await?;
    let shown = of_bytes("memory dump", memory_bytes(&domain.spec.memory));
    let bytes = match dump.copy(&mut output, &mut stop, shown).await {
        Ok(bytes) => bytes,
        Err(error) => {
            dump.cancel().await;
            return Err(error);
        }
    };
    let (size, file) = (human_size(bytes), args.file.display().to_string());
    let Some(output) = output else {
        say(format!("memory dump: {size}"));
        return Ok(ExitCode::SUCCESS);
    };
    output.complete()?;
    let json = json!({"file": file, "bytes": bytes});
    answer(format, &json, || [format!("{file}: {size}")])
}

/// A dump that QEMU makes.
struct Dump {
    /// The launcher's name of it.
    name: String,
    changes: DomainChanges,
    pipe: Receiver,
    /// For libvirt to open; closed when the dump has ended, which ends the pipe.
    writer: Option<OwnedFd>,
}

impl Dump {
    /// Copies the dump to its end. Returns its size.
    async fn copy(
        &mut self,
        output: &mut Option<NewFile>,
        stop: &mut EndSignals,
        shown: ProgressBar,
    ) -> Result<u64, CtlError> {
        let copying = copy(&mut self.pipe, output, shown);
        tokio::pin!(copying);
        loop {
            tokio::select! {
                copied = &mut copying => return copied,
                ended = until_ended(&mut self.changes, &self.name), if self.writer.is_some() => {
                    ended?;
                    self.writer = None;
                }
                _ = stop.next() => fail!("the memory dump is cancelled, and no file is written"),
            }
        }
    }

    /// Ends the dump, and waits until the launcher has seen that, so that the next job can start.
    async fn cancel(mut self) {
        drop((self.pipe, self.writer));
        let _ = timeout(CANCEL_TIMEOUT, until_ended(&mut self.changes, &self.name)).await;
    }
}

/// Copies a pipe to its end, into a file or else to standard output.
/// Returns the total.
async fn copy(
    pipe: &mut Receiver,
    output: &mut Option<NewFile>,
    shown: ProgressBar,
) -> Result<u64, CtlError> {
    let (mut buffer, mut bytes) = (vec![0; BUFFER_BYTES], 0);
    loop {
        let read = pipe.read(&mut buffer).await;
        let read = read.map_err(FileError::on("make", PIPE))?;
        if read == 0 {
            return Ok(bytes);
        }
        let part = buffer.get(..read).unwrap_or_default();
        match output {
            Some(file) => file.write(part)?,
            None => write_stdout(part).await?,
        }
        bytes += read as u64;
        // The dump is a little larger than the memory.
        shown.set_length(shown.length().unwrap_or_default().max(bytes));
        shown.set_position(bytes);
    }
}

/// libvirt reports it in KiB.
fn memory_bytes(memory: &Memory) -> u64 {
    let shift = if memory.unit == "KiB" { 10 } else { 0 };
    memory.value << shift
}

/// Waits until the launcher reports the end of the dump.
async fn until_ended(changes: &mut DomainChanges, name: &str) -> Result<(), CtlError> {
    loop {
        let domain = changes.next().await?.flatten();
        let Some(domain) = domain else {
            fail!("the guest or its launcher has ended during the memory dump");
        };
        let Some(dump) = of_file(domain, name).filter(|dump| dump.completed) else {
            continue;
        };
        if dump.failed {
            let reason = refusal::plain(&dump.failure_reason);
            fail!("the memory dump has failed: {reason}");
        }
        return Ok(());
    }
}

/// The launcher's success does not mean that it has started.
async fn check_begun(client: &Client, name: &str) -> Result<(), CtlError> {
    let domain = client.domain().await?;
    if domain.and_then(|domain| of_file(domain, name)).is_some() {
        return Ok(());
    }
    fail!(
        "the memory dump has not begun, since another job is in progress, such as a backup or a migration; try again when that has ended"
    );
}

/// The launcher's report on the dump into this file.
fn of_file(domain: Domain, name: &str) -> Option<MemoryDumpMetadata> {
    let dump = domain.spec.metadata.kube_virt.memory_dump;
    dump.filter(|dump| dump.file_name == name)
}

fn new_pipe() -> std::io::Result<(Receiver, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    // If a user may not have that much, it is slower.
    let _ = fcntl_setpipe_size(&writer, BUFFER_BYTES);
    rustix::io::ioctl_fionbio(&reader, true)?;
    Ok((Receiver::from_owned_fd(reader)?, writer))
}

async fn write_stdout(bytes: &[u8]) -> Result<(), FileError> {
    let mut stdout = tokio::io::stdout();
    let written = async {
        stdout.write_all(bytes).await?;
        stdout.flush().await
    };
    written
        .await
        .map_err(FileError::on("write", "standard output"))
}
