//! `kubevirt.cmd.v1.Cmd`.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Request, Status};

use super::answers::{response, success};
use super::door::{Door, DoorError};
use super::vm_stats;
use crate::launcher::{
    GuestCommand, LaunchSecret, Launcher, LauncherError, MigrateRequest, MigrationError,
};
use api::Action;
use api::backup::BackupCheckpoint;
use api::migration_options::MigrationOptions;
use api::proto::cmd::v1::cmd_server::Cmd;
use api::proto::cmd::v1::{self, EmptyRequest, VmiRequest};
use convert::backup::BackupRequest;
use os::failpoints;
use os::logging::chain;

type Answer<T> = Result<tonic::Response<T>, Status>;

pub(super) struct Service {
    pub launcher: Arc<Launcher>,
    pub door: Arc<Door>,
}

impl Service {
    async fn act(&self, action: Action, request: Request<VmiRequest>) -> Answer<v1::Response> {
        answer_of(async {
            let vmi = self.door.vmi(request.into_inner().vmi).await?;
            let (done, failed) = log_texts(action);
            logged(self.launcher.requests.act(action, &vmi).await, done, failed)
        })
        .await
    }
}

/// Negative values count as zero.
fn seconds(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

#[allow(
    clippy::unnecessary_wraps,
    clippy::result_large_err,
    reason = "it is what the methods return"
)]
fn answer<T>(message: T) -> Answer<T> {
    Ok(tonic::Response::new(message))
}

/// Answers a call that returns only success or failure.
async fn answer_of(call: impl Future<Output = Result<(), DoorError>>) -> Answer<v1::Response> {
    answer(response(&call.await))
}

/// Logs a call's result.
fn logged(result: Result<(), LauncherError>, done: &str, failed: &str) -> Result<(), DoorError> {
    match &result {
        Ok(()) => tracing::info!("{done}"),
        Err(error) => tracing::error!(reason = %chain(error), "{failed}"),
    }
    Ok(result?)
}

/// The reference's log lines for success and failure.
fn log_texts(action: Action) -> (&'static str, &'static str) {
    match action {
        Action::Pause => ("Paused vmi", "Failed to pause vmi"),
        Action::Unpause => ("Unpaused vmi", "Failed to unpause vmi"),
        Action::Reset => ("Reset vmi", "Failed to reset vmi"),
        Action::SoftReboot => ("Soft rebooted vmi", "Failed to soft reboot vmi"),
        Action::Shutdown => ("Signaled vmi shutdown", "Failed to signal shutdown for vmi"),
        Action::Kill => ("Signaled vmi kill", "Failed to kill vmi"),
        Action::Delete => ("Signaled vmi deletion", "Failed to signal deletion for vmi"),
    }
}

#[tonic::async_trait]
impl Cmd for Service {
    async fn ping(&self, _: Request<EmptyRequest>) -> Answer<v1::Response> {
        answer(success())
    }

    async fn sync_virtual_machine(&self, request: Request<VmiRequest>) -> Answer<v1::Response> {
        answer_of(async {
            let request = self.door.sync_request(request.into_inner()).await?;
            Ok(self.launcher.syncs.sync(request).await?)
        })
        .await
    }

    async fn get_domain(&self, _: Request<EmptyRequest>) -> Answer<v1::DomainResponse> {
        failpoints::hit("call.begun");
        let result = self.launcher.reads.domain().await;
        let mut answered = v1::DomainResponse {
            response: Some(response(&result)),
            domain: String::new(),
        };
        if let Ok(Some(document)) = result {
            match document.to_json() {
                Ok(json) => answered.domain = json,
                error => answered.response = Some(response(&error)),
            }
        }
        answer(answered)
    }

    async fn get_qemu_version(&self, _: Request<EmptyRequest>) -> Answer<v1::QemuVersionResponse> {
        let result = self.launcher.reads.qemu_version().await;
        answer(v1::QemuVersionResponse {
            response: Some(response(&result)),
            version: result.unwrap_or_default(),
        })
    }

