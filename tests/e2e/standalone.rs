//! `STANDALONE_VMI`: a launcher without virt-handler.

use std::process::Command;

use crate::harness::{Pod, UP, Vmi, run};

/// A launcher that finds the VMI in its environment.
fn launch(pod: &mut Pod, vmi: &Vmi) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_virt-launcher"));
    command
        .args([
            "--name",
            vmi.name(),
            "--namespace",
            "default",
            "--uid",
            vmi.uid(),
        ])
        .args([
            "--allow-emulation",
            "--force-emulation",
            "--libvirt=embed",
            "--root",
        ])
        .arg(pod.root())
        .env("STANDALONE_VMI", vmi.value().to_string());
    pod.spawn(&mut command);
}

#[test]
fn a_vmi_in_the_environment_is_started_at_once() {
    run(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("alone").with_image(&pod);
        launch(&mut pod, &vmi);
        pod.wait_until_ready().await;
        let console = pod.path(&format!(
            "/var/run/kubevirt-private/{}/virt-serial0",
            vmi.uid()
        ));
        pod.until("the console is there", || console.exists()).await;
        let mut guest = pod.guest(&vmi).await;
        guest.until(UP).await;
        assert_eq!(pod.domain().await["Status"]["Status"], "Running");
    });
}

#[test]
fn a_vmi_that_cannot_be_started_ends_the_launcher_with_the_reason() {
    run(async {
        let mut pod = Pod::new();
        // Without its image.
        let vmi = Vmi::new("alone-bad");
        launch(&mut pod, &vmi);
        assert_eq!(pod.exit_code().await, 2);
        assert!(pod.log_tail().contains("rootdisk"), "{}", pod.log_tail());
    });
}
