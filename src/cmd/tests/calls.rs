//! Calls, their answers and their limits.

use super::*;

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
