#![allow(clippy::unwrap_used)]
use serde_json::{Value, json};

use super::*;

const BEGAN: &str = "2026-01-02T03:04:05Z";

fn seconds() -> i64 {
    BEGAN.parse::<Timestamp>().unwrap().as_second()
}

/// A VM of `run` whose guest has been so for a minute.
fn facts(status: &str, reason: &str, spec: Value) -> Facts {
    let domain = json!({"Spec": spec, "Status": {"Status": status, "Reason": reason}});
    Facts {
        name: "web".to_owned(),
        now: seconds() + 60,
        domain: serde_json::from_value(domain).unwrap(),
        launcher: DebugResponse {
            phase_unix_micros: seconds() * 1_000_000,
            ..DebugResponse::default()
        },
        ..Facts::default()
    }
}

fn with(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = facts("Running", "Unknown", json!({}));
    change(&mut facts);
    facts
}

fn image(file: &str, is_replaced: bool, last: LastOfImage) -> Vec<RemovedImage> {
    vec![RemovedImage {
        volume: "data".to_owned(),
        file: file.to_owned(),
        is_replaced,
        place: match (is_replaced, &last) {
            (false, LastOfImage::Link(_)) => file.to_owned(),
            _ => format!("{file}.guest"),
        },
        last,
    }]
}

fn paused(reason: &str) -> Facts {
    facts("Paused", reason, json!({}))
}

fn failed(reason: &str) -> Facts {
    with(|facts| facts.condition = Condition::Failed(reason.to_owned()))
}

fn metadata(of_kubevirt: Value) -> Facts {
    let spec = json!({"Metadata": {"KubeVirt": of_kubevirt}});
    facts("Running", "Unknown", spec)
}

/// A full file system below a disk; `file`: the user's name of its image, if known.
fn full_disk(file: Option<&str>) -> Facts {
    full_disk_over(file, Value::Null)
}

/// Like [`full_disk`], with a disk that is an overlay of this backing store.
fn full_disk_over(file: Option<&str>, backing_store: Value) -> Facts {
    let disk = json!({"Source": {"File": "/d/data.img"}, "Target": {"Device": "vda"},
        "Alias": {"Name": "data", "UserDefined": true}, "BackingStore": backing_store});
    let mut facts = facts("Paused", "IOError", json!({"Devices": {"Disks": [disk]}}));
    facts.launcher.failed_disks = vec![FailedDisk {
        volume: "data".to_owned(),
        has_no_space: true,
    }];
    let file = file.map(|file| ("data".to_owned(), file.to_owned()));
    facts.files = file.into_iter().collect();
    facts
}

