//! The domain's life: what is reported, refused and awaited.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::launcher::start::error::DomainStartError;
use domain::guest_agent::{AgentInfo, Command, FreezeStatus};
use libvirt::{CrashedDetail, LifecycleEvent};

#[test]
fn a_domain_that_somebody_paused_stays_paused() {
    play(|| async {
        let mut test = TestLauncher::synced().await;
        // Otherwise the pause may replace the first event.
        test.expect("ADDED Running").await;
        for _ in 0..2 {
            test.act(Action::Pause).await.unwrap();
        }
        test.sync(&with_phase("Running")).await.unwrap();
        assert_eq!(test.state(), DomainState::Paused(PausedReason::User));
        test.expect("MODIFIED Paused").await;
        for _ in 0..2 {
            test.act(Action::Unpause).await.unwrap();
        }
        assert!(test.state().is_running());
        test.expect("MODIFIED Running").await;
        // Paused by an unknown client.
        test.domain().unwrap().suspend().unwrap();
        test.sync(&with_phase("Running")).await.unwrap();
        assert!(test.state().is_running());
    });
}

#[test]
fn a_domain_that_ends_is_reported_to_the_end() {
    play(|| async {
        let mut test = TestLauncher::begin();
        let mut state = test.launcher.vm.subscribe();
        test.sync(&vmi()).await.unwrap();
        state.wait_for(|vm| vm.phase.is_visible()).await.unwrap();
        for _ in 0..2 {
            test.act(Action::Kill).await.unwrap();
        }
        test.expect("MODIFIED Shutoff").await;
        assert_eq!(test.document().await["Status"]["Reason"], "Destroyed");
        test.sync(&vmi()).await.unwrap();
        assert!(
            matches!(test.state(), DomainState::Shutoff(_)),
            "a domain that has ended is never started again"
        );
        test.undefine();
        test.expect("MODIFIED NoState gone").await;
        state.wait_for(|vm| vm.phase == Phase::Gone).await.unwrap();
        assert!(test.launcher.reads.domain().await.unwrap().is_none());
        assert!(
            matches!(test.sync(&vmi()).await.unwrap_err(), LauncherError::Joined(error) if matches!(*error, LauncherError::Lost))
        );
        for action in [Action::Kill, Action::Shutdown, Action::Delete] {
            test.act(action).await.unwrap();
        }
    });
}

#[test]
// D-vm-20 (docs/differences.md).
fn how_a_domain_has_ended_is_told_again_when_it_is_removed() {
    play(|| async {
        let mut test = TestLauncher::running().await;
        test.act(Action::Kill).await.unwrap();
        test.expect("MODIFIED Shutoff").await;
        // This driver does not know its flags.
        test.act(Action::Delete).await.unwrap_err();
        test.undefine();
        for _ in 0..2 {
            assert_eq!(test.handler.next().await, "MODIFIED Shutoff");
            test.act(Action::Delete).await.unwrap();
        }
        assert_eq!(test.handler.next().await, "MODIFIED NoState gone");
    });
}

#[test]
// D-vm-20 (docs/differences.md).
fn a_virt_handler_that_does_not_come_back_does_not_delay_the_final_event_for_long() {
    play(|| async {
        let mut test = TestLauncher::running().await;
        test.act(Action::Kill).await.unwrap();
        test.expect("MODIFIED Shutoff").await;
        test.act(Action::Delete).await.unwrap_err();
        test.undefine();
        test.expect_all(&["MODIFIED Shutoff", "MODIFIED NoState gone"])
            .await;
    });
}

#[test]
// D-vm-4 (docs/differences.md).
fn a_shutdown_starts_the_clock_of_the_grace_period_even_if_it_fails() {
    play(|| async {
        let mut test = TestLauncher::running().await;
        // This driver has no power button.
        let error = test.act(Action::Shutdown).await.unwrap_err().to_string();
        assert!(error.starts_with("LibvirtError(Code="), "{error}");
        assert_eq!(test.handler.next().await, "MODIFIED Running");
        let started = async || test.grace_period().await["DeletionTimestamp"].clone();
        let first = started().await;
        assert!(
            first.is_string(),
            "virt-handler never kills a domain whose clock does not run"
        );
        test.act(Action::Shutdown).await.unwrap_err();
        assert_eq!(started().await, first);
    });
}

