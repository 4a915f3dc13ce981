//! Syncs: what they start, prepare and adopt.

use super::*;

#[test]
fn a_sync_starts_the_domain_and_shows_it() {
    play(|| async {
        let mut test = TestLauncher::begin();
        assert!(test.launcher.reads.domain().await.unwrap().is_none());
        test.sync(&vmi()).await.unwrap();
        assert_eq!(test.handler.next().await, "ADDED Running");
        let document = test.document().await;
        assert_eq!(document["Status"]["Status"], "Running");
        assert_eq!(
            document["ObjectMeta"],
            json!({"name": "vm1", "namespace": "ns1", "uid": "u-1"})
        );
        let metadata = &document["Spec"]["Metadata"]["KubeVirt"];
        assert_eq!(metadata["UID"], "u-1");
        assert_eq!(metadata["GracePeriod"]["DeletionGracePeriodSeconds"], 7);
        let xml = test.domain().unwrap().xml(libvirt::XmlKind::Live).unwrap();
        assert_eq!(
            DomainSpec::from_xml(&xml).unwrap().metadata.kube_virt.uid,
            "u-1",
            "a launcher that comes later must know whose domain it is"
        );
    });
}

#[test]
// D-net-7 (docs/differences.md).
fn a_network_that_virt_handler_has_not_prepared_stops_the_start() {
    play(|| async {
        let test = TestLauncher::begin();
        let tap = [("blue".into(), "tap".into())];
        lock(&test.pod.context).domain_attachment_by_interface_name = tap.into();
        let mut vmi = vmi();
        vmi["spec"]["networks"] = json!([{"name": "blue", "multus": {"networkName": "blue"}}]);
        vmi["spec"]["domain"] =
            json!({"devices": {"interfaces": [{"name": "blue", "bridge": {}}]}});
        let error = test.sync(&vmi).await.unwrap_err().to_string();
        assert_eq!(
            error,
            r#"interface "blue": the pod has no link pod16477688c0e or net1, which virt-handler should have prepared"#
        );
        assert_eq!(test.pod.prepared.load(Ordering::Relaxed), 0);
        assert!(test.domain().is_none());
        *lock(&test.pod.context) = Context::default();
        test.sync(&vmi).await.unwrap();
        assert!(test.state().is_running());
    });
}

#[test]
fn equal_syncs_change_nothing() {
    play(|| async {
        let test = TestLauncher::begin();
        for _ in 0..10 {
            test.sync(&vmi()).await.unwrap();
        }
        assert_eq!(test.pod.prepared.load(Ordering::Relaxed), 1);
        assert!(test.state().is_running());
        let written = lock(&test.pod.device_metadata).clone();
        assert_eq!(written, [""; 0], "no device has a tag");
    });
}

/// A VMI with a device that its guest finds by a tag.
fn tagged() -> Value {
    let mut vmi = vmi();
    vmi["spec"]["domain"] =
        json!({"devices": {"gpus": [{"name": "a", "deviceName": "d", "tag": "compute"}]}});
    vmi
}