/// The facts, and the line that `status` prints for them.
fn rows() -> Vec<(Facts, &'static str)> {
    vec![
        (
            failed("KVM has stopped the guest with an internal error right after its start"),
            "KVM has failed: KVM has stopped the guest with an internal error right after its start; run --emulate does without it, launcherctl logs web has the log until then, or until launcherctl stop web",
        ),
        (
            failed("no disk\nmore"),
            "the VM has failed: no disk more; launcherctl run with its manifest starts it again, launcherctl logs web (--console) and launcherctl debug web have its logs until then, or until launcherctl stop web",
        ),
        (
            failed("Traceback:\n  File \"a\"\n    ^\nKeyError: 'a'"),
            "the VM has failed: Traceback: … KeyError: 'a'; launcherctl run with its manifest starts it again, launcherctl logs web (--console) and launcherctl debug web have its logs until then, or until launcherctl stop web",
        ),
        (
            with(|facts| facts.condition = Condition::Lost(Some(7))),
            "the VM is lost: its launcher was killed, and its guest still runs (QEMU is process 7); shut it down from inside if you can (SSH), launcherctl stop web forces it off",
        ),
        (
            with(|facts| {
                facts.condition = Condition::Lost(Some(7));
                facts.missing_directory = Some("/d".into());
            }),
            "the VM is lost: /d was removed or moved, and its guest still runs (QEMU is process 7); if it was moved, move it back; else shut the guest down from inside if you can (SSH), launcherctl stop web forces it off",
        ),
        (
            with(|facts| {
                facts.removed_images = image(
                    "/home/me/data.img",
                    false,
                    LastOfImage::Link("/d/data/disk.img".into()),
                );
            }),
            "a disk's image was removed: the VM has the last link to /home/me/data.img of volume data; it becomes /home/me/data.img when the VM ends, or at once by ln /d/data/disk.img /home/me/data.img",
        ),
        (
            with(|facts| {
                facts.removed_images = image(
                    "/home/me/data.img",
                    true,
                    LastOfImage::Link("/d/data/disk.img".into()),
                );
            }),
            "a disk's image was replaced: volume data uses the file that was /home/me/data.img before, and the VM has the last link to it; it becomes /home/me/data.img.guest when the VM ends, or at once by ln /d/data/disk.img /home/me/data.img.guest",
        ),
        (
            with(|facts| {
                facts.removed_images = image(
                    "/mnt/data.img",
                    false,
                    LastOfImage::Open("/proc/7/fd/11".into()),
                );
            }),
            "a disk's image was removed: only QEMU has /mnt/data.img of volume data, which is lost when the VM ends; let the guest write everything (sync), pause it, copy it (cp /proc/7/fd/11 /mnt/data.img.guest), then launcherctl stop web --force",
        ),
        (
            with(|facts| {
                facts.condition = Condition::Lost(Some(7));
                facts.removed_images = image(
                    "/mnt/data.img",
                    false,
                    LastOfImage::Open("/proc/7/fd/11".into()),
                );
            }),
            "the VM is lost: its launcher was killed, and its guest still runs (QEMU is process 7); first copy the image that only QEMU has, as said below\na disk's image was removed: only QEMU has /mnt/data.img of volume data, which is lost when the VM ends; stop QEMU (kill -STOP 7), copy it (cp /proc/7/fd/11 /mnt/data.img.guest), then launcherctl stop web --force",
        ),
        (
            with(|facts| {
                facts.removed_images = image(
                    "/home/me/data.img",
                    true,
                    LastOfImage::OtherName(Some("/home/me/old.img".into())),
                );
            }),
            "a disk's image was replaced: volume data uses the file that was /home/me/data.img before and is /home/me/old.img now, so what the guest writes is not in /home/me/data.img; give /home/me/old.img to the next run to keep that",
        ),
        (
            {
                let mut facts = paused("User");
                let of = |file: &str, fd: &str| image(file, false, LastOfImage::Open(fd.into()));
                let [a, b] = [of("/mnt/a", "/proc/7/fd/1"), of("/mnt/b", "/proc/7/fd/2")];
                facts.removed_images = [a, b].concat();
                facts
            },
            "the guest is paused (since 2026-01-02T03:04:05Z): somebody has paused it; first copy the image that only QEMU has, as said below\na disk's image was removed: only QEMU has /mnt/a of volume data, which is lost when the VM ends; let the guest write everything (sync), pause it, copy it (cp /proc/7/fd/1 /mnt/a.guest), then launcherctl stop web --force\na disk's image was removed: only QEMU has /mnt/b of volume data, which is lost when the VM ends; let the guest write everything (sync), pause it, copy it (cp /proc/7/fd/2 /mnt/b.guest), then launcherctl stop web --force",
        ),
        (
            with(|facts| facts.condition = Condition::Lost(None)),
            "the VM is lost: its launcher was killed or has ended, and its guest does not run; launcherctl stop web removes what is left of it",
        ),
        (
            with(|facts| facts.unsupervised = Some("its supervisor was killed")),
            "the VM has no supervisor: its supervisor was killed; launcherctl stop web shuts it down",
        ),
        (
            with(|facts| facts.stopped_supervisor = Some(7)),
            "the supervisor does not answer: its process 7 was stopped by a signal or a debugger; kill -CONT 7 lets it go on, launcherctl stop web --force ends it",
        ),
        (
            with(|facts| facts.condition = Condition::Silent),
            "the launcher does not answer: it is stopped, or waits for libvirt or QEMU; launcherctl logs web shows its last steps, launcherctl debug web has libvirt's and QEMU's logs",
        ),
        (
            with(|facts| facts.launcher.problems = vec!["no connection".to_owned()]),
            "libvirt does not answer: no connection; launcherctl logs web shows its last steps, launcherctl debug web has libvirt's and QEMU's logs",
        ),
        (
            with(|facts| {
                let why = "reading the domain is still in progress after 4 s; it continues in the background, send it again";
                facts.launcher.problems = vec![why.to_owned()];
            }),
            "libvirt does not answer: reading the domain is still in progress after 4 s; launcherctl logs web shows its last steps, launcherctl debug web has libvirt's and QEMU's logs",
        ),
        (
            with(|facts| {
                facts.launcher.problems = vec!["no connection".to_owned()];
                facts.stopped_libvirt = Some(7);
            }),
            "libvirt does not answer: its process 7 was stopped by a signal or a debugger; kill -CONT 7 lets it go on, launcherctl stop web --force ends it",
        ),
        (
            with(|facts| {
                facts.condition = Condition::Silent;
                facts.stopped_launcher = Some(7);
            }),
            "the launcher does not answer: its process 7 was stopped by a signal or a debugger; kill -CONT 7 lets it go on, launcherctl stop web --force ends it",
        ),
        (
            with(|facts| {
                let ignored = "libvirt ignores these parts of the domain: a";
                facts.launcher.ignored_by_libvirt = ignored.to_owned();
            }),
            "a part of the domain has no effect: libvirt ignores these parts of the domain: a; a sidecar may have misspelt it, or an attribute of it, or not declared its prefix; or libvirt is too old for it",
        ),
        (
            with(|facts| facts.launcher.called_hook = "hook sidecar \"slow\"".to_owned()),
            "the start waits for a hook: hook sidecar \"slow\" has not answered yet; launcherctl logs web has the log of the start, launcherctl stop web gives it up",
        ),
        (
            with(|facts| {
                facts.missing_sidecars = Some("hook-sidecar-0 (no socket in it)".to_owned());
            }),
            "the start waits for hook sidecars: not ready: hook-sidecar-0 (no socket in it); launcherctl logs web has the log of the start, launcherctl stop web gives it up",
        ),
        (
            failed("no lock\n  what to do: end the other VM"),
            "the VM has failed: no lock; end the other VM; launcherctl run with its manifest starts it again, launcherctl logs web (--console) and launcherctl debug web have its logs until then, or until launcherctl stop web",
        ),
        (
            with(|facts| {
                facts.stopped_qemu = Some(7);
                facts.launcher.problems = vec!["no connection".to_owned()];
            }),
            "QEMU does not answer: its process 7 was stopped by a signal or a debugger; kill -CONT 7 lets it go on, launcherctl stop web --force ends it",
        ),
        (
            full_disk(Some("/home/me/data.img")),
            "the guest is paused (since 2026-01-02T03:04:05Z): no space is left for disk data (vda), /home/me/data.img; make space if the file system of its image is full (df), then launcherctl unpause web",
        ),
        (
            full_disk(None),
            "the guest is paused (since 2026-01-02T03:04:05Z): no space is left for disk data (vda), /d/data.img; make space if the file system of its image is full (df), then launcherctl unpause web",
        ),
        (
            full_disk_over(
                Some("/home/me/base.img"),
                json!({"Format": {"Type": "raw"}, "Source": {"File": "/home/me/base.img"}}),
            ),
            "the guest is paused (since 2026-01-02T03:04:05Z): no space is left for disk data (vda), /d/data.img; make space if the file system of its image is full (df), then launcherctl unpause web",
        ),
        (
            paused("IOError"),
            "the guest is paused (since 2026-01-02T03:04:05Z): one of its disks cannot be read or written; make space if the file system of its image is full (df), then launcherctl unpause web",
        ),
        (
            paused("User"),
            "the guest is paused (since 2026-01-02T03:04:05Z): somebody has paused it; launcherctl unpause web resumes it",
        ),
        (
            paused("Unknown"),
            "the guest is paused (since 2026-01-02T03:04:05Z): QEMU has stopped it with an internal error; launcherctl debug web has QEMU's log, launcherctl reset web starts the guest again",
        ),
        (
            paused("Watchdog"),
            "the guest is paused (since 2026-01-02T03:04:05Z): its watchdog was not reset in time; launcherctl reset web, then launcherctl unpause web",
        ),
        (
            paused("Crashed"),
            "the guest is paused (since 2026-01-02T03:04:05Z): its kernel has crashed; launcherctl reset web, then launcherctl unpause web",
        ),
        (
            paused("PostcopyFailed"),
            "the guest is paused (since 2026-01-02T03:04:05Z): its migration has failed after the switch to post-copy; launcherctl migration web shows how it went; the guest's memory is not whole, so start the VM anew",
        ),
        (
            facts("Crashed", "Panicked", json!({})),
            "the guest has crashed (since 2026-01-02T03:04:05Z): its kernel has panicked; launcherctl logs web --console shows what it wrote last, launcherctl logs web the launcher's log",
        ),
        (
            facts("Shutoff", "Crashed", json!({})),
            "the guest has crashed (since 2026-01-02T03:04:05Z): its QEMU was killed (by the kernel, if memory ran out: dmesg) or has failed; launcherctl logs web --console shows what it wrote last, launcherctl logs web the launcher's log",
        ),
        (
            with(|facts| facts.memory_events = "low 0\nmax 3\noom 1\noom_kill 1\n".to_owned()),
            "memory has run out: the kernel has killed processes of its cgroup: 1; raise the limit of its cgroup (memory.max), or lower spec.domain.memory.guest",
        ),
        (
            with(|facts| facts.memory_events = "low 0\nmax 3\noom 0\noom_kill 0\n".to_owned()),
            "memory is nearly out: its cgroup has been at its limit 3×; raise the limit of its cgroup (memory.max), or lower spec.domain.memory.guest",
        ),
        (
            metadata(
                json!({"GracePeriod": {"DeletionTimestamp": BEGAN, "DeletionGracePeriodSeconds": 90}}),
            ),
            "the guest has not shut down yet (since 2026-01-02T03:04:05Z): it was asked to, and is forced off in 30 s; launcherctl stop web --force forces it off now",
        ),
        (
            with(|facts| {
                facts.condition = Condition::Failed("no disk".to_owned());
                facts.failed_at = Some(seconds());
            }),
            "the VM has failed (since 2026-01-02T03:04:05Z): no disk; launcherctl run with its manifest starts it again, launcherctl logs web (--console) and launcherctl debug web have its logs until then, or until launcherctl stop web",
        ),
        (
            Facts {
                now: seconds() + 95,
                ..metadata(
                    json!({"GracePeriod": {"DeletionTimestamp": BEGAN, "DeletionGracePeriodSeconds": 90}}),
                )
            },
            "the guest has not shut down yet (since 2026-01-02T03:04:05Z): it was asked to, and is being forced off; launcherctl stop web --force forces it off now",
        ),
        (
            Facts {
                // Later than a shutdown that has asked too.
                stop_began: Some(seconds() + 20),
                ..metadata(
                    json!({"GracePeriod": {"DeletionTimestamp": BEGAN, "DeletionGracePeriodSeconds": 90}}),
                )
            },
            "the guest has not shut down yet (since 2026-01-02T03:04:05Z): it was asked to, and is forced off in 50 s; launcherctl stop web --force forces it off now",
        ),
        (
            Facts {
                is_ended_by_nobody: true,
                ..metadata(
                    json!({"GracePeriod": {"DeletionTimestamp": BEGAN, "DeletionGracePeriodSeconds": 9}}),
                )
            },
            "the guest has not shut down yet (since 2026-01-02T03:04:05Z): it was asked to, and nobody forces it off; launcherctl stop web asks again, and forces it off after its grace period",
        ),
        (
            Facts {
                stopped_target: Some(9),
                ..metadata(json!({"Migration": {"StartTimestamp": BEGAN}}))
            },
            "a migration is under way (since 2026-01-02T03:04:05Z): the target's QEMU (process 9) was stopped by a signal or a debugger, and kill -CONT 9 lets it go on; launcherctl migration web --follow shows how far it is, Ctrl-C cancels it where launcherctl migrate runs",
        ),
        (
            metadata(json!({"Migration": {"StartTimestamp": BEGAN}})),
            "a migration is under way (since 2026-01-02T03:04:05Z): the guest moves to another launcher; launcherctl migration web --follow shows how far it is, Ctrl-C cancels it where launcherctl migrate runs",
        ),
        (
            metadata(
                json!({"Migration": {"StartTimestamp": BEGAN, "EndTimestamp": BEGAN, "Failed": true,
                "FailureReason": "virError(Code=1, Message='no route')"}}),
            ),
            "the last migration has failed (since 2026-01-02T03:04:05Z): libvirt: no route; launcherctl migration web shows how it went",
        ),
        (
            with(|facts| facts.console = Some("No bootable option or device".to_owned())),
            "there is no bootable disk (since 2026-01-02T03:04:05Z): its firmware says so on the console; run it with an image of an operating system (--disk), with that disk first (bootOrder: 1), or with firmware.bootloader.efi if the image needs that",
        ),
        (
            with(|facts| {
                facts.console = Some(String::new());
                facts.unbootable_disk = Some("root".to_owned());
            }),
            "there is no bootable disk (since 2026-01-02T03:04:05Z): disk root has no boot sector; run it with an image of an operating system (--disk), with that disk first (bootOrder: 1), or with firmware.bootloader.efi if the image needs that",
        ),
        (
            with(|facts| {
                facts.console = Some("No bootable option or device".to_owned());
                facts.changed_by = vec!["hook sidecar \"spoiler\" (a.sock)".to_owned()];
            }),
            "there is no bootable disk (since 2026-01-02T03:04:05Z): its firmware says so on the console, and the domain was changed by hook sidecar \"spoiler\" (a.sock), as launcherctl launcher hooks shows; run it with an image of an operating system (--disk), with that disk first (bootOrder: 1), or with firmware.bootloader.efi if the image needs that",
        ),
        (
            with(|facts| facts.console = Some(String::new())),
            "the serial console stays blank: nothing has appeared on it for 20 s: the guest writes to its screen only (Linux needs console=ttyS0); launcherctl screenshot --name web screen.png shows the screen",
        ),
        (
            with(|facts| {
                facts.wants_kvm = true;
                facts.domain.spec.r#type = "qemu".to_owned();
            }),
            "the guest runs without KVM: /dev/kvm is missing, forbidden or does not work here, so its processor is emulated, which is slow; launcherctl logs web says why; run --emulate asks for it",
        ),
        (
            with(|facts| facts.launcher.is_adopted = true),
            "the launcher was restarted: an earlier one has started the guest, which has run on; launcherctl debug web has the logs",
        ),
        (
            with(|facts| {
                facts.metrics = "virt_launcher_daemon_restarts_total{daemon=\"virtlogd\"} 0\nvirt_launcher_daemon_restarts_total{daemon=\"virtqemud\"} 2\n".to_owned();
            }),
            "libvirt was restarted: virtqemud has ended 2×, and was started again; launcherctl debug web has the logs",
        ),
        (
            with(|facts| facts.now = seconds() + 120),
            "no guest agent is connected: so there are no guest commands and no freezes, and addresses may be missing; start qemu-guest-agent in the guest",
        ),
        (
            with(|facts| facts.launcher.agent_silent_unix_micros = seconds() * 1_000_000),
            "the guest agent does not answer (since 2026-01-02T03:04:05Z): it hung or was busy when it was asked last, so what is known of the guest may be old; launcherctl guest ping web asks it again; restart qemu-guest-agent in the guest",
        ),
    ]
}

