//! `addvolume`, `removevolume` and `volumes`: hotplug of disks, as `virtctl` does it in a cluster.
//! A volume with the name of a CD-ROM drive of the VMI goes into that drive.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::target::{Target, TargetError, check_processes, last_vmi};

use super::volume_table::{Row, find_attached, find_disk, find_disk_of_file, text};
use crate::error::{CtlError, TextError, fail};
use crate::files::FileError;
use crate::host::image_content::{Accepts, check_content};
use crate::host::images::{check_has_no_data, give_image, link_image};
use crate::host::last_images::{give_back_volume, removed_of_volume};
use crate::host::registry::VmDir;
use crate::host::remains;
use crate::host::start_args::SuperviseArgs;
use crate::json::{find_named, is_true_at, list_at, push, remove_named, set, text_at};
use crate::manifest::drives::{empty_drives, is_drive};
use crate::manifest::is_label;
use crate::reports::notify_server::notify_socket;
use crate::similar::known_names;
use crate::view::output::{Format, answer, print, say};
use api::pod_paths::PodPaths;
use api::proto::cmd::v1::VirtualMachineOptions;
use client::problems::{Loss, RemovedImage};
use client::running::check_runs;
use client::{Client, GuestState};
use domain::Domain;
use domain::disks::Disk;
use domain::guest_agent::Filesystem;
use terminal::progress::waiting;

/// Limit for a guest to release a disk.
const DETACH_TIMEOUT: Duration = Duration::from_secs(30);

/// Arguments of `addvolume`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Name of the new volume; that of an empty CD-ROM drive of the VMI puts the volume into it
    #[arg(id = "volume", value_name = "NAME")]
    name: String,
    /// Image file of the volume; the guest writes to it, unless it is in a CD-ROM drive
    #[arg(long)]
    file: PathBuf,
    /// Serial number that the guest sees
    #[arg(long)]
    serial: Option<String>,
    /// Bus of the disk; scsi if not given
    #[arg(long, value_parser = ["scsi", "virtio"])]
    bus: Option<String>,
    /// Cache mode of the disk
    #[arg(long, value_parser = ["none", "writethrough", "writeback"])]
    cache: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// Arguments of `removevolume`.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Name of the volume
    #[arg(id = "volume", value_name = "NAME")]
    name: String,
    /// Detach also a disk on which the guest agent reports a mounted file system: what the guest
    /// has not written yet is lost. Not every mount is seen, so unmount the volume first
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    target: Target,
}

