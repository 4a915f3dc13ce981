//! Sidecars as a pod has them: gRPC servers on real sockets, well-behaved and misbehaving.

use std::time::Duration;

use crate::support::{Behaviour, Fake, Pod, VMI, XML, vmi};
use hooks::{CallError, HookError, HookPoint, Sidecars, Version};
use os::logging::chain;
use tokio::time::Instant;

/// Never reached.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(400)
}

async fn collect(pod: &Pod, count: usize) -> Sidecars {
    Sidecars::collect(pod.dir(), count, later()).await.unwrap()
}

/// The text of a failed call, and the reason.
fn call_error(error: HookError) -> (String, CallError) {
    let text = chain(&error);
    match error {
        HookError::Call { reason, .. } => (text, reason),
        other => panic!("not a failed call: {other}"),
    }
}

#[tokio::test]
async fn without_sidecars_nothing_waits_and_no_directory_is_needed() {
    let none = Sidecars::collect(
        std::path::Path::new("/nonexistent/hooks"),
        0,
        Instant::now(),
    )
    .await
    .unwrap();
    assert!(none.is_empty());
    assert_eq!(
        none.on_define_domain(XML.into(), &vmi(), later())
            .await
            .unwrap(),
        XML
    );
    none.shutdown(later()).await.unwrap();
}

#[tokio::test]
async fn sockets_are_found_in_sub_directories_and_in_the_directory_itself() {
    let pod = Pod::new();
    pod.serve("hook-sidecar-0/a.sock", Fake::appending("a"));
    pod.serve("b.sock", Fake::appending("b"));
    let sidecars = collect(&pod, 2).await;
    let report = sidecars.report();
    assert_eq!(
        report
            .sidecars
            .iter()
            .map(|s| s.socket.as_str())
            .collect::<Vec<_>>(),
        ["b.sock", "hook-sidecar-0/a.sock"]
    );
}

#[tokio::test]
async fn equal_priorities_run_in_natural_order_of_their_sockets() {
    let pod = Pod::new();
    for n in 0..=10 {
        pod.serve(
            &format!("hook-sidecar-{n}/shim.sock"),
            Fake::appending(&format!("<{n}>")),
        );
    }
    let sidecars = collect(&pod, 11).await;
    let xml = sidecars
        .on_define_domain(XML.into(), &vmi(), later())
        .await
        .unwrap();
    let order: Vec<_> = (0..=10).map(|n| format!("&lt;{n}&gt;")).collect();
    assert!(xml.contains(&order.concat()), "{xml}");
}

#[tokio::test]
// D-hook-1 (docs/differences.md).
async fn the_highest_priority_runs_first() {
    let pod = Pod::new();
    pod.serve("hook-sidecar-0/s", Fake::appending("low").priority(-5));
    pod.serve("hook-sidecar-1/s", Fake::appending("high").priority(100));
    pod.serve("hook-sidecar-2/s", Fake::appending("middle"));
    let sidecars = collect(&pod, 3).await;
    let xml = sidecars
        .on_define_domain(XML.into(), &vmi(), later())
        .await
        .unwrap();
    assert!(xml.contains("highmiddlelow"), "{xml}");
}

#[tokio::test]
// D-hook-4 (docs/differences.md).
async fn two_sidecars_may_have_the_same_socket_name() {
    let pod = Pod::new();
    pod.serve("hook-sidecar-0/twin.sock", Fake::appending("1"));
    pod.serve("hook-sidecar-1/twin.sock", Fake::appending("2"));
    let xml = collect(&pod, 2)
        .await
        .on_define_domain(XML.into(), &vmi(), later())
        .await
        .unwrap();
    assert!(xml.contains("12"), "{xml}");
}

