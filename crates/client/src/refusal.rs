//! Translates a launcher's answers for people: names of calls and libvirt's error format are for
//! programs. Frequent causes come with a remedy.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use jiff::Timestamp;

use os::grpc::ConnectError;

/// Separates an error from its remedy.
pub const REMEDY_MARK: &str = "\n  what to do: ";

/// The sidecar with which `run` adds the network cards to the domain.
pub const NETWORK_SIDECAR: &str = "launcherctl-network";

/// The end of the launcher's report on a cancelled migration; KubeVirt's text.
const ABORTED: &str = "Live migration has been aborted";

/// Remedy for a guest without an agent.
pub const NO_AGENT: &str =
    "wait until the guest has booted; in a guest that is up, install and start qemu-guest-agent";

/// Remedy for a connection to libvirt that has ended.
const LOST_DAEMON: &str = "libvirt's daemon, or the other side of the migration, has ended: the guest runs on, so try again";

/// Remedy for a guest whose memory is not to be had.
const NO_MEMORY: &str = "the machine has too little free memory for this guest, or a limit forbids as much (ulimit -v): make spec.domain.memory.guest smaller, or raise the limit";

/// A frequent cause: a part of the text, and the remedy.
const REMEDIES: [(&str, &str); 27] = [
    (
        "failed to set MSR",
        "KVM does not work here (a machine without virtualization, or one inside another): run with --emulate",
    ),
    (
        "Domain not found",
        "the guest has not started yet, or has ended: launcherctl status and launcherctl logs say more",
    ),
    (
        "domain is not running",
        "the guest is paused, or has ended: launcherctl status says why",
    ),
    ("QEMU guest agent is not connected", NO_AGENT),
    ("client socket is closed", LOST_DAEMON),
    ("Cannot recv data", LOST_DAEMON),
    (
        "Failed to execute child process",
        "the guest has no such program, or it may not be run: give its path in the guest",
    ),
    (
        "Guest agent is not responding",
        "the agent in the guest is busy or hangs: try again; restart qemu-guest-agent in the guest",
    ),
    (
        "guest agent command not found",
        "the agent in the guest does not allow or know this: see its options allow-rpcs and block-rpcs",
    ),
    (
        "the CPU is incompatible with host CPU",
        "this machine lacks CPU features that the domain requires: take them, or the model, out of spec.domain.cpu or of the sidecar that adds them, or run with --emulate",
    ),
    (
        "CPU mode 'host-passthrough'",
        "an emulated guest cannot have this machine's CPU: leave out spec.domain.cpu.model, or run without --emulate where KVM works",
    ),
    (
        "does not support machine type",
        "this machine's QEMU is not the one that the type is of: leave out spec.domain.machine, or give q35",
    ),
    (
        "Failed to get \"write\" lock",
        "another process has the image open: end the other VM that uses it (launcherctl, virsh list), or give this one a copy",
    ),
    (
        "Failed to get shared \"write\" lock",
        "another process has the image open: end the other VM that uses it (launcherctl, virsh list), or give this one a copy",
    ),
    (
        "no emulator",
        "QEMU for this architecture is not installed; Debian: apt install qemu-system-x86 (or qemu-system-arm, qemu-system-misc)",
    ),
    (
        "Cannot check QEMU binary",
        "QEMU is not installed; Debian: apt install qemu-system-x86",
    ),
    (
        "emulator '",
        "QEMU for this architecture is missing or too old; Debian: apt install qemu-system-x86",
    ),
    (
        "hugetlbfs",
        "huge pages are not mounted: as root, mount -t hugetlbfs none /dev/hugepages and reserve pages (sysctl vm.nr_hugepages=N), or leave out spec.domain.memory.hugepages",
    ),
    (
        "Could not access KVM kernel module",
        "this user may not use /dev/kvm: join the group kvm, or run with --emulate",
    ),
    (
        "failed to initialize kvm",
        "KVM does not work here (a machine without virtualization, or one inside another): run with --emulate",
    ),
    ("cannot set up guest memory", NO_MEMORY),
    ("Cannot allocate memory", NO_MEMORY),
    (
        "disk device='lun' is only valid for block",
        "a lun disk needs a block device, and this volume is a file: write disk in place of lun",
    ),
    (
        "Unknown CPU model",
        "spec.domain.cpu.model: libvirt does not know it; leave it out, or choose one of virsh cpu-models x86_64",
    ),
    (
        "waiting to open tray",
        "the guest has mounted the medium, or locked the drive: umount it in the guest, then try again",
    ),
    (
        "An error occurred, but the cause is unknown",
        "libvirt says so where it cannot read the host's CPUs: see that /sys is mounted, and has /sys/devices/system/cpu",
    ),
    (
        "No space left on device",
        "a file system is full: df shows which; make space, or choose another one (for the files of a VM of run: --root or TMPDIR)",
    ),
];