#[test]
fn a_pod_that_must_end_says_so_in_the_metadata() {
    play(|| async {
        let mut test = TestLauncher::running().await;
        test.launcher.mark_for_graceful_shutdown();
        assert_eq!(test.handler.next().await, "MODIFIED Running");
        let grace = test.grace_period().await;
        assert_eq!(grace["MarkedForGracefulShutdown"], true);
    });
}

#[test]
fn the_grace_period_follows_the_vmi() {
    play(|| async {
        let test = TestLauncher::synced().await;
        let mut vmi = with_phase("Running");
        vmi["spec"]["terminationGracePeriodSeconds"] = json!(0);
        test.sync(&vmi).await.unwrap();
        let grace = test.grace_period().await;
        assert_eq!(grace["DeletionGracePeriodSeconds"], 0);
    });
}

#[test]
fn calls_without_a_domain_answer_as_the_reference() {
    play(|| async {
        let test = TestLauncher::begin();
        let libvirts = "LibvirtError(Code=42, Domain=10, Message='Domain not found: no domain with matching name 'ns1_vm1'')";
        for (action, text) in [
            (Action::Pause, "Domain not found."),
            (Action::Unpause, "Domain not found."),
            (Action::Reset, libvirts),
            (Action::SoftReboot, libvirts),
        ] {
            assert_eq!(test.act(action).await.unwrap_err().to_string(), text);
        }
        for action in [Action::Shutdown, Action::Kill, Action::Delete] {
            test.act(action).await.unwrap();
        }
    });
}

#[test]
fn a_guest_without_agent_and_acpi_cannot_be_asked_to_reboot() {
    play(|| async {
        let test = TestLauncher::synced().await;
        let mut vmi = vmi();
        vmi["spec"]["domain"] = json!({"features": {"acpi": {"enabled": false}}});
        let vmi = request(&vmi).vmi;
        let reboot = test.launcher.requests.act(Action::SoftReboot, &vmi);
        assert_eq!(
            reboot.await.unwrap_err().to_string(),
            "VMI neither have the agent connected nor the ACPI feature enabled"
        );
    });
}

#[test]
fn vmis_that_are_not_started() {
    play(|| async {
        let test = TestLauncher::begin();
        let mut deleting = vmi();
        deleting["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        for vmi in [deleting, with_phase("Succeeded"), with_phase("Failed")] {
            test.sync(&vmi).await.unwrap();
            assert!(test.domain().is_none());
        }
        let error = test.sync(&with_phase("Running")).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "libvirt no longer has the domain of this VMI, which has already run; it is not started again in the same pod"
        );
    });
}

#[test]
fn a_disk_that_fails_is_named_in_an_event() {
    let io_error = |what| format!("IOerror: VM Paused due to {what}");
    play(|| async {
        let mut test = TestLauncher::running().await;
        for (alias, reason) in [("ua-data", ""), ("ua-full", "enospc")] {
            test.launcher.handle_event(&Event::IoError {
                domain: "ns1_vm1".into(),
                path: String::new(),
                alias: alias.into(),
                action: libvirt::IoAction::Pause,
                reason: reason.into(),
            });
        }
        test.expect_all(&[
            &io_error("IO error at the volume: data"),
            &io_error("not enough space on volume: full"),
        ])
        .await;
    });
}

#[test]
fn a_panic_is_counted_and_reported_once() {
    play(|| async {
        let mut test = TestLauncher::running().await;
        let crashed = |detail| Event::Lifecycle {
            domain: "ns1_vm1".into(),
            event: LifecycleEvent::Crashed(detail),
        };
        // A crash kernel boots and the guest comes back, twice, before the end.
        for (detail, count) in [
            (CrashedDetail::Crashloaded, 1),
            (CrashedDetail::Crashloaded, 2),
            (CrashedDetail::Panicked, 3),
        ] {
            test.launcher.handle_event(&crashed(detail));
            test.expect_all(&[
                "GuestPanicked: GuestPanicked (details unavailable)",
                "MODIFIED Running",
            ])
            .await;
            assert_eq!(test.document().await["Status"]["PanicCount"], count);
        }
        test.launcher
            .handle_event(&crashed(CrashedDetail::Panicked));
        test.act(Action::Pause).await.unwrap();
        assert_eq!(test.handler.next().await, "MODIFIED Paused");
        let status = test.document().await["Status"].clone();
        assert_eq!(
            (&status["PanicCount"], &status["GuestPanicInfo"]["Type"]),
            (&json!(3), &json!("unknown"))
        );
    });
}

