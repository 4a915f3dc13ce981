#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
//! The service over a real socket, with a launcher of the test's own behind it.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot;
use tonic::transport::Channel;

use super::*;
use api::proto::cmd::info::CmdInfoRequest;
use api::proto::cmd::info::cmd_info_client::CmdInfoClient;
use api::proto::cmd::v1;
use api::proto::cmd::v1::cmd_client::CmdClient;
use api::proto::inspect::v1::Step;
use api::proto::preview::v1::PlanRequest;
use api::proto::preview::v1::preview_client::PreviewClient;

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("No valid vmi object present in command server request")]
    Vmi,
    #[error("LibvirtError(Code=1, Domain=10, Message='internal error: no')")]
    Libvirt,
    #[error("disk \"data\"")]
    Disk(#[source] std::io::Error),
}

/// Records its calls, and fails where a test says so.
#[derive(Default)]
pub(super) struct Stub {
    asked: Mutex<Vec<String>>,
    failure: Mutex<Option<Failure>>,
    pub domain: Mutex<Option<Domain>>,
    vm_stats_are_off: AtomicBool,
}

impl Stub {
    fn asked(&self, what: String) -> Result<(), Failure> {
        self.asked.lock().unwrap().push(what);
        self.failure.lock().unwrap().take().map_or(Ok(()), Err)
    }
}

impl LauncherApi for Stub {
    type Error = Failure;

