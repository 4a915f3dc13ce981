use serde_json::{Value, json};

use super::*;

const BEGAN: &str = "2026-01-02T03:04:05Z";

fn seconds() -> i64 {
    BEGAN.parse::<Timestamp>().unwrap().as_second()
}

/// A VM of `run` whose guest has been so for a minute.
fn facts(status: &str, reason: &str, spec: Value) -> VmFacts {
    let domain = json!({"Spec": spec, "Status": {"Status": status, "Reason": reason}});
    VmFacts {
        name: "web".to_owned(),
        now: seconds() + 60,
        domain: serde_json::from_value(domain).unwrap(),
        launcher: DebugResponse {
            phase_unix_micros: seconds() * 1_000_000,
            ..DebugResponse::default()
        },
        ..VmFacts::default()
    }
}

fn with(change: impl FnOnce(&mut VmFacts)) -> VmFacts {
    let mut facts = facts("Running", "Unknown", json!({}));
    change(&mut facts);
    facts
}

fn paused(reason: &str) -> VmFacts {
    facts("Paused", reason, json!({}))
}

fn failed(reason: &str) -> VmFacts {
    with(|facts| facts.condition = Condition::Failed(reason.to_owned()))
}

/// A full file system below a disk.
fn full_disk() -> VmFacts {
    let disk = json!({"Source": {"File": "/d/data.img"}, "Target": {"Device": "vda"},
        "Alias": {"Name": "data", "UserDefined": true}});
    let mut facts = facts("Paused", "IOError", json!({"Devices": {"Disks": [disk]}}));
    facts.launcher.failed_disks = vec![FailedDisk {
        volume: "data".to_owned(),
        has_no_space: true,
    }];
    facts
}

/// The facts, and the line that `status` prints for them.
fn rows() -> Vec<(VmFacts, &'static str)> {
    vec![
        (
            failed("no disk\nmore"),
            "the VM has failed: no disk more; launcherctl run with its manifest starts it again, launcherctl logs web (--console) has its logs until then, or until launcherctl stop web",
        ),
        (
            failed("Traceback:\n  File \"a\"\n    ^\nKeyError: 'a'"),
            "the VM has failed: Traceback: … KeyError: 'a'; launcherctl run with its manifest starts it again, launcherctl logs web (--console) has its logs until then, or until launcherctl stop web",
        ),
        (
            with(|facts| facts.condition = Condition::Lost(Some(7))),
            "the VM is lost: its launcher was killed, and its guest still runs (QEMU is process 7); shut it down from inside if you can (SSH), launcherctl stop web forces it off",
        ),
        (
            with(|facts| facts.condition = Condition::Lost(None)),
            "the VM is lost: its launcher was killed or has ended, and its guest does not run; launcherctl stop web removes what is left of it",
        ),
        (
            with(|facts| facts.condition = Condition::Silent),
            "the launcher does not answer: it is stopped, or waits for libvirt or QEMU; launcherctl logs web shows its last steps",
        ),
        (
            with(|facts| facts.launcher.problems = vec!["no connection".to_owned()]),
            "libvirt does not answer: no connection; launcherctl logs web shows its last steps",
        ),
        (
            with(|facts| {
                let why = "reading the domain is still in progress after 4 s; it continues in the background, send it again";
                facts.launcher.problems = vec![why.to_owned()];
            }),
            "libvirt does not answer: reading the domain is still in progress after 4 s; it continues in the background, send it again; launcherctl logs web shows its last steps",
        ),
        (
            with(|facts| facts.launcher.called_hook = "hook sidecar \"slow\"".to_owned()),
            "the start waits for a hook: hook sidecar \"slow\" has not answered yet; launcherctl logs web has the log of the start, launcherctl stop web gives it up",
        ),
        (
            failed("no lock\n  what to do: end the other VM"),
            "the VM has failed: no lock; end the other VM; launcherctl run with its manifest starts it again, launcherctl logs web (--console) has its logs until then, or until launcherctl stop web",
        ),
        (
            full_disk(),
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
            "the guest is paused (since 2026-01-02T03:04:05Z): QEMU has stopped it with an internal error; launcherctl logs web may have QEMU's reason, launcherctl reset web starts the guest again",
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
            "the guest is paused (since 2026-01-02T03:04:05Z): its migration has failed after the switch to post-copy; the guest's memory is not whole, so start the VM anew",
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
            with(|facts| facts.launcher.is_adopted = true),
            "the launcher was restarted: an earlier one has started the guest, which has run on; launcherctl logs web has the log of this one",
        ),
        (
            with(|facts| {
                facts.launcher.is_adopted = true;
                facts.launcher.died_of = "SIGKILL".to_owned();
            }),
            "the launcher was restarted: the earlier one has died (SIGKILL), and the guest has run on; launcherctl logs web has the log of this one",
        ),
        (
            with(|facts| facts.memory_events = "low 0\nmax 3\noom 1\noom_kill 1\n".to_owned()),
            "memory has run out: the kernel has killed processes of its cgroup: 1; raise the limit of its cgroup (memory.max), or lower spec.domain.memory.guest",
        ),
        (
            with(|facts| {
                facts.condition = Condition::Failed("no disk".to_owned());
                facts.failed_at = Some(seconds());
            }),
            "the VM has failed (since 2026-01-02T03:04:05Z): no disk; launcherctl run with its manifest starts it again, launcherctl logs web (--console) has its logs until then, or until launcherctl stop web",
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
            with(|facts| facts.now = seconds() + 120),
            "no guest agent is connected: so there are no guest commands and no freezes, and addresses may be missing; start qemu-guest-agent in the guest",
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

/// docs/troubleshooting.md has an entry for the text as it is printed.
#[test]
fn each_problem_is_in_the_documentation() {
    let page = include_str!("../../../../docs/troubleshooting.md");
    for (facts, _) in rows() {
        for problem in problems(&facts) {
            let begins = format!("\n**`{}`**: ", problem.what);
            assert!(page.contains(&begins), "{begins}");
        }
    }
}

#[test]
fn in_a_pod_the_vm_needs_no_name() {
    let mut facts = paused("User");
    facts.name = String::new();
    let next = |facts: &VmFacts| problems(facts).remove(0).next;
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
        assert_eq!(problems(&paused(reason)), [], "{reason}");
    }
}
