//! Statistics of a guest that runs: what libvirt says of it, under the VMI's names, and never late.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use api::proto::cmd::v1::{
    AgentDevicesRequest, AgentLoadRequest, AgentOsInfoRequest, DirtyRateRequest,
    DomainStatsRequest, EmptyRequest, VmStatsRequest,
};

use crate::harness::{Pod, TEST_TIMEOUT, in_pod};

/// The answer to `GetDomainStats`.
async fn stats(pod: &Pod) -> Result<Value, String> {
    let answer = pod.cmd().get_domain_stats(EmptyRequest {}).await.unwrap();
    let answer = answer.into_inner();
    let response = answer.response.unwrap();
    if response.success {
        Ok(serde_json::from_str(&answer.domain_stats).unwrap())
    } else {
        Err(response.message)
    }
}

#[test]
fn statistics_are_libvirts_under_the_names_of_the_vmi() {
    in_pod(async {
        let (mut pod, _vmi, mut guest) =
            Pod::booted("counted", &["--libvirt=auto", "--vm-stats-collector"]).await;
        guest.run("disks; cat /dev/vda >/dev/null").await;
        let stats = stats(&pod).await.unwrap();
        assert_eq!(stats["Name"], "default_counted");
        let block = &stats["Block"][0];
        assert_eq!(
            (&block["Name"], &block["Alias"]),
            (&"vda".into(), &"rootdisk".into())
        );
        let domstats = pod.virsh(&["domstats", "default_counted"]);
        let value = |name: &str| -> u64 {
            let line = domstats
                .lines()
                .find_map(|line| line.trim().strip_prefix(name));
            let value = line.and_then(|rest| rest.strip_prefix('='));
            value
                .unwrap_or_else(|| panic!("{name} is not in {domstats}"))
                .parse()
                .unwrap()
        };
        // Those that do not change while nothing happens; the guest has read the whole disk.
        assert_eq!(block["Capacity"], value("block.0.capacity"));
        assert!(block["RdBytes"].as_u64().unwrap() >= block["Capacity"].as_u64().unwrap());
        assert_eq!(stats["Memory"]["Total"], value("balloon.current"));
        assert!(stats["Memory"]["RSS"].as_u64().unwrap() > 0);
        assert!(stats["Cpu"]["Time"].as_u64().unwrap() > 0 && stats["Cpu"]["TimeSet"] == true);
        assert_eq!(
            stats["Vcpu"].as_array().unwrap().len() as u64,
            value("vcpu.maximum")
        );
        assert_eq!(stats["CPUMapSet"], true);
        assert!(
            stats["CPUMap"][0]
                .as_array()
                .unwrap()
                .iter()
                .any(|cpu| cpu == true)
        );
        assert_eq!(stats["DirtyRate"]["CalcStatusSet"], true);

        let request = VmStatsRequest {
            domain_stats: Some(DomainStatsRequest {}),
            dirty_rate: Some(DirtyRateRequest {}),
            guest_get_os_info: Some(AgentOsInfoRequest {}),
            guest_get_load: Some(AgentLoadRequest {}),
            ..VmStatsRequest::default()
        };
        pod.handler.agent().await;
        let answer = pod.cmd().get_vm_stats(request).await.unwrap().into_inner();
        let rate = answer.dirty_rate_stats.unwrap();
        assert!(rate.response.unwrap().success && rate.dirty_rate_mbs >= 0);
        assert!(!answer.domain_stats.unwrap().domain_stats.is_empty());
        let os: Value = serde_json::from_str(&answer.guest_get_os_info.unwrap().message).unwrap();
        assert!(os["return"]["kernel-release"].is_string(), "{os}");
        // The guest's agent may be older than this command.
        let load = answer.guest_get_load.unwrap();
        assert_eq!(answer.response.unwrap().success, load.success, "{load:?}");
        assert_eq!(answer.guest_get_users, None);

        // Only agents in Windows have this one; virt-handler of v1.10 asks all.
        let request = VmStatsRequest {
            guest_get_os_info: Some(AgentOsInfoRequest {}),
            guest_get_devices: Some(AgentDevicesRequest {}),
            ..VmStatsRequest::default()
        };
        let answer = pod.cmd().get_vm_stats(request).await.unwrap().into_inner();
        assert!(answer.response.as_ref().unwrap().success, "{answer:?}");
        let devices = answer.guest_get_devices.unwrap();
        assert_eq!((devices.success, devices.message.as_str()), (true, ""));
        assert!(!answer.guest_get_os_info.unwrap().message.is_empty());
    });
}

/// For how long libvirt keeps a read waiting while a change holds the domain
/// (`QEMU_JOB_WAIT_TIME`).
const LIBVIRTS_LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_hanging_qemu_delays_no_scrape_beyond_its_limit() {
    let (pod, vmi) = Pod::started("hanging", &["--libvirt=auto"]).await;
    let signal = |name: &str| {
        let pid = pod.guests()[0].to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(status.unwrap().success());
    };
    signal("STOP");
    // A change that QEMU does not answer holds the domain.
    let (mut cmd, request) = (pod.cmd(), pod.request(vmi.value()));
    let held = tokio::spawn(async move { drop(cmd.pause_virtual_machine(request).await) });
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..3 {
        let begun = Instant::now();
        let answer = stats(&pod).await;
        assert!(begun.elapsed() < LIBVIRTS_LIMIT, "{answer:?}");
        if let Ok(stats) = answer {
            // What needs no answer of QEMU's.
            assert!(stats["Cpu"]["Time"].as_u64().unwrap() > 0);
            assert_eq!(stats["Block"][0]["RdBytesSet"], false);
        }
    }
    signal("CONT");
    held.await.unwrap();
    let end = Instant::now() + TEST_TIMEOUT;
    while stats(&pod).await.unwrap()["Block"][0]["RdBytesSet"] != true {
        assert!(Instant::now() < end, "no answer of QEMU's");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