#[test]
fn device_metadata_is_written_between_definition_and_start() {
    play(|| async {
        let test = TestLauncher::begin();
        test.sync(&tagged()).await.unwrap();
        assert_eq!(
            *lock(&test.pod.device_metadata),
            [r##"ns1_vm1 {"UserData":"#cloud-config"}"##]
        );
        assert!(test.state().is_running());
    });
}

#[test]
fn a_guest_that_would_miss_its_devices_is_not_started() {
    play(|| async {
        let test = TestLauncher::begin();
        let fails = &test.pod.device_metadata_fails;
        fails.store(true, Ordering::Relaxed);
        let error = test.sync(&tagged()).await.unwrap_err().to_string();
        assert!(error.contains("cloud-init"), "{error}");
        // Removing the definition needs QEMU's driver: this one refuses the flags.
        assert!(
            test.domain()
                .is_none_or(|domain| !domain.is_active().unwrap())
        );
    });
}

#[test]
fn a_plan_changes_nothing() {
    play(|| async {
        let test = TestLauncher::begin();
        let steps = async |vmi: Value| {
            let plan = test.launcher.syncs.plan(request(&vmi)).await?;
            Ok(serde_json::from_str::<Value>(&plan).unwrap()["steps"].take())
        };
        assert_eq!(steps(vmi()).await.unwrap()[0]["verb"], "start");
        assert!(test.domain().is_none());
        assert!(matches!(
            steps(with_phase("Running")).await,
            Err(LauncherError::Lost)
        ));
        test.sync(&vmi()).await.unwrap();
        assert_eq!(steps(vmi()).await.unwrap(), json!([]));
        test.domain().unwrap().suspend().unwrap();
        assert_eq!(steps(vmi()).await.unwrap()[0]["verb"], "resume");
        assert!(test.state().is_paused());
        *lock(&test.pod.refusal) = Some("is not supported by this test");
        assert_eq!(
            steps(vmi()).await.unwrap_err().to_string(),
            "spec.domain: is not supported by this test"
        );
    });
}

#[test]
fn syncs_at_the_same_time_share_one_start() {
    play(|| async {
        let test = Arc::new(TestLauncher::begin());
        let syncs: Vec<_> = (0..20)
            .map(|_| {
                let test = test.clone();
                tokio::spawn(async move { test.sync(&vmi()).await })
            })
            .collect();
        for sync in syncs {
            sync.await.unwrap().unwrap();
        }
        assert_eq!(test.pod.prepared.load(Ordering::Relaxed), 1);
        assert!(
            test.pod.conversions.load(Ordering::Relaxed) <= 3,
            "those that waited did not join"
        );
    });
}

#[test]
// D-vm-1 (docs/differences.md).
fn a_domain_that_is_being_started_is_not_shown() {
    play(|| async {
        let mut test = TestLauncher::begin();
        let (open, sync) = test.held_start().await;
        test.launcher.refresh();
        assert!(test.launcher.reads.domain().await.unwrap().is_none());
        open.send(()).unwrap();
        sync.await.unwrap().unwrap();
        assert!(test.launcher.reads.domain().await.unwrap().is_some());
        assert_eq!(test.handler.next().await, "ADDED Running");
    });
}

#[test]
// D-vm-2 (docs/differences.md).
fn a_failed_definition_leaves_nothing_and_the_next_sync_works() {
    play(|| async {
        let mut test = TestLauncher::begin();
        *lock(&test.pod.os) = Some("<os><type>nonsense</type></os>");
        let error = test.sync(&vmi()).await.unwrap_err().to_string();
        assert!(
            error.starts_with("LibvirtError(Code=") && error.contains("nonsense"),
            "{error}"
        );
        assert!(test.domain().is_none());
        assert!(test.launcher.reads.domain().await.unwrap().is_none());
        *lock(&test.pod.os) = None;
        *lock(&test.pod.refusal) = Some("is not supported by this test");
        assert_eq!(
            test.sync(&vmi()).await.unwrap_err().to_string(),
            "spec.domain: is not supported by this test"
        );
        *lock(&test.pod.refusal) = None;
        test.sync(&vmi()).await.unwrap();
        assert_eq!(test.handler.next().await, "ADDED Running");
    });
}

#[test]
// D-hook-8 (docs/differences.md).
fn a_domain_that_libvirt_defines_under_another_name_is_not_started() {
    play(|| async {
        let test = TestLauncher::begin();
        *lock(&test.pod.name) = Some("ns1_vm1 ");
        let error = test.sync(&vmi()).await.unwrap_err().to_string();
        assert!(error.contains("not the domain of this VMI"), "{error}");
        let other = test.connection.lookup("ns1_vm1 ").unwrap();
        // Removing the definition needs QEMU's driver: this one refuses the flags.
        assert!(other.is_none_or(|domain| !domain.is_active().unwrap()));
        assert_eq!(
            test.launcher.vm.subscribe().borrow().phase,
            Phase::StartFailed
        );
    });
}

#[test]
fn a_domain_that_runs_already_is_taken_over() {
    play(|| async {
        let mut test = TestLauncher::with(|connection| {
            let metadata = "<metadata><kubevirt xmlns='http://kubevirt.io'><uid>u-1</uid><graceperiod><deletionGracePeriodSeconds>9</deletionGracePeriodSeconds></graceperiod></kubevirt></metadata>";
            let xml = format!(
                "<domain type='test'><name>ns1_vm1</name>{metadata}<memory>8192</memory><os><type>hvm</type></os></domain>"
            );
            let domain = connection.define(&Others, &xml).unwrap();
            domain.start(false).unwrap();
            domain.suspend().unwrap();
        });
        assert_eq!(test.handler.next().await, "ADDED Paused");
        let grace = test.grace_period().await;
        assert_eq!(grace["DeletionGracePeriodSeconds"], 9);
        test.sync(&with_phase("Running")).await.unwrap();
        assert!(
            test.state().is_paused(),
            "whoever paused it has not resumed it"
        );
        assert_eq!(test.pod.prepared.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn metadata_that_change_while_the_domain_starts_are_written_after_it() {
    play(|| async {
        let test = TestLauncher::begin();
        let (open, gate) = channel();
        *lock(&test.pod.defined_gate) = Some(gate);
        let (launcher, mut state) = (test.launcher.clone(), test.launcher.vm.subscribe());
        let sync = tokio::spawn(async move { launcher.syncs.sync(request(&tagged())).await });
        let starting = state.wait_for(|vm| vm.phase == Phase::Starting).await;
        drop(starting.unwrap());
        test.launcher.mark_for_graceful_shutdown();
        open.send(()).unwrap();
        sync.await.unwrap().unwrap();
        loop {
            let xml = test.domain().unwrap().xml(libvirt::XmlKind::Live).unwrap();
            let metadata = DomainSpec::from_xml(&xml).unwrap().metadata.kube_virt;
            if metadata.grace_period.unwrap().marked_for_graceful_shutdown == Some(true) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn a_sync_whose_caller_gives_up_before_the_first_read_goes_on() {
    play(|| async {
        let test = TestLauncher::begin();
        let reads = test.launcher.libvirt.reads.clone();
        let all = u32::try_from(libvirt_domain::MAX_READS).unwrap();
        // Before the launcher's first read.
        let permits = reads.try_acquire_many_owned(all).unwrap();
        let vmi = vmi();
        let answer = timeout(Duration::from_millis(50), test.sync(&vmi)).await;
        assert!(answer.is_err());
        drop(permits);
        let mut state = test.launcher.vm.subscribe();
        state
            .wait_for(|vm| vm.phase == Phase::Running)
            .await
            .unwrap();
    });
}