#[tokio::test]
// D-hook-4 (docs/differences.md).
async fn a_sidecar_with_two_sockets_counts_once() {
    let pod = Pod::new();
    pod.serve("hook-sidecar-0/a.sock", Fake::appending("a"));
    pod.serve("hook-sidecar-0/b.sock", Fake::appending("b"));
    let error = Sidecars::collect(pod.dir(), 2, soon()).await.unwrap_err();
    assert!(
        matches!(
            error,
            HookError::NotReady {
                expected: 2,
                count: 1,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_late_sidecar_and_a_late_directory_are_waited_for() {
    let pod = Pod::new();
    let late = tokio::time::sleep(Duration::from_millis(50));
    let (sidecars, ()) = tokio::join!(collect(&pod, 1), async {
        late.await;
        pod.serve("hook-sidecar-0/s", Fake::appending("late"));
    });
    assert_eq!(sidecars.at(HookPoint::OnDefineDomain).len(), 1);
}

#[tokio::test]
async fn a_socket_that_nobody_serves_yet_is_tried_again() {
    let pod = Pod::new();
    let bound = pod.bound("hook-sidecar-0/s");
    let (sidecars, ()) = tokio::join!(collect(&pod, 1), async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        // As a server that was restarted.
        drop(bound);
        std::fs::remove_file(pod.dir().join("hook-sidecar-0/s")).unwrap();
        pod.serve("hook-sidecar-0/s", Fake::appending("late"));
    });
    assert_eq!(sidecars.at(HookPoint::OnDefineDomain).len(), 1);
}

#[tokio::test]
async fn the_error_names_ready_and_other_sockets_with_reasons() {
    let pod = Pod::new();
    pod.serve("hook-sidecar-0/good.sock", Fake::appending("x"));
    let _nobody = pod.bound("hook-sidecar-1/dead.sock");
    pod.serve("hook-sidecar-2/slow.sock", Fake::new(Behaviour::HangInInfo));
    std::fs::create_dir(pod.dir().join("hook-sidecar-3")).unwrap();
    std::fs::write(pod.dir().join("hook-sidecar-4"), "").unwrap();
    let error = Sidecars::collect(pod.dir(), 5, Instant::now() + Duration::from_millis(1300))
        .await
        .unwrap_err();
    let text = chain(&error);
    for part in [
        "1 of 5",
        r#"ready: "fake" (hook-sidecar-0/good.sock)"#,
        "hook-sidecar-1/dead.sock (cannot be reached: Connection refused",
        "hook-sidecar-2/slow.sock (no answer within 1.0 s)",
        "hook-sidecar-3 (no socket in it)",
        "hook-sidecar-4 (not a socket)",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[tokio::test]
async fn a_directory_that_never_appears_is_named() {
    let error = Sidecars::collect(std::path::Path::new("/nonexistent/hooks"), 1, soon())
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("no socket in or below /nonexistent/hooks"),
        "{error}"
    );
}

#[tokio::test]
async fn a_sidecar_without_a_supported_version_is_refused_at_once() {
    let pod = Pod::new();
    pod.serve(
        "hook-sidecar-0/s",
        Fake::appending("x").versions(&["v1beta1", "v2"]),
    );
    let error = chain(&Sidecars::collect(pod.dir(), 1, later()).await.unwrap_err());
    assert!(
        error.contains("v1beta1")
            && error.contains("v1alpha3")
            && error.contains("hook-sidecar-0/s"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_without_the_info_service_is_refused_at_once() {
    let pod = Pod::new();
    pod.serve("hook-sidecar-0/s", Fake::new(Behaviour::NoInfo));
    let error = Sidecars::collect(pod.dir(), 1, later()).await.unwrap_err();
    assert!(matches!(error, HookError::Unusable { .. }), "{error}");
}

#[tokio::test]
async fn the_newest_of_two_versions_is_used() {
    let pod = Pod::new();
    pod.serve(
        "hook-sidecar-0/s",
        Fake::appending("x").versions(&["v1alpha1", "v1alpha2"]),
    );
    let sidecars = collect(&pod, 1).await;
    assert_eq!(sidecars.report().sidecars[0].version, Version::V1alpha2);
    let xml = sidecars
        .on_define_domain(XML.into(), &vmi(), later())
        .await
        .unwrap();
    assert!(xml.contains("v1alpha2:x"), "{xml}");
}

#[tokio::test]
async fn every_version_has_on_define_domain() {
    for version in ["v1alpha1", "v1alpha2", "v1alpha3"] {
        let pod = Pod::new();
        pod.serve(
            "hook-sidecar-0/s",
            Fake::appending("x").versions(&[version]),
        );
        let xml = collect(&pod, 1)
            .await
            .on_define_domain(XML.into(), &vmi(), later())
            .await
            .unwrap();
        assert!(xml.contains(&format!("{version}:x")), "{xml}");
    }
}

#[tokio::test]
// D-hook-11 (docs/differences.md).
async fn a_sidecar_gets_the_whole_vmi_and_unknown_elements_stay() {
    let pod = Pod::new();
    let seen = pod.serve("hook-sidecar-0/s", Fake::appending("x"));
    let given = XML.replace("</domain>", "<unknown a=\"1\"><b/></unknown></domain>");
    let xml = collect(&pod, 1)
        .await
        .on_define_domain(given, &vmi(), later())
        .await
        .unwrap();
    assert!(
        xml.replace(['\n', '\t'], "")
            .contains("<unknown a=\"1\"><b></b></unknown>"),
        "{xml}"
    );
    assert_eq!(seen.vmis(), [VMI]);
}

#[tokio::test]
// D-hook-5 (docs/differences.md).
async fn a_sidecar_that_hangs_times_out_within_the_request() {
    let pod = Pod::new();
    pod.serve("hook-sidecar-0/s", Fake::new(Behaviour::Hang));
    let sidecars = collect(&pod, 1).await;
    let deadline = soon();
    let error = sidecars
        .on_define_domain(XML.into(), &vmi(), deadline)
        .await
        .unwrap_err();
    let (text, reason) = call_error(error);
    assert!(matches!(reason, CallError::TimedOut { .. }), "{text}");
    assert!(
        text.contains("hook-sidecar-0/s") && text.contains("OnDefineDomain"),
        "{text}"
    );
    // The next request is not held up by what that one left behind.
    sidecars
        .on_define_domain(XML.into(), &vmi(), soon())
        .await
        .unwrap_err();
}

#[tokio::test]
async fn a_sidecar_that_dies_during_the_call_is_named() {
    let pod = Pod::new();
    pod.serve("hook-sidecar-0/s", Fake::new(Behaviour::Die));
    let (text, reason) = call_error(
        collect(&pod, 1)
            .await
            .on_define_domain(XML.into(), &vmi(), later())
            .await
            .unwrap_err(),
    );
    assert!(matches!(reason, CallError::Broken(_)), "{text}");
}

#[tokio::test]
async fn a_sidecar_that_has_ended_is_named() {
    let pod = Pod::new();
    let server = pod.serve("hook-sidecar-0/s", Fake::appending("x"));
    let sidecars = collect(&pod, 1).await;
    server.stop();
    let (text, reason) = call_error(
        sidecars
            .on_define_domain(XML.into(), &vmi(), later())
            .await
            .unwrap_err(),
    );
    assert!(matches!(reason, CallError::Unreachable(_)), "{text}");
}

#[tokio::test]
async fn its_own_error_is_passed_on_and_the_next_sidecar_is_not_called() {
    let pod = Pod::new();
    pod.serve(
        "hook-sidecar-0/s",
        Fake::new(Behaviour::Fail("no such annotation")),
    );
    let next = pod.serve("hook-sidecar-1/s", Fake::appending("x"));
    let (text, _) = call_error(
        collect(&pod, 2)
            .await
            .on_define_domain(XML.into(), &vmi(), later())
            .await
            .unwrap_err(),
    );
    assert!(text.contains("no such annotation"), "{text}");
    assert!(next.vmis().is_empty());
}

#[tokio::test]
async fn a_long_error_is_truncated_and_a_deadline_of_its_own_is_not_a_timeout() {
    let long = format!("{}é", "the VMI is {…} ".repeat(7_000));
    for (code, text) in [
        (tonic::Code::Internal, long.as_str()),
        (
            tonic::Code::DeadlineExceeded,
            "the license server does not answer",
        ),
    ] {
        let pod = Pod::new();
        pod.serve("a/x.sock", Fake::new(Behaviour::Status(code, text.into())));
        let (error, _) = call_error(
            collect(&pod, 1)
                .await
                .on_define_domain(XML.into(), &vmi(), later())
                .await
                .unwrap_err(),
        );
        let start: String = text.chars().take(4_000).collect();
        assert!(
            error.contains(&format!("failed with {code:?}: {start}")) && error.len() < 10_000,
            "{error}"
        );
    }
}

#[tokio::test]
async fn garbage_empty_answers_and_other_domains_are_refused() {
    let cases: [(&[u8], &str); 8] = [
        (b"", "the answer is empty"),
        (b"debug: hello\n<domain/>", "text outside"),
        (b"<domain>\n<name>ns_vm</domain>", "line 2"),
        (b"<domain>\xff</domain>", "not UTF-8"),
        (b"<domainsnapshot/>", "<domainsnapshot>"),
        (b"<!DOCTYPE d [<!ENTITY a 'b'>]><domain/>", "document type"),
        (b"<domain><name>other</name></domain>", r#""other""#),
        (
            b"<domain><name>ns_vm</name><uuid>11111111-b3ef-428c-8861-06e72d69f223</uuid></domain>",
            "11111111",
        ),
    ];
    for (answer, expected) in cases {
        let pod = Pod::new();
        pod.serve(
            "hook-sidecar-0/s",
            Fake::new(Behaviour::Answer(answer.to_vec())),
        );
        let (text, reason) = call_error(
            collect(&pod, 1)
                .await
                .on_define_domain(XML.into(), &vmi(), later())
                .await
                .unwrap_err(),
        );
        assert!(matches!(reason, CallError::Answer(_)), "{text}");
        assert!(
            text.contains(expected) && text.contains("hook-sidecar-0/s"),
            "{expected:?} is not in: {text}"
        );
    }
}

#[tokio::test]
async fn a_hundred_mebibytes_are_refused() {
    let pod = Pod::new();
    pod.serve(
        "hook-sidecar-0/s",
        Fake::new(Behaviour::Answer(vec![b' '; 100 << 20])),
    );
    let (text, reason) = call_error(
        collect(&pod, 1)
            .await
            .on_define_domain(XML.into(), &vmi(), later())
            .await
            .unwrap_err(),
    );
    assert!(matches!(reason, CallError::TooLarge { .. }), "{text}");
}

#[tokio::test]
// D-hook-10 (docs/differences.md).
async fn the_same_input_in_one_request_is_answered_without_a_second_call() {
    let pod = Pod::new();
    let seen = pod.serve("hook-sidecar-0/s", Fake::appending("x"));
    let sidecars = collect(&pod, 1).await;
    let deadline = later();
    let first = sidecars
        .on_define_domain(XML.into(), &vmi(), deadline)
        .await
        .unwrap();
    let second = sidecars
        .on_define_domain(XML.into(), &vmi(), deadline)
        .await
        .unwrap();
    assert_eq!((first, seen.vmis().len()), (second, 1));
    // Another input, and another request, ask again.
    sidecars
        .on_define_domain(XML.replace("kvm", "qemu"), &vmi(), deadline)
        .await
        .unwrap();
    sidecars
        .on_define_domain(XML.into(), &vmi(), later())
        .await
        .unwrap();
    assert_eq!(seen.vmis().len(), 3);
}

#[tokio::test]
async fn the_report_shows_what_each_sidecar_changed() {
    let pod = Pod::new();
    pod.serve("hook-sidecar-0/s", Fake::appending("x"));
    pod.serve(
        "hook-sidecar-1/s",
        Fake::new(Behaviour::Answer(b"<nonsense/>".to_vec())),
    );
    let file = pod.dir().with_file_name("report.json");
    let sidecars = collect(&pod, 2).await.reporting_to(file.clone()).await;
    let read = || serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(
        sidecars.report(),
        read(),
        "the report has them before the first call"
    );
    sidecars
        .on_define_domain(XML.into(), &vmi(), later())
        .await
        .unwrap_err();
    assert_eq!(sidecars.modified_by(), [r#""fake" (hook-sidecar-0/s)"#]);
    let report = sidecars.report();
    assert_eq!(report, read());
    let point = |n: usize| {
        report.sidecars[n]
            .points
            .iter()
            .find(|p| p.point == HookPoint::OnDefineDomain)
            .unwrap()
    };
    assert_eq!(
        point(0).last.as_ref().unwrap().changes[0].to_string(),
        r#"+ title: "v1alpha3:x""#
    );
    assert!(
        point(1)
            .last
            .as_ref()
            .unwrap()
            .error
            .as_ref()
            .unwrap()
            .contains("<nonsense>")
    );
    assert_eq!((point(0).order, point(1).order), (1, 2));
    // A launcher without sidecars in the same place does not show those of the last one.
    let _none = Sidecars::none().reporting_to(file.clone()).await;
    assert!(!file.exists());
}

#[tokio::test]
// D-hook-3 (docs/differences.md).
async fn every_cloud_init_sidecar_gets_the_result_of_the_one_before() {
    let pod = Pod::new();
    pod.serve(
        "hook-sidecar-0/s",
        Fake::appending("1").versions(&["v1alpha2"]),
    );
    pod.serve(
        "hook-sidecar-1/s",
        Fake::new(Behaviour::LegacyCloudInit("2")),
    );
    pod.serve(
        "hook-sidecar-2/s",
        Fake::appending("x").versions(&["v1alpha1"]),
    );
    let data = serde_json::json!({"DataSource": "noCloud", "NoCloudMetaData": {"instance-id": "i"}, "UserData": "#", "NetworkData": "", "VolumeName": "v"});
    let result = collect(&pod, 3)
        .await
        .pre_cloud_init_iso(data, &vmi(), later())
        .await
        .unwrap();
    assert_eq!(
        (result["UserData"].as_str(), result["VolumeName"].as_str()),
        (Some("#12"), Some("v"))
    );
}

#[tokio::test]
async fn an_answer_that_is_not_cloud_init_data_is_refused() {
    let pod = Pod::new();
    pod.serve(
        "hook-sidecar-0/s",
        Fake::new(Behaviour::Answer(b"<xml/>".to_vec())),
    );
    let data = serde_json::json!({"NoCloudMetaData": {}, "UserData": "#"});
    let (text, reason) = call_error(
        collect(&pod, 1)
            .await
            .pre_cloud_init_iso(data, &vmi(), later())
            .await
            .unwrap_err(),
    );
    assert!(
        matches!(reason, CallError::CloudInit(_)) && text.contains("PreCloudInitIso"),
        "{text}"
    );
}

#[tokio::test]
async fn shutdown_reaches_every_subscriber_although_one_hangs() {
    let pod = Pod::new();
    pod.serve("hook-sidecar-0/s", Fake::new(Behaviour::Hang).priority(9));
    let newest = pod.serve("hook-sidecar-1/s", Fake::appending("x"));
    let old = pod.serve(
        "hook-sidecar-2/s",
        Fake::appending("x").versions(&["v1alpha2"]),
    );
    let deadline = soon();
    let error = collect(&pod, 3).await.shutdown(deadline).await.unwrap_err();
    assert!(error.to_string().contains("hook-sidecar-0/s"), "{error}");
    assert_eq!((newest.shutdowns(), old.shutdowns()), (1, 0));
}

#[tokio::test]
async fn a_sidecar_may_exit_before_it_answers_shutdown() {
    let pod = Pod::new();
    pod.serve("hook-sidecar-0/s", Fake::new(Behaviour::Die));
    collect(&pod, 1).await.shutdown(later()).await.unwrap();
}

#[tokio::test]
async fn a_path_longer_than_a_socket_address_works() {
    let pod = Pod::below(&"long-directory-name/".repeat(8));
    pod.serve("hook-sidecar-0/s", Fake::appending("x"));
    collect(&pod, 1)
        .await
        .on_define_domain(XML.into(), &vmi(), later())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_dry_run_needs_no_launcher() {
    let pod = Pod::new();
    pod.serve("s", Fake::appending("x"));
    let tried = hooks::dry_run::dry_run(&pod.dir().join("s"), &vmi(), XML, later())
        .await
        .unwrap();
    assert_eq!(
        tried
            .changes
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        [r#"+ title: "v1alpha3:x""#]
    );
    assert!(!tried.is_idempotent());
    assert_eq!(tried.second_changes.len(), 1, "appending is not idempotent");
    let error = hooks::dry_run::dry_run(&pod.dir().join("none"), &vmi(), XML, later())
        .await
        .unwrap_err();
    assert!(chain(&error).contains("cannot be reached"), "{error}");
}
