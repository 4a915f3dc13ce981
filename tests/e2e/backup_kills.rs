//! Launcher, libvirt's daemon and QEMU are killed in each phase of a backup: before libvirt begins,
//! when it has begun, while QEMU copies, when libvirt reports the end, and before virt-handler is
//! sent that. Whatever is reported then, a backup that is called complete is whole, none is in
//! progress for ever, and the next one works. And libvirt may take long to end one.

use serde_json::{Value, json};

use crate::backup::{SIZE, TARGET, Tracked, content, metadata, start, with};
use crate::backup_faults::{goes_on, next_works};
use crate::faults::{self, Held, kill, kill_daemon, make_point};
use crate::harness::{Pod, Stopped, Vmi, in_pod};
use api::pod_paths::BACKUP_SOCKET;
use api::proto::cmd::v1::{BackupRequest, Response};

/// Where the launcher is held: the first two while the call that starts the backup waits.
const PHASES: [&str; 4] = [
    "backup.frozen",
    "backup.begun",
    "backup.completing",
    "backup.ended",
];

/// Linux, which is frozen before a backup and thawed.
async fn booted(name: &str, libvirt: &str) -> Tracked {
    let launch = async |pod: &mut Pod, vmi: &Vmi| launch(pod, vmi, libvirt).await;
    Tracked::booted_with(name, SIZE, launch).await
}

async fn counting(name: &str) -> Tracked {
    let launch = async |pod: &mut Pod, vmi: &Vmi| launch(pod, vmi, "--libvirt=auto").await;
    Tracked::counting_with(name, launch).await
}

async fn launch(pod: &mut Pod, vmi: &Vmi, libvirt: &str) {
    let image = pod.path("/var/run/kubevirt-private/vmi-disks/Data-1/disk.img");
    let mut image = std::fs::OpenOptions::new().write(true).open(image).unwrap();
    // Half of it: QEMU's main thread itself reads a disk that is allocated in full, and waits.
    for _ in 0..SIZE >> 21 {
        std::io::Write::write_all(&mut image, &vec![0xa5_u8; 1 << 20]).unwrap();
    }
    faults::launch(pod, vmi, libvirt).await;
}

/// Starts a backup and holds the launcher in a phase of it.
async fn held(vm: &mut Tracked, options: &Value, phase: &str) -> Held {
    println!("{phase}");
    let request = BackupRequest {
        vmi: vm.pod.request(vm.vmi.value()).vmi,
        options: options.to_string().into(),
    };
    let mut cmd = vm.pod.cmd();
    // The answer does not matter: it may be an error, or never come.
    let call = async move { drop(cmd.backup_virtual_machine(request).await) };
    Held::during(&mut vm.pod, phase, call).await
}

/// virt-controller's retry of the same request, and whether its answer is a success.
fn asked_again(vm: &Tracked, options: &Value) -> tokio::task::JoinHandle<bool> {
    let request = BackupRequest {
        vmi: vm.pod.request(vm.vmi.value()).vmi,
        options: options.to_string().into(),
    };
    let mut cmd = vm.pod.cmd();
    tokio::spawn(async move {
        let answer = cmd.backup_virtual_machine(request).await;
        println!("  asked again: {answer:?}");
        answer.is_ok_and(|answer| answer.into_inner().success)
    })
}

/// Waits for the backup's end, for which virt-controller waits after a success.
async fn is_reported(vm: &Tracked, options: &Value) {
    let is_reported = |domain: &Value| {
        let backup = metadata(domain);
        let [name, start] = ["Name", "StartTimestamp"].map(|field| &backup[field]);
        [name, start] == [&options["backupName"], &options["backupStartTime"]]
            && backup["Completed"] == true
    };
    vm.pod.domain_until("reported", is_reported).await;
}

/// Waits until no backup is in progress; one that is complete has what the disk had.
async fn is_over_and_not_half(vm: &Tracked, options: &Value, then: &[u8]) {
    let is_over = |domain: &Value| {
        let backup = metadata(domain);
        !domain.is_null() && (backup.is_null() || backup["Completed"] == true)
    };
    let domain = vm.pod.domain_until("not being backed up", is_over).await;
    let backup = metadata(&domain);
    println!("  {} {}", backup["Failed"], backup["BackupMsg"]);
    if backup["Name"] == options["backupName"] && backup["Failed"] != true {
        let file = vm.file(options, "Data-1");
        assert!(content(file.to_str().unwrap()) == then, "{backup}");
    }
}

#[tokio::test]
// D-backup-5, D-backup-6 (docs/differences.md).
async fn a_launcher_that_is_killed_in_each_phase_of_a_backup_leaves_none_that_is_half() {
    let mut vm = booted("launcher", "--libvirt=embed").await;
    for (second, phase) in (1..).zip(PHASES) {
        let (options, then) = (start("Held", "Push", second), vm.data());
        let held = held(&mut vm, &options, phase).await;
        vm.pod.kill_launcher().await;
        held.release().await;
        vm.pod.handler.forget();
        faults::launch(&mut vm.pod, &vm.vmi, "--libvirt=embed").await;
        is_over_and_not_half(&vm, &options, &then).await;
        next_works(&mut vm, 10 + second).await;
        vm.guest.run("echo thawed >/data/thawed; sync").await;
    }
}

#[test]
// D-backup-6 (docs/differences.md).
fn a_daemon_that_is_killed_in_each_phase_of_a_backup_leaves_none_that_is_half() {
    in_pod(async {
        let mut vm = booted("daemon", "--libvirt=auto").await;
        for (second, phase) in (1..).zip(PHASES) {
            let (options, then) = (start("Held", "Push", second), vm.data());
            let held = held(&mut vm, &options, phase).await;
            let again = asked_again(&vm, &options);
            kill_daemon(&mut vm.pod, held).await;
            if again.await.unwrap() {
                is_reported(&vm, &options).await;
            }
            is_over_and_not_half(&vm, &options, &then).await;
            next_works(&mut vm, 10 + second).await;
            vm.guest.run("echo thawed >/data/thawed; sync").await;
        }
    });
}