/// What a call asked for, by the call's name.
#[must_use]
pub fn asked(call: &str) -> &'static str {
    match call {
        "SyncVirtualMachine" => "the VM is not started, or not updated",
        "PauseVirtualMachine" => "the guest is not paused",
        "UnpauseVirtualMachine" => "the guest is not resumed",
        "ResetVirtualMachine" => "the guest is not reset",
        "SoftRebootVirtualMachine" => "the guest is not asked to reboot",
        "ShutdownVirtualMachine" => "the guest is not asked to shut down",
        "KillVirtualMachine" => "the guest is not forced off",
        "DeleteVirtualMachine" => "the domain is not removed",
        "FreezeVirtualMachine" => "the guest's file systems are not frozen",
        "UnfreezeVirtualMachine" => "the guest's file systems are not thawed",
        "Plan" => "the launcher has no plan for this VMI",
        "GetScreenshot" => "there is no picture of the guest's screen",
        "GetDomainStats" => "the guest's statistics cannot be read",
        "GetDomain" => "the domain cannot be read",
        "GetQemuVersion" => "QEMU's version cannot be read",
        "GetGuestInfo" | "GetUsers" | "GetFilesystems" => {
            "what the guest agent knows cannot be read"
        }
        "Exec" => "guest exec has failed",
        "GuestPing" => "the guest agent does not answer",
        "Timeline" => "the timeline cannot be read",
        "Metrics" => "the metrics cannot be read",
        "Debug" => "the launcher's state cannot be read",
        "LastSync" => "the VMI cannot be read from the launcher",
        "Info" => "the launcher's versions cannot be read",
        "Ping" => "the launcher does not answer",
        "WatchDomain" => "the domain's changes cannot be read",
        "Setup" => "the launcher's directories cannot be read",
        "SyncMigrationTarget" => "the target is not ready for the VM",
        "MigrateVirtualMachine" => "the migration has not begun",
        "CancelVirtualMachineMigration" => "the migration is not cancelled",
        "FinalizeVirtualMachineMigration" => "the last steps at the target are not done",
        "SignalTargetPodCleanup" => "the target's launcher is not ended",
        "WatchMigration" => "what the migration does cannot be read",
        _ => "the launcher did not do it",
    }
}

/// The launcher's message without libvirt's frame, and with the remedy if known.
#[must_use]
pub fn plain(message: &str) -> String {
    let text = without_own_sidecar(&without_device(&without_times(&without_frames(message))));
    match remedy(&text) {
        Some(remedy) => with_remedy(&text, remedy),
        None => text,
    }
}

/// Whether a migration's failure is that somebody has cancelled it.
#[must_use]
pub fn is_cancelled(failure: &str) -> bool {
    failure.ends_with(ABORTED)
}

/// QEMU begins its messages with the time.
fn without_times(message: &str) -> String {
    let words = message.split_inclusive(' ');
    let is_time = |word: &&str| word.trim_end().parse::<Timestamp>().is_ok();
    words.filter(|word| !is_time(word)).collect()
}

/// QEMU names a device that it refuses by all of its options, as JSON.
fn without_device(message: &str) -> String {
    let split = message.split_once(": -device {");
    match split.and_then(|(before, rest)| Some((before, rest.split_once("}: ")?.1))) {
        Some((before, reason)) => format!("{before}: {reason}"),
        None => message.to_owned(),
    }
}