#[test]
fn an_ended_vm_has_no_command_for_one_that_runs() {
    let of = |next: &str| Problem::new("it is blank", "why", next).of_ended();
    assert_eq!(of("launcherctl screenshot shows it"), "it is blank: why");
    assert_eq!(
        of("run it with an image"),
        "it is blank: why; run it with an image"
    );
}

#[test]
fn each_problem_has_its_line() {
    for (facts, expected) in rows() {
        let lines: Vec<_> = problems(&facts).iter().map(Problem::line).collect();
        assert_eq!(lines.join("\n"), expected);
    }
    assert_eq!(problems(&with(|_| {})), []);
}

/// The first column of docs/troubleshooting.md has the text as it is printed.
#[test]
fn each_problem_is_in_the_documentation() {
    let page = include_str!("../../../../docs/troubleshooting.md");
    for (facts, _) in rows() {
        for problem in problems(&facts) {
            let begins = format!("| `{}`", problem.what);
            assert!(page.contains(&begins), "{begins}");
        }
    }
}

#[test]
fn a_paused_guest_that_is_to_shut_down_has_both_problems() {
    let grace = json!({"DeletionTimestamp": BEGAN, "DeletionGracePeriodSeconds": 90});
    let spec = json!({"Metadata": {"KubeVirt": {"GracePeriod": grace}}});
    let found = problems(&facts("Paused", "User", spec));
    let causes: Vec<_> = found.iter().map(|problem| &*problem.cause).collect();
    let expected = [
        "somebody has paused it",
        "it was asked to, which it sees once it is resumed, and is forced off in 30 s",
    ];
    assert_eq!(causes, expected);
}