#[test]
fn events_of_other_domains_are_not_ours() {
    play(|| async {
        let mut test = TestLauncher::synced().await;
        for domain in ["ns1_vm2", "ns1_vm1"] {
            let crashed = Event::Lifecycle {
                domain: domain.into(),
                event: LifecycleEvent::Crashed(CrashedDetail::Crashloaded),
            };
            test.launcher.handle_event(&crashed);
        }
        test.expect("GuestPanicked: GuestPanicked (details unavailable)")
            .await;
        assert_eq!(test.document().await["Status"]["PanicCount"], 1);
    });
}

#[test]
fn the_present_state_is_sent_again_when_libvirt_is_back() {
    play(|| async {
        let mut test = TestLauncher::running().await;
        test.launcher.reconnected(test.connection.clone());
        assert_eq!(test.handler.next().await, "MODIFIED Running");
    });
}

#[test]
fn a_kill_does_not_wait_for_the_first_reading_of_the_domain() {
    play(|| async {
        let test = TestLauncher::begin();
        // Before the launcher's first read, as if all reads were hanging.
        let reads = test.launcher.libvirt.reads.clone();
        let all = u32::try_from(libvirt_domain::MAX_READS).unwrap();
        let _permits = reads.try_acquire_many_owned(all).unwrap();
        test.act(Action::Kill).await.unwrap();
        assert_eq!(test.launcher.vm.subscribe().borrow().phase, Phase::Unknown);
    });
}

#[test]
fn a_read_from_before_a_start_is_not_shown_after_it() {
    play(|| async {
        let mut test = TestLauncher::defined();
        let launcher = test.launcher.clone();
        launcher.vm.wait_for_first_read().await;
        let reads = test.hanging_reads().await;
        launcher.refresh();
        let mut asked = std::pin::pin!(launcher.reads.domain());
        let poll = |future: Pin<&mut dyn Future<Output = _>>| {
            future.poll(&mut Context::from_waker(Waker::noop()))
        };
        assert!(poll(asked.as_mut()).is_pending());
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        drop(reads);
        // Both reads go to threads of their own, and this one does not take their answers yet.
        let early = poll(asked.as_mut());
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_millis(200));
        drop(test.start_at_once());
        let answer = match early {
            Poll::Ready(answer) => answer,
            Poll::Pending => asked.await,
        };
        assert!(answer.unwrap().is_none());
        assert_eq!(test.handler.next().await, "ADDED Running");
        assert_eq!(test.document().await["Status"]["Status"], "Running");
    });
}

#[test]
// D-vm-4 (docs/differences.md).
fn a_reset_that_hangs_does_not_delay_the_clock_of_the_grace_period() {
    play(|| async {
        let mut test = TestLauncher::running().await;
        let reset = test.launcher.libvirt.requests.clone();
        let _permit = reset.acquire_owned().await.unwrap();
        let launcher = test.launcher.clone();
        let vmi = request(&vmi()).vmi;
        tokio::spawn(async move { launcher.requests.act(Action::Shutdown, &vmi).await });
        assert_eq!(test.handler.next().await, "MODIFIED Running");
        let grace = test.grace_period().await;
        assert!(grace["DeletionTimestamp"].is_string(), "{grace}");
    });
}

#[tokio::test(start_paused = true)]
// D-mig-36 (docs/differences.md).
async fn a_guest_whose_disk_fails_has_arrived_when_it_runs_again() {
    start_event_loop().unwrap();
    let connection = Connection::open("test:///default").unwrap();
    let guest = connection.lookup("test").unwrap().unwrap();
    guest.clone().changeable(&Others).suspend().unwrap();
    let vm = vm::Vm::new("ns1", "vm1", "u-1", Arc::default());
    let libvirt = libvirt_domain::LibvirtDomain::new("test".into(), connection, vm.clone());
    let libvirt = Arc::new(libvirt);
    let observe = |state| {
        let spec = DomainSpec::default();
        vm.observe(vm::Observed { state, spec });
    };
    let has_ended = || {
        vm.metadata()
            .migration()
            .is_some_and(|it| it.end_timestamp.is_some())
    };
    vm.expect_arrival(|_| {});
    observe(DomainState::Paused(PausedReason::IoError));
    let dir = tempfile::tempdir().unwrap();
    let root = ::pod::Root::new(dir.path());
    let file = root.path(api::pod_paths::EXPECTED_ARRIVAL);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "").unwrap();
    let following = tokio::spawn(migration_target::incoming::follow(libvirt, root));
    // The clock of the test: more than libvirt's job may take.
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(!has_ended(), "virt-handler would end the only guest");
    assert!(file.exists(), "a later launcher would follow it");
    assert!(guest.state().unwrap().is_running(), "no sync resumes it");
    observe(DomainState::Running(libvirt::RunningReason::Unpaused));
    following.await.unwrap();
    assert!(has_ended() && !file.exists());
}

