//! What only a pod's container shows: process 1, users and capabilities, the names of processes,
//! the log as a whole.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{Event, Pod, User, Vmi, in_container, in_kubevirts_layout};

/// A line of /proc/PID/status.
pub fn status(pid: u32, key: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.unwrap().trim_start_matches(':').trim().to_owned()
}

/// The pod's processes by the names that KubeVirt's functional tests look for, with their resident
/// memory in KiB.
fn by_name(pod: &Pod) -> BTreeMap<String, Vec<u64>> {
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in pod
        .exec(&["ps", "--no-header", "axo", "rss,command"])
        .lines()
    {
        let mut fields = line.split_whitespace();
        let resident = fields.next().unwrap().parse().unwrap();
        let name = fields.next().unwrap().rsplit('/').next().unwrap();
        let name = if name.starts_with("qemu-system-") {
            "qemu"
        } else {
            name
        };
        found.entry(name.to_owned()).or_default().push(resident);
    }
    found
}

#[test]
// D-sup-12 (docs/differences.md).
fn libvirts_daemon_gives_freed_memory_back() {
    in_container(User::Qemu, async {
        let (pod, _) = Pod::started("freed-memory", &[]).await;
        // It has read what QEMU can do, for which it takes 10 MB for a moment.
        let [daemon] = pod.libvirt_daemons()[..] else {
            panic!("not one daemon")
        };
        let rollup = std::fs::read_to_string(format!("/proc/{daemon}/smaps_rollup")).unwrap();
        let line = rollup
            .lines()
            .find_map(|line| line.strip_prefix("Private_Dirty:"));
        let dirty: u64 = line
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap();
        assert!(dirty < 6 * 1024, "{dirty} kB");
    });
}

#[test]
fn processes_have_their_names_rights_and_no_zombies() {
    in_container(User::Qemu, async {
        let (pod, vmi, _guest) = Pod::counting("contained", &[]).await;
        let states = pod.exec(&["ps", "--no-header", "axo", "pid,stat,command"]);
        assert!(
            !states
                .lines()
                .any(|line| line.split_whitespace().nth(1).unwrap().starts_with('Z')),
            "{states}"
        );
        let found = by_name(&pod);
        // virt-controller counts with this much for each, but for QEMU, whose emulation needs more.
        for (name, mib) in [
            ("virt-launcher-monitor", 25),
            ("virt-launcher", 100),
            ("virtlogd", 25),
            ("virtqemud", 40),
            ("qemu", 1024),
        ] {
            let resident = found.get(name).map_or(&[][..], Vec::as_slice);
            assert!(
                matches!(resident, [one] if *one < mib * 1024),
                "{name}: {found:?}"
            );
        }
        let all = pod.processes("");
        assert!(all.len() >= 5, "{all:?}");
        for pid in all {
            let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
            assert_eq!(status(pid, "Uid"), "107\t107\t107\t107", "{command}");
            assert_eq!(status(pid, "CapBnd"), "0000000000000400", "{command}");
            assert_eq!(status(pid, "NoNewPrivs"), "1", "{command}");
            assert_eq!(status(pid, "Seccomp"), "2", "{command}");
        }
        // For passt, which listens below port 1024.
        let daemon = pod.processes("virtqemud");
        assert_eq!(daemon.len(), 1);
        assert_eq!(status(daemon[0], "CapAmb"), "0000000000000400");
        let arguments = pod.exec(&["ps", "--no-header", "-C", "virt-launcher", "-o", "args"]);
        assert!(arguments.contains(vmi.uid()), "{arguments}");
    });
}