    async fn sync(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: VirtualMachineOptions,
    ) -> Result<(), Failure> {
        self.asked(format!(
            "sync {} {}",
            String::from_utf8_lossy(&vmi_json),
            options.mem_balloon_stats_period
        ))
    }
    async fn dry_run(self: &Arc<Self>, vmi_json: Bytes) -> Result<Value, Failure> {
        self.asked(format!("preview {}", String::from_utf8_lossy(&vmi_json)))?;
        Ok(serde_json::json!({"steps": []}))
    }
    async fn act(self: &Arc<Self>, action: Action, vmi_json: Bytes) -> Result<(), Failure> {
        if vmi_json.is_empty() {
            Err(Failure::Vmi)
        } else {
            self.asked(format!("{action:?}"))
        }
    }
    async fn domain(self: &Arc<Self>) -> Result<Option<Arc<Domain>>, Failure> {
        self.asked("domain".into())?;
        Ok(self.domain.lock().unwrap().clone().map(Arc::new))
    }
    fn guest_info(self: &Arc<Self>) -> GuestAgentInfo {
        GuestAgentInfo::default()
    }
    async fn exec(self: &Arc<Self>, command: GuestCommand) -> Result<GuestOutput, Failure> {
        self.asked(format!("{command:?}"))?;
        Ok(GuestOutput {
            exit_code: 3,
            stdout: "hi".to_owned(),
        })
    }
    async fn guest_ping(self: &Arc<Self>, domain: &str, timeout: Duration) -> Result<(), Failure> {
        self.asked(format!("ping {domain} {timeout:?}"))
    }
    async fn freeze(self: &Arc<Self>, _: Bytes, thaw_after: Duration) -> Result<(), Failure> {
        self.asked(format!("freeze {thaw_after:?}"))
    }
    async fn unfreeze(self: &Arc<Self>, _: Bytes) -> Result<(), Failure> {
        self.asked("unfreeze".into())
    }
    async fn dump_memory(self: &Arc<Self>, _: Bytes, path: &str) -> Result<(), Failure> {
        self.asked(format!("dump {path}"))
    }
    async fn migrate(self: &Arc<Self>, _: Bytes, options: Bytes) -> Result<(), Failure> {
        self.asked(format!("migrate {}", String::from_utf8_lossy(&options)))
    }
    async fn cancel_migration(self: &Arc<Self>, _: Bytes) -> Result<(), Failure> {
        self.asked("cancel migration".into())
    }
    async fn backup(self: &Arc<Self>, _: Bytes, options: Bytes) -> Result<(), Failure> {
        self.asked(format!("backup {}", String::from_utf8_lossy(&options)))
    }
    async fn redefine_checkpoint(
        self: &Arc<Self>,
        _: Bytes,
        checkpoint: Bytes,
    ) -> Result<(), Failure> {
        let checkpoint = String::from_utf8_lossy(&checkpoint);
        self.asked(format!("checkpoint {checkpoint}"))
    }
    fn is_checkpoint_invalid(error: &Failure) -> bool {
        matches!(error, Failure::Libvirt)
    }
    async fn sync_cpus(
        self: &Arc<Self>,
        _: Bytes,
        _: VirtualMachineOptions,
    ) -> Result<(), Failure> {
        self.asked("cpus".into())
    }
    async fn hotplug_host_devices(
        self: &Arc<Self>,
        _: Bytes,
        _: VirtualMachineOptions,
    ) -> Result<(), Failure> {
        self.asked("host devices".into())
    }
    async fn sync_memory(self: &Arc<Self>, _: Bytes) -> Result<(), Failure> {
        self.asked("memory".into())
    }
    async fn sync_migration_target(
        self: &Arc<Self>,
        _: Bytes,
        _: VirtualMachineOptions,
    ) -> Result<(), Failure> {
        self.asked("migration target".into())
    }
    async fn finalize_migration(
        self: &Arc<Self>,
        _: Bytes,
        options: VirtualMachineOptions,
    ) -> Result<(), Failure> {
        self.asked(format!("finalize {:?}", options.interface_migration.keys()))
    }
    fn signal_target_cleanup(&self, vmi_json: &[u8]) -> Result<(), Failure> {
        self.asked(format!("cleanup {}", String::from_utf8_lossy(vmi_json)))
    }
    async fn hand_over(self: &Arc<Self>, path: PathBuf) -> Result<(), Failure> {
        self.asked(format!("hand over to {}", path.display()))
    }
    async fn sev_info(self: &Arc<Self>) -> Result<String, Failure> {
        self.asked("sev".into()).map(|()| "{}".into())
    }
    async fn launch_measurement(self: &Arc<Self>, _: Bytes) -> Result<String, Failure> {
        self.asked("measurement".into()).map(|()| "{}".into())
    }
    async fn inject_launch_secret(
        self: &Arc<Self>,
        _: Bytes,
        options: Bytes,
    ) -> Result<(), Failure> {
        self.asked(format!("secret {}", String::from_utf8_lossy(&options)))
    }
    async fn domain_stats(self: &Arc<Self>) -> Result<DomainStats, Failure> {
        self.asked("stats".into())?;
        Ok(DomainStats {
            name: "ns1_vm1".into(),
            ..DomainStats::default()
        })
    }
    async fn dirty_rate(self: &Arc<Self>) -> Result<i64, Failure> {
        self.asked("dirty rate".into()).map(|()| 7)
    }
    async fn agent_data(self: &Arc<Self>, command: AgentCommand) -> Result<String, Failure> {
        self.asked(command.name().into())?;
        Ok(r#"{"return":{}}"#.into())
    }
    fn guest_agent_version(&self) -> String {
        "9.2.0".into()
    }
    fn collects_vm_stats(&self) -> bool {
        !self.vm_stats_are_off.load(Ordering::Relaxed)
    }
    async fn screenshot(self: &Arc<Self>) -> Result<Screenshot, Failure> {
        self.asked("screenshot".into())?;
        Ok(Screenshot {
            mime: "image/png".to_owned(),
            data: vec![0x89, b'P'],
        })
    }
    async fn qemu_version(self: &Arc<Self>) -> Result<String, Failure> {
        self.asked("version".into()).map(|()| "10.0.2".into())
    }
    async fn debug(self: &Arc<Self>) -> DebugResponse {
        DebugResponse::default()
    }
    async fn domain_after(self: &Arc<Self>, generation: u64) -> (u64, Option<Arc<Domain>>) {
        match generation {
            0 => (1, None),
            1 => (2, self.domain.lock().unwrap().clone().map(Arc::new)),
            _ => std::future::pending().await,
        }
    }
    fn timeline(&self) -> TimelineResponse {
        let step = Step {
            name: "define".into(),
            began_micros: 1,
            took_micros: Some(2),
            part: "domain".into(),
        };
        TimelineResponse {
            steps: vec![step],
            ..TimelineResponse::default()
        }
    }
}

pub(super) fn with_server<F: Future<Output = ()>>(test: impl FnOnce(Arc<Stub>, Channel) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("launcher-sock");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let stub = Arc::new(Stub::default());
        let listener = UnixListener::bind(&socket).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(serve(listener, stub.clone(), Arc::default(), async {
            stopped.await.unwrap()
        }));
        test(stub, os::grpc::connect(&socket).await.unwrap()).await;
        stop.send(()).unwrap();
        server.await.unwrap().unwrap();
    });
}

fn request(json: &'static str) -> v1::VmiRequest {
    let options = VirtualMachineOptions {
        mem_balloon_stats_period: 10,
        ..VirtualMachineOptions::default()
    };
    v1::VmiRequest {
        vmi: Some(v1::Vmi {
            vmi_json: Bytes::from_static(json.as_bytes()),
        }),
        options: Some(options),
    }
}