/// `addvolume`: attaches a disk to the running guest.
///
/// # Errors
/// The name is taken, the file is not an image, or the launcher refuses.
pub async fn add(args: &AddArgs, format: Format) -> Result<ExitCode, CtlError> {
    check_name(&args.name)?;
    let vm = Vm::connect(&args.target).await?;
    let (dir, client, mut vmi) = (&vm.dir, &vm.client, vm.vmi.clone());
    check_free(&args.name, &vmi)?;
    let is_medium = is_drive(&vmi, &args.name);
    if is_medium {
        check_medium(args, &vmi)?;
    } else {
        push(&mut vmi, "/spec/domain/devices/disks", disk(args));
    }
    let claim = json!({"claimName": args.name, "hotpluggable": true});
    let volume = json!({"name": args.name, "persistentVolumeClaim": claim});
    push(&mut vmi, "/spec/volumes", volume);
    let status = json!({"name": args.name, "phase": "Ready", "hotplugVolume": {"attachPodName": "launcherctl", "attachPodUID": ""}});
    push(&mut vmi, "/status/volumeStatus", status);
    set(&mut vmi, "/status/phase", json!("Running"));
    let domain = client.domain().await?;
    // A paused guest sees the disk once it is resumed.
    if !GuestState::of(domain.as_ref()).has_process() {
        check_runs(domain.as_ref())?;
    }
    let drive = domain.as_ref().and_then(|it| find_disk(it, &args.name));
    if is_medium && drive.is_none() {
        fail!(
            "the guest does not have the CD-ROM drive {}, which came into the VMI while it ran: stop the VM and run it again",
            args.name
        );
    }
    check_not_attached(&args.name, &args.file, domain.as_ref())?;
    let image = image_path(dir, &args.name);
    if is_medium {
        // The guest only reads it, so a copy will do.
        check_content(&args.file, Accepts::Raw)?;
        let linked = link_image(&args.file, &image, dir.is_of_run());
        let copy = || fs::copy(&args.file, &image).map_err(FileError::on("copy", &args.file));
        linked.or_else(|_| copy().map(drop))?;
    } else {
        check_has_no_data(&image)?;
        give_image(&args.file, &image, Accepts::Raw, dir.is_of_run())?;
    }
    let attached = match attach(&vm, &vmi, &args.name).await {
        Ok(Some(attached)) => attached,
        not_attached => {
            let why = why_not(client, &vmi, &args.name).await;
            let _ = fs::remove_file(&image);
            not_attached?;
            let why = why.unwrap_or_else(|| format!("can the launcher read {}?", image.display()));
            fail!("{} was not attached: {why}", args.name);
        }
    };
    vm.store(&vmi)?;
    // A launcher that was started by hand has none.
    if let Ok(mut start) = SuperviseArgs::load(dir)
        && !is_medium
    {
        start.add_file(&args.name, &args.file);
        start.store(dir)?;
    }
    dir.forget_restart(&format!("spec.volumes[{}]", args.name))?;
    let (name, target) = (&args.name, attached.target.device.as_str());
    let text = if is_medium {
        format!("{name} is in its CD-ROM drive ({target})")
    } else {
        format!("{name} is attached as {target}")
    };
    print(format, &json!({"name": name, "target": target}), || [text]);
    if vm.has_virt_handler() {
        say(
            "virt-handler's next sync detaches it again, as its VMI does not have it; virtctl addvolume keeps it",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends the VMI. Returns the disk if the domain then has it.
async fn attach(vm: &Vm, vmi: &Value, name: &str) -> Result<Option<Disk>, CtlError> {
    vm.client.sync(vmi, vm.options.clone()).await?;
    let domain = vm.client.domain().await?.unwrap_or_default();
    Ok(find_attached(&domain, name).cloned())
}

/// Why the launcher cannot attach the volume now.
async fn why_not(client: &Client, vmi: &Value, name: &str) -> Option<String> {
    let plan = client.plan(vmi).await.ok()?;
    let kept = list_at(&plan, "/kept").iter();
    let mut reasons = kept.filter(|step| text_at(step, "/volume") == name);
    Some(text_at(reasons.next()?, "/why").to_owned())
}

/// `removevolume`: detaches a hotplugged disk, and waits until the guest has released it. Of a
/// CD-ROM drive it removes only the medium.
///
/// # Errors
/// There is no such hotplugged volume, the launcher refuses, or the guest does not release the
/// disk.
pub async fn remove(args: &RemoveArgs, format: Format) -> Result<ExitCode, CtlError> {
    let vm = Vm::connect(&args.target).await?;
    let (dir, client, mut vmi) = (&vm.dir, &vm.client, vm.vmi.clone());
    let domain = client.domain().await?;
    check_hotplugged(&args.name, &vmi, domain.as_ref())?;
    let is_medium = is_drive(&vmi, &args.name);
    for list in ["/spec/volumes", "/status/volumeStatus"] {
        remove_named(&mut vmi, list, &args.name);
    }
    if !is_medium {
        remove_named(&mut vmi, "/spec/domain/devices/disks", &args.name);
    }
    check_runs(domain.as_ref())?;
    if !is_medium && !args.force {
        check_not_lost(dir, &args.name)?;
        check_not_mounted(client, &args.name, domain.as_ref()).await?;
    }
    client.sync(&vmi, vm.options.clone()).await?;
    // Stored once the guest has released it: until then the same command can be repeated.
    let release = until_released(client, &args.name, is_medium);
    waiting(
        "the guest to release the disk",
        Some(DETACH_TIMEOUT),
        release,
    )
    .await?;
    vm.store(&vmi)?;
    let start = SuperviseArgs::load(dir);
    if let Ok(start) = &start {
        match give_back_volume(dir, start, &args.name) {
            Ok(note) => note.into_iter().for_each(say),
            Err(image) => fail!(
                "{} is detached, and {} is all that is left of its image, which was removed: move it away",
                args.name,
                image.display()
            ),
        }
    }
    // Removes only the hard link; the user's own file stays. In a pod, virt-handler owns its
    // mounts.
    let image = image_path(dir, &args.name);
    if let Err(error) = fs::remove_file(&image)
        && dir.is_of_run()
        && error.kind() != ErrorKind::NotFound
    {
        return Err(FileError::on("remove", image)(error).into());
    }
    if let Ok(mut start) = start {
        start.remove_file(&args.name);
        start.store(dir)?;
    }
    let name = &args.name;
    let text = if is_medium {
        format!("{name} is ejected; its CD-ROM drive stays, empty")
    } else {
        format!("{name} is detached")
    };
    answer(format, &json!({"name": name, "removed": true}), || [text])
}

/// Refuses to detach a disk whose image only QEMU has.
fn check_not_lost(dir: &VmDir, name: &str) -> Result<(), TextError> {
    let Ok(start) = SuperviseArgs::load(dir) else {
        return Ok(());
    };
    let removed = removed_of_volume(dir, &start, name, || remains::guest(dir.root()));
    if let Some(image) = removed.filter(RemovedImage::is_lost) {
        let (cause, remedy) = image.explained(Loss::Detaching);
        fail!("{cause}; {remedy}");
    }
    Ok(())
}

/// `volumes`: lists the VM's current disks and its empty CD-ROM drives.
///
/// # Errors
/// The launcher does not answer.
pub async fn list(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let vm = Vm::connect(target).await?;
    let domain = vm.client.domain().await?.unwrap_or_default();
    let rows = names_of_volumes(&vm.vmi).map(|name| Row::new(&vm.dir.pod_root(), &domain, name));
    let mut rows: Vec<Row> = rows.collect();
    if vm.dir.is_of_run() {
        let files = SuperviseArgs::load(&vm.dir).unwrap_or_default().files;
        rows.iter_mut().for_each(|row| row.resolve_source(&files));
    }
    answer(format, &json!(rows), || text(&rows, format))
}

/// The names of a VMI's volumes and empty CD-ROM drives.
fn names_of_volumes(vmi: &Value) -> impl Iterator<Item = &str> {
    let volumes = list_at(vmi, "/spec/volumes").iter();
    let names = volumes.map(|volume| text_at(volume, "/name"));
    names.chain(empty_drives(vmi))
}

/// A launcher, its directory, and its last sync's input.
struct Vm {
    dir: VmDir,
    client: Client,
    vmi: Value,
    /// Sent with each further sync, so that it changes nothing else.
    options: VirtualMachineOptions,
}

impl Vm {
    async fn connect(target: &Target) -> Result<Self, CtlError> {
        let (dir, client) = target.connect().await?;
        check_processes(&dir)?;
        let vmi = last_vmi(&dir, &client).await?;
        let options = client.last_sync().await?.map(|sync| sync.options);
        Ok(Self {
            dir,
            client,
            vmi: vmi.ok_or(TargetError::NeedsVmi)?,
            options: options.unwrap_or_default(),
        })
    }

    fn store(&self, vmi: &Value) -> Result<(), FileError> {
        if self.dir.is_of_run() {
            self.dir.store_vmi(vmi)?;
        }
        Ok(())
    }

    /// Whether this is a pod where virt-handler serves the notify socket.
    fn has_virt_handler(&self) -> bool {
        let socket = self.dir.path(&notify_socket());
        !self.dir.is_of_run() && std::os::unix::net::UnixStream::connect(socket).is_ok()
    }
}

fn disk(args: &AddArgs) -> Value {
    let bus = args.bus.as_deref().unwrap_or("scsi");
    let mut disk = json!({"name": args.name, "disk": {"bus": bus}});
    for (key, value) in [("/serial", &args.serial), ("/cache", &args.cache)] {
        if let Some(value) = value {
            set(&mut disk, key, json!(value));
        }
    }
    disk
}

/// Where virt-handler mounts the claim of a hotplugged volume.
fn image_path(dir: &VmDir, name: &str) -> PathBuf {
    dir.path(&PodPaths::default().hotplug_image(name))
}

/// Kubernetes' rule for volume names, which become file names.
fn check_name(name: &str) -> Result<(), TextError> {
    if is_label(name) {
        return Ok(());
    }
    fail!(
        "invalid volume name {name:?}: at most 63 characters of a to z, 0 to 9 and '-', and no '-' at its beginning or end"
    );
}

/// Checks that no volume has this name.
fn check_free(name: &str, vmi: &Value) -> Result<(), TextError> {
    if find_named(vmi, "/spec/volumes", name).is_none() {
        return Ok(());
    }
    if is_drive(vmi, name) {
        fail!(
            "the CD-ROM drive {name} has a medium; launcherctl removevolume {name} ejects it, then another can be put in"
        );
    }
    fail!("the VM has a volume {name:?} already");
}

/// A medium has no options of its own. libvirt accepts none with tracked changes, as it tracks
/// those of qcow2 only.
fn check_medium(args: &AddArgs, vmi: &Value) -> Result<(), TextError> {
    let name = &args.name;
    if !text_at(vmi, "/status/changedBlockTracking/state").is_empty() {
        fail!(
            "no medium can be put into the CD-ROM drive {name} while the guest runs: the VM was started with --track-changes, and libvirt tracks the changes of qcow2 disks only; name the medium in the VMI before the start, or start the VM without --track-changes"
        );
    }
    if args.bus.is_none() && args.serial.is_none() && args.cache.is_none() {
        return Ok(());
    }
    fail!(
        "{name} is a CD-ROM drive of the VMI, which says its bus, cache and serial: leave out --bus, --cache and --serial"
    );
}

/// Only a volume plugged in while the guest ran can be unplugged.
fn check_hotplugged(name: &str, vmi: &Value, domain: Option<&Domain>) -> Result<(), TextError> {
    match find_named(vmi, "/spec/volumes", name) {
        Some(volume)
            if is_true_at(volume, "/persistentVolumeClaim/hotpluggable")
                || is_true_at(volume, "/dataVolume/hotpluggable") =>
        {
            Ok(())
        }
        Some(_) => fail!(
            "the VM has had volume {name:?} since its start; only a hotplugged volume can be removed while the guest runs"
        ),
        // Requested before, and not released by the guest yet.
        None if domain.is_some_and(|domain| find_attached(domain, name).is_some()) => Ok(()),
        None if is_drive(vmi, name) => fail!(
            "the CD-ROM drive {name} is empty; launcherctl addvolume {name} --file FILE puts a medium into it"
        ),
        None => {
            let known = known_names(name, names_of_volumes(vmi));
            fail!("the VM has no volume {name:?}; it has {known}")
        }
    }
}

/// Two disks that write to one image damage it. QEMU's lock would blame another VM.
fn check_not_attached(name: &str, file: &Path, domain: Option<&Domain>) -> Result<(), TextError> {
    if domain.is_some_and(|domain| find_attached(domain, name).is_some()) {
        fail!(
            "the guest still has a disk of volume {name:?}, which was taken out of the VMI: it goes when the guest releases it, or with a restart; choose another name"
        );
    }
    match domain.and_then(|domain| find_disk_of_file(domain, file)) {
        None => Ok(()),
        Some(disk) => {
            let (file, volume, target) = (file.display(), disk.volume(), &disk.target.device);
            fail!("{file} is attached already, as volume {volume} ({target})")
        }
    }
}

/// A guest also releases a mounted disk, and loses unwritten data.
async fn check_not_mounted(
    client: &Client,
    name: &str,
    domain: Option<&Domain>,
) -> Result<(), CtlError> {
    let disk = domain.and_then(|domain| find_attached(domain, name));
    let serial = disk.map_or("", |disk| &disk.serial);
    let filesystems = client.filesystems().await.unwrap_or_default();
    let mut disks = filesystems.iter().flat_map(|filesystem| &filesystem.disks);
    match mounted_at(&filesystems, serial) {
        None if serial.is_empty() => say(format!(
            "note: whether {name} is mounted cannot be seen, as it has no serial (addvolume --serial gives it one)"
        )),
        None if !disks.any(|disk| !disk.serial.is_empty()) => say(format!(
            "note: whether {name} is mounted cannot be seen, as the guest agent reports no serials: it does not answer, or the guest has no udev"
        )),
        None => {}
        Some(directory) => fail!(
            "by the guest agent's last report, which is up to five minutes old, {name} is mounted at {directory}: unmount it there (umount {directory}), or what is not written yet is lost; --force detaches it all the same"
        ),
    }
    Ok(())
}

/// The guest's mount point of a file system on the disk with this serial.
fn mounted_at<'a>(filesystems: &'a [Filesystem], serial: &str) -> Option<&'a str> {
    let is_on_disk = |filesystem: &&Filesystem| {
        let mut disks = filesystem.disks.iter();
        !serial.is_empty() && disks.any(|disk| disk.serial == serial)
    };
    let found = filesystems.iter().find(is_on_disk);
    found.map(|filesystem| filesystem.mount_point.as_str())
}

/// Polls, as only virt-handler gets events from the launcher.
async fn until_released(client: &Client, name: &str, is_medium: bool) -> Result<(), CtlError> {
    let is_attached = |domain: Domain| find_attached(&domain, name).is_some();
    let released = async {
        while client.domain().await?.is_some_and(is_attached) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    if let Ok(released) = tokio::time::timeout(DETACH_TIMEOUT, released).await {
        return released;
    }
    let seconds = DETACH_TIMEOUT.as_secs();
    let why = if is_medium {
        "it has mounted the medium, or locked the CD-ROM drive; unmount it there (umount, eject), then try again"
    } else {
        "it still uses the disk; unmount it there, then try again"
    };
    fail!("the guest has not released {name} within {seconds} s: {why}");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_was_plugged_in_is_unplugged() {
        let vmi = json!({"spec": {"volumes": [{"name": "root", "containerDisk": {}},
            {"name": "data", "persistentVolumeClaim": {"hotpluggable": true}}]}});
        let refusal = |name| check_hotplugged(name, &vmi, None).map_err(|e| e.to_string());
        assert_eq!(refusal("data"), Ok(()));
        assert!(refusal("root").unwrap_err().contains("since its start"));
        let unknown = refusal("dota").unwrap_err();
        assert!(
            unknown.ends_with("it has root, data; did you mean data?"),
            "{unknown}"
        );
        // The guest has not released it yet.
        let late = json!({"Spec": {"Devices": {"Disks": [{"Alias": {"Name": "late"}}]}}});
        let domain = crate::json::domain(late);
        assert!(check_hotplugged("late", &vmi, Some(&domain)).is_ok());
    }

    #[test]
    fn a_mounted_disk_is_known_by_its_serial() {
        let filesystems = json!([
            {"mountPoint": "/", "disk": [{"busType": "virtio"}]},
            {"mountPoint": "/mnt", "disk": [{"busType": "scsi", "serial": "X1"}]},
        ]);
        let filesystems: Vec<_> = serde_json::from_value(filesystems).unwrap();
        assert_eq!(mounted_at(&filesystems, "X1"), Some("/mnt"));
        assert_eq!(mounted_at(&filesystems, ""), None);
        assert_eq!(mounted_at(&filesystems, "X2"), None);
        assert_eq!(mounted_at(&[], "X1"), None);
    }

    #[test]
    fn a_drive_takes_one_medium() {
        let claim = json!({"hotpluggable": true});
        let vmi = json!({"spec": {
            "volumes": [{"name": "root"}, {"name": "full", "persistentVolumeClaim": claim}],
            "domain": {"devices": {"disks": [{"name": "root", "disk": {}}, {"name": "full", "cdrom": {}},
                {"name": "empty", "cdrom": {}}]}},
        }});
        check_free("empty", &vmi).unwrap();
        let refused = |name| check_free(name, &vmi).unwrap_err().to_string();
        assert!(refused("full").contains("launcherctl removevolume full"));
        assert!(refused("root").contains("already"));
        check_hotplugged("full", &vmi, None).unwrap();
        let drive = json!({"Alias": {"Name": "empty"}, "Device": "cdrom"});
        let domain = crate::json::domain(json!({"Spec": {"Devices": {"Disks": [drive]}}}));
        let error = check_hotplugged("empty", &vmi, Some(&domain)).unwrap_err();
        assert!(error.to_string().contains("is empty"), "{error}");
    }

    #[test]
    fn a_name_cannot_lead_out_of_the_directory() {
        for name in ["", "../a", "a/b", ".", "-a", "a-", "A", &"a".repeat(64)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in ["a", "data-1", &"a".repeat(63)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }
}
