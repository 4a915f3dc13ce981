//! Guest agents that are late, silent, wrong or endless: a script in the guest in place of QEMU's
//! agent.

use std::time::{Duration, Instant};

use api::proto::cmd::v1::GuestPingRequest;
use serde_json::Value;

use crate::guest_agent::{freeze, guest_info, guest_info_until};
use crate::harness::{Event, Guest, Pod, Vmi};

/// Answers libvirt's synchronisation; all else as the word in `/run/mode` says. One process reads
/// and writes the port, and reads again after an end of file: until libvirt connects there is
/// nobody on the other side. The port has one user: a process that ends may have it open for a
/// moment. Only the endless answer starts programs: libvirt waits 5 s, which a few of them take in
/// the guest of a busy machine.
const AGENT: &str = r#"
until command exec 3<>/dev/virtio-ports/org.qemu.guest_agent.0; do :; done
while :; do while read -r line <&3; do
    read -r mode </run/mode
    id=${line##*'"id":'}
    id=${id%%\}*}
    case $mode:$line in
    silent:*) ;;
    foreign:*guest-sync*) printf '{"return": 1}\n{"return": %s}\n' "$id" >&3 ;;
    *:*guest-sync*) printf '{"return": %s}\n' "$id" >&3 ;;
    half:*) printf '{"return": [{"na' >&3 ;;
    garbage:*) head -c 67108864 /dev/zero | tr '\0' x >&3; echo >&3 ;;
    lies:*guest-info*) printf '{"return": {"version": 7, "supported_commands": "many"}}\n' >&3 ;;
    good:*guest-info*) printf '{"return": {"version": "1.2.3", "supported_commands": []}}\n' >&3 ;;
    flaky:*guest-network-get-interfaces*) if [ -e /run/failed ]
        then printf '{"return": [{"name": "eth9", "hardware-address": "52:54:00:00:00:09"}]}\n' >&3
        else touch /run/failed; printf '{"error": {"class": "GenericError", "desc": "failed to get adapters addresses"}}\n' >&3
        fi ;;
    thawed:*guest-fsfreeze-freeze*) echo frozen >/run/mode
        printf '{"error": {"class": "GenericError", "desc": "slow"}}\n' >&3 ;;
    thaws:*guest-fsfreeze-thaw*) echo thawed >/run/mode; printf '{"return": 1}\n' >&3 ;;
    thawed:*guest-fsfreeze-status*) printf '{"return": "thawed"}\n' >&3 ;;
    frozen:*guest-fsfreeze-status*|thaws:*guest-fsfreeze-status*) printf '{"return": "frozen"}\n' >&3 ;;
    good:*guest-ping*) printf '{"return": {}}\n' >&3 ;;
    *) printf '{"error": {"class": "CommandNotFound", "desc": "not here"}}\n' >&3 ;;
    esac
done; sleep 0.2; done
"#;

/// Puts the script in the place of the real agent. libvirt sees the port closed in between: an
/// answer of which it has the first half would spoil the script's first one.
pub(crate) async fn replace_agent(pod: &mut Pod, guest: &mut Guest, mode: &str) {
    guest.run(&format!("echo {mode} >/run/mode")).await;
    for line in AGENT.trim().lines() {
        // Between single quotes but for those that it has itself.
        let line = line.replace('\'', r"'\''");
        guest.run(&format!("echo '{line}' >>/run/agent")).await;
    }
    pod.handler.forget();
    guest.run("touch /run/no-agent; killall qemu-ga").await;
    let without = |event: &Event| !event.has_agent();
    pod.handler.event("without an agent", without).await;
    guest.run(START).await;
}

const START: &str = "(sh /run/agent </dev/null >/dev/null 2>&1 &)";
/// Until none is left: one that is about to start `tr` has a child that is not listed yet.
const END: &str = "while killall sh || killall tr || killall head; do sleep 0.1; done 2>/dev/null";

pub(crate) async fn ping(pod: &Pod) -> Result<(), String> {
    let request = GuestPingRequest {
        domain_name: String::new(),
        timeout_seconds: 1,
    };
    let answer = pod.cmd().guest_ping(request).await;
    answer
        .map(drop)
        .map_err(|status| status.message().to_owned())
}

