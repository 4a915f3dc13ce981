//! The calls of the cmd socket that begin and end jobs: memory dumps and backups.

use prost::bytes::Bytes;
use serde_json::Value;

use crate::{CHANGE_TIMEOUT, CallError, Client, accepted, message, request, with_timeout};
use api::backup::BackupOptions;
use api::proto::cmd::v1::{BackupRequest, MemoryDumpRequest};

impl Client {
    /// Begins a memory dump into `path`, as the launcher has it. Success does not say that it has
    /// begun: the domain's metadata do.
    ///
    /// # Errors
    /// If the launcher refuses.
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

    /// Begins a backup, or ends it.
    ///
    /// # Errors
    /// If the launcher refuses.
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
