//! Calls about the guest: statistics, the guest agent, the screen.

use super::*;

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
