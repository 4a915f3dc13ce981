//! SIGTERM: the pod is to end.

use serde_json::json;

use crate::harness::{Pod, Vmi, run};

#[test]
fn sigterm_marks_the_domain_and_leaves_the_rest_to_virt_handler() {
    run(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("term").with_image(&pod).set("/spec/terminationGracePeriodSeconds", json!(60));
        pod.handler.serve();
        pod.launch(&vmi, &["--grace-period-seconds", "75"]);
        pod.wait_until_ready().await;
        pod.boot(&vmi).await;
        pod.signal("TERM");
        let marked = |event: &crate::harness::Event| {
            event.domain["Spec"]["Metadata"]["KubeVirt"]["GracePeriod"]["MarkedForGracefulShutdown"] == true
        };
        pod.handler.event("marked for graceful shutdown", marked).await;
        // What virt-handler does then; this guest obeys.
        let answer = pod.cmd().shutdown_virtual_machine(pod.request(vmi.value())).await.unwrap().into_inner();
        assert!(answer.success, "{}", answer.message);
        pod.handler.event("shut off", |event| event.status() == "Shutoff").await;
        let answer = pod.cmd().delete_virtual_machine(pod.request(vmi.value())).await.unwrap().into_inner();
        assert!(answer.success, "{}", answer.message);
        pod.handler.event("final", crate::harness::Event::is_final).await;
        assert_eq!(pod.exit_code().await, 0);
    });
}

#[test]
fn a_guest_that_does_not_obey_is_ended_after_the_grace_period() {
    run(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("stubborn").with_image(&pod);
        pod.handler.serve();
        pod.launch(&vmi, &["--grace-period-seconds", "3"]);
        pod.wait_until_ready().await;
        let mut guest = pod.boot(&vmi).await;
        guest.run("touch /run/ignore-power").await;
        pod.signal("TERM");
        pod.handler.event("shut off", |event| event.status() == "Shutoff" || event.is_final()).await;
        assert_eq!(pod.exit_code().await, 0);
        assert!(pod.guests().is_empty());
    });
}

#[test]
fn sigterm_before_there_is_a_domain_ends_the_launcher() {
    run(async {
        let vmi = Vmi::new("early");
        let mut pod = Pod::ready(&vmi, &["--grace-period-seconds", "1"]).await;
        pod.signal("TERM");
        assert_eq!(pod.exit_code().await, 0);
    });
}
