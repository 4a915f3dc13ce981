//! `addvolume`, `removevolume` and `volumes`: hotplug of disks, as `virtctl` does it in a cluster.
//! A volume with the name of a CD-ROM drive of the VMI goes into that drive.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::target::{Target, VmArgs};
use super::volume_table::{Row, find_attached, text};
use crate::error::{CtlError, TextError, fail};
use crate::host::image_content::Accepts;
use crate::host::images::{check_has_no_data, give_image};
use crate::host::vm_dir::VmDir;
use crate::json::{find_named, list_at, push, remove_named, set, text_at};
use crate::manifest::drives::{empty_drives, is_drive};
use crate::manifest::{is_hotpluggable, is_label, plugged_status};
use crate::similar::known_names;
use crate::view::output::{Format, answer, print};
use api::pod_paths::PodPaths;
use client::running::check_runs;
use client::{Client, GuestState};
use domain::Domain;

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
    #[command(flatten)]
    target: Target,
}

/// Arguments of `removevolume`.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Name of the volume
    #[arg(id = "volume", value_name = "NAME")]
    name: String,
    #[command(flatten)]
    target: Target,
}

/// `addvolume`: attaches a disk to the running guest.
///
/// # Errors
/// The name is taken, the file is not an image, or the launcher refuses.
pub async fn add(args: &AddArgs, format: Format) -> Result<ExitCode, CtlError> {
    // The name becomes a file's.
    if !is_label(&args.name) {
        fail!(
            "invalid volume name {:?}: at most 63 characters of a to z, 0 to 9 and '-', and no '-' at its beginning or end",
            args.name
        );
    }
    let vm = args.target.connect().await?;
    let (dir, client) = (&vm.dir, &vm.client);
    let (mut vmi, options) = (vm.last_vmi().await?, vm.options().await?);
    check_free(&args.name, &vmi)?;
    let is_medium = is_drive(&vmi, &args.name);
    if !is_medium {
        let bus = args.bus.as_deref().unwrap_or("scsi");
        let mut disk = json!({"name": args.name, "disk": {"bus": bus}});
        if let Some(serial) = &args.serial {
            set(&mut disk, "/serial", json!(serial));
        }
        push(&mut vmi, "/spec/domain/devices/disks", disk);
    }
    let claim = json!({"claimName": args.name, "hotpluggable": true});
    let volume = json!({"name": args.name, "persistentVolumeClaim": claim});
    push(&mut vmi, "/spec/volumes", volume);
    push(&mut vmi, "/status/volumeStatus", plugged_status(&args.name));
    set(&mut vmi, "/status/phase", json!("Running"));
    let domain = client.domain().await?;
    // A paused guest sees the disk once it is resumed.
    if !GuestState::of(domain.as_ref()).has_process() {
        check_runs(domain.as_ref())?;
    }
    let image = image_path(dir, &args.name);
    check_has_no_data(&image)?;
    give_image(&args.file, &image, Accepts::Raw, dir.is_of_run())?;
    let synced = client.sync(&vmi, options).await;
    let domain = client.domain().await.ok().flatten().unwrap_or_default();
    let Some(attached) = find_attached(&domain, &args.name) else {
        let _ = fs::remove_file(&image);
        synced?;
        fail!("{} was not attached; launcherctl logs says more", args.name);
    };
    store(dir, &vmi, &args.name)?;
    let (name, target) = (&args.name, attached.target.device.as_str());
    let text = if is_medium {
        format!("{name} is in its CD-ROM drive ({target})")
    } else {
        format!("{name} is attached as {target}")
    };
    print(format, &json!({"name": name, "target": target}), || [text]);
    Ok(ExitCode::SUCCESS)
}

/// `removevolume`: detaches a hotplugged disk, and waits until the guest has released it. Of a
/// CD-ROM drive it removes only the medium.
///
/// # Errors
/// There is no such hotplugged volume, the launcher refuses, or the guest does not release the
/// disk.
pub async fn remove(args: &RemoveArgs, format: Format) -> Result<ExitCode, CtlError> {
    let vm = args.target.connect().await?;
    let (dir, client) = (&vm.dir, &vm.client);
    let (mut vmi, options) = (vm.last_vmi().await?, vm.options().await?);
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
    client.sync(&vmi, options).await?;
    // Stored once the guest has released it: until then the same command can be repeated.
    until_released(client, &args.name).await?;
    store(dir, &vmi, &args.name)?;
    // Only the link; the user's own file stays.
    let _ = fs::remove_file(image_path(dir, &args.name));
    let name = &args.name;
    let text = if is_medium {
        format!("{name} is ejected; its CD-ROM drive stays, empty")
    } else {
        format!("{name} is detached")
    };
    answer(format, &json!({"name": name, "removed": true}), || [text])
}

/// `volumes`: lists the VM's current disks and its empty CD-ROM drives.
///
/// # Errors
/// The launcher does not answer.
pub async fn list(args: &VmArgs, format: Format) -> Result<ExitCode, CtlError> {
    let vm = args.target().connect().await?;
    let vmi = vm.last_vmi().await?;
    let domain = vm.client.domain().await?.unwrap_or_default();
    let rows = names_of_volumes(&vmi).map(|name| Row::new(&vm.dir, &domain, name));
    let rows: Vec<Row> = rows.collect();
    answer(format, &json!(rows), || text(&rows))
}

/// The names of a VMI's volumes and empty CD-ROM drives.
fn names_of_volumes(vmi: &Value) -> impl Iterator<Item = &str> {
    let volumes = list_at(vmi, "/spec/volumes").iter();
    let names = volumes.map(|volume| text_at(volume, "/name"));
    names.chain(empty_drives(vmi))
}

/// Stores what the VM has now; its volume `name` waits for no restart any more.
fn store(dir: &VmDir, vmi: &Value, name: &str) -> Result<(), CtlError> {
    if dir.is_of_run() {
        dir.store_vmi(vmi)?;
        let mut restart = dir.load_restart();
        let end = format!("[{name}]");
        restart.retain(|it| !text_at(it, "/field").ends_with(&end));
        dir.store_restart(&restart)?;
    }
    Ok(())
}

/// Where virt-handler mounts the claim of a hotplugged volume.
fn image_path(dir: &VmDir, name: &str) -> PathBuf {
    dir.path(&PodPaths::default().hotplug_image(name))
}

/// Checks that no volume has this name.
fn check_free(name: &str, vmi: &Value) -> Result<(), TextError> {
    if find_named(vmi, "/spec/volumes", name).is_some() {
        fail!("the VM has a volume {name:?} already; launcherctl removevolume {name} takes it out");
    }
    Ok(())
}

/// Only a volume plugged in while the guest ran can be unplugged.
fn check_hotplugged(name: &str, vmi: &Value, domain: Option<&Domain>) -> Result<(), TextError> {
    match find_named(vmi, "/spec/volumes", name) {
        Some(volume) if is_hotpluggable(volume) => Ok(()),
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

/// Polls, as only virt-handler gets events from the launcher.
async fn until_released(client: &Client, name: &str) -> Result<(), CtlError> {
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
    fail!(
        "the guest has not released {name} within {} s: unmount it there, then try again",
        DETACH_TIMEOUT.as_secs()
    );
}

#[cfg(test)]
mod tests {
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
}
