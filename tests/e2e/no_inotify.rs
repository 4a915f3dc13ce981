//! The kernel has no inotify instance left for the launcher's user, whom all pods of a node share.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::harness::{Event, Pod, Vmi, in_pod, signal};
use crate::sidecars::{Sidecar, script};

/// In a user namespace of its own the limit is the test's to set. The launcher is not root there,
/// and has no capabilities.
const SCRIPT: &str = "echo 0 >/proc/sys/user/max_inotify_instances && \
                      exec setpriv --inh-caps=-all --ambient-caps=-all -- \"$@\"";

fn without_inotify() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-user=1", "--keep-caps"]);
    command.args(["sh", "-c", SCRIPT, "sh"]);
    command
}

fn is_possible() -> bool {
    let output = without_inotify().arg("true").output().unwrap();
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        println!("skipped: no user namespaces here: {reason}");
    }
    output.status.success()
}

/// virt-handler makes its socket for the launcher's user, of whom this namespace knows nothing.
fn serve(pod: &mut Pod) {
    pod.handler.serve();
    let socket = pod.path("/var/run/kubevirt/domain-notify-pipe.sock");
    std::fs::set_permissions(socket, PermissionsExt::from_mode(0o666)).unwrap();
}

#[test]
fn a_launcher_without_inotify_finds_what_comes_later() {
    if !is_possible() {
        return;
    }
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("noinotify").with_counter(&pod);
        // A volume of the pod's.
        pod.path("/var/run/kubevirt-hooks/x");
        let more = ["--libvirt=auto", "--hook-sidecars", "1"];
        if pod.is_container() {
            // For tests/image/enter, which does the same.
            pod.set_env("WITHOUT_INOTIFY", "yes");
            pod.launch(&vmi, &more);
        } else {
            pod.launch_by(&mut without_inotify(), &vmi, &more);
        }
        // A sidecar.
        pod.log_has("Hypervisor set to").await;
        let scripts = tempfile::tempdir().unwrap();
        script(scripts.path(), "onDefineDomain", r#"printf '%s' "$4""#);
        let _sidecar = Sidecar::shim(&pod, 0, "v1alpha2", scripts.path());
        pod.wait_until_ready().await;
        // virt-handler.
        pod.sync_ok(&vmi).await;
        serve(&mut pod);
        let running = |event: &Event| event.status() == "Running";
        pod.handler.event("running", running).await;
        pod.handler.leave();
        pod.handler.forget();
        serve(&mut pod);
        pod.handler
            .event("running, for the next one", running)
            .await;
        // libvirt's next daemon.
        signal("KILL", &pod.libvirt_daemons());
        pod.log_has("Reconnected to libvirt").await;
        pod.sync_ok(&vmi).await;
        pod.end(&vmi).await;
        pod.handler.event("final", Event::is_final).await;
        assert_eq!(pod.exit_code().await, 0);
    });
}
