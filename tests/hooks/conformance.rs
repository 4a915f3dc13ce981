//! The conformance check of sidecar programs: what passes, and what each check finds.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::executable::write_script;
use crate::support::{built_example, example, is_missing, search_path};
use hooks::conformance::{CallLimits, Check, CloudInit, Conformance, Outcome, Subject, check};
use hooks::dry_run::dry_run;
use prost::bytes::Bytes;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

const DOMAIN: &str = r#"<domain type="kvm"><name>ns_vm</name><metadata></metadata>
  <os><type>hvm</type></os><sysinfo type="smbios"><baseBoard/></sysinfo>
  <devices><disk><target dev="vda"/><alias name="ua-root"/></disk></devices>
</domain>"#;
const VMI: &str = r#"{"metadata":{"name":"vm","namespace":"ns","annotations":{"smbios.vm.kubevirt.io/baseBoardManufacturer":"R. Edward"}}}"#;

/// Long enough for a busy machine.
const LIMITS: CallLimits = CallLimits {
    start: Duration::from_secs(60),
    call: Duration::from_secs(60),
    stop: Duration::from_secs(60),
};

async fn conformance(command: impl FnOnce(&Path) -> Command, limits: CallLimits) -> Conformance {
    with_cloud_init(CloudInit::Examples, command, limits).await
}

async fn with_cloud_init(
    cloud_init: CloudInit,
    command: impl FnOnce(&Path) -> Command,
    limits: CallLimits,
) -> Conformance {
    let dir = tempfile::tempdir().unwrap();
    let subject = subject(cloud_init, dir.path());
    check(command(dir.path()), subject, limits).await
}

fn subject(cloud_init: CloudInit, socket_dir: &Path) -> Subject {
    Subject {
        socket_dir: socket_dir.to_owned(),
        vmi_json: Bytes::from_static(VMI.as_bytes()),
        domain_xml: DOMAIN.to_owned(),
        cloud_init,
        plugin: None,
    }
}

/// The shim with the programs of a directory.
fn shim(version: &str, programs: &Path, socket_dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pod-tools"));
    command
        .args(["sidecar-shim", "--version", version, "--socket-dir"])
        .arg(socket_dir)
        .env("PATH", search_path(programs))
        .stderr(Stdio::null());
    command
}

/// The shim with this script as `onDefineDomain`.
async fn script(version: &str, text: &str, limits: CallLimits) -> Conformance {
    let programs = directory_with("onDefineDomain", text);
    conformance(|dir| shim(version, programs.path(), dir), limits).await
}

fn directory_with(hook: &str, text: &str) -> TempDir {
    let programs = tempfile::tempdir().unwrap();
    write_script(&programs.path().join(hook), text);
    programs
}

/// The checks that failed, with their texts.
fn failed(conformance: &Conformance) -> Vec<(Check, &str)> {
    let results = conformance.results.iter();
    results
        .filter_map(|result| match &result.outcome {
            Outcome::Failed(reason) => Some((result.check, reason.as_str())),
            _ => None,
        })
        .collect()
}

fn outcome(conformance: &Conformance, check: Check) -> &Outcome {
    let mut results = conformance.results.iter();
    &results
        .find(|result| result.check == check)
        .unwrap()
        .outcome
}

#[tokio::test]
async fn the_shell_example_passes() {
    let programs = example("smbios-shell");
    let table = conformance(|dir| shim("v1alpha3", &programs, dir), LIMITS).await;
    assert_eq!(failed(&table), []);
    assert!(table.passed());
    assert!(table.sidecar.as_deref().unwrap().starts_with("\"shim\""));
    assert_eq!(outcome(&table, Check::OnDefineDomain), &Outcome::Passed);
    assert_eq!(outcome(&table, Check::Shutdown), &Outcome::Passed);
    let cloud_init = outcome(&table, Check::PreCloudInitIso);
    assert!(matches!(cloud_init, Outcome::Skipped(_)), "{cloud_init:?}");
}

