//! Backups that are cut short while they run: aborted, without space, or by the death of QEMU, of
//! the launcher or of libvirt's daemon. None is called complete, and the next one works. Their
//! begin and end are in `backup_kills`.

use serde_json::{Value, json};

use crate::backup::{SIZE, TARGET, Tracked, abort, content, metadata, start, with};
use crate::faults::kill;
use crate::full_disk::SmallFs;
use crate::harness::in_pod;

/// The next backup is whole.
pub async fn next_works(vm: &mut Tracked, second: u32) {
    vm.write("next", 7).await;
    let next = start("Next", "Push", second);
    let then = vm.data();
    vm.back_up(&next).await;
    let file = vm.file(&next, "Data-1");
    assert!(content(file.to_str().unwrap()) == then);
}

async fn failed(vm: &mut Tracked, name: &str) -> String {
    let ended = vm.ended(name).await;
    assert_eq!(ended["Failed"], json!(true), "{ended}");
    let message = ended["BackupMsg"].as_str().unwrap().to_owned();
    assert!(!message.is_empty());
    message
}

#[test]
fn a_push_that_is_aborted_has_failed() {
    in_pod(async {
        let mut vm = Tracked::counting("aborted", &[]).await;
        let push = with(start("Aborted", "Push", 1), "skipQuiesce", true);
        let Some(held) = vm.start_held(&push).await else {
            return;
        };
        let answer = vm.ask(&abort(&push)).await;
        drop(held);
        if answer.success {
            let message = failed(&mut vm, "Aborted").await;
            assert!(message.contains("backup aborted"), "{message}");
            assert!(!vm.file(&push, "Data-1").exists());
        } else {
            // A QEMU that does not go on before its reads end hears of it afterwards, when all may
            // have been copied.
            let goes_on = answer.message.contains("it continues in the background");
            assert!(goes_on, "{}", answer.message);
            let is_failed = vm.ended("Aborted").await["Failed"] == true;
            assert_ne!(vm.file(&push, "Data-1").exists(), is_failed);
        }
        next_works(&mut vm, 2).await;
    });
}

/// A guest with a target of 2 MiB, and that target's path; `None` where none can be mounted.
async fn booted_with_small_target(name: &str) -> Option<(Tracked, SmallFs, String)> {
    // Before the pod starts, which would not see it later.
    let mut small = None;
    let launch = async |pod: &mut crate::harness::Pod, vmi: &crate::harness::Vmi| {
        let path = pod.path(&format!("{TARGET}/small/x"));
        small = SmallFs::at(path.parent().unwrap().into(), 2);
        crate::harness::give_to_qemu(path.parent().unwrap());
        pod.launch(vmi, &[]);
        pod.wait_until_ready().await;
    };
    let vm = Tracked::booted_with(name, SIZE, launch).await;
    Some((vm, small?, format!("{TARGET}/small")))
}

/// The guest writes all over the data disk, in the background.
async fn write_all_over(vm: &mut Tracked) {
    let disk = vm.disk.as_ref().unwrap();
    let writes = format!(
        "for i in $(seq 100); do dd if=/dev/zero of=/dev/{disk} bs=64k seek=$i count=1 conv=fsync,notrunc; done"
    );
    let background = format!("( ({writes}; touch /run/written) >/dev/null 2>&1 &)");
    vm.guest.run(&background).await;
}

/// The guest runs, and [`write_all_over`] has ended: it goes on where the guest was paused.
async fn runs_again(vm: &mut Tracked) {
    let is_running = |domain: &Value| domain["Status"]["Status"] == "Running";
    vm.pod.domain_until("running", is_running).await;
    let wait = "while [ ! -e /run/written ]; do sleep 0.1; done";
    vm.guest.run(wait).await;
}

#[test]
// D-backup-8 (docs/differences.md).
fn a_push_into_a_full_volume_has_failed() {
    in_pod(async {
        let Some((mut vm, _small, target)) = booted_with_small_target("nospace").await else {
            return;
        };
        // QEMU pauses a guest whose writes cannot be copied to the target first.
        write_all_over(&mut vm).await;
        let push = with(start("Full", "Push", 1), "targetPath", target);
        let answer = vm.ask(&push).await;
        // Where it cannot even begin, that is the answer.
        if answer.success {
            let message = failed(&mut vm, "Full").await;
            assert!(message.contains("No space left"), "{message}");
        } else {
            assert!(answer.message.contains("No space left"), "{answer:?}");
        }
        runs_again(&mut vm).await;
        next_works(&mut vm, 2).await;
    });
}

