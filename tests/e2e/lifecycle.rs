//! The calls that virt-handler makes about a running VM.

use api::proto::cmd::v1::{EmptyRequest, Response};

use crate::harness::{Pod, Vmi, in_pod, run};

fn accepted(answer: tonic::Response<Response>) {
    let answer = answer.into_inner();
    assert!(answer.success, "{}", answer.message);
}

#[test]
// D-vm-5 (docs/differences.md).
fn pause_unpause_shutdown_delete() {
    in_pod(async {
        let (mut pod, vmi, mut guest) = Pod::booted("life", &[]).await;
        let mut cmd = pod.cmd();
        let request = || pod_request(&vmi);

        accepted(cmd.pause_virtual_machine(request()).await.unwrap());
        let paused = pod
            .handler
            .event("paused", |event| event.status() == "Paused")
            .await;
        assert_eq!(paused.reason(), "User");
        // A sync does not resume what the user paused.
        pod.sync_ok(&vmi).await;
        assert_eq!(pod.domain().await["Status"]["Status"], "Paused");
        accepted(cmd.pause_virtual_machine(request()).await.unwrap());
        accepted(cmd.unpause_virtual_machine(request()).await.unwrap());
        pod.handler
            .event("running again", |event| event.status() == "Running")
            .await;
        assert_eq!(guest.run("echo alive").await, "alive");

        let version = cmd
            .get_qemu_version(EmptyRequest {})
            .await
            .unwrap()
            .into_inner();
        assert!(
            version
                .response
                .as_ref()
                .is_some_and(|response| response.success),
            "{version:?}"
        );
        assert!(version.version.starts_with("QEMU "), "{version:?}");
        accepted(cmd.ping(EmptyRequest {}).await.unwrap());

        accepted(cmd.shutdown_virtual_machine(request()).await.unwrap());
        let marked = pod.domain().await;
        assert!(
            !marked["Spec"]["Metadata"]["KubeVirt"]["GracePeriod"]["DeletionTimestamp"].is_null(),
            "virt-handler's grace clock starts here"
        );
        let off = pod
            .handler
            .event("shut off", |event| event.status() == "Shutoff")
            .await;
        assert_eq!(off.reason(), "Shutdown");
        // A guest that shut itself down is never started again.
        pod.sync_ok(&vmi).await;
        assert_eq!(pod.domain().await["Status"]["Status"], "Shutoff");

        accepted(cmd.delete_virtual_machine(request()).await.unwrap());
        let last = pod
            .handler
            .event("with a deletion timestamp", crate::harness::Event::is_final)
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
    let connected =
        |event: &crate::harness::Event| event.domain.to_string().contains(r#""State":"connected""#);
    pod.handler.event("with a connected agent", connected).await;
    guest.run(command).await;
    let request = tonic::Request::new(pod.request(vmi.value()));
    accepted(pod.cmd().shutdown_virtual_machine(request).await.unwrap());
    let off = pod
        .handler
        .event("shut off", |event| event.status() == "Shutoff")
        .await;
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

#[test]
fn acpi_shuts_a_guest_down_whose_agent_is_silent() {
    run(async {
        let reason = shut_off_reason_after("no-answer", "killall -STOP qemu-ga").await;
        assert_eq!(reason, "Shutdown");
    });
}

#[test]
fn kill_and_delete_end_the_pod() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("kill").with_image(&pod);
        pod.handler.serve();
        pod.launch(&vmi, &[]);
        pod.wait_until_ready().await;
        pod.sync_ok(&vmi).await;
        let mut cmd = pod.cmd();
        accepted(cmd.kill_virtual_machine(pod_request(&vmi)).await.unwrap());
        let off = pod
            .handler
            .event("shut off", |event| event.status() == "Shutoff")
            .await;
        assert_eq!(off.reason(), "Destroyed");
        accepted(cmd.delete_virtual_machine(pod_request(&vmi)).await.unwrap());
        pod.handler
            .event("final", crate::harness::Event::is_final)
            .await;
        assert_eq!(pod.exit_code().await, 0);
        assert!(pod.guests().is_empty());
    });
}

#[test]
// D-vm-8, D-vm-15 (docs/differences.md).
fn reset_and_soft_reboot_bring_the_guest_up_again() {
    in_pod(async {
        let (mut pod, vmi, mut guest) = Pod::booted("reboot", &[]).await;
        accepted(
            pod.cmd()
                .reset_virtual_machine(pod_request(&vmi))
                .await
                .unwrap(),
        );
        guest.until(crate::harness::UP).await;
        let connected = |event: &crate::harness::Event| {
            event.domain.to_string().contains(r#""State":"connected""#)
        };
        pod.handler.event("with a connected agent", connected).await;
        accepted(
            pod.cmd()
                .soft_reboot_virtual_machine(pod_request(&vmi))
                .await
                .unwrap(),
        );
        guest.until(crate::harness::UP).await;
        let events = pod.handler.all();
        let equal = events.windows(2).find(|two| two[0].domain == two[1].domain);
        assert!(equal.is_none(), "virt-handler has it already: {equal:?}");
    });
}

#[test]
fn virt_handler_restarts_and_gets_the_present_state() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("away").with_image(&pod);
        pod.handler.serve();
        pod.launch(&vmi, &[]);
        pod.wait_until_ready().await;
        pod.sync_ok(&vmi).await;
        pod.handler
            .event("running", |event| event.status() == "Running")
            .await;
        pod.handler.leave();
        accepted(
            pod.cmd()
                .pause_virtual_machine(pod_request(&vmi))
                .await
                .unwrap(),
        );
        pod.handler.serve();
        pod.handler
            .event("paused while virt-handler was away", |event| {
                event.status() == "Paused"
            })
            .await;
    });
}

fn pod_request(vmi: &Vmi) -> api::proto::cmd::v1::VmiRequest {
    let vmi_json = vmi.value().to_string().into();
    api::proto::cmd::v1::VmiRequest {
        vmi: Some(api::proto::cmd::v1::Vmi { vmi_json }),
        options: prost::bytes::Bytes::new(),
    }
}