#[tokio::test]
async fn the_python_example_passes() {
    if is_missing("python3") {
        return;
    }
    let programs = example("boot-menu-python");
    let table = conformance(|dir| shim("v1alpha3", &programs, dir), LIMITS).await;
    assert_eq!(failed(&table), []);
}

#[tokio::test]
async fn the_rust_example_passes_every_check() {
    let program = built_example("sidecar_watchdog");
    let command = |dir: &Path| {
        let mut command = Command::new(&program);
        command.arg(dir).stderr(Stdio::null());
        command
    };
    let table = conformance(command, LIMITS).await;
    let outcomes = table
        .results
        .iter()
        .map(|result| (result.check, &result.outcome));
    let not_passed: Vec<_> = outcomes
        .filter(|(_, outcome)| **outcome != Outcome::Passed)
        .collect();
    assert_eq!(not_passed, []);
}

#[tokio::test]
async fn a_sidecar_without_shutdown_skips_that_check() {
    let table = script("v1alpha2", "#!/bin/sh\nprintf '%s' \"$4\"\n", LIMITS).await;
    assert_eq!(failed(&table), []);
    let shutdown = outcome(&table, Check::Shutdown);
    assert!(matches!(shutdown, Outcome::Skipped(_)), "{shutdown:?}");
    assert_eq!(outcome(&table, Check::Sigterm), &Outcome::Passed);
}

#[tokio::test]
async fn a_sidecar_that_appends_is_not_idempotent() {
    let text = "#!/bin/sh\nprintf '%s' \"$4\" | sed 's|</devices>|<watchdog/></devices>|'\n";
    let table = script("v1alpha2", text, LIMITS).await;
    let failed = failed(&table);
    let expected = "given its own result, it changes it again: + devices/watchdog#2";
    assert_eq!(failed, [(Check::Idempotence, expected)]);
}

#[tokio::test]
async fn a_sidecar_that_drops_unknown_elements_is_found() {
    let text = "#!/bin/sh\nprintf '%s' \"$4\" | grep -v device-from-the-future\n";
    let table = script("v1alpha2", text, LIMITS).await;
    let expected = "1 of 3 elements that it does not know are missing in its answer";
    assert_eq!(failed(&table), [(Check::UnknownElements, expected)]);
}

#[tokio::test]
async fn a_sidecar_that_always_fails_is_found() {
    let text = "#!/bin/sh\necho 'no license' >&2\nexit 1\n";
    let start = std::time::Instant::now();
    let table = script("v1alpha2", text, LIMITS).await;
    let all = start.elapsed();
    let failed = failed(&table);
    // The second after it, in which the program may end, is not part of its call.
    let times = table.results.iter().map(|result| result.milliseconds);
    let calls = Duration::from_millis(times.sum());
    assert!(
        calls + Duration::from_secs(1) <= all,
        "{calls:?} of {all:?}"
    );
    assert!(
        matches!(failed[..], [(Check::OnDefineDomain, why)] if why.contains("no license")),
        "{failed:?}"
    );
    for check in [Check::Idempotence, Check::CancelledCall] {
        let outcome = outcome(&table, check);
        assert!(matches!(outcome, Outcome::Skipped(_)), "{outcome:?}");
    }
    assert!(!table.passed());
}

