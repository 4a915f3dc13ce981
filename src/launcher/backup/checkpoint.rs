//! Redefines checkpoints that libvirt lost with an earlier domain of the VM.

use super::error::BackupError;
use super::{Backup, is_tracking_enabled};
use crate::launcher::admit;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::read_spec;
use crate::launcher::vm::Request;
use api::backup::BackupCheckpoint;
use api::vmi::Vmi;
use convert::backup::{QUERY_BLOCK_NODES, RedefineError, redefinition};
use libvirt::XmlKind;

/// Limit of QEMU's answer. An answer for a thousand disks is far shorter.
const MAX_ANSWER_BYTES: usize = 16 << 20;

impl Backup {
    /// Redefines a checkpoint (`virDomainCheckpointCreateXML`) for the disks that still have its
    /// bitmap.
    ///
    /// # Errors
    /// libvirt's error, or no disk has a usable bitmap ([`LauncherError::is_checkpoint_invalid`]).
    pub async fn redefine_checkpoint(
        &self,
        vmi: &Vmi,
        checkpoint: Result<BackupCheckpoint, serde_json::Error>,
    ) -> Result<(), LauncherError> {
        if !is_tracking_enabled(vmi) {
            return Err(BackupError::CheckpointNotTracked.into());
        }
        let checkpoint =
            checkpoint.map_err(|error| BackupError::Redefine(RedefineError::Json(error)))?;
        let what = "redefining the checkpoint";
        let redefine = move |domain: Option<libvirt::ChangeableDomain>| {
            let domain = domain.ok_or(LauncherError::NoDomain)?;
            let disks = read_spec(&domain, XmlKind::Live)?.devices.disks;
            let block_nodes = domain.monitor_command(QUERY_BLOCK_NODES, MAX_ANSWER_BYTES)?;
            let redefined =
                redefinition(&disks, &checkpoint, &block_nodes).map_err(BackupError::Redefine)?;
            domain.redefine_checkpoint(&redefined.to_xml())?;
            let disks = redefined.disks.disks.len();
            tracing::info!(checkpoint = redefined.name, disks, "Checkpoint redefined");
            Ok(())
        };
        let request = Request::RedefineCheckpoint;
        admit::change(&self.libvirt, request, what, redefine).await
    }
}