#[test]
// D-sup-16 (docs/differences.md).
fn the_next_launcher_knows_the_migration_that_the_pod_is_prepared_for() {
    play(|| async {
        let target = TestLauncher::begin();
        // The test driver knows this machine type.
        *lock(&target.pod.os) = Some("<os><type arch='i686' machine='pc'>hvm</type></os>");
        let sockets = target
            .pod
            .flags
            .shared(api::pod_paths::MIGRATION_SOCKET_DIR);
        std::fs::create_dir_all(sockets).unwrap();
        let mut vmi = vmi();
        vmi["status"]["migrationState"] = json!({"migrationUid": "m-1"});
        let sync = target.launcher.migration_target.sync(request(&vmi));
        sync.await.unwrap();
        let known = target.launcher.vm.metadata();
        assert!(known.unfinished_migration().is_some());
        let mut next = target.next();
        assert_eq!(next.launcher.vm.snapshot().phase, Phase::Expected);
        assert_eq!(next.launcher.vm.metadata(), known);
        let xml = "<domain type='test'><name>ns1_vm1</name><memory>8192</memory><os><type>hvm</type></os></domain>";
        let arrived = next.connection.define(&Others, xml).unwrap();
        arrived.start(false).unwrap();
        assert_eq!(next.handler.next().await, "ADDED Running");
        let document = next.document().await;
        let metadata = &document["Spec"]["Metadata"]["KubeVirt"];
        assert_eq!(metadata["Migration"]["UID"], "m-1", "{metadata}");
    });
}

/// Whether virt-handler sees this migration.
async fn sees_migration(test: &TestLauncher, uid: &str) -> bool {
    let document = test.document().await;
    document["Spec"]["Metadata"]["KubeVirt"]["Migration"]["UID"] == uid
}

#[test]
// D-sup-16 (docs/differences.md).
fn virt_handler_sees_a_migration_once_libvirt_knows_of_it_or_does_not_answer() {
    play(|| async {
        let test = TestLauncher::running().await;
        let mut state = test.launcher.vm.subscribe();
        for (uid, answers) in [("m-1", true), ("m-2", false)] {
            let turn = test.launcher.vm.permit(vm::Request::Delete).await.unwrap();
            let mut vmi = vmi();
            vmi["status"]["migrationState"] = json!({"migrationUid": uid});
            let SyncRequest { vmi, vmi_json, .. } = request(&vmi);
            let options = Default::default();
            let request = MigrateRequest {
                vmi,
                vmi_json,
                options,
            };
            test.launcher.migration.begin(request).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(!sees_migration(&test, uid).await);
            let turn = (!answers).then_some(turn);
            while !sees_migration(&test, uid).await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let xml = test.domain().unwrap().xml(libvirt::XmlKind::Live).unwrap();
            assert_eq!(xml.contains(uid), answers, "{xml}");
            drop(turn);
            // This driver cannot migrate.
            state.wait_for(|vm| vm.jobs.is_empty()).await.unwrap();
        }
    });
}

#[test]
// D-vm-9 (docs/differences.md).
fn the_last_state_is_shown_while_libvirt_does_not_answer() {
    play(|| async {
        let mut test = TestLauncher::begin();
        let permits = test.hanging_reads().await;
        assert!(matches!(
            test.launcher.reads.domain().await,
            Err(LauncherError::Slow { .. })
        ));
        drop(permits);
        test.sync(&vmi()).await.unwrap();
        assert_eq!(test.handler.next().await, "ADDED Running");
        let _permits = test.hanging_reads().await;
        test.domain().unwrap().suspend().unwrap();
        assert_eq!(test.document().await["Status"]["Status"], "Running");
        // Whatever is known without libvirt is shown and sent.
        let vm = &test.launcher.vm;
        assert!(vm.change_metadata(crate::launcher::vm::metadata::Metadata::shutdown_requested));
        assert_eq!(test.handler.next().await, "MODIFIED Running");
        let grace = test.grace_period().await;
        assert!(grace["DeletionTimestamp"].is_string(), "{grace}");
    });
}

