//! `STANDALONE_VMI`: a launcher without virt-handler.

use std::time::Duration;

use crate::harness::{Pod, SlowQemu, Vmi, in_pod};

/// A launcher that finds the VMI in its environment.
fn launch(pod: &mut Pod, vmi: &Vmi) {
    pod.set_env("STANDALONE_VMI", vmi.value().to_string());
    pod.launch(vmi, &[]);
}

#[test]
fn a_vmi_in_the_environment_is_started_at_once() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("alone").with_counter(&pod);
        launch(&mut pod, &vmi);
        pod.wait_until_ready().await;
        let console = pod.path(&format!(
            "/var/run/kubevirt-private/{}/virt-serial0",
            vmi.uid()
        ));
        pod.until("the console is there", || console.exists()).await;
        let guest = pod.guest(&vmi).await;
        guest.ticks_on().await;
        assert_eq!(pod.domain().await["Status"]["Status"], "Running");
    });
}

#[test]
fn a_vmi_that_cannot_be_started_ends_the_launcher_with_the_reason() {
    in_pod(async {
        let mut pod = Pod::new();
        // Without its image.
        let vmi = Vmi::new("alone-bad");
        launch(&mut pod, &vmi);
        assert_eq!(pod.exit_code().await, 2);
        assert!(pod.log_tail().contains("rootdisk"), "{}", pod.log_tail());
    });
}

/// A launcher with a VMI in its environment, whose QEMU waits.
async fn slow(name: &str) -> (Pod, Vmi, SlowQemu) {
    let mut pod = Pod::new();
    let vmi = Vmi::new(name).with_counter(&pod);
    let qemu = SlowQemu::new(&pod);
    pod.set_env("STANDALONE_VMI", vmi.value().to_string());
    pod.launch_by(&mut qemu.command(), &vmi, &[]);
    (pod, vmi, qemu)
}

#[tokio::test]
async fn a_start_may_take_longer_than_virt_handler_would_wait() {
    let (mut pod, vmi, qemu) = slow("alone-slow").await;
    let waiting = qemu.waiting(&mut pod).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    drop(waiting);
    let guest = pod.guest(&vmi).await;
    guest.ticks_on().await;
}

#[tokio::test]
async fn sigterm_ends_a_start_in_progress() {
    let (mut pod, _, qemu) = slow("alone-term").await;
    let _waiting = qemu.waiting(&mut pod).await;
    pod.signal("TERM");
    assert_eq!(pod.exit_code().await, 0, "{}", pod.log_tail());
    assert_eq!(pod.commands(), [""; 0]);
}
