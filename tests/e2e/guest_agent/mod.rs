//! What the test guest's own agent, QEMU's, knows.

mod commands;
mod credentials;

use api::proto::cmd::v1::EmptyRequest;
pub use commands::{freeze, unfreeze};
use serde_json::Value;

use crate::harness::{Event, Pod, Vmi, in_pod, output_of, pod_tool};

/// What `GetGuestInfo` answers.
pub async fn guest_info(pod: &Pod) -> Value {
    let answer = pod.cmd().get_guest_info(EmptyRequest {}).await.unwrap();
    let answer = answer.into_inner();
    assert!(answer.response.unwrap().success);
    serde_json::from_str(&answer.guest_info_response).unwrap()
}

/// Asks for the guest's information until `wanted` holds of it.
pub async fn guest_info_until(pod: &mut Pod, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let end = std::time::Instant::now() + crate::harness::TEST_TIMEOUT;
    loop {
        let info = guest_info(pod).await;
        if wanted(&info) {
            return info;
        }
        assert!(
            std::time::Instant::now() < end,
            "the guest's information is not {what}, but {info:#}\n{}",
            pod.log_tail()
        );
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn filesystems(pod: &Pod) -> Value {
    let answer = pod.cmd().get_filesystems(EmptyRequest {}).await.unwrap();
    let answer = answer.into_inner();
    assert!(answer.response.unwrap().success);
    serde_json::from_str(&answer.guest_filesystems_response).unwrap()
}

async fn users(pod: &Pod) -> Value {
    let answer = pod.cmd().get_users(EmptyRequest {}).await.unwrap();
    let answer = answer.into_inner();
    assert!(answer.response.unwrap().success);
    serde_json::from_str(&answer.guest_user_list_response).unwrap()
}

/// A document with the guest's operating system and freeze status.
fn is_known(event: &Event) -> bool {
    let status = &event.domain["Status"];
    status["OSInfo"]["Name"] != "" && status["FSFreezeStatus"]["Status"] == "thawed"
}

#[test]
fn what_the_agent_knows_is_in_calls_and_events() {
    in_pod(async {
        let (mut pod, vmi, _guest) = Pod::booted("asked", &[]).await;
        let event = pod
            .handler
            .event("with what the agent knows", is_known)
            .await;
        assert_eq!(event.kind, "MODIFIED");
        let kernel = event.domain["Status"]["OSInfo"]["KernelRelease"].clone();
        assert!(kernel.as_str().unwrap().contains("cloud-amd64"), "{kernel}");
        let domain = pod.domain().await;
        assert_eq!(domain["Status"], event.domain["Status"]);

        let info = guest_info_until(&mut pod, "complete", |info| {
            info["guestAgentVersion"].is_string() && info["fsInfo"]["disks"][0].is_object()
        })
        .await;
        let commands = info["supportedCommands"].as_array().unwrap();
        let is_enabled = |name: &str| {
            commands
                .iter()
                .any(|command| command["name"] == name && command["enabled"] == true)
        };
        // Those that virt-handler wants of every agent.
        for name in [
            "guest-ping",
            "guest-get-time",
            "guest-info",
            "guest-shutdown",
            "guest-network-get-interfaces",
            "guest-get-fsinfo",
            "guest-get-host-name",
            "guest-get-users",
            "guest-get-timezone",
            "guest-get-osinfo",
        ] {
            assert!(is_enabled(name), "{name} is missing in {info:#}");
        }
        assert_eq!(info["os"]["kernelRelease"], kernel);
        assert_eq!(info["timezone"], "UTC, 0");
        assert_eq!(info["fsFreezeStatus"], "thawed");
        assert!(info["hostname"].is_string(), "{info:#}");

        let all = filesystems(&pod).await;
        let all = all.as_array().unwrap();
        let data = all.iter().find(|one| one["mountPoint"] == "/data").unwrap();
        assert_eq!(data["fileSystemType"], "ext4");
        assert_eq!(data["disk"][0]["busType"], "virtio");
        assert!(data["totalBytes"].as_i64().unwrap() > 1 << 20, "{data:#}");
        assert_eq!(users(&pod).await, serde_json::json!([]));
        pod.end(&vmi).await;
    });
}

/// virt-handler takes the operating system from the document that shows the agent, and asks for the
/// version as soon as it has that document.
#[tokio::test]
// D-agent-13 (docs/differences.md).
async fn an_agent_is_shown_with_its_first_answers() {
    let (mut pod, vmi) = Pod::with_image("shown", &[]).await;
    let (mut reader, mut cmd) = (pod.handler.reader(), pod.cmd());
    let virt_handler = async {
        let event = reader.agent().await;
        let info = cmd.get_guest_info(EmptyRequest {}).await.unwrap();
        let info = info.into_inner().guest_info_response;
        (event, serde_json::from_str::<Value>(&info).unwrap())
    };
    let (_guest, (event, info)) = tokio::join!(pod.boot(&vmi), virt_handler);
    assert!(info["guestAgentVersion"].is_string(), "{info:#}");
    let os = &event.domain["Status"]["OSInfo"];
    assert_ne!(os["Name"], "", "{os:#}");
    pod.end(&vmi).await;
}

#[tokio::test]
async fn an_adopted_guest_is_asked_again_and_a_paused_one_is_not() {
    let (mut pod, vmi, _guest) = Pod::booted("adopted", &["--libvirt=auto"]).await;
    pod.handler
        .event("with what the agent knows", is_known)
        .await;

    pod.pause(&vmi).await;
    pod.log_has("Stopped polling the guest agent").await;
    let kept = guest_info(&pod).await;
    assert!(kept["os"]["kernelRelease"].is_string(), "{kept:#}");
    pod.unpause(&vmi).await;
    pod.log_count("Starting to poll the guest agent", 2).await;

    pod.kill_launcher().await;
    pod.handler.forget();
    pod.launch(&vmi, &["--libvirt=auto"]);
    pod.wait_until_ready().await;
    // The agent stays shown all the time.
    let first = pod.handler.event("of the adopted guest", |_| true).await;
    let info = guest_info(&pod).await;
    assert!(first.has_agent(), "{:#}", first.domain);
    assert!(info["guestAgentVersion"].is_string(), "{info:#}");
    pod.handler
        .event("with what the agent knows", is_known)
        .await;
    pod.end(&vmi).await;
}

#[tokio::test]
async fn without_an_agent_reads_are_empty_and_succeed() {
    let (mut pod, vmi) = Pod::with_counter("silent", &[]).await;
    // Before there is a domain.
    let nothing = serde_json::json!({"os": {}, "fsInfo": {"disks": []}});
    assert_eq!(guest_info(&pod).await, nothing);
    pod.count(&vmi).await;
    assert_eq!(users(&pod).await, serde_json::json!([]));
    pod.end(&vmi).await;
}
