//! Calls about the guest: statistics, guest agent, screen.

use super::*;

const NO_DOMAIN: &str = "Domain not found.";

#[test]
fn vm_stats_have_what_the_request_names_and_say_which_part_failed() {
    with_server(|_, channel| async {
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
            guest_get_load: Some(v1::AgentLoadRequest {}),
            guest_get_memory_blocks: Some(v1::AgentMemoryBlocksRequest {}),
            ..v1::VmStatsRequest::default()
        };
        let answer = cmd.get_vm_stats(some).await.unwrap().into_inner();
        assert_eq!(answer.domain_stats, None);
        assert_eq!(answer.guest_get_users, None);
        assert_eq!(answer.guest_agent_version.unwrap().message, "");
        assert_eq!(answer.guest_get_load.unwrap().message, NO_DOMAIN);
        assert!(!answer.guest_get_memory_blocks.unwrap().success);
        assert_eq!(
            answer.response.unwrap().message,
            "agent data guest-get-load: Domain not found.; \
             agent data guest-get-memory-blocks: Domain not found."
        );
    });
}

#[test]
fn a_failed_freeze_is_an_answer_and_a_failed_probe_a_grpc_error() {
    with_server(|_, channel| async {
        let mut cmd = CmdClient::new(channel);
        let freeze = v1::FreezeRequest {
            vmi: request().vmi,
            unfreeze_timeout_seconds: -1,
        };
        let answer = cmd.freeze_virtual_machine(freeze).await.unwrap();
        let expected = v1::Response {
            success: false,
            message: NO_DOMAIN.to_owned(),
        };
        assert_eq!(answer.into_inner(), expected);
        let answer = cmd.unfreeze_virtual_machine(request()).await.unwrap();
        assert_eq!(answer.into_inner(), expected);
        let exec = v1::ExecRequest {
            command: "ls".into(),
            ..v1::ExecRequest::default()
        };
        let error = cmd.exec(exec).await.unwrap_err();
        assert_eq!(error.message(), NO_DOMAIN);
        let ping = v1::GuestPingRequest {
            domain_name: "ns1_vm2".into(),
            timeout_seconds: -1,
        };
        let error = cmd.guest_ping(ping).await.unwrap_err();
        assert!(error.message().contains("ns1_vm2"), "{error:?}");
        let error = cmd.get_screenshot(request()).await.unwrap_err();
        assert_eq!(error.message(), NO_DOMAIN);
    });
}

#[test]
fn an_unknown_guest_is_an_empty_document_and_not_a_failure() {
    with_server(|_, channel| async {
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
