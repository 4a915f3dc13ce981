//! Calls, their answers and their limits.

use std::sync::atomic::Ordering;

use http_body_util::StreamBody;
use hyper::body::Frame;
use prost::Message;
use serde_json::{Value, json};
use tokio_stream::StreamExt;
use tonic::body::Body;
use tonic::codegen::{Service, http};

use super::*;
use api::proto::cmd::v1::VirtualMachineOptions;
use libvirt::DomainState;

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
fn calls_reach_the_domain() {
    with_server(|scene, channel| async move {
        let mut cmd = CmdClient::new(channel);
        let ping = cmd.ping(v1::EmptyRequest {}).await.unwrap().into_inner();
        let success = v1::Response {
            success: true,
            message: String::new(),
        };
        assert_eq!(ping, success);
        let answer = cmd.sync_virtual_machine(request()).await;
        assert_eq!(answer.unwrap().into_inner(), success);
        assert!(scene.state().is_running());
        let answer = cmd.pause_virtual_machine(request()).await;
        assert_eq!(answer.unwrap().into_inner(), success);
        assert!(scene.state().is_paused());
        let answer = cmd.unpause_virtual_machine(request()).await;
        assert_eq!(answer.unwrap().into_inner(), success);
        assert!(scene.state().is_running());
        let answer = cmd.kill_virtual_machine(request()).await;
        assert_eq!(answer.unwrap().into_inner(), success);
        assert!(matches!(scene.state(), DomainState::Shutoff(_)));
    });
}

#[test]
fn a_plan_is_asked_for_beside_virt_handlers_calls() {
    with_server(|_, channel| async {
        let mut preview = PreviewClient::new(channel);
        let mut plan = async |vmi_json: String| {
            let vmi_json = vmi_json.into();
            let plan = preview.plan(PlanRequest { vmi_json }).await;
            plan.unwrap().into_inner()
        };
        let answer = plan(vmi().to_string()).await;
        let steps: Value = serde_json::from_slice(&answer.plan_json).unwrap();
        assert!(answer.success);
        assert_eq!(steps["steps"][0]["verb"], "start");
        let answer = plan("{}".to_owned()).await;
        assert!(!answer.success);
        assert!(answer.message.starts_with("No valid vmi object"));
    });
}

#[test]
fn a_failure_is_an_answer_with_its_whole_cause() {
    with_server(|scene, channel| async move {
        let mut cmd = CmdClient::new(channel);
        let answer = cmd.reset_virtual_machine(request()).await.unwrap();
        let message = "Domain not found: no domain with matching name 'ns1_vm1'";
        let answer = answer.into_inner();
        assert!(!answer.success);
        assert_eq!(
            answer.message,
            format!("LibvirtError(Code=42, Domain=10, Message='{message}')")
        );
        let bad_plugins = VirtualMachineOptions {
            plugins_json: Bytes::from_static(b"{"),
            ..VirtualMachineOptions::default()
        };
        let request = request().with_options(&bad_plugins);
        let answer = cmd.sync_virtual_machine(request).await.unwrap();
        let message = answer.into_inner().message;
        let with_cause = "the list of plugins cannot be read: ";
        assert!(message.starts_with(with_cause), "{message}");
        assert!(scene.domain().is_none());
    });
}

#[test]
fn a_request_without_a_vmi_fails_in_its_answer() {
    with_server(|_, channel| async {
        let mut cmd = CmdClient::new(channel);
        let answer = cmd.kill_virtual_machine(v1::VmiRequest::default()).await;
        assert_eq!(
            answer.unwrap().into_inner(),
            v1::Response {
                success: false,
                message: "No valid vmi object present in command server request".to_owned(),
            }
        );
    });
}

#[test]
fn no_domain_is_an_empty_text() {
    with_server(|scene, channel| async move {
        let mut cmd = CmdClient::new(channel);
        let empty = v1::EmptyRequest {};
        let answer = cmd.get_domain(empty).await.unwrap().into_inner();
        assert_eq!(
            (answer.domain.as_str(), answer.response.unwrap().success),
            ("", true)
        );
        scene.sync(&vmi()).await.unwrap();
        let answer = cmd.get_domain(empty).await.unwrap().into_inner();
        let document: Value = serde_json::from_str(&answer.domain).unwrap();
        assert_eq!(document["ObjectMeta"]["name"], "vm1");
    });
}

#[test]
fn backups_and_checkpoints_need_tracking_whatever_their_options() {
    with_server(|_, channel| async {
        let mut cmd = CmdClient::new(channel);
        let backup = v1::BackupRequest {
            vmi: request().vmi,
            options: "no JSON".into(),
        };
        let answer = cmd.backup_virtual_machine(backup).await.unwrap();
        let message = answer.into_inner().message;
        assert!(message.contains("ChangedBlockTracking"), "{message}");
        let checkpoint = v1::RedefineCheckpointRequest {
            vmi: request().vmi,
            checkpoint: "no JSON".into(),
        };
        let answer = cmd.redefine_checkpoint(checkpoint).await.unwrap();
        let answer = answer.into_inner();
        let response = answer.response.unwrap();
        assert!(!response.success && !answer.checkpoint_invalid);
        let message = response.message;
        assert!(message.contains("ChangedBlockTracking"), "{message}");
    });
}

