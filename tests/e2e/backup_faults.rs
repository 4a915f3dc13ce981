//! Backups that are cut short: aborted, without space, or by the death of QEMU, of the launcher or of libvirt's daemon. None
//! is called complete, and the next one works.

use serde_json::{Value, json};

use crate::backup::{SIZE, TARGET, Tracked, abort, content, metadata, start, with};
use crate::faults::{self, Held, kill};
use crate::full_disk::SmallFs;
use crate::harness::{also_in_container, run};
use api::proto::cmd::v1::BackupRequest;

also_in_container!(
    a_push_that_is_aborted_has_failed,
    a_push_into_a_full_volume_has_failed,
    a_backup_whose_qemu_is_killed_has_failed,
    a_backup_goes_on_while_libvirts_daemon_is_replaced,
);

/// The next backup is whole.
async fn next_works(vm: &mut Tracked, second: u32) {
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
    run(async {
        // Large enough that it is not over when the abort comes.
        let large = 768 << 20;
        let launch = async |pod: &mut crate::harness::Pod, vmi: &crate::harness::Vmi| {
            let image = pod.path("/var/run/kubevirt-private/vmi-disks/Data-1/disk.img");
            let mut image = std::fs::OpenOptions::new().write(true).open(image).unwrap();
            let part = vec![0xa5_u8; 1 << 20];
            for _ in 0..large >> 20 {
                std::io::Write::write_all(&mut image, &part).unwrap();
            }
            pod.launch(vmi, &[]);
            pod.wait_until_ready().await;
        };
        let mut vm = Tracked::booted_with("aborted", large, launch).await;
        let push = with(start("Aborted", "Push", 1), "skipQuiesce", true);
        vm.ask_ok(&push).await;
        vm.ask_ok(&abort(&push)).await;
        let message = failed(&mut vm, "Aborted").await;
        assert!(message.contains("backup aborted"), "{message}");
        assert!(!vm.file(&push, "Data-1").exists());
        next_works(&mut vm, 2).await;
    });
}

#[test]
fn a_push_into_a_full_volume_has_failed() {
    run(async {
        // Before the pod starts, which would not see it later.
        let mut small = None;
        let launch = async |pod: &mut crate::harness::Pod, vmi: &crate::harness::Vmi| {
            let path = pod.path(&format!("{TARGET}/small/x"));
            small = SmallFs::at(path.parent().unwrap().into(), 2);
            crate::harness::give_to_qemu(path.parent().unwrap());
            pod.launch(vmi, &[]);
            pod.wait_until_ready().await;
        };
        let mut vm = Tracked::booted_with("nospace", SIZE, launch).await;
        if small.is_none() {
            return;
        }
        let target = format!("{TARGET}/small");
        // QEMU pauses a guest whose writes cannot be copied to the target first.
        let writes = format!(
            "for i in $(seq 100); do dd if=/dev/zero of=/dev/{} bs=64k seek=$i count=1 conv=fsync,notrunc; done",
            vm.disk
        );
        vm.guest
            .run(&format!("( ({writes}) >/dev/null 2>&1 &)"))
            .await;
        let push = with(start("Full", "Push", 1), "targetPath", target.as_str());
        let answer = vm.ask(&push).await;
        // Where it cannot even begin, that is the answer.
        if answer.success {
            let message = failed(&mut vm, "Full").await;
            assert!(message.contains("No space left"), "{message}");
        } else {
            assert!(answer.message.contains("No space left"), "{answer:?}");
        }
        // D-backup-8 (docs/differences.md).
        vm.pod
            .domain_until("running", |domain| domain["Status"]["Status"] == "Running")
            .await;
        next_works(&mut vm, 2).await;
    });
}

#[test]
// D-backup-4 (docs/differences.md).
fn a_backup_whose_qemu_is_killed_has_failed() {
    run(async {
        let mut vm = Tracked::booted("cut", &[]).await;
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
async fn goes_on(vm: &mut Tracked, pull: &Value, then: &[u8]) {
    let name = pull["backupName"].as_str().unwrap();
    let is_running = |domain: &Value| {
        let backup = metadata(domain);
        backup["Name"] == name && backup["Completed"] != true
    };
    vm.pod.domain_until("being backed up", is_running).await;
    let socket = vm.pod.path("/var/run/kubevirt/sockets/backup-nbd-sock");
    let export = format!("nbd+unix:///Data-1?socket={}", socket.display());
    assert!(content(&export) == then);
    vm.ask_ok(pull).await;
    vm.ask_ok(&abort(pull)).await;
    assert_eq!(vm.ended(name).await["Failed"], json!(false));
}

#[test]
fn a_backup_goes_on_while_libvirts_daemon_is_replaced() {
    run(async {
        let mut vm = Tracked::booted("daemon", &["--libvirt=auto"]).await;
        vm.write("first", 1).await;
        let (pull, then) = (start("Pulled", "Pull", 1), vm.data());
        vm.ask_ok(&pull).await;
        kill(&vm.pod.libvirt_daemons());
        vm.pod.log_has("Reconnected to libvirt").await;
        goes_on(&mut vm, &pull, &then).await;
        next_works(&mut vm, 2).await;
    });
}

#[test]
// D-backup-5 (docs/differences.md).
fn a_launcher_that_is_killed_leaves_its_backup_to_the_next_one() {
    run(async {
        for libvirt in ["--libvirt=embed", "--libvirt=auto"] {
            let mut vm = Tracked::booted("adopted", &[libvirt]).await;
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
    });
}

#[test]
// D-backup-6 (docs/differences.md).
fn a_launcher_that_is_killed_at_each_step_of_a_start_makes_the_next_backup() {
    run(async {
        let launch = async |pod: &mut crate::harness::Pod, vmi: &crate::harness::Vmi| {
            faults::launch(pod, vmi, "--libvirt=embed").await;
        };
        let mut vm = Tracked::booted_with("steps", SIZE, launch).await;
        for (step, point) in (1..).zip(["backup.frozen", "backup.begun"]) {
            println!("{point}");
            let options = start("Held", "Push", step);
            let request = BackupRequest {
                vmi: vm.pod.request(vm.vmi.value()).vmi,
                options: options.to_string().into(),
            };
            let mut cmd = vm.pod.cmd();
            let call = async move { drop(cmd.backup_virtual_machine(request).await) };
            let held = Held::during(&mut vm.pod, point, call).await;
            vm.pod.kill_launcher().await;
            held.release().await;
            vm.pod.handler.forget();
            faults::launch(&mut vm.pod, &vm.vmi, "--libvirt=embed").await;
            // Whatever it is, it is not in progress for ever, and not complete unless it is whole.
            let is_over = |domain: &Value| {
                let backup = metadata(domain);
                !domain.is_null() && (backup.is_null() || backup["Completed"] == true)
            };
            let domain = vm.pod.domain_until("not being backed up", is_over).await;
            let backup = metadata(&domain);
            if backup["Completed"] == true && backup["Failed"] != true {
                let file = vm.file(&options, "Data-1");
                assert!(content(file.to_str().unwrap()) == vm.data());
            }
            next_works(&mut vm, 10 + step).await;
            vm.guest.run("echo thawed >/data/thawed; sync").await;
        }
    });
}
