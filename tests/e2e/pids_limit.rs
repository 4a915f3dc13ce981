//! The pod has as many processes and threads as its cgroup allows.

use std::time::Duration;

use crate::harness::{Cgroup, Pod};

/// Idle threads for blocking calls used to end after 10 s.
const IDLE: Duration = Duration::from_secs(12);

#[tokio::test]
// D-sup-19 (docs/differences.md).
async fn calls_are_answered_without_a_thread_more() {
    let Some(cgroup) = Cgroup::of_pids() else {
        return;
    };
    let (pod, vmi) = Pod::started("threads", &[]).await;
    tokio::time::sleep(IDLE).await;
    assert!(cgroup.set("cgroup.procs", &pod.first_process().to_string()));
    assert!(cgroup.set("pids.max", &cgroup.get("pids.current")));
    pod.pause(&vmi).await;
    assert!(cgroup.set("pids.max", "max"));
    pod.unpause(&vmi).await;
    assert!(!pod.log().iter().any(|line| line.contains("panicked")));
    drop(pod);
}