#[test]
fn version_1_is_spoken() {
    with_server(|_, channel| async {
        let answer = CmdInfoClient::new(channel)
            .info(CmdInfoRequest {})
            .await
            .unwrap();
        assert_eq!(answer.into_inner().supported_cmd_versions, [1]);
    });
}

#[test]
fn calls_reach_the_launcher() {
    with_server(|stub, channel| async move {
        let mut cmd = CmdClient::new(channel);
        assert!(
            cmd.ping(v1::EmptyRequest {})
                .await
                .unwrap()
                .into_inner()
                .success
        );
        let sync = cmd
            .sync_virtual_machine(request("{}"))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            sync,
            v1::Response {
                success: true,
                message: String::new()
            }
        );
        cmd.pause_virtual_machine(request("{}")).await.unwrap();
        cmd.unpause_virtual_machine(request("{}")).await.unwrap();
        cmd.reset_virtual_machine(request("{}")).await.unwrap();
        cmd.soft_reboot_virtual_machine(request("{}"))
            .await
            .unwrap();
        cmd.shutdown_virtual_machine(request("{}")).await.unwrap();
        cmd.kill_virtual_machine(request("{}")).await.unwrap();
        cmd.delete_virtual_machine(request("{}")).await.unwrap();
        let version = cmd
            .get_qemu_version(v1::EmptyRequest {})
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (version.version.as_str(), version.response.unwrap().success),
            ("10.0.2", true)
        );
        assert_eq!(
            *stub.asked.lock().unwrap(),
            [
                "sync {} 10",
                "Pause",
                "Unpause",
                "Reset",
                "SoftReboot",
                "Shutdown",
                "Kill",
                "Delete",
                "version"
            ]
        );
    });
}

#[test]
fn a_plan_is_asked_for_beside_virt_handlers_calls() {
    with_server(|stub, channel| async move {
        let mut preview = PreviewClient::new(channel);
        let ask = || PlanRequest {
            vmi_json: Bytes::from_static(b"{}"),
        };
        let plan = preview.plan(ask()).await.unwrap().into_inner();
        assert_eq!(
            (plan.success, plan.plan_json.as_ref()),
            (true, &br#"{"steps":[]}"#[..])
        );
        *stub.failure.lock().unwrap() = Some(Failure::Disk(std::io::Error::other("gone")));
        let plan = preview.plan(ask()).await.unwrap().into_inner();
        assert_eq!(
            (plan.success, plan.message.as_str()),
            (false, "disk \"data\": gone")
        );
        assert_eq!(*stub.asked.lock().unwrap(), ["preview {}", "preview {}"]);
    });
}

#[test]
fn a_failure_is_an_answer_with_its_whole_cause() {
    with_server(|stub, channel| async move {
        let mut cmd = CmdClient::new(channel);
        let failed = async |failure: Failure, cmd: &mut CmdClient<Channel>| {
            *stub.failure.lock().unwrap() = Some(failure);
            cmd.sync_virtual_machine(request("{}"))
                .await
                .unwrap()
                .into_inner()
        };
        let answer = failed(Failure::Libvirt, &mut cmd).await;
        assert!(!answer.success);
        assert_eq!(
            answer.message,
            "LibvirtError(Code=1, Domain=10, Message='internal error: no')"
        );
        let answer = failed(Failure::Disk(std::io::Error::other("no space")), &mut cmd).await;
        assert_eq!(answer.message, "disk \"data\": no space");
    });
}

#[test]
fn a_request_without_a_vmi_fails_in_its_answer() {
    with_server(|_, channel| async move {
        let answer = CmdClient::new(channel)
            .kill_virtual_machine(v1::VmiRequest::default())
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (answer.success, answer.message.as_str()),
            (
                false,
                "No valid vmi object present in command server request"
            )
        );
    });
}

#[test]
fn no_domain_is_an_empty_text() {
    with_server(|stub, channel| async move {
        let mut cmd = CmdClient::new(channel);
        let answer = cmd
            .get_domain(v1::EmptyRequest {})
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (answer.domain.as_str(), answer.response.unwrap().success),
            ("", true)
        );
        *stub.domain.lock().unwrap() = Some(Domain::new("ns1", "vm1", "u-1"));
        let answer = cmd
            .get_domain(v1::EmptyRequest {})
            .await
            .unwrap()
            .into_inner();
        let document: serde_json::Value = serde_json::from_str(&answer.domain).unwrap();
        assert_eq!(document["ObjectMeta"]["name"], "vm1");
        *stub.failure.lock().unwrap() = Some(Failure::Libvirt);
        let answer = cmd
            .get_domain(v1::EmptyRequest {})
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (answer.domain.as_str(), answer.response.unwrap().success),
            ("", false)
        );
    });
}