#[test]
fn a_migration_that_was_cancelled_is_no_problem() {
    let failure = "Live migration has been aborted";
    let migration = json!({"StartTimestamp": BEGAN, "EndTimestamp": BEGAN, "Failed": true, "FailureReason": failure});
    assert_eq!(problems(&metadata(json!({"Migration": migration}))), []);
}

#[test]
fn in_a_pod_the_vm_needs_no_name() {
    let mut facts = paused("User");
    facts.name = String::new();
    let next = |facts: &Facts| problems(facts).remove(0).next;
    assert_eq!(next(&facts), "launcherctl unpause resumes it");
    facts = with(|facts| facts.console = Some(String::new()));
    facts.name = String::new();
    assert!(next(&facts).starts_with("launcherctl screenshot screen.png"));
}

#[test]
fn an_emulated_guest_is_slow_before_its_console_is_wrong() {
    let blank = |kind: &str| {
        let facts = with(|facts| {
            facts.console = Some(String::new());
            facts.domain.spec.r#type = kind.to_owned();
        });
        problems(&facts).remove(0).cause
    };
    assert!(blank("qemu").contains("without KVM a start takes minutes; or"));
    assert!(!blank("kvm").contains("KVM"));
}

#[test]
fn a_guest_that_goes_on_by_itself_has_no_problem() {
    for reason in ["Migration", "Dump", "StartingUp"] {
        assert_eq!(stop_of(&paused(reason)), None, "{reason}");
    }
}

#[test]
fn what_a_failing_kvm_says_is_known() {
    assert!(is_kvm_failure(
        "internal error: process exited while connecting to monitor: Could not access KVM kernel module: No such device"
    ));
    assert!(is_kvm_failure(
        "qemu-system-x86_64: target/i386/kvm/kvm.c:3849: kvm_buf_set_msrs: Assertion `ret == cpu->kvm_msr_buf->nmsrs' failed."
    ));
    assert!(!is_kvm_failure("disk full"));
}