#[test]
// D-backup-8 (docs/differences.md).
fn a_pull_whose_scratch_files_are_full_is_whole_and_lets_the_guest_go_on_when_it_ends() {
    in_pod(async {
        let Some((mut vm, _small, target)) = booted_with_small_target("noscratch").await else {
            return;
        };
        vm.write("first", 1).await;
        let then = vm.data();
        let pull = with(start("Pulled", "Pull", 1), "targetPath", target);
        let pull = with(pull, "skipQuiesce", true);
        vm.ask_ok(&pull).await;
        write_all_over(&mut vm).await;
        let is_paused = |domain: &Value| domain["Status"]["Reason"] == "IOError";
        vm.pod.domain_until("paused", is_paused).await;
        // What QEMU could not save was not overwritten either.
        assert!(content(&export(&vm)) == then);
        vm.ask_ok(&abort(&pull)).await;
        assert_eq!(vm.ended("Pulled").await["Failed"], json!(false));
        runs_again(&mut vm).await;
        next_works(&mut vm, 2).await;
    });
}

/// Where the data disk is read during a pull.
fn export(vm: &Tracked) -> String {
    let socket = vm.pod.path("/var/run/kubevirt/sockets/backup-nbd-sock");
    format!("nbd+unix:///Data-1?socket={}", socket.display())
}

#[test]
// D-backup-4 (docs/differences.md).
fn a_backup_whose_qemu_is_killed_has_failed() {
    in_pod(async {
        let mut vm = Tracked::counting("cut", &[]).await;
        let pull = start("Cut", "Pull", 1);
        vm.ask_ok(&pull).await;
        kill(&vm.pod.guests());
        let message = failed(&mut vm, "Cut").await;
        assert!(message.contains("the virtual machine ended"), "{message}");
        let again = vm.ask(&pull).await;
        assert!(!again.success, "{again:?}");
    });
}

/// The backup is still in progress, and is then ended in order.
pub async fn goes_on(vm: &mut Tracked, pull: &Value, then: &[u8]) {
    let name = pull["backupName"].as_str().unwrap();
    let is_running = |domain: &Value| {
        let backup = metadata(domain);
        backup["Name"] == name && backup["Completed"] != true
    };
    vm.pod.domain_until("being backed up", is_running).await;
    assert!(content(&export(vm)) == then);
    vm.ask_ok(pull).await;
    vm.ask_ok(&abort(pull)).await;
    assert_eq!(vm.ended(name).await["Failed"], json!(false));
}

#[test]
fn a_backup_goes_on_while_libvirts_daemon_is_replaced() {
    in_pod(async {
        let mut vm = Tracked::counting("daemon", &["--libvirt=auto"]).await;
        vm.write("first", 1).await;
        let (pull, then) = (start("Pulled", "Pull", 1), vm.data());
        vm.ask_ok(&pull).await;
        kill(&vm.pod.libvirt_daemons());
        vm.pod.log_has("Reconnected to libvirt").await;
        goes_on(&mut vm, &pull, &then).await;
        next_works(&mut vm, 2).await;
    });
}

#[tokio::test]
// D-backup-5 (docs/differences.md).
async fn a_launcher_that_is_killed_leaves_its_backup_to_the_next_one() {
    for libvirt in ["--libvirt=embed", "--libvirt=auto"] {
        let mut vm = match libvirt {
            "--libvirt=embed" => Tracked::booted("adopted", &[libvirt]).await,
            _ => Tracked::counting("adopted", &[libvirt]).await,
        };
        vm.write("first", 1).await;
        let (pull, then) = (start("Pulled", "Pull", 1), vm.data());
        vm.ask_ok(&pull).await;
        let has_copy = |xml: &str| xml.contains("Pulled-2026");
        while !has_copy(&vm.pod.live_xml(&vm.vmi)) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        vm.pod.kill_launcher().await;
        vm.pod.handler.forget();
        vm.pod.launch(&vm.vmi, &[libvirt]);
        vm.pod.wait_until_ready().await;
        goes_on(&mut vm, &pull, &then).await;
        next_works(&mut vm, 2).await;
    }
}
