//! The calls that virt-handler makes about a running VM.

use api::proto::cmd::v1::EmptyRequest;

use crate::harness::{Event, Pod, UP, in_pod};

#[test]
// D-vm-5 (docs/differences.md).
fn pause_unpause_shutdown_delete() {
    in_pod(async {
        let (mut pod, vmi, guest) = Pod::counting("life", &[]).await;
        let mut cmd = pod.cmd();

        pod.pause(&vmi).await;
        let paused = pod.handler.status("Paused").await;
        assert_eq!(paused.reason(), "User");
        // A sync does not resume what the user paused.
        pod.sync_ok(&vmi).await;
        assert_eq!(pod.domain().await["Status"]["Status"], "Paused");
        pod.pause(&vmi).await;
        pod.unpause(&vmi).await;
        pod.handler.status("Running").await;
        guest.ticks_on().await;

        let version = cmd.get_qemu_version(EmptyRequest {}).await.unwrap();
        let version = version.into_inner();
        assert!(version.response.as_ref().unwrap().success, "{version:?}");
        assert!(version.version.starts_with("QEMU "), "{version:?}");
        pod.accepted("ping", cmd.ping(EmptyRequest {}).await);

        pod.shutdown(&vmi).await;
        let marked = pod.domain().await;
        assert!(
            !marked["Spec"]["Metadata"]["KubeVirt"]["GracePeriod"]["DeletionTimestamp"].is_null(),
            "virt-handler's grace clock starts here"
        );
        let off = pod.handler.status("Shutoff").await;
        assert_eq!(off.reason(), "Shutdown");
        // A guest that shut itself down is never started again.
        pod.sync_ok(&vmi).await;
        assert_eq!(pod.domain().await["Status"]["Status"], "Shutoff");

        pod.delete(&vmi).await;
        let last = pod
            .handler
            .event("with a deletion timestamp", Event::is_final)
            .await;
        assert_eq!(last.kind, "MODIFIED");
        assert_eq!(last.domain["ObjectMeta"]["uid"], vmi.uid());
        assert_eq!(pod.exit_code().await, 0);
        assert!(
            !pod.path("/var/run/kubevirt/sockets/launcher-sock").exists(),
            "the socket's end is how virt-handler learns of it"
        );
    });
}

/// Boots a guest with a connected agent, changes it by a command, and asks it to shut down.
async fn shut_off_reason_after(name: &str, command: &str) -> String {
    let (mut pod, vmi, mut guest) = Pod::booted(name, &[]).await;
    pod.handler.agent().await;
    guest.run(command).await;
    pod.shutdown(&vmi).await;
    let off = pod.handler.status("Shutoff").await;
    pod.end(&vmi).await;
    off.reason().to_owned()
}

#[test]
fn the_agent_shuts_a_guest_down_that_ignores_the_power_button() {
    in_pod(async {
        let reason = shut_off_reason_after("no-button", "touch /run/ignore-power").await;
        assert_eq!(reason, "Shutdown");
    });
}

#[tokio::test]
async fn acpi_shuts_a_guest_down_whose_agent_is_silent() {
    let reason = shut_off_reason_after("no-answer", "killall -STOP qemu-ga").await;
    assert_eq!(reason, "Shutdown");
}

#[tokio::test]
// D-vm-8 (docs/differences.md).
async fn acpi_reboots_a_guest_whose_agent_is_silent() {
    let (mut pod, vmi, mut guest) = Pod::booted("no-reboot", &[]).await;
    pod.handler.agent().await;
    guest.run("killall -STOP qemu-ga").await;
    pod.soft_reboot(&vmi).await;
    guest.until(UP).await;
    pod.end(&vmi).await;
}

#[test]
// D-vm-8, D-vm-15 (docs/differences.md).
fn reset_and_soft_reboot_bring_the_guest_up_again() {
    in_pod(async {
        let (mut pod, vmi, mut guest) = Pod::booted("reboot", &[]).await;
        pod.reset(&vmi).await;
        guest.until(UP).await;
        pod.handler.agent().await;
        pod.soft_reboot(&vmi).await;
        guest.until(UP).await;
        let events = pod.handler.all();
        let equal = events.windows(2).find(|two| two[0].domain == two[1].domain);
        assert!(equal.is_none(), "virt-handler has it already: {equal:?}");
    });
}

#[test]
fn virt_handler_restarts_and_gets_the_present_state() {
    in_pod(async {
        let (mut pod, vmi) = Pod::started("away", &[]).await;
        pod.handler.status("Running").await;
        pod.handler.leave();
        pod.pause(&vmi).await;
        pod.handler.serve();
        pod.handler.status("Paused").await;
    });
}