#[test]
fn a_domain_that_arrives_is_not_there_while_libvirt_does_not_answer() {
    play(|| async {
        let test = TestLauncher::begin();
        test.launcher.vm.expect_arrival(|_| {});
        let _permits = test.hanging_reads().await;
        assert!(test.launcher.reads.domain().await.unwrap().is_none());
    });
}

#[test]
fn a_change_waits_its_turn_and_a_kill_does_not() {
    play(|| async {
        let test = TestLauncher::synced().await;
        let turn = test.launcher.vm.permit(vm::Request::Delete).await.unwrap();
        let mut pause = std::pin::pin!(test.act(Action::Pause));
        let answer = timeout(Duration::from_millis(50), &mut pause).await;
        assert!(answer.is_err());
        test.act(Action::Kill).await.unwrap();
        assert!(matches!(test.state(), DomainState::Shutoff(_)));
        drop(turn);
        pause.await.unwrap();
    });
}

#[test]
// D-vm-6 (docs/differences.md).
fn a_kill_during_a_start_leaves_no_domain() {
    play(|| async {
        let test = TestLauncher::begin();
        let (open, sync) = test.held_start().await;
        test.act(Action::Kill).await.unwrap();
        let error = sync.await.unwrap().unwrap_err();
        assert!(
            matches!(error, LauncherError::Joined(error) if matches!(*error, LauncherError::Start(DomainStartError::Killed)))
        );
        assert!(test.domain().is_none());
        assert_eq!(
            test.launcher.vm.subscribe().borrow().phase,
            Phase::StartFailed
        );
        // Two starts would make the same files, and the first resets the metadata of the second.
        let vmi = vmi();
        let mut again = std::pin::pin!(test.sync(&vmi));
        let early = timeout(Duration::from_millis(50), &mut again).await;
        assert!(early.is_err());
        let _ = open.send(());
        again.await.unwrap();
        assert!(test.state().is_running());
    });
}

#[test]
fn virt_handler_is_woken_when_the_agents_version_changes() {
    play(|| async {
        let mut test = TestLauncher::running().await;
        let info = |version: &str| AgentInfo {
            version: version.into(),
            commands: Vec::new(),
        };
        for version in ["9.2.0", "10.0.2"] {
            test.launcher.guest.known.learn_agent(info(version));
            // No document contains it, but virt-handler asks for it when it gets one.
            assert_eq!(test.handler.next().await, "MODIFIED Running");
            let known = test.launcher.guest.known.info().await.agent.version;
            assert_eq!(known, version);
        }
        // A document that was on its way when a version arrived may follow it.
        test.act(Action::Pause).await.unwrap();
        test.expect("MODIFIED Paused").await;
        let mut state = test.launcher.vm.subscribe();
        state.mark_unchanged();
        test.launcher.guest.known.learn_agent(info("10.0.2"));
        test.launcher.refresh();
        // It is reported.
        state.changed().await.unwrap();
        test.act(Action::Unpause).await.unwrap();
        let next = test.handler.next().await;
        assert_eq!(next, "MODIFIED Running", "the same again is no news");
    });
}

#[test]
fn commands_that_a_frozen_guests_agent_disables_stay_known() {
    play(|| async {
        let test = TestLauncher::running().await;
        let info = |enabled: bool| AgentInfo {
            version: "10.0.2".into(),
            commands: vec![Command {
                name: "guest-info".into(),
                enabled,
            }],
        };
        let (vm, known) = (&test.launcher.vm, &test.launcher.guest.known);
        for (status, answer, expected) in [
            // D-sup-16 (docs/differences.md). An earlier launcher has frozen it.
            (FreezeStatus::Frozen, false, true),
            (FreezeStatus::Thawed, false, false),
            (FreezeStatus::Thawed, true, true),
            (FreezeStatus::Frozen, false, true),
            (FreezeStatus::Thawed, false, false),
        ] {
            vm.report_guest(|guest| guest.fs_freeze_status = Some(status));
            known.learn_agent(info(answer));
            assert_eq!(known.info().await.agent, info(expected), "{status:?}");
        }
    });
}

