//! Two pods between which a VM migrates: the VMI's migration state, and the image of the disk that
//! both pods have.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::{Event, Guest, Pod, Vmi};
use api::proto::cmd::v1::{InterfaceBindingMigration, Response, VirtualMachineOptions};

/// Where virt-handler puts its sockets on the source, and QEMU its own on the target.
pub const SOCKET_DIR: &str = "/var/run/kubevirt/migrationproxy";
/// The disk that both pods have.
const IMAGE: &str = "/var/run/kubevirt-private/vmi-disks/rootdisk/disk.img";
/// Directories that libvirt takes for a file system that both nodes have.
const SHARED: &str = "/var/run/kubevirt-private/vmi-disks:/var/run/kubevirt-private/libvirt/qemu/cbt:/var/run/kubevirt/hotplug-disks";

/// A pod that can be the source or the target of a migration: libvirt with its daemon, and disks
/// that other nodes have.
///
/// Both pods of a migration see the same paths, so they are containers.
pub fn migratable_pod(pod_name: &str) -> Pod {
    let mut pod = Pod::new();
    assert!(pod.is_container(), "pods that migrate are containers");
    pod.set_env("POD_NAME", pod_name);
    pod.set_env("SHARED_FILESYSTEM_PATHS", SHARED);
    // libvirt resolves their links when it starts.
    for dir in SHARED.split(':') {
        pod.path(&format!("{dir}/x"));
    }
    pod.handler.serve();
    pod
}

/// A pod in which a guest counts, ready to leave. More arguments are for the launcher.
pub async fn source_pod(vmi: &Vmi, more: &[&str]) -> (Pod, Guest) {
    let mut pod = migratable_pod("source");
    drop(vmi.clone().with_counter(&pod));
    pod.launch(vmi, more);
    pod.wait_until_ready().await;
    let guest = pod.count(vmi).await;
    (pod, guest)
}

/// A pod in which Linux is up, ready to leave.
pub async fn source_pod_with_linux(vmi: &Vmi) -> (Pod, Guest) {
    let mut pod = migratable_pod("source");
    drop(vmi.clone().with_image(&pod));
    pod.launch(vmi, &[]);
    pod.wait_until_ready().await;
    let guest = pod.boot(vmi).await;
    (pod, guest)
}

/// A pod with a launcher that waits for the VM of another pod, whose disk it has.
pub async fn target_pod(source: &Pod, vmi: &Vmi, pod_name: &str, more: &[&str]) -> Pod {
    let mut pod = migratable_pod(pod_name);
    share_image(source, &pod);
    pod.launch(vmi, more);
    pod.wait_until_ready().await;
    pod
}

/// Gives the second pod the disk of the first one.
pub fn share_image(from: &Pod, to: &Pod) {
    std::fs::hard_link(from.path(IMAGE), to.path(IMAGE)).unwrap();
}

impl Vmi {
    /// The VMI as both virt-handlers see it when it is to migrate to the pod of this name.
    pub fn migrating_to(self, pod_name: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let state = json!({
            "migrationUid": format!("0d1f6f6e-3c55-4b8e-9b0e-6e2a6e{number:06x}"),
            "sourcePod": "source", "sourceNode": "node01", "targetPod": pod_name, "targetNode": "node02",
        });
        self.set("/status/phase", json!("Running"))
            .set("/status/migrationMethod", json!("LiveMigration"))
            .set("/status/migrationTransport", json!("Unix"))
            .set("/status/migrationState", state)
    }

    /// The UID of the migration.
    pub fn migration_uid(&self) -> &str {
        self.value()["status"]["migrationState"]["migrationUid"]
            .as_str()
            .unwrap()
    }
}

/// The calls that only a migration needs.
impl Pod {
    /// Prepares the pod for the arrival of the VM.
    pub async fn sync_target(&self, vmi: &Vmi) -> Response {
        let options = VirtualMachineOptions {
            interface_domain_attachment: vmi.interface_attachments(),
            ..VirtualMachineOptions::default()
        };
        let request = self.request(vmi.value()).with_options(&options);
        let answer = self.cmd().sync_migration_target(request).await;
        answer.unwrap().into_inner()
    }