#[test]
fn a_backup_gets_its_options_and_a_checkpoint_may_be_invalid() {
    with_server(|stub, channel| async move {
        let mut cmd = CmdClient::new(channel);
        let backup = v1::BackupRequest {
            options: "{}".into(),
            ..v1::BackupRequest::default()
        };
        let answer = cmd.backup_virtual_machine(backup).await;
        assert!(answer.unwrap().into_inner().success);
        let request = v1::RedefineCheckpointRequest {
            checkpoint: "c".into(),
            ..v1::RedefineCheckpointRequest::default()
        };
        for (failure, success, invalid) in [
            (None, true, false),
            (Some(Failure::Vmi), false, false),
            (Some(Failure::Libvirt), false, true),
        ] {
            *stub.failure.lock().unwrap() = failure;
            let answer = cmd.redefine_checkpoint(request.clone()).await;
            let answer = answer.unwrap().into_inner();
            assert_eq!(
                (answer.response.unwrap().success, answer.checkpoint_invalid),
                (success, invalid)
            );
        }
        assert_eq!(
            stub.asked.lock().unwrap()[..2],
            ["backup {}", "checkpoint c"]
        );
    });
}

#[test]
fn statistics_are_json_and_failures_are_answers() {
    with_server(|stub, channel| async move {
        let mut cmd = CmdClient::new(channel);
        let empty = v1::EmptyRequest {};
        let answer = cmd.get_domain_stats(empty).await.unwrap().into_inner();
        let stats: Value = serde_json::from_str(&answer.domain_stats).unwrap();
        assert_eq!(stats["Name"], "ns1_vm1");
        let answer = cmd.get_domain_dirty_rate_stats(empty).await.unwrap();
        assert_eq!(answer.into_inner().dirty_rate_mbs, 7);
        *stub.failure.lock().unwrap() = Some(Failure::Libvirt);
        let answer = cmd.get_domain_stats(empty).await.unwrap().into_inner();
        assert_eq!(answer.domain_stats, "");
        assert!(!answer.response.unwrap().success);
    });
}