#[test]
fn a_guest_whose_migration_is_about_to_begin_is_not_frozen() {
    play(|| async {
        let test = TestLauncher::running().await;
        let vm = &test.launcher.vm;
        vm.change_metadata(|metadata| metadata.migration_out_began("m-1"));
        let freezer = &test.launcher.guest.freezer;
        let refused = freezer.freeze(&request(&vmi()).vmi, Duration::ZERO).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("while it migrates"), "{refused}");
    });
}

#[test]
fn cpus_are_changed_even_if_the_caller_gives_up() {
    play(|| async {
        let test = TestLauncher::running().await;
        let turn = test.launcher.vm.permit(vm::Request::Delete).await.unwrap();
        let conversions = || test.pod.conversions.load(Ordering::Relaxed);
        let before = conversions();
        let sync = test
            .launcher
            .cpus
            .sync(request(&vmi()).vmi, VirtualMachineOptions::default());
        assert!(timeout(Duration::from_millis(50), sync).await.is_err());
        assert_eq!(conversions(), before);
        drop(turn);
        while conversions() == before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn host_devices_wait_for_the_job_before_them() {
    play(|| async {
        let test = TestLauncher::running().await;
        let dump = test.launcher.vm.begin(vm::JobKind::MemoryDump).unwrap();
        let begin = || test.launcher.host_devices.begin(request(&vmi()).vmi);
        begin().unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(test.pod.hotplugs.load(Ordering::Relaxed), 0);
        assert!(begin().is_err(), "one at a time");
        drop(dump);
        while test.pod.hotplugs.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut state = test.launcher.vm.subscribe();
        state.wait_for(|vm| vm.jobs.is_empty()).await.unwrap();
        begin().unwrap();
    });
}

#[test]
fn a_new_connection_does_not_wait_for_a_call_on_the_old_one() {
    play(|| async {
        let test = TestLauncher::running().await;
        let (open, gate) = channel::<()>();
        let (begins, has_begun) = tokio::sync::oneshot::channel();
        let launcher = test.launcher.clone();
        let hang = move |_: &Connection, _: &str| {
            begins.send(()).unwrap();
            let _ = gate.recv();
            Ok(())
        };
        let call =
            tokio::spawn(async move { launcher.libvirt.read_in_any_time("the test", hang).await });
        has_begun.await.unwrap();
        test.launcher.libvirt.replace(test.connection.clone());
        open.send(()).unwrap();
        call.await.unwrap().unwrap();
    });
}

#[test]
fn kills_that_hang_leave_threads_for_everything_else() {
    const THREADS: usize = 4;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(THREADS)
        .build()
        .unwrap();
    runtime.block_on(async {
        let test = TestLauncher::running().await;
        let (end, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..2 * THREADS {
            let (launcher, gate) = (test.launcher.clone(), gate.clone());
            tokio::spawn(async move {
                let permission = launcher.vm.permit(vm::Request::Kill).await.unwrap();
                let permit = permission.into_permit().unwrap().unwrap();
                let hang = move |_| {
                    let _ = lock(&gate).recv();
                    Ok(())
                };
                launcher.libvirt.kill(&permit, hang).await
            });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let read = test.launcher.libvirt.read("the test", |_, _| Ok(())).await;
        drop(end);
        read.unwrap();
    });
    runtime.shutdown_background();
}

#[test]
// D-sup-3 (docs/differences.md).
fn a_call_on_a_dead_connection_has_libvirts_daemon_looked_at() {
    play(|| async {
        let test = TestLauncher::running().await;
        let libvirt = &test.launcher.libvirt;
        let dead = || {
            let error = libvirt::Error {
                code: libvirt::code::RPC,
                domain: 7,
                message: "client socket is closed".into(),
            };
            Err::<(), LauncherError>(error.into())
        };
        let is_looked_at = || timeout(Duration::from_secs(60), libvirt.daemon_suspected());
        libvirt
            .read("a test", move |_, _| dead())
            .await
            .unwrap_err();
        is_looked_at().await.unwrap();
        let limit = Duration::from_secs(60);
        let of_agent = libvirt.agent_call("a test", limit, move |_| dead());
        of_agent.await.unwrap_err();
        is_looked_at().await.unwrap();
    });
}