/// The domain's own calls, while the agent does what it does.
async fn the_domain_answers(pod: &Pod, vmi: &Vmi) {
    pod.pause(vmi).await;
    assert_eq!(pod.domain().await["Status"]["Status"], "Paused");
    pod.unpause(vmi).await;
    assert_eq!(pod.domain().await["Status"]["Status"], "Running");
}

async fn version(pod: &mut Pod, expected: &str) {
    guest_info_until(pod, "of the agent", |info| {
        info["guestAgentVersion"] == expected
    })
    .await;
}

#[tokio::test]
async fn an_agent_that_misbehaves_costs_no_more_than_its_own_answers() {
    let (mut pod, vmi, mut guest) = Pod::booted("liar", &[]).await;
    guest_info_until(&mut pod, "complete", |info| {
        info["guestAgentVersion"].is_string()
    })
    .await;
    let known: Value = guest_info(&pod).await;
    let before = pod.usage().resident_kib;

    replace_agent(&mut pod, &mut guest, "silent").await;
    // Another answer's id is skipped, and a good agent is asked.
    for mode in ["foreign", "good"] {
        guest.run(&format!("echo {mode} >/run/mode")).await;
        the_domain_answers(&pod, &vmi).await;
    }
    version(&mut pod, "1.2.3").await;
    assert_eq!(ping(&pod).await, Ok(()));
    for mode in ["silent", "half", "lies", "garbage"] {
        guest.run(&format!("echo {mode} >/run/mode")).await;
        if mode != "lies" {
            assert!(ping(&pod).await.is_err(), "{mode}");
        }
        the_domain_answers(&pod, &vmi).await;
        // What was known before stays.
        assert_eq!(guest_info(&pod).await["os"], known["os"], "{mode}");
        guest.run(&format!("{END}; sleep 1")).await;
        guest.run(START).await;
    }
    let grown = pod.usage().resident_kib.saturating_sub(before);
    assert!(grown < 64 << 10, "the launcher has grown by {grown} KiB");

    // The real one comes back, and is asked and answers as before.
    pod.handler.forget();
    guest.run(&format!("{END}; rm /run/no-agent")).await;
    pod.handler.agent().await;
    let real = known["guestAgentVersion"].as_str().unwrap();
    version(&mut pod, real).await;
    assert_eq!(ping(&pod).await, Ok(()));
    pod.end(&vmi).await;
}

#[tokio::test]
// D-agent-2 (docs/differences.md).
async fn what_an_agent_refuses_once_is_asked_for_again() {
    let (mut pod, vmi, mut guest) = Pod::booted("flaky", &["--qemu-agent-sys-interval=5s"]).await;
    pod.handler.agent().await;
    replace_agent(&mut pod, &mut guest, "flaky").await;
    // The script knows nothing else, so that each kind is asked for alone.
    pod.handler
        .event("with the address of the second answer", |event| {
            event.domain["Status"]["Interfaces"][0]["InterfaceName"] == "eth9"
        })
        .await;
    assert_eq!(guest.run("ls /run/failed").await, "/run/failed");
    pod.end(&vmi).await;
}

/// A thaw is due from then on, and would end the next freeze.
#[tokio::test]
async fn a_freeze_after_one_that_has_failed_lasts_to_its_own_deadline() {
    let (mut pod, vmi, mut guest) = Pod::booted("refreeze", &[]).await;
    pod.handler.agent().await;
    replace_agent(&mut pod, &mut guest, "thawed").await;
    pod.handler.agent().await;
    assert!(!freeze(&pod, &vmi, 0).await.success);
    pod.log_has("could not be thawed; trying again").await;
    let again = Instant::now();
    assert!(freeze(&pod, &vmi, 10).await.success);
    guest.run("echo thaws >/run/mode").await;
    pod.log_has("Thawed the guest's file systems").await;
    assert!(again.elapsed() >= Duration::from_secs(10), "{again:?}");
    pod.end(&vmi).await;
}