    async fn pause_virtual_machine(&self, request: Request<VmiRequest>) -> Answer<v1::Response> {
        self.act(Action::Pause, request).await
    }
    async fn unpause_virtual_machine(&self, request: Request<VmiRequest>) -> Answer<v1::Response> {
        self.act(Action::Unpause, request).await
    }
    async fn reset_virtual_machine(&self, request: Request<VmiRequest>) -> Answer<v1::Response> {
        self.act(Action::Reset, request).await
    }
    async fn soft_reboot_virtual_machine(
        &self,
        request: Request<VmiRequest>,
    ) -> Answer<v1::Response> {
        self.act(Action::SoftReboot, request).await
    }
    async fn shutdown_virtual_machine(&self, request: Request<VmiRequest>) -> Answer<v1::Response> {
        self.act(Action::Shutdown, request).await
    }
    async fn kill_virtual_machine(&self, request: Request<VmiRequest>) -> Answer<v1::Response> {
        self.act(Action::Kill, request).await
    }
    async fn delete_virtual_machine(&self, request: Request<VmiRequest>) -> Answer<v1::Response> {
        self.act(Action::Delete, request).await
    }

    // Answered from memory without failure: virt-handler abandons a VMI's whole status update if
    // GetGuestInfo fails.
    async fn get_guest_info(&self, _: Request<EmptyRequest>) -> Answer<v1::GuestInfoResponse> {
        let json = serde_json::to_string(&self.launcher.guest.known.info().await.document());
        answer(v1::GuestInfoResponse {
            response: Some(response(&json)),
            guest_info_response: json.unwrap_or_default(),
        })
    }
    async fn get_users(&self, _: Request<EmptyRequest>) -> Answer<v1::GuestUserListResponse> {
        let json = serde_json::to_string(&self.launcher.guest.known.info().await.users);
        answer(v1::GuestUserListResponse {
            response: Some(response(&json)),
            guest_user_list_response: json.unwrap_or_default(),
        })
    }
    async fn get_filesystems(
        &self,
        _: Request<EmptyRequest>,
    ) -> Answer<v1::GuestFilesystemsResponse> {
        let json = serde_json::to_string(&self.launcher.guest.known.info().await.filesystems);
        answer(v1::GuestFilesystemsResponse {
            response: Some(response(&json)),
            guest_filesystems_response: json.unwrap_or_default(),
        })
    }

    // This and GuestPing fail with a gRPC error.
    async fn exec(&self, request: Request<v1::ExecRequest>) -> Answer<v1::ExecResponse> {
        let request = request.into_inner();
        let command = GuestCommand {
            domain: request.domain_name,
            path: request.command,
            args: request.args,
            timeout: seconds(request.timeout_seconds),
        };
        let output = self.launcher.guest.commands.exec(command).await;
        let output = output.map_err(|error| Status::unknown(chain(&error)))?;
        answer(v1::ExecResponse {
            response: Some(success()),
            exit_code: output.exit_code,
            std_out: output.stdout,
            std_err: output.stderr,
        })
    }
    async fn guest_ping(
        &self,
        request: Request<v1::GuestPingRequest>,
    ) -> Answer<v1::GuestPingResponse> {
        let request = request.into_inner();
        let timeout = seconds(request.timeout_seconds);
        let pinged = self
            .launcher
            .guest
            .probe
            .ping(&request.domain_name, timeout)
            .await;
        pinged.map_err(|error| Status::unknown(chain(&error)))?;
        answer(v1::GuestPingResponse {
            response: Some(success()),
        })
    }

