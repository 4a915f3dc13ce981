//! The calls of hooks: their answers, errors and limits.

use super::*;

#[tokio::test]
async fn every_version_has_on_define_domain() {
    for version in ["v1alpha1", "v1alpha2", "v1alpha3"] {
        let pod = Pod::new();
        pod.serve(
            "hook-sidecar-0/s",
            Fake::appending("x").versions(&[version]),
        );
        let xml = define(&collect(&pod, 1).await).await.unwrap();
        assert!(xml.contains(&format!("{version}:x")), "{xml}");
    }
}

#[tokio::test]
// D-hook-11 and D-hook-18 (docs/differences.md).
async fn a_sidecar_gets_the_whole_vmi_and_unknown_elements_stay() {
    let pod = Pod::new();
    let seen = pod.serve("hook-sidecar-0/s", Fake::appending("x"));
    let given = XML.replace("</domain>", "<unknown a=\"1\"><b/></unknown></domain>");
    let xml = collect(&pod, 1)
        .await
        .on_define_domain(given, &vmi(), RequestId::unique(), later())
        .await
        .unwrap()
        .xml;
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
        .on_define_domain(XML.into(), &vmi(), RequestId::unique(), deadline)
        .await
        .unwrap_err();
    let (text, reason) = call_error(error);
    assert!(matches!(reason, HookCallError::TimedOut { .. }), "{text}");
    assert!(
        text.contains("hook-sidecar-0/s") && text.contains("OnDefineDomain"),
        "{text}"
    );
    // The next request is not held up by what that one left behind.
    sidecars
        .on_define_domain(XML.into(), &vmi(), RequestId::unique(), soon())
        .await
        .unwrap_err();
}

#[tokio::test]
async fn a_sidecar_that_dies_during_the_call_is_named() {
    let (text, reason) = refusal(Fake::new(Behaviour::Die)).await;
    assert!(matches!(reason, HookCallError::Broken(_)), "{text}");
}

#[tokio::test]
async fn a_sidecar_that_has_ended_is_named() {
    let pod = Pod::new();
    let server = pod.serve("hook-sidecar-0/s", Fake::appending("x"));
    let sidecars = collect(&pod, 1).await;
    server.stop();
    let (text, reason) = call_error(define(&sidecars).await.unwrap_err());
    assert!(matches!(reason, HookCallError::Unreachable(_)), "{text}");
}

#[tokio::test]
async fn its_own_error_is_passed_on_and_the_next_sidecar_is_not_called() {
    let pod = Pod::new();
    pod.serve(
        "hook-sidecar-0/s",
        Fake::new(Behaviour::Fail("no such annotation")),
    );
    let next = pod.serve("hook-sidecar-1/s", Fake::appending("x"));
    let (text, _) = call_error(define(&collect(&pod, 2).await).await.unwrap_err());
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
        let (error, _) = refusal(Fake::new(Behaviour::Status(code, text.into()))).await;
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
        (
            b"debug: hello\n<domain/>",
            "standard output has the answer only",
        ),
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
        let (text, reason) = refusal(Fake::new(Behaviour::Answer(answer.to_vec()))).await;
        assert!(matches!(reason, HookCallError::Answer(_)), "{text}");
        assert!(
            text.contains(expected) && text.contains("hook-sidecar-0/s"),
            "{expected:?} is not in: {text}"
        );
    }
}

#[tokio::test]
async fn a_hundred_mebibytes_are_refused() {
    let (text, reason) = refusal(Fake::new(Behaviour::Answer(vec![b' '; 100 << 20]))).await;
    assert!(matches!(reason, HookCallError::TooLarge { .. }), "{text}");
}

#[tokio::test]
// D-hook-10 (docs/differences.md).
async fn the_same_input_in_one_request_is_answered_without_a_second_call() {
    let pod = Pod::new();
    let seen = pod.serve("hook-sidecar-0/s", Fake::appending("x"));
    let sidecars = collect(&pod, 1).await;
    let (request, deadline) = (RequestId::unique(), later());
    let first = sidecars
        .on_define_domain(XML.into(), &vmi(), request, deadline)
        .await
        .unwrap();
    let second = sidecars
        .on_define_domain(XML.into(), &vmi(), request, deadline)
        .await
        .unwrap();
    assert_eq!(first.modified_by, [r#""fake" (hook-sidecar-0/s)"#]);
    assert_eq!((first, seen.vmis().len()), (second, 1));
    // Another input, and another request, ask again.
    sidecars
        .on_define_domain(XML.replace("kvm", "qemu"), &vmi(), request, deadline)
        .await
        .unwrap();
    define(&sidecars).await.unwrap();
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
    define(&sidecars).await.unwrap_err();
    let report = sidecars.report();
    assert_eq!(report, read());
    let point = |n: usize| {
        let mut points = report.sidecars[n].points.iter();
        points
            .find(|it| it.point == HookPoint::OnDefineDomain)
            .unwrap()
    };
    let last = |n: usize| point(n).last.as_ref().unwrap();
    let change = last(0).changes.list[0].to_string();
    assert_eq!(change, r#"+ title: "v1alpha3:x""#);
    assert!(last(1).error.as_ref().unwrap().contains("<nonsense>"));
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
        matches!(reason, HookCallError::CloudInit(_)) && text.contains("PreCloudInitIso"),
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
    define(&collect(&pod, 1).await).await.unwrap();
}

#[tokio::test]
async fn a_socket_that_was_replaced_after_info_is_checked_alike() {
    let pod = Pod::new();
    let place = "hook-sidecar-0/s";
    let first = pod.serve(place, Fake::appending("first"));
    let sidecars = collect(&pod, 1).await;
    first.stop();
    std::fs::remove_file(pod.dir().join(place)).unwrap();
    let other = XML.replace("ns_vm", "ns_other").into_bytes();
    pod.serve(place, Fake::new(Behaviour::Answer(other)));
    let (text, _) = call_error(define(&sidecars).await.unwrap_err());
    assert!(text.contains("the domain's name was changed"), "{text}");
}