#[test]
fn requests_of_any_size_are_bounded() {
    with_server(|_, channel| async {
        let mut cmd = CmdClient::new(channel).max_encoding_message_size(usize::MAX);
        let sized = |bytes| {
            let mut json = vmi().to_string().into_bytes();
            json.resize(bytes, b' ');
            v1::VmiRequest {
                vmi: Some(v1::Vmi {
                    vmi_json: json.into(),
                }),
                options: Bytes::new(),
            }
        };
        // The enclosing message takes some bytes too.
        let most = sized(MAX_REQUEST_BYTES - 64);
        let answer = cmd.kill_virtual_machine(most).await.unwrap();
        assert!(answer.into_inner().success);
        let more = sized(MAX_REQUEST_BYTES);
        let refused = cmd.kill_virtual_machine(more).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::OutOfRange, "{refused:?}");
    });
}

/// What `genericSendVMICmd` of v1.9.0 and v1.10 (d923fdb) sends: the node's options with a sync and
/// with what the target of a migration calls, and empty ones with all others. With empty ones this
/// VMI cannot be converted.
#[test]
fn each_call_works_with_the_options_that_virt_handler_sends() {
    with_server(|scene, channel| async move {
        let mut cmd = CmdClient::new(channel);
        let mut vmi = vmi();
        vmi["spec"]["domain"] = json!({"cpu": {"dedicatedCpuPlacement": true}});
        let request = |options: VirtualMachineOptions| {
            let vmi_json = Bytes::from(vmi.to_string());
            let vmi = Some(v1::Vmi { vmi_json });
            let options = options.encode_to_vec().into();
            v1::VmiRequest { vmi, options }
        };
        let empty = || request(VirtualMachineOptions::default());
        let of_node = || {
            request(VirtualMachineOptions {
                topology: Some(v1::Topology::default()),
                ..VirtualMachineOptions::default()
            })
        };
        let conversions = || scene.pod.conversions.load(Ordering::Relaxed);
        macro_rules! check {
            ($($call:ident($options:expr) $converts:literal)*) => {$(
                let before = conversions();
                let answer = cmd.$call($options).await.unwrap().into_inner();
                let call = stringify!($call);
                assert!(!answer.message.contains("topology"), "{call}: {}", answer.message);
                let mut state = scene.launcher.vm.subscribe();
                state.wait_for(|vm| vm.jobs.is_empty()).await.unwrap();
                assert_eq!(conversions() > before, $converts, "{call}");
            )*};
        }
        check! {
            sync_migration_target(of_node()) true
            signal_target_pod_cleanup(empty()) false
            sync_virtual_machine(of_node()) true
            sync_virtual_machine_cp_us(of_node()) true
            sync_virtual_machine_memory(of_node()) false
            finalize_virtual_machine_migration(empty()) false
            hotplug_host_devices(empty()) false
            pause_virtual_machine(empty()) false
            unpause_virtual_machine(empty()) false
            unfreeze_virtual_machine(empty()) false
            soft_reboot_virtual_machine(empty()) false
            reset_virtual_machine(empty()) false
            cancel_virtual_machine_migration(empty()) false
            shutdown_virtual_machine(empty()) false
            kill_virtual_machine(empty()) false
            delete_virtual_machine(empty()) false
        }
        assert!(scene.pod.hotplugs.load(Ordering::Relaxed) > 0);
    });
}

#[test]
fn requests_that_do_not_arrive_whole_are_bounded_in_all() {
    with_server(|_, channel| async move {
        // The head of a message of 4 MiB, and 3 MiB of it.
        let mut half = vec![0, 0, 0x40, 0, 0];
        half.resize(3 << 20, b' ');
        let half = Bytes::from(half);
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..11 {
            let (half, mut channel) = (half.clone(), channel.clone());
            calls.spawn(async move {
                let frame = tokio_stream::once(Ok::<_, tonic::Status>(Frame::data(half)));
                let body = StreamBody::new(frame.chain(tokio_stream::pending()));
                let request =
                    http::Request::post("http://localhost/kubevirt.cmd.v1.Cmd/KillVirtualMachine")
                        .header("content-type", "application/grpc")
                        .body(Body::new(body));
                let ready = std::future::poll_fn(|context| channel.poll_ready(context));
                ready.await.unwrap();
                let answer = channel.call(request.unwrap()).await.unwrap();
                answer.headers()["grpc-status"].clone()
            });
        }
        let refused = calls.join_next().await.unwrap().unwrap();
        assert_eq!(refused, (tonic::Code::ResourceExhausted as i32).to_string());
        calls.shutdown().await;
        let mut cmd = CmdClient::new(channel);
        let killed = async || cmd.clone().kill_virtual_machine(request()).await;
        while killed().await.is_err() {}
        cmd.ping(v1::EmptyRequest {}).await.unwrap();
    });
}