    async fn freeze_virtual_machine(
        &self,
        request: Request<v1::FreezeRequest>,
    ) -> Answer<v1::Response> {
        let request = request.into_inner();
        let thaw_after = seconds(request.unfreeze_timeout_seconds);
        answer_of(async {
            let vmi = self.door.vmi(request.vmi).await?;
            let frozen = self.launcher.guest.freezer.freeze(&vmi, thaw_after).await;
            logged(frozen, "Freezed vmi", "Failed to freeze vmi")
        })
        .await
    }
    async fn unfreeze_virtual_machine(&self, request: Request<VmiRequest>) -> Answer<v1::Response> {
        answer_of(async {
            self.door.vmi(request.into_inner().vmi).await?;
            let thawed = self.launcher.guest.freezer.unfreeze().await;
            logged(thawed, "Unfreezed vmi", "Failed to unfreeze vmi")
        })
        .await
    }
    async fn migrate_virtual_machine(
        &self,
        request: Request<v1::MigrationRequest>,
    ) -> Answer<v1::Response> {
        let request = request.into_inner();
        answer_of(async {
            let vmi_json = request.vmi.clone().unwrap_or_default().vmi_json;
            let vmi = self.door.vmi(request.vmi).await?;
            let options = self
                .door
                .decode(request.options, MigrationOptions::from_json);
            let begun = match options.await? {
                Ok(options) => {
                    let request = MigrateRequest {
                        vmi,
                        vmi_json,
                        options,
                    };
                    self.launcher.migration.begin(request).await
                }
                Err(error) => Err(MigrationError::Options(error).into()),
            };
            logged(begun, "Signaled vmi migration", "Failed to migrate vmi")
        })
        .await
    }
    async fn sync_migration_target(&self, request: Request<VmiRequest>) -> Answer<v1::Response> {
        answer_of(async {
            let request = self.door.sync_request(request.into_inner()).await?;
            let prepared = self.launcher.migration_target.sync(request).await;
            let failed = "Failed to prepare migration target pod";
            logged(prepared, "Prepared migration target pod", failed)
        })
        .await
    }
    async fn cancel_virtual_machine_migration(
        &self,
        request: Request<VmiRequest>,
    ) -> Answer<v1::Response> {
        answer_of(async {
            self.door.vmi(request.into_inner().vmi).await?;
            self.launcher.migration.cancel();
            tracing::info!("Live migration has been aborted");
            Ok(())
        })
        .await
    }
    async fn signal_target_pod_cleanup(
        &self,
        request: Request<VmiRequest>,
    ) -> Answer<v1::Response> {
        answer_of(async {
            let vmi = self.door.vmi(request.into_inner().vmi).await?;
            self.launcher.migration_target.signal_cleanup(&vmi);
            Ok(())
        })
        .await
    }
    async fn finalize_virtual_machine_migration(
        &self,
        request: Request<VmiRequest>,
    ) -> Answer<v1::Response> {
        let request = request.into_inner();
        answer_of(async {
            self.door.vmi(request.vmi).await?;
            let options = self.door.options(request.options).await?;
            let finalized = self.launcher.finalization.run(&options).await;
            let (done, failed) = (
                "migration finalized successfully",
                "failed to finalize migration",
            );
            logged(finalized, done, failed)
        })
        .await
    }
    async fn hotplug_host_devices(&self, request: Request<VmiRequest>) -> Answer<v1::Response> {
        answer_of(async {
            let vmi = self.door.vmi(request.into_inner().vmi).await?;
            Ok(self
                .launcher
                .host_devices
                .begin(vmi)
                .map_err(LauncherError::from)?)
        })
        .await
    }
    async fn get_domain_stats(&self, _: Request<EmptyRequest>) -> Answer<v1::DomainStatsResponse> {
        answer(vm_stats::domain_stats(&self.launcher).await)
    }
    async fn virtual_machine_memory_dump(
        &self,
        request: Request<v1::MemoryDumpRequest>,
    ) -> Answer<v1::Response> {
        let request = request.into_inner();
        answer_of(async {
            self.door.vmi(request.vmi).await?;
            self.launcher.memory_dump.begin(&request.dump_path);
            Ok(())
        })
        .await
    }
    async fn sync_virtual_machine_cp_us(
        &self,
        request: Request<VmiRequest>,
    ) -> Answer<v1::Response> {
        let request = request.into_inner();
        answer_of(async {
            let vmi = self.door.vmi(request.vmi).await?;
            let options = self.door.options(request.options).await?;
            Ok(self.launcher.cpus.sync(vmi, options).await?)
        })
        .await
    }
    async fn sync_virtual_machine_memory(
        &self,
        request: Request<VmiRequest>,
    ) -> Answer<v1::Response> {
        answer_of(async {
            let vmi = self.door.vmi(request.into_inner().vmi).await?;
            Ok(self.launcher.memory.sync(vmi).await?)
        })
        .await
    }
    async fn get_sev_info(&self, _: Request<EmptyRequest>) -> Answer<v1::SevInfoResponse> {
        let info = self.launcher.attestation.sev_info().await;
        answer(v1::SevInfoResponse {
            response: Some(response(&info)),
            sev_info: info.unwrap_or_default().into(),
        })
    }
    async fn get_launch_measurement(
        &self,
        request: Request<VmiRequest>,
    ) -> Answer<v1::LaunchMeasurementResponse> {
        let measured: Result<_, DoorError> = async {
            self.door.vmi(request.into_inner().vmi).await?;
            Ok(self.launcher.attestation.launch_measurement().await?)
        }
        .await;
        answer(v1::LaunchMeasurementResponse {
            response: Some(response(&measured)),
            launch_measurement: measured.unwrap_or_default().into(),
        })
    }
    async fn inject_launch_secret(
        &self,
        request: Request<v1::InjectLaunchSecretRequest>,
    ) -> Answer<v1::Response> {
        let request = request.into_inner();
        answer_of(async {
            self.door.vmi(request.vmi).await?;
            let secret = self.door.decode(request.options, LaunchSecret::from_json);
            let secret = secret.await??;
            Ok(self
                .launcher
                .attestation
                .inject_launch_secret(secret)
                .await?)
        })
        .await
    }
    async fn get_domain_dirty_rate_stats(
        &self,
        _: Request<EmptyRequest>,
    ) -> Answer<v1::DirtyRateStatsResponse> {
        answer(vm_stats::dirty_rate(&self.launcher).await)
    }
    // virt-handler ignores `success` here and sees only a gRPC error. D-vm-12
    // (docs/differences.md).
    async fn get_screenshot(&self, _: Request<VmiRequest>) -> Answer<v1::ScreenshotResponse> {
        let picture = self.launcher.reads.screenshot().await;
        let picture = picture.map_err(|error| Status::unknown(chain(&error)))?;
        answer(v1::ScreenshotResponse {
            response: Some(success()),
            mime: picture.mime,
            data: picture.data.into(),
        })
    }
    async fn backup_virtual_machine(
        &self,
        request: Request<v1::BackupRequest>,
    ) -> Answer<v1::Response> {
        let request = request.into_inner();
        answer_of(async {
            let vmi = self.door.vmi(request.vmi).await?;
            let backup = self.door.decode(request.options, BackupRequest::from_json);
            Ok(self.launcher.backup.request(vmi, backup.await?).await?)
        })
        .await
    }
    async fn redefine_checkpoint(
        &self,
        request: Request<v1::RedefineCheckpointRequest>,
    ) -> Answer<v1::RedefineCheckpointResponse> {
        let request = request.into_inner();
        let redefined = async {
            let vmi = self.door.vmi(request.vmi).await?;
            let checkpoint = self.door.decode(request.checkpoint, read_checkpoint);
            let redefined = self
                .launcher
                .backup
                .redefine_checkpoint(&vmi, checkpoint.await?);
            logged(
                redefined.await,
                "Checkpoint redefined successfully",
                "Failed to redefine checkpoint",
            )
        }
        .await;
        let is_invalid = |error: &DoorError| matches!(error, DoorError::Launcher(error) if error.is_checkpoint_invalid());
        answer(v1::RedefineCheckpointResponse {
            response: Some(response(&redefined)),
            checkpoint_invalid: redefined.as_ref().is_err_and(is_invalid),
        })
    }
    async fn get_vm_stats(
        &self,
        request: Request<v1::VmStatsRequest>,
    ) -> Answer<v1::VmStatsResponse> {
        let request = request.into_inner();
        answer(vm_stats::vm_stats(&self.launcher, &request).await?)
    }
}

fn read_checkpoint(json: &[u8]) -> Result<BackupCheckpoint, serde_json::Error> {
    api::json::from_slice(json)
}
