//! Backups of a domain's disks, and the checkpoints from which the next ones count.

use std::ptr;

use virt::sys;

use super::c;
use super::changes::ChangeableDomain;
use super::domain::DomainHandle;
use super::error::{Error, code};

impl ChangeableDomain {
    /// Begins a backup, and makes the checkpoint from which a later one can be incremental. Both
    /// are as of this moment. The backup goes on as a job: it has ended with
    /// [`super::Event::JobCompleted`].
    pub fn begin_backup(&self, backup_xml: &str, checkpoint_xml: &str) -> Result<(), Error> {
        let (backup, checkpoint) = (
            c::text("the backup's XML", backup_xml)?,
            c::text("the checkpoint's XML", checkpoint_xml)?,
        );
        // SAFETY: domain and strings are valid for the call.
        self.done(unsafe {
            sys::virDomainBackupBegin(self.raw(), backup.as_ptr(), checkpoint.as_ptr(), 0)
        })
    }

    /// Redefines a checkpoint whose bitmaps are in the images
    /// (`VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE`). libvirt checks that they are.
    pub fn redefine_checkpoint(&self, xml: &str) -> Result<(), Error> {
        let xml = c::text("the checkpoint's XML", xml)?;
        let flags = sys::VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE
            | sys::VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE_VALIDATE;
        // SAFETY: domain and string are valid for the call.
        let checkpoint =
            unsafe { sys::virDomainCheckpointCreateXML(self.raw(), xml.as_ptr(), flags) };
        if checkpoint.is_null() {
            return Err(Error::last());
        }
        // SAFETY: the reference is ours, and given back once.
        unsafe { sys::virDomainCheckpointFree(checkpoint) };
        Ok(())
    }
}

impl DomainHandle {
    /// Sends a command (JSON) to QEMU's monitor and returns its answer (JSON), if that is at most
    /// `max_bytes` long.
    pub fn monitor_command(&self, command: &str, max_bytes: usize) -> Result<String, Error> {
        let command = c::text("the monitor command", command)?;
        let mut answer = ptr::null_mut();
        // SAFETY: domain, string and the place for the answer are valid for the call.
        c::check(unsafe {
            sys::virDomainQemuMonitorCommand(
                self.raw(),
                command.as_ptr(),
                &raw mut answer,
                sys::VIR_DOMAIN_QEMU_MONITOR_COMMAND_DEFAULT,
            )
        })?;
        // SAFETY: the answer of a call that has succeeded is ours to free.
        unsafe { c::take_at_most(answer, max_bytes) }
    }
}

impl Error {
    /// A checkpoint, or the bitmaps that it stands for, cannot be used: the next backup has to be a
    /// full one.
    pub fn is_checkpoint_invalid(&self) -> bool {
        matches!(
            self.code,
            code::INVALID_DOMAIN_CHECKPOINT
                | code::NO_DOMAIN_CHECKPOINT
                | code::CHECKPOINT_INCONSISTENT
        )
    }
}
