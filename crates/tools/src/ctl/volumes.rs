//! `addvolume`, `removevolume` and `volumes`: hotplug of disks, as `virtctl` does it in a cluster.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::client::Client;
use super::error::{CtlError, VolumeError};
use super::files::FileError;
use super::json::{copy_at, list_at, push, remove_named, set, text_at};
use super::output::{Format, print};
use super::registry::VmDir;
use super::run::images::hard_link_image;
use super::target::Target;
use super::volume_table::{find_disk, row, table};
use api::pod_paths::PodPaths;
use api::proto::cmd::v1::VirtualMachineOptions;

/// How long a guest may take to release a disk.
const DETACH_TIMEOUT: Duration = Duration::from_secs(30);

/// Arguments of `addvolume`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Name of the new volume
    #[arg(id = "volume", value_name = "NAME")]
    name: String,
    /// Image file of the volume; the guest writes to it
    #[arg(long)]
    file: PathBuf,
    /// Serial number that the guest sees
    #[arg(long)]
    serial: Option<String>,
    /// Bus of the disk
    #[arg(long, value_enum, default_value_t = Bus::Scsi)]
    bus: Bus,
    /// Cache mode of the disk
    #[arg(long, value_enum)]
    cache: Option<Cache>,
    /// Only print what would be sent
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    target: Target,
}

/// Arguments of `removevolume`.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Name of the volume
    #[arg(id = "volume", value_name = "NAME")]
    name: String,
    /// Only print what would be sent
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    target: Target,
}

/// Buses on which disks can be hotplugged.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Bus {
    Scsi,
    Virtio,
}

/// Cache modes that KubeVirt knows.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Cache {
    None,
    Writethrough,
    Writeback,
}

/// `addvolume`: attaches a disk to the running guest.
///
/// # Errors
/// If the name is taken, the file is not an image, or the launcher refuses.
pub async fn add(args: &AddArgs, format: Format) -> Result<ExitCode, CtlError> {
    check_name(&args.name)?;
    let (dir, client) = connect(&args.target).await?;
    let mut vmi = dir.load_vmi()?;
    if list_at(&vmi, "/spec/volumes")
        .iter()
        .any(|volume| text_at(volume, "/name") == args.name)
    {
        return Err(VolumeError::NameTaken(args.name.clone()).into());
    }
    let disk = disk(args);
    push(&mut vmi, "/spec/domain/devices/disks", disk.clone());
    push(
        &mut vmi,
        "/spec/volumes",
        json!({"name": args.name, "persistentVolumeClaim": {"claimName": args.name, "hotpluggable": true}}),
    );
    let status = json!({"name": args.name, "phase": "Ready", "hotplugVolume": {"attachPodName": "launcherctl", "attachPodUID": ""}});
    push(&mut vmi, "/status/volumeStatus", status);
    set(&mut vmi, "/status/phase", json!("Running"));
    if args.dry_run {
        print(format, &json!({"add": disk}), || {
            format!("would add {disk}")
        });
        return Ok(ExitCode::SUCCESS);
    }
    let image = image_path(&dir, &args.name);
    hard_link_image(&args.file, &image, false)?;
    let synced = client.sync(&vmi, VirtualMachineOptions::default()).await;
    let attached = match synced {
        Ok(()) => client
            .domain()
            .await?
            .and_then(|domain| find_disk(&domain, &args.name).cloned()),
        Err(error) => {
            let _ = fs::remove_file(&image);
            return Err(error.into());
        }
    };
    let Some(attached) = attached else {
        let _ = fs::remove_file(&image);
        let name = args.name.clone();
        return Err(VolumeError::NotAttached { name, image }.into());
    };
    dir.store_vmi(&vmi)?;
    let target = text_at(&attached, "/Target/Device");
    print(
        format,
        &json!({"name": args.name, "target": target}),
        || format!("{} is attached as {target}", args.name),
    );
    Ok(ExitCode::SUCCESS)
}

/// `removevolume`: detaches a hotplugged disk, and waits until the guest has released it.
///
/// # Errors
/// If there is no such hotplugged volume, the launcher refuses, or the guest does not release the disk.
pub async fn remove(args: &RemoveArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (dir, client) = connect(&args.target).await?;
    let mut vmi = dir.load_vmi()?;
    let hotplugged = list_at(&vmi, "/spec/volumes").iter().any(|volume| {
        text_at(volume, "/name") == args.name
            && copy_at(volume, "/persistentVolumeClaim/hotpluggable") == true
    });
    if !hotplugged {
        return Err(VolumeError::NotHotplugged(args.name.clone()).into());
    }
    for list in [
        "/spec/volumes",
        "/spec/domain/devices/disks",
        "/status/volumeStatus",
    ] {
        remove_named(&mut vmi, list, &args.name);
    }
    if args.dry_run {
        print(format, &json!({"remove": args.name}), || {
            format!("would remove {}", args.name)
        });
        return Ok(ExitCode::SUCCESS);
    }
    client.sync(&vmi, VirtualMachineOptions::default()).await?;
    // Stored once the guest has released it: until then the same command can be tried again.
    until_released(&client, &args.name).await?;
    dir.store_vmi(&vmi)?;
    // Only the hard link is removed; the user's own file stays.
    let image = image_path(&dir, &args.name);
    fs::remove_file(&image).map_err(FileError::on("remove", &image))?;
    print(format, &json!({"name": args.name, "removed": true}), || {
        format!("{} is detached", args.name)
    });
    Ok(ExitCode::SUCCESS)
}

/// `volumes`: the VM's disks as they are.
///
/// # Errors
/// If the launcher does not answer.
pub async fn list(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let (dir, client) = connect(target).await?;
    let vmi = dir.load_vmi()?;
    let domain = client.domain().await?.unwrap_or_default();
    let rows: Vec<Value> = list_at(&vmi, "/spec/volumes")
        .iter()
        .map(|volume| row(&dir.pod_root(), &domain, text_at(volume, "/name")))
        .collect();
    print(format, &Value::from(rows.clone()), || table(&rows));
    Ok(ExitCode::SUCCESS)
}

async fn connect(target: &Target) -> Result<(VmDir, Client), CtlError> {
    let launcher = target.resolve()?;
    let client = Client::connect(&launcher.socket).await?;
    Ok((launcher.into_dir("hotplug of volumes")?, client))
}

fn disk(args: &AddArgs) -> Value {
    let bus = match args.bus {
        Bus::Scsi => "scsi",
        Bus::Virtio => "virtio",
    };
    let mut disk = json!({"name": args.name, "disk": {"bus": bus}});
    let cache = args
        .cache
        .and_then(|cache| cache.to_possible_value())
        .map(|cache| cache.get_name().to_owned());
    for (key, value) in [("/serial", args.serial.clone()), ("/cache", cache)] {
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

/// Kubernetes' rule for names of volumes, which become names of files.
fn check_name(name: &str) -> Result<(), VolumeError> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=63).contains(&name.len())
        && name.chars().all(is_inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
    {
        return Ok(());
    }
    Err(VolumeError::InvalidName(name.to_owned()))
}

/// Polls, as only virt-handler gets events from the launcher.
async fn until_released(client: &Client, name: &str) -> Result<(), CtlError> {
    let released = async {
        while client
            .domain()
            .await?
            .is_some_and(|domain| find_disk(&domain, name).is_some())
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    tokio::time::timeout(DETACH_TIMEOUT, released)
        .await
        .map_err(|_| VolumeError::NotReleased {
            name: name.to_owned(),
            timeout: DETACH_TIMEOUT,
        })?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