/// container/Containerfile.kubevirt has QEMU, firmware and daemon elsewhere than Debian.
#[test]
fn a_guest_boots_where_kubevirts_image_has_its_files() {
    in_kubevirts_layout(async {
        let mut pod = Pod::new();
        // GRUB runs out of memory in less.
        let vmi = Vmi::new("elsewhere")
            .with_image(&pod)
            .set("/spec/domain/memory/guest", json!("512Mi"))
            .set(
                "/spec/domain/firmware/bootloader",
                json!({"efi": {"secureBoot": false}}),
            );
        pod.start(&vmi, &[]).await;
        let mut guest = pod.boot(&vmi).await;
        assert_eq!(
            guest.run("test -d /sys/firmware/efi && echo yes").await,
            "yes"
        );
        let domain = pod.domain().await;
        let spec = &domain["Spec"];
        assert_eq!(spec["Devices"]["Emulator"], "/usr/libexec/qemu-kvm");
        assert_eq!(
            spec["OS"]["BootLoader"]["Path"],
            "/usr/share/edk2/ovmf/OVMF_CODE.secboot.fd"
        );
        let found = by_name(&pod);
        for name in ["virtqemud", "qemu-kvm"] {
            assert_eq!(found.get(name).map(Vec::len), Some(1), "{found:?}");
        }
        pod.end(&vmi).await;
        assert_eq!(pod.exit_code().await, 0);
    });
}

#[test]
fn the_log_is_json_to_its_end() {
    in_container(User::Qemu, async {
        let (mut pod, vmi) = Pod::started("logged", &[]).await;
        pod.end(&vmi).await;
        assert_eq!(pod.exit_code().await, 0);
        let entries = entries(&pod);
        for (component, message) in [
            ("virt-launcher", "Marked as ready"),
            ("virt-launcher", "Found PID for default_logged: "),
            ("virt-launcher", "Exiting..."),
            ("virt-launcher-monitor", "Reaped Launcher main pid"),
        ] {
            let there = entries.iter().any(|entry| {
                entry["component"] == component && entry["msg"].as_str().unwrap().contains(message)
            });
            assert!(there, "{component}: {message}\n{}", pod.log_tail());
        }
    });
}

/// The kubelet makes the container's last line the reason of its end.
#[test]
fn the_cause_of_an_early_end_comes_last() {
    in_container(User::Qemu, async {
        let mut pod = Pod::new();
        pod.launch(
            &Vmi::new("late"),
            &["--qemu-timeout", "1s", "--hook-sidecars", "1"],
        );
        assert_eq!(pod.exit_code().await, 2);
        pod.log_has("dirty virt-launcher shutdown").await;
        let launcher: Vec<Value> = entries(&pod)
            .into_iter()
            .filter(|entry| entry["component"] == "virt-launcher")
            .collect();
        let last = launcher.last().unwrap();
        assert!(
            last["level"] != "info" && last.to_string().contains("hook sidecar"),
            "{last}"
        );
    });
}

/// All of the log; each line has to be an object with the keys that must-gather and KubeVirt's
/// tests read.
fn entries(pod: &Pod) -> Vec<Value> {
    let parse = |line: &String| {
        let entry: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for key in ["component", "level", "msg", "timestamp"] {
            assert!(entry[key].is_string(), "without {key}: {line}");
        }
        entry
    };
    pod.log().iter().map(parse).collect()
}

#[test]
fn a_guest_boots_pauses_and_ends_in_a_pod_of_roots() {
    in_container(User::Root, async {
        let (mut pod, vmi, _guest) = Pod::booted("contained", &[]).await;
        let daemon = pod.processes("virtqemud");
        assert_eq!(status(daemon[0], "Uid"), "0\t0\t0\t0");
        let qemu = pod.guests();
        assert_eq!(status(qemu[0], "Uid"), "107\t107\t107\t107");
        assert!(
            pod.virsh(&["list", "--name"])
                .contains(&format!("default_{}", vmi.name()))
        );
        pod.handler.agent().await;
        pod.pause(&vmi).await;
        pod.handler.status("Paused").await;
        pod.end(&vmi).await;
        pod.handler.event("final", Event::is_final).await;
        assert_eq!(pod.exit_code().await, 0);
    });
}