#[test]
// D-backup-5 (docs/differences.md).
fn a_backup_that_only_libvirt_has_is_aborted_when_its_daemon_is_back() {
    in_pod(async {
        let mut vm = counting("unknown").await;
        let file = "/var/run/kubevirt-private/backup.xml";
        let own_path = |path: &str| vm.pod.own_path(path).display().to_string();
        let [socket, target, own_file] = [BACKUP_SOCKET, TARGET, file].map(own_path);
        let xml = format!(
            "<domainbackup mode='pull'><server transport='unix' socket='{socket}'/><disks>
             <disk name='vda' backup='no'/>
             <disk name='vdb' type='file'><scratch file='{target}/unknown.qcow2'/></disk>
             </disks></domainbackup>"
        );
        std::fs::write(vm.pod.path(file), xml).unwrap();
        vm.pod
            .virsh(&["backup-begin", "default_unknown", &own_file]);
        let daemons = vm.pod.libvirt_daemons();
        let killed = async move { kill(&daemons) };
        let held = Held::during(&mut vm.pod, "backup.unknown", killed).await;
        // Whose end would be taken for that of this one.
        let (pull, then) = (start("Pulled", "Pull", 1), vm.data());
        let early = vm.ask(&pull).await;
        println!("{early:?}");
        held.release().await;
        let is_refused = |answer: &Response| answer.message.contains("a backup is in progress");
        let mut answer = early.clone();
        while is_refused(&answer) {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            answer = vm.ask(&pull).await;
        }
        assert!(answer.success, "{answer:?}");
        assert!(is_refused(&early), "{early:?}");
        goes_on(&mut vm, &pull, &then).await;
        next_works(&mut vm, 2).await;
    });
}

#[test]
// D-backup-4 (docs/differences.md).
fn qemu_that_is_killed_in_each_phase_of_a_backup_leaves_none_that_is_half() {
    in_pod(async {
        // Nothing is frozen in it; the phase comes all the same.
        let mut vm = counting("qemu").await;
        for (second, phase) in (1..).zip(PHASES) {
            let (options, then) = (start("Held", "Push", second), vm.data());
            let held = held(&mut vm, &options, phase).await;
            kill(&vm.pod.guests());
            held.release().await;
            is_over_and_not_half(&vm, &options, &then).await;
            start_again(&mut vm).await;
            next_works(&mut vm, 10 + second).await;
        }
    });
}

#[tokio::test]
// D-backup-5 (docs/differences.md).
async fn an_end_is_known_to_the_next_launcher_although_its_first_question_was_given_up() {
    let mut vm = counting("asked-twice").await;
    let push = with(start("Pushed", "Push", 1), "skipQuiesce", true);
    let Some(copy) = vm.start_held(&push).await else {
        return;
    };
    vm.pod.kill_launcher().await;
    drop(copy);
    let job = ["domjobinfo", "default_asked-twice"];
    while !vm.pod.virsh(&job).contains("None") {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    vm.pod.handler.forget();
    let fifo = make_point(&vm.pod, "backup.seen");
    faults::launch(&mut vm.pod, &vm.vmi, "--libvirt=auto").await;
    let call = tokio::spawn(async {});
    let held = Held::reached(&mut vm.pod, "backup.seen", fifo, call).await;
    vm.pod.log_has("Could not read the backup's state").await;
    held.release().await;
    let ended = vm.ended("Pushed").await;
    assert_eq!(ended["Failed"], json!(false), "{ended}");
    next_works(&mut vm, 2).await;
}

#[tokio::test]
// D-backup-4 (docs/differences.md).
async fn qemu_that_is_killed_while_it_copies_leaves_a_backup_that_has_failed() {
    let mut vm = booted("copying", "--libvirt=embed").await;
    let push = with(start("Cut", "Push", 1), "skipQuiesce", true);
    let Some(copy) = vm.start_held(&push).await else {
        return;
    };
    kill(&vm.pod.guests());
    drop(copy);
    let ended = vm.ended("Cut").await;
    assert_eq!(ended["Failed"], json!(true), "{ended}");
    assert_ne!(ended["BackupMsg"], "", "{ended}");
}

#[test]
fn a_push_whose_images_are_closed_slowly_is_complete() {
    in_pod(async {
        let mut vm = counting("closed-slowly").await;
        vm.write("first", 1).await;
        let push = with(start("Slow", "Push", 1), "skipQuiesce", true);
        let held = held(&mut vm, &push, "backup.completing").await;
        // While libvirt closes the images, it answers nothing else about the domain.
        let libvirt = Stopped::now(vm.pod.libvirt_daemons());
        held.release().await;
        vm.pod.log_has("Could not read the backup's state").await;
        drop(libvirt);
        let ended = vm.ended("Slow").await;
        assert_eq!(ended["Failed"], json!(false), "{ended}");
        assert!(content(vm.file(&push, "Data-1").to_str().unwrap()) == vm.data());
        next_works(&mut vm, 2).await;
    });
}

/// Starts the VM again whose QEMU was killed.
async fn start_again(vm: &mut Tracked) {
    vm.restart(async |vm| {
        let has_ended = |event: &crate::harness::Event| event.status() == "Shutoff";
        vm.pod.handler.event("its end", has_ended).await;
        vm.pod.delete(&vm.vmi).await;
    })
    .await;
}
