//! What a guest costs while nothing happens: wake-ups of the launcher and of libvirt's daemons,
//! counted by the kernel. `scripts/measure-idle` measures them; this notices when something polls
//! that should not.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::guest_agent::guest_info_until;
use crate::harness::{Pod, has_agent, in_pod};
use crate::monitor::launcher;

/// For what follows a start.
const START_TIME: Duration = Duration::from_secs(12);
const TIME: Duration = Duration::from_secs(30);
/// Limit for all of them in [`TIME`]. The launcher may ask the agent twice in that time, which
/// takes 110 wake-ups each. The reference's launcher alone has 1,700.
const MAX_WAKE_UPS: u64 = 350;

/// How often each thread of a process has waited so far.
fn waits(pid: u32) -> BTreeMap<String, u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let count = |thread: std::fs::DirEntry| {
        // A thread may end meanwhile.
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        let name = thread.file_name().into_string().unwrap();
        Some((name, line.trim().parse().unwrap()))
    };
    threads.flatten().filter_map(count).collect()
}

#[test]
fn an_idle_guest_with_an_agent_wakes_launcher_and_daemons_rarely() {
    in_pod(async {
        let (mut pod, vmi, _guest) = Pod::booted("idle", &["--libvirt=auto"]).await;
        pod.domain_until("with an agent", has_agent).await;
        guest_info_until(&mut pod, "complete", |info| {
            info["guestAgentVersion"].is_string()
        })
        .await;
        tokio::time::sleep(START_TIME).await;
        let mut pids = vec![launcher(&pod)];
        pids.extend(pod.libvirt_daemons());
        pids.extend(pod.processes("virtlogd"));
        let before: Vec<_> = pids.iter().map(|pid| waits(*pid)).collect();
        tokio::time::sleep(TIME).await;
        let mut all = 0;
        for (pid, before) in pids.iter().zip(before) {
            let more = waits(*pid).into_iter().map(|(thread, after)| {
                after.saturating_sub(before.get(&thread).copied().unwrap_or_default())
            });
            let more: u64 = more.sum();
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
            println!("{}: {more} in {} s", name.trim(), TIME.as_secs());
            all += more;
        }
        assert!(all <= MAX_WAKE_UPS, "{all} in {} s", TIME.as_secs());
        pod.end(&vmi).await;
    });
}
