//! Which sidecars there are, and in which order they are called.

use super::*;

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
    assert_eq!(define(&none).await.unwrap(), XML);
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
    let xml = define(&sidecars).await.unwrap();
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
    let xml = define(&sidecars).await.unwrap();
    assert!(xml.contains("highmiddlelow"), "{xml}");
}

#[tokio::test]
// D-hook-4 (docs/differences.md).
async fn two_sidecars_may_have_the_same_socket_name() {
    let pod = Pod::new();
    pod.serve("hook-sidecar-0/twin.sock", Fake::appending("1"));
    pod.serve("hook-sidecar-1/twin.sock", Fake::appending("2"));
    let xml = define(&collect(&pod, 2).await).await.unwrap();
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
    let error = Sidecars::collect(pod.dir(), 5, Instant::now() + Duration::from_millis(2500))
        .await
        .unwrap_err();
    let text = chain(&error);
    for part in [
        "1 of 5",
        r#"ready: "fake" (hook-sidecar-0/good.sock)"#,
        "hook-sidecar-1/dead.sock (cannot be reached: Connection refused",
        "hook-sidecar-2/slow.sock (no answer within 1 s)",
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
    let xml = define(&sidecars).await.unwrap();
    assert!(xml.contains("v1alpha2:x"), "{xml}");
}
