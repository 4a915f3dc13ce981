//! Calls of the cmd socket that start and end jobs: memory dumps and backups.

use prost::bytes::Bytes;
use serde_json::Value;

use crate::{CHANGE_TIMEOUT, CallError, Client, accepted, message, request, with_timeout};
use api::backup::BackupOptions;
use api::proto::cmd::v1::{BackupRequest, MemoryDumpRequest};

impl Client {
    /// Starts a memory dump to `path`, a path in the launcher's pod. Success does not mean that it
    /// has started: the domain's metadata tells.
    ///
    /// # Errors
    /// The launcher refuses.
    pub async fn dump_memory(&self, vmi: &Value, path: &str) -> Result<(), CallError> {
        let call = "VirtualMachineMemoryDump";
        let dump = MemoryDumpRequest {
            vmi: request(vmi).vmi,
            dump_path: path.to_owned(),
        };
        let dump = with_timeout(dump, CHANGE_TIMEOUT);
        let answer = self.cmd().virtual_machine_memory_dump(dump).await;
        accepted(call, message(call, answer)?)
    }

    /// Starts or ends a backup.
    ///
    /// # Errors
    /// The launcher refuses.
    pub async fn backup(&self, vmi: &Value, options: &BackupOptions) -> Result<(), CallError> {
        let call = "BackupVirtualMachine";
        let options = serde_json::to_vec(options);
        let backup = BackupRequest {
            vmi: request(vmi).vmi,
            options: Bytes::from(options.map_err(|source| CallError::Answer { call, source })?),
        };
        let backup = with_timeout(backup, CHANGE_TIMEOUT);
        let answer = self.cmd().backup_virtual_machine(backup).await;
        accepted(call, message(call, answer)?)
    }
}
