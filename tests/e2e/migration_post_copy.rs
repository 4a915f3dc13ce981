//! Post-copy: the guest runs on the target before its memory is there. Where the rest does not
//! come, it is lost: libvirt says so on the source, which must not let it run again.

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::{Value, json};

use crate::harness::{
    MigrationProxies, Moment, Network, Pod, RunningSides, Vmi, begin, counts_on, failed, has_left,
    migratable_pod, migrate, migration, share_image, source_pod,
};

/// Over its time at once, so that what is allowed then happens soon. The bandwidth is the
/// post-copy's too.
fn post_copy(bandwidth: &str) -> Value {
    json!({
        "Bandwidth": bandwidth, "CompletionTimeoutPerGiB": 1, "AllowPostCopy": true, "AllowWorkloadDisruption": true,
    })
}

/// A target whose QEMU may handle the page faults of its guest. Real nodes have
/// `vm.unprivileged_userfaultfd=1`; this device is enough. `None`, with a message, where the kernel
/// has none.
async fn post_copy_target(source: &Pod, vmi: &Vmi) -> Option<Pod> {
    let misc = std::fs::read_to_string("/proc/misc").unwrap();
    let minor = misc
        .lines()
        .find_map(|line| line.trim().strip_suffix(" userfaultfd"));
    let Some(minor) = minor else {
        println!("skipped: this kernel has no /dev/userfaultfd");
        return None;
    };
    let mut target = migratable_pod("target");
    let device = target.path("/dev/userfaultfd");
    let number = makedev(10, minor.trim().parse().unwrap());
    mknodat(
        CWD,
        &device,
        FileType::CharacterDevice,
        Mode::RUSR | Mode::WUSR,
        number,
    )
    .unwrap();
    share_image(source, &target);
    target.launch(vmi, &[]);
    target.wait_until_ready().await;
    target.sync_target_ok(vmi).await;
    Some(target)
}

#[test]
fn a_guest_moves_in_post_copy() {
    migrate(async {
        let vmi = Vmi::new("post-copy");
        let (mut source, guest) = source_pod(&vmi, &[]).await;
        let vmi = vmi.migrating_to("target");
        let Some(mut target) = post_copy_target(&source, &vmi).await else {
            return;
        };
        let _proxies = MigrationProxies::new(&source, &target, &vmi);
        let sides = RunningSides::of(&source, &target, &vmi);
        begin(&source, &vmi, post_copy("16Mi")).await;
        let end = has_left(&mut source, &vmi).await;
        assert_eq!(end["Mode"], "PostCopy");
        let arrived = target.arrival().await;
        let moved = target.guest(&vmi).await;
        assert_eq!(arrived.status(), "Running");
        counts_on(&guest, &moved).await;
        sides.end();
        target.sync_ok(&vmi).await;
        target.finalize(&vmi, &[]).await;
    });
}

#[test]
fn a_network_that_is_lost_in_post_copy_leaves_no_guest_that_goes_on_with_old_memory() {
    migrate(async {
        let vmi = Vmi::new("torn");
        let (mut source, guest) = source_pod(&vmi, &[]).await;
        let vmi = vmi.migrating_to("target");
        let Some(target) = post_copy_target(&source, &vmi).await else {
            return;
        };
        let when = Moment::CopiedSinceFinish(8 << 20);
        let proxies = MigrationProxies::failing(&source, &target, &vmi, when, Network::Lost);
        let sides = RunningSides::of(&source, &target, &vmi);
        begin(&source, &vmi, post_copy("4Mi")).await;
        let moved = target.guest(&vmi).await;
        proxies.have_failed().await;
        let end = failed(&mut source, &vmi).await;
        assert_eq!(end["Mode"], "PostCopy");
        let has_failed = |domain: &Value| domain["Status"]["Reason"] == "PostcopyFailed";
        source.domain_until("lost", has_failed).await;
        let unpause = source.request(vmi.value());
        let unpause = source.cmd().unpause_virtual_machine(unpause).await;
        for refused in [source.sync(&vmi).await, unpause.unwrap().into_inner()] {
            let message = refused.message;
            assert!(
                !refused.success && message.contains("post-copy"),
                "{message}"
            );
        }
        let arrives = target.domain().await;
        assert!(migration(&arrives)["EndTimestamp"].is_null(), "{arrives:#}");
        let states = sides.end();
        let [of_source, of_target] = states.last().unwrap();
        assert_eq!(of_source, "paused (post-copy failed)", "{states:#?}");
        assert!(!of_target.ends_with("(migrated)"), "{states:#?}");
        let (before, after) = (guest.ticks(), moved.ticks());
        assert!(before.iter().chain(&after).is_sorted_by(|a, b| a < b));
        drop(proxies);
        target.give_up_arrival(&vmi).await;
        source.end(&vmi).await;
        source.exit().await;
    });
}