    /// The same; it must succeed.
    pub async fn sync_target_ok(&self, vmi: &Vmi) {
        let answer = self.sync_target(vmi).await;
        let message = &answer.message;
        assert!(answer.success, "target: {message}\n{}", self.log_tail());
    }

    /// Does what virt-handler does when the migration is over; the links of these interfaces are
    /// refreshed.
    pub async fn finalize(&self, vmi: &Vmi, links: &[&str]) {
        let refresh = |name: &&str| {
            let method = "link-refresh".to_owned();
            ((*name).to_owned(), InterfaceBindingMigration { method })
        };
        let options = VirtualMachineOptions {
            interface_migration: links.iter().map(refresh).collect(),
            ..VirtualMachineOptions::default()
        };
        let request = self.request(vmi.value()).with_options(&options);
        let answer = self.cmd().finalize_virtual_machine_migration(request).await;
        let answer = answer.unwrap().into_inner();
        let message = &answer.message;
        assert!(answer.success, "finalize: {message}\n{}", self.log_tail());
    }

    /// The migration of this VMI has failed; the target that the VMI names is to end.
    pub async fn signal_cleanup(&self, vmi: &Vmi) {
        let request = self.request(vmi.value());
        let answer = self.cmd().signal_target_pod_cleanup(request).await;
        let answer = answer.unwrap().into_inner();
        assert!(answer.success, "cleanup: {}", answer.message);
    }

    /// virt-handler gives the migration to this pod up, and the pod ends, if it has not already.
    /// With its first process go all the others.
    pub async fn give_up_arrival(mut self, vmi: &Vmi) {
        let request = self.request(vmi.value());
        drop(self.cmd().signal_target_pod_cleanup(request).await);
        self.exit().await;
    }

    /// Waits for what the target's virt-handler waits for: the migration's end, with a guest that
    /// runs or that its user has paused.
    pub async fn arrival(&mut self) -> Event {
        let has_arrived = |event: &Event| {
            let state = (event.status(), event.reason());
            let is_active = state.0 == "Running" || state == ("Paused", "User");
            is_active && !migration(&event.domain)["EndTimestamp"].is_null()
        };
        self.handler.event("of the arrival", has_arrived).await
    }

    /// Waits until the VM has left by migration.
    pub async fn departure(&mut self) -> Event {
        let has_left = |event: &Event| (event.status(), event.reason()) == ("Shutoff", "Migrated");
        self.handler.event("of the departure", has_left).await
    }

    /// Migrates the VM by libvirt's own client, without the launcher: to the target that the
    /// proxies lead to.
    pub async fn virsh_migrate(&self, vmi: &Vmi, more: &[&str]) -> std::process::Output {
        let uid = vmi.uid();
        let socket = format!("{SOCKET_DIR}/{uid}-source.sock");
        let name = format!("default_{}", vmi.name());
        let (uri, target) = (
            "qemu+unix:///session?socket=/var/run/libvirt/virtqemud-sock",
            format!("qemu+unix:///session?socket={socket}"),
        );
        let memory = format!("unix://{SOCKET_DIR}/{uid}-49152-source.sock");
        let mut arguments = vec![
            "virsh",
            "-c",
            uri,
            "migrate",
            "--live",
            "--p2p",
            "--persistent",
        ];
        arguments.extend([&name, &target, "--migrateuri", &memory]);
        arguments.extend(more);
        let mut command = self.exec_command(&arguments);
        let run = tokio::task::spawn_blocking(move || command.output());
        run.await.unwrap().unwrap()
    }
}

/// The metadata of the migration in a domain document.
pub fn migration(domain: &Value) -> &Value {
    &domain["Spec"]["Metadata"]["KubeVirt"]["Migration"]
}
