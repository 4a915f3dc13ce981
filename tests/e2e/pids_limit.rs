//! The pod has as many processes and threads as its cgroup allows.

use std::time::Duration;

use api::proto::cmd::v1::Response;

use crate::harness::{Cgroup, Pod, Vmi, run};

/// Idle threads for blocking calls used to end after 10 s.
const IDLE: Duration = Duration::from_secs(12);

fn assert_success(answer: &Response) {
    assert!(answer.success, "{}", answer.message);
}

#[test]
// D-sup-19 (docs/differences.md).
fn calls_are_answered_without_a_thread_more() {
    let Some(cgroup) = Cgroup::of_pids() else {
        return;
    };
    run(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("threads").with_image(&pod);
        pod.handler.serve();
        pod.launch(&vmi, &[]);
        pod.wait_until_ready().await;
        pod.sync_ok(&vmi).await;
        tokio::time::sleep(IDLE).await;
        assert!(cgroup.set("cgroup.procs", &pod.first_process().to_string()));
        assert!(cgroup.set("pids.max", &cgroup.get("pids.current")));
        let request = || pod.request(vmi.value());
        let paused = pod.cmd().pause_virtual_machine(request()).await.unwrap();
        assert_success(paused.get_ref());
        assert!(cgroup.set("pids.max", "max"));
        let resumed = pod.cmd().unpause_virtual_machine(request()).await.unwrap();
        assert_success(resumed.get_ref());
        assert!(!pod.log().iter().any(|line| line.contains("panicked")));
        drop(pod);
    });
}