#[test]
fn vm_stats_have_what_the_request_names_and_say_which_part_failed() {
    with_server(|stub, channel| async move {
        let mut cmd = CmdClient::new(channel);
        let none = cmd.get_vm_stats(v1::VmStatsRequest::default()).await;
        let only_success = v1::VmStatsResponse {
            response: Some(v1::Response {
                success: true,
                message: String::new(),
            }),
            ..v1::VmStatsResponse::default()
        };
        assert_eq!(none.unwrap().into_inner(), only_success);

        let some = v1::VmStatsRequest {
            dirty_rate: Some(v1::DirtyRateRequest {}),
            guest_get_load: Some(v1::AgentLoadRequest {}),
            guest_get_memory_blocks: Some(v1::AgentMemoryBlocksRequest {}),
            ..v1::VmStatsRequest::default()
        };
        let answer = cmd.get_vm_stats(some).await.unwrap().into_inner();
        assert!(answer.response.unwrap().success);
        assert_eq!(answer.domain_stats, None);
        assert_eq!(answer.dirty_rate_stats.unwrap().dirty_rate_mbs, 7);
        assert_eq!(answer.guest_agent_version.unwrap().message, "9.2.0");
        assert_eq!(answer.guest_get_load.unwrap().message, r#"{"return":{}}"#);
        assert_eq!(answer.guest_get_users, None);
        assert!(answer.guest_get_memory_blocks.unwrap().success);
        let asked = stub.asked.lock().unwrap().join(", ");
        assert!(
            asked.ends_with("guest-get-load, guest-get-memory-blocks"),
            "{asked}"
        );

        *stub.failure.lock().unwrap() = Some(Failure::Libvirt);
        let answer = cmd.get_vm_stats(some).await.unwrap().into_inner();
        let outer = answer.response.unwrap();
        assert!(
            !outer.success && outer.message.starts_with("dirty rate stats: "),
            "{outer:?}"
        );
        assert!(
            answer.guest_get_load.unwrap().success,
            "the other parts stay"
        );

        stub.vm_stats_are_off.store(true, Ordering::Relaxed);
        let off = cmd.get_vm_stats(some).await.unwrap_err();
        assert!(off.message().contains("--vm-stats-collector"), "{off}");
    });
}

#[test]
fn what_the_guest_does_is_passed_on() {
    with_server(|stub, channel| async move {
        let mut cmd = CmdClient::new(channel);
        let exec = v1::ExecRequest {
            domain_name: "ns1_vm1".into(),
            command: "ls".into(),
            args: vec!["-l".into()],
            timeout_seconds: 7,
        };
        let answer = cmd.exec(exec.clone()).await.unwrap().into_inner();
        assert_eq!((answer.exit_code, answer.std_out.as_str()), (3, "hi"));
        assert!(answer.response.unwrap().success);
        let ping = v1::GuestPingRequest {
            domain_name: "ns1_vm1".into(),
            timeout_seconds: -1,
        };
        cmd.guest_ping(ping.clone()).await.unwrap();
        let freeze = v1::FreezeRequest {
            unfreeze_timeout_seconds: 300,
            ..v1::FreezeRequest::default()
        };
        let answer = cmd.freeze_virtual_machine(freeze).await.unwrap();
        assert!(answer.into_inner().success);
        let answer = cmd.unfreeze_virtual_machine(request("{}")).await.unwrap();
        assert!(answer.into_inner().success);
        assert_eq!(
            *stub.asked.lock().unwrap(),
            [
                r#"GuestCommand { domain: "ns1_vm1", path: "ls", args: ["-l"], timeout: 7s }"#,
                "ping ns1_vm1 0ns",
                "freeze 300s",
                "unfreeze"
            ]
        );

        // A failed freeze is an answer, a failed probe a gRPC error.
        *stub.failure.lock().unwrap() = Some(Failure::Libvirt);
        let answer = cmd.unfreeze_virtual_machine(request("{}")).await.unwrap();
        assert!(!answer.into_inner().success);
        *stub.failure.lock().unwrap() = Some(Failure::Libvirt);
        let error = cmd.exec(exec).await.unwrap_err();
        assert_eq!(error.message(), Failure::Libvirt.to_string());
        *stub.failure.lock().unwrap() = Some(Failure::Libvirt);
        let error = cmd.guest_ping(ping).await.unwrap_err();
        assert_eq!(error.message(), Failure::Libvirt.to_string());
    });
}

#[test]
fn an_unknown_guest_is_an_empty_document_and_not_a_failure() {
    with_server(|_, channel| async move {
        let mut cmd = CmdClient::new(channel);
        let empty = v1::EmptyRequest {};
        let info = cmd.get_guest_info(empty).await.unwrap().into_inner();
        let users = cmd.get_users(empty).await.unwrap().into_inner();
        let filesystems = cmd.get_filesystems(empty).await.unwrap().into_inner();
        for answer in [info.response, users.response, filesystems.response] {
            assert!(answer.is_some_and(|answer| answer.success));
        }
        let info: serde_json::Value = serde_json::from_str(&info.guest_info_response).unwrap();
        assert_eq!(info, serde_json::json!({"os": {}, "fsInfo": {"disks": []}}));
        assert_eq!(
            (
                users.guest_user_list_response.as_str(),
                filesystems.guest_filesystems_response.as_str()
            ),
            ("[]", "[]")
        );
    });
}

#[test]
fn a_screenshot_that_fails_is_a_grpc_error() {
    with_server(|stub, channel| async move {
        let mut cmd = CmdClient::new(channel);
        let picture = cmd
            .get_screenshot(request("{}"))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (picture.mime.as_str(), &picture.data[..]),
            ("image/png", &[0x89, b'P'][..])
        );
        *stub.failure.lock().unwrap() = Some(Failure::Libvirt);
        let error = cmd.get_screenshot(request("{}")).await.unwrap_err();
        assert!(!error.message().is_empty(), "{error:?}");
    });
}

#[test]
fn requests_of_any_size_are_bounded() {
    with_server(|stub, channel| async move {
        let mut cmd = CmdClient::new(channel).max_encoding_message_size(usize::MAX);
        let sized = |bytes| v1::VmiRequest {
            vmi: Some(v1::Vmi {
                vmi_json: vec![b' '; bytes].into(),
            }),
            options: None,
        };
        // More than tonic and Go take by default.
        assert!(
            cmd.kill_virtual_machine(sized(5 << 20))
                .await
                .unwrap()
                .into_inner()
                .success
        );
        let refused = cmd
            .kill_virtual_machine(sized(MAX_REQUEST_BYTES + 1))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), tonic::Code::OutOfRange, "{refused:?}");
        assert_eq!(stub.asked.lock().unwrap().len(), 1);
    });
}