#[tokio::test]
async fn a_sidecar_that_knows_no_cloud_data_only_is_found() {
    let text = "#!/bin/sh\ncase $4 in *instance-id*) printf '%s' \"$4\";; *) exit 1; esac\n";
    let programs = directory_with("preCloudInitIso", text);
    let of = |cloud_init| {
        let command = |dir: &Path| shim("v1alpha2", programs.path(), dir);
        with_cloud_init(cloud_init, command, LIMITS)
    };
    let checks = |table: &Conformance| -> Vec<Check> {
        failed(table).iter().map(|(check, _)| *check).collect()
    };
    assert_eq!(checks(&of(CloudInit::Examples).await), [Check::ConfigDrive]);

    // A VMI's data stand in for both.
    let data =
        json!({"DataSource": "noCloud", "UserData": "#", "NoCloudMetaData": {"instance-id": "i"}});
    let table = of(CloudInit::Data(data)).await;
    assert_eq!(checks(&table), []);
    assert_eq!(outcome(&table, Check::PreCloudInitIso), &Outcome::Passed);
    let skipped = outcome(&table, Check::ConfigDrive);
    assert!(matches!(skipped, Outcome::Skipped(_)), "{skipped:?}");
    let data = json!({"DataSource": "configDrive", "UserData": "#", "ConfigDriveMetaData": {}});
    let table = of(CloudInit::Data(data)).await;
    assert_eq!(checks(&table), [Check::PreCloudInitIso]);
    let data = json!({"UserData": "#", "NoCloudMetaData": {"instance-id": "i", "region": "x"}});
    let table = of(CloudInit::Data(data)).await;
    let ignored =
        "KubeVirt ignores NoCloudMetaData.region of the cloud-init data: it has no such name";
    assert_eq!(failed(&table), [(Check::PreCloudInitIso, ignored)]);
    let table = of(CloudInit::NeedsSecret).await;
    assert_eq!(checks(&table), [Check::PreCloudInitIso]);
}

#[tokio::test]
async fn a_dry_run_shows_what_is_changed_again_and_what_is_ignored() {
    let text = "#!/bin/sh\nprintf '%s' \"$4\" | sed 's|</domain>|<qemu:commandline/></domain>|'\n";
    let programs = directory_with("onDefineDomain", text);
    let dir = tempfile::tempdir().unwrap();
    let program = shim("v1alpha2", programs.path(), dir.path());
    let subject = subject(CloudInit::Examples, dir.path());
    let tried = dry_run(program, subject, LIMITS.call).await.unwrap();
    let [run] = &tried.points[..] else {
        panic!("{tried:?}")
    };
    assert_eq!((run.point, &run.refused), ("OnDefineDomain", &None));
    assert_eq!(run.changes, ["+ qemu:commandline"]);
    assert_eq!(run.again, ["+ qemu:commandline#2"]);
    let remedy = "write xmlns:qemu=\"http://libvirt.org/schemas/domain/qemu/1.0\" on it";
    let ignored = format!("libvirt ignores qemu:commandline: its prefix is not declared; {remedy}");
    assert_eq!(run.ignored, [ignored]);
    assert!(tried.xml.contains("<qemu:commandline/>") && !tried.passed());
}

#[tokio::test]
async fn a_program_that_ends_or_never_serves_is_found() {
    let ends = |_: &Path| {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        command
    };
    let table = conformance(ends, LIMITS).await;
    assert_eq!(
        failed(&table),
        [(Check::Start, "the program ended: exit status: 3")]
    );
    let never_serves = |_: &Path| {
        let mut command = Command::new("sleep");
        command.arg("1000");
        command
    };
    let limits = CallLimits {
        start: Duration::from_millis(200),
        ..LIMITS
    };
    let table = conformance(never_serves, limits).await;
    let failed = failed(&table);
    assert!(
        matches!(failed[..], [(Check::Start, reason)] if reason.contains("0 of 1 hook sidecars are ready")),
        "{failed:?}"
    );
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_found_and_killed() {
    let programs = example("smbios-shell");
    let limits = CallLimits {
        stop: Duration::from_millis(500),
        ..LIMITS
    };
    // A shell that does not pass the signal on, as an entry point of a container often does.
    let wrapped = |dir: &Path| {
        let shim = shim("v1alpha2", &programs, dir);
        let mut command = Command::new("sh");
        command
            .args(["-c", "trap '' TERM; \"$@\"; true", "sh"])
            .arg(shim.as_std().get_program())
            .args(shim.as_std().get_args())
            .env("PATH", search_path(&programs));
        command
    };
    let table = conformance(wrapped, limits).await;
    assert_eq!(
        failed(&table),
        [(Check::Sigterm, "it is still running after 500 ms")]
    );
}