/// The launcher names the sidecars that changed a domain which libvirt refuses. Removes `run`'s
/// own, which adds the network cards and is not the user's.
pub fn without_own_sidecar(message: &str) -> String {
    const CHANGED_BY: &str = "; the domain was changed by ";
    let Some((refusal, hooks)) = message.split_once(CHANGED_BY) else {
        return message.to_owned();
    };
    let own = format!("hook sidecar {NETWORK_SIDECAR:?} (");
    // Each is a name with a socket in parentheses.
    let hooks = hooks.split_inclusive("), ");
    let others: String = hooks.filter(|hook| !hook.starts_with(&own)).collect();
    match others.trim_end_matches(", ") {
        "" => refusal.to_owned(),
        others => format!("{refusal}{CHANGED_BY}{others}"),
    }
}

/// An error on one line. Of a longer one, such as a traceback, it has the beginning and the last
/// line, which says what is wrong.
#[must_use]
pub fn on_one_line(error: &str) -> String {
    let lines: Vec<&str> = error.lines().collect();
    match lines.as_slice() {
        [first, _, .., last] => {
            let first = first.rsplit_once(": ").map_or(*first, |(first, _)| first);
            format!("{}: … {}", first.trim_end_matches(':'), last.trim())
        }
        few => few.join(" "),
    }
}

/// Joins the error's text and its remedy.
#[must_use]
pub fn with_remedy(text: &str, remedy: &str) -> String {
    format!("{text}{REMEDY_MARK}{remedy}")
}

/// Splits the text into the error and its remedy.
#[must_use]
pub fn split_remedy(text: &str) -> (&str, Option<&str>) {
    match text.split_once(REMEDY_MARK) {
        Some((text, remedy)) => (text, Some(remedy)),
        None => (text, None),
    }
}

/// The remedy for a frequent cause.
#[must_use]
pub fn remedy(text: &str) -> Option<&'static str> {
    let found = REMEDIES.iter().find(|(part, _)| text.contains(part));
    found.map(|(_, remedy)| *remedy)
}

/// KubeVirt's formats of a libvirt error: in answers to calls, and in the domain's metadata.
const FRAMES: [&str; 2] = ["LibvirtError(Code=", "virError(Code="];

/// `LibvirtError(Code=…, Domain=…, Message='…')` becomes its message.
fn without_frames(message: &str) -> String {
    const MESSAGE: &str = "Message='";
    let mut rest = message;
    let mut text = String::new();
    while let Some((before, frame)) = next_frame(rest) {
        let Some((_, inner)) = frame.split_once(MESSAGE) else {
            break;
        };
        // The message may have `')` inside, and another frame may follow.
        let end = next_frame(inner).map_or(inner.len(), |(before, _)| before.len());
        let end = inner.get(..end).and_then(|inner| inner.rfind("')"));
        let Some((inner, after)) = end.and_then(|end| inner.split_at_checked(end)) else {
            break;
        };
        text.push_str(before);
        text.push_str("libvirt: ");
        text.push_str(inner.trim_end());
        rest = after.trim_start_matches("')");
    }
    text.push_str(rest);
    text
}

/// The text before the first frame, and the text from the frame's inside on.
fn next_frame(text: &str) -> Option<(&str, &str)> {
    let splits = FRAMES.iter().filter_map(|frame| text.split_once(frame));
    splits.min_by_key(|(before, _)| before.len())
}

/// Explains a call without an answer.
#[must_use]
pub fn no_answer(status: &tonic::Status) -> String {
    match status.code() {
        tonic::Code::Unimplemented => {
            "this launcher does not know the call: it is KubeVirt's own, or an older one".to_owned()
        }
        tonic::Code::DeadlineExceeded | tonic::Code::Cancelled => {
            "the launcher has not answered in time, and may still do it; launcherctl status shows whether it answers again, launcherctl logs what it waits for"
                .to_owned()
        }
        tonic::Code::Unavailable => {
            "the connection ended: the launcher is ending, or has ended".to_owned()
        }
        _ => plain(status.message()),
    }
}

/// Why a launcher's socket refuses connections, with the remedy.
#[must_use]
pub fn no_connection(socket: &Path, cause: &ConnectError) -> String {
    let ConnectError::Connect(error) = cause else {
        return format!(
            "what serves this socket is not a launcher ({})",
            os::logging::chain(cause)
        );
    };
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            "there is no such socket: the launcher has ended, or has not started yet; launcherctl list shows the VMs of run".to_owned()
        }
        ErrorKind::ConnectionRefused if is_other_file(socket) => {
            "it is not a socket; --root takes a launcher's directory".to_owned()
        }
        ErrorKind::ConnectionRefused => {
            "no process serves the socket: the launcher was killed; launcherctl list shows the VMs of run, and launcherctl stop NAME removes what is left of one".to_owned()
        }
        ErrorKind::PermissionDenied => {
            "this user may not use the socket; run launcherctl as the user of the launcher, or as root".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Whether the path is a file other than a socket.
fn is_other_file(socket: &Path) -> bool {
    std::fs::metadata(socket).is_ok_and(|it| !it.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libvirts_frame_is_left_out_and_the_remedy_added() {
        let message = "disk \"a\" (sda): attach: LibvirtError(Code=1, Domain=10, Message='internal error: Failed to get \"write\" lock\nIs another process using the image [/x]?')";
        let text = plain(message);
        assert!(
            text.starts_with("disk \"a\" (sda): attach: libvirt: internal error: Failed"),
            "{text}"
        );
        assert!(
            !text.contains("Code=") && text.contains("what to do: another process has the image"),
            "{text}"
        );
        assert_eq!(plain("another cause"), "another cause");
        // As in a migration's metadata.
        let message = "virError(Code=9, Domain=10, Message='internal error: socket is closed'), then LibvirtError(Code=1, Domain=10, Message='no')";
        assert_eq!(
            plain(message),
            "libvirt: internal error: socket is closed, then libvirt: no"
        );
        let message = "LibvirtError(Code=1, Domain=10, Message='internal error: QEMU unexpectedly closed the monitor (vm='default_two'): 2026-11-25T19:28:02.628475Z qemu-system-x86_64: -device {\"id\":\"ua-root\"}: Failed to get lock\nIs another process using the image [/x]?')";
        assert_eq!(
            plain(message),
            "libvirt: internal error: QEMU unexpectedly closed the monitor (vm='default_two'): qemu-system-x86_64: Failed to get lock\nIs another process using the image [/x]?"
        );
        // Cut off, as in a log.
        assert_eq!(plain("LibvirtError(Code=1, x"), "LibvirtError(Code=1, x");
        let without_sys = plain(
            "LibvirtError(Code=1, Domain=0, Message='An error occurred, but the cause is unknown')",
        );
        assert!(
            without_sys.contains("/sys/devices/system/cpu"),
            "{without_sys}"
        );
    }

    #[test]
    fn the_sidecar_of_run_is_not_named() {
        let network = "hook sidecar \"launcherctl-network\" (/var/run/n.sock)";
        let own = "hook sidecar \"smbios\" (/var/run/s.sock)";
        let plain = |hooks: &[&str]| {
            plain(&format!(
                "LibvirtError(Code=67, Domain=10, Message='no such machine'); the domain was changed by {}",
                hooks.join(", ")
            ))
        };
        assert_eq!(plain(&[network]), "libvirt: no such machine");
        let of_user = format!("libvirt: no such machine; the domain was changed by {own}");
        for hooks in [&[network, own][..], &[own, network], &[own]] {
            assert_eq!(plain(hooks), of_user);
        }
    }

    #[test]
    fn a_socket_without_a_launcher_says_what_that_means() {
        let at =
            |path: &Path, kind: ErrorKind| no_connection(path, &ConnectError::Connect(kind.into()));
        let of = |kind| at(Path::new("/nonexistent"), kind);
        let file = tempfile::NamedTempFile::new().unwrap();
        let plain = at(file.path(), ErrorKind::ConnectionRefused);
        assert!(plain.starts_with("it is not a socket"), "{plain}");
        assert!(of(ErrorKind::NotFound).contains("no such socket"));
        assert!(of(ErrorKind::ConnectionRefused).contains("was killed"));
        assert!(of(ErrorKind::PermissionDenied).contains("as root"));
    }

    #[test]
    fn a_call_without_an_answer_says_what_that_means() {
        let of = |code| no_answer(&tonic::Status::new(code, "transport error"));
        assert!(of(tonic::Code::Unimplemented).contains("KubeVirt's own"));
        assert!(of(tonic::Code::Unavailable).contains("ending"));
        assert_eq!(of(tonic::Code::Unknown), "transport error");
    }
}
