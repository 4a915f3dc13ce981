//! Volumes that come and go while the guest runs: what `virtctl addvolume` and `removevolume` do in a
//! cluster, for a VM of `launcherctl run`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::client::{Client, show};
use super::session::Session;
use super::{CtlError, Output, Target, images, session};
use api::pod_paths::PodPaths;
use api::proto::cmd::v1::VirtualMachineOptions;
use pod::{self, Root};

/// How long a guest may take to give a disk back.
const DETACH: Duration = Duration::from_secs(30);

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
    /// Only say what would be sent
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
    /// Only say what would be sent
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
/// If the name is taken, the file is none, or the launcher refuses.
pub async fn add(args: AddArgs, output: Output) -> Result<ExitCode, CtlError> {
    check_name(&args.name)?;
    let (session, client) = running(&args.target).await?;
    let mut vmi = session.load_vmi()?;
    if position(&vmi, "/spec/volumes", &args.name).is_some() {
        return Err(CtlError::Target(format!(
            "the VM has a volume {:?} already",
            args.name
        )));
    }
    let disk = disk(&args);
    push(&mut vmi, "/spec/domain/devices/disks", disk.clone());
    push(
        &mut vmi,
        "/spec/volumes",
        json!({"name": args.name, "persistentVolumeClaim": {"claimName": args.name, "hotpluggable": true}}),
    );
    let status = json!({"name": args.name, "phase": "Ready", "hotplugVolume": {"attachPodName": "launcherctl", "attachPodUID": ""}});
    push(&mut vmi, "/status/volumeStatus", status);
    vmi["status"]["phase"] = json!("Running");
    if args.dry_run {
        show(output, &json!({"add": disk}), || {
            format!("would add {disk}")
        });
        return Ok(ExitCode::SUCCESS);
    }
    let place = place(&session, &args.name);
    images::second_name(&args.file, &place, false)?;
    let synced = client.sync(&vmi, VirtualMachineOptions::default()).await;
    let attached = match synced {
        Ok(()) => client
            .domain()
            .await?
            .and_then(|domain| find(&domain, &args.name).cloned()),
        Err(error) => {
            let _ = fs::remove_file(&place);
            return Err(error);
        }
    };
    let Some(attached) = attached else {
        let _ = fs::remove_file(&place);
        return Err(CtlError::Target(format!(
            "{} was not attached; can the launcher read {}?",
            args.name,
            place.display()
        )));
    };
    session.store_vmi(&vmi)?;
    let target = text(&attached, "/Target/Device");
    show(
        output,
        &json!({"name": args.name, "target": target}),
        || format!("{} is attached as {target}", args.name),
    );
    Ok(ExitCode::SUCCESS)
}

/// `removevolume`: detaches a hotplugged disk, and waits until the guest has given it back.
///
/// # Errors
/// If there is no such hotplugged volume, the launcher refuses, or the guest does not answer.
pub async fn remove(args: RemoveArgs, output: Output) -> Result<ExitCode, CtlError> {
    let (session, client) = running(&args.target).await?;
    let mut vmi = session.load_vmi()?;
    let volume = position(&vmi, "/spec/volumes", &args.name);
    let hotplugged = volume.is_some_and(|at| {
        vmi["spec"]["volumes"][at]["persistentVolumeClaim"]["hotpluggable"] == true
    });
    if !hotplugged {
        return Err(CtlError::Target(format!(
            "the VM has no hotplugged volume {:?}; launcherctl volumes lists them",
            args.name
        )));
    }
    for list in [
        "/spec/volumes",
        "/spec/domain/devices/disks",
        "/status/volumeStatus",
    ] {
        take_out(&mut vmi, list, &args.name);
    }
    if args.dry_run {
        show(output, &json!({"remove": args.name}), || {
            format!("would remove {}", args.name)
        });
        return Ok(ExitCode::SUCCESS);
    }
    client.sync(&vmi, VirtualMachineOptions::default()).await?;
    // Until then it is the VM's, so that somebody can try again.
    until_gone(&client, &args.name).await?;
    session.store_vmi(&vmi)?;
    // Its second name goes; the image stays where the user has it.
    let place = place(&session, &args.name);
    fs::remove_file(&place).map_err(CtlError::file("remove", &place))?;
    show(output, &json!({"name": args.name, "removed": true}), || {
        format!("{} is detached", args.name)
    });
    Ok(ExitCode::SUCCESS)
}

/// `volumes`: the VM's disks as they are.
///
/// # Errors
/// If the launcher does not answer.
pub async fn list(target: Target, output: Output) -> Result<ExitCode, CtlError> {
    let (session, client) = running(&target).await?;
    let vmi = session.load_vmi()?;
    let domain = client.domain().await?.unwrap_or_default();
    let names = vmi
        .pointer("/spec/volumes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let rows: Vec<Value> = names
        .filter_map(|volume| volume["name"].as_str())
        .map(|name| row(&session.pod_root(), &domain, name))
        .collect();
    show(output, &Value::from(rows.clone()), || table(&rows));
    Ok(ExitCode::SUCCESS)
}

async fn running(target: &Target) -> Result<(Session, Client), CtlError> {
    let (session, socket) = session::resolve(target)?;
    let session = session.ok_or_else(|| {
        CtlError::Target("volumes need the launcher's --root or --name, not its socket".into())
    })?;
    Ok((session, Client::connect(&socket).await?))
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
    for (key, value) in [("serial", args.serial.clone()), ("cache", cache)] {
        if let Some(value) = value {
            disk[key] = json!(value);
        }
    }
    disk
}

/// Where the node agent would have mounted the claim.
fn place(session: &Session, name: &str) -> PathBuf {
    session.path(&PodPaths::default().hotplug_image(name))
}

/// Kubernetes' rule for names of volumes, which become names of files.
fn check_name(name: &str) -> Result<(), CtlError> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=63).contains(&name.len())
        && name.chars().all(is_inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
    {
        return Ok(());
    }
    Err(CtlError::Target(format!(
        "{name:?} names no volume: at most 63 of a to z, 0 to 9 and '-', which neither begins nor ends it"
    )))
}

/// There is no event for a second client to wait for: virt-handler's part has the notify socket.
async fn until_gone(client: &Client, name: &str) -> Result<(), CtlError> {
    let gone = async {
        while client
            .domain()
            .await?
            .is_some_and(|domain| find(&domain, name).is_some())
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    let late = || {
        CtlError::Target(format!(
            "the guest has not given {name} back within {} s; is it still in use there?",
            DETACH.as_secs()
        ))
    };
    tokio::time::timeout(DETACH, gone)
        .await
        .map_err(|_| late())?
}

fn find<'a>(domain: &'a Value, name: &str) -> Option<&'a Value> {
    domain
        .pointer("/Spec/Devices/Disks")?
        .as_array()?
        .iter()
        .find(|disk| disk["Alias"]["Name"] == name)
}

fn row(root: &Root, domain: &Value, name: &str) -> Value {
    let Some(disk) = find(domain, name) else {
        return json!({"name": name, "state": "not attached"});
    };
    let source = [text(disk, "/Source/File"), text(disk, "/Source/Dev")].concat();
    let size = pod::virtual_size(root, &source, text(disk, "/Driver/Type")).ok();
    json!({"name": name, "target": text(disk, "/Target/Device"), "source": source, "size": size, "serial": text(disk, "/Serial"), "state": "attached"})
}

fn table(rows: &[Value]) -> String {
    let line = |name: &str, target: &str, size: &str, serial: &str, state: &str, source: &str| {
        format!("{name:<20} {target:<7} {size:>13} {serial:<20} {state:<13} {source}")
            .trim_end()
            .to_owned()
    };
    let mut lines = vec![line("NAME", "TARGET", "SIZE", "SERIAL", "STATE", "SOURCE")];
    for row in rows {
        let part = |key: &str| {
            row[key]
                .as_str()
                .filter(|text| !text.is_empty())
                .unwrap_or("-")
        };
        let size = row["size"].as_u64().map_or_else(|| "-".into(), human);
        lines.push(line(
            part("name"),
            part("target"),
            &size,
            part("serial"),
            part("state"),
            part("source"),
        ));
    }
    lines.join("\n")
}

/// In the largest unit that is not too large, with a decimal where it is not whole.
fn human(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let Some((unit, shift)) = units.into_iter().find(|(_, shift)| bytes >> shift > 0) else {
        return format!("{bytes} B");
    };
    let tenths = (u128::from(bytes) * 10) >> shift;
    if tenths % 10 == 0 {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn position(vmi: &Value, list: &str, name: &str) -> Option<usize> {
    vmi.pointer(list)?
        .as_array()?
        .iter()
        .position(|item| item["name"] == name)
}

fn push(vmi: &mut Value, list: &str, item: Value) {
    let mut here = vmi;
    for key in list.split('/').skip(1) {
        here = &mut here[key];
    }
    match here {
        Value::Array(items) => items.push(item),
        missing => *missing = json!([item]),
    }
}

fn take_out(vmi: &mut Value, list: &str, name: &str) {
    if let Some(items) = vmi.pointer_mut(list).and_then(Value::as_array_mut) {
        items.retain(|item| item["name"] != name);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn size_is_what_the_guest_sees() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.qcow2");
        let mut header = [0; 512];
        header[..8].copy_from_slice(b"QFI\xfb\0\0\0\x02");
        header[20..24].copy_from_slice(&16_u32.to_be_bytes());
        header[24..32].copy_from_slice(&(3_u64 << 29).to_be_bytes());
        fs::write(&image, header).unwrap();
        let row_as = |format: &str| {
            let disk = json!({"Alias": {"Name": "a"}, "Source": {"File": image}, "Driver": {"Type": format}});
            row(
                &Root::new(dir.path()),
                &json!({"Spec": {"Devices": {"Disks": [disk]}}}),
                "a",
            )
        };
        assert_eq!(row_as("qcow2")["size"], 3_u64 << 29);
        assert!(table(&[row_as("qcow2")]).contains(" 1.5 GiB "));
        assert_eq!(
            row_as("raw")["size"],
            512,
            "the guest sees the file as it is"
        );
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

    #[test]
    fn a_vm_without_disks_can_get_one() {
        let mut vmi = json!({"spec": {"domain": {"devices": {}}}});
        for name in ["a", "b"] {
            push(
                &mut vmi,
                "/spec/domain/devices/disks",
                json!({"name": name}),
            );
        }
        assert_eq!(position(&vmi, "/spec/domain/devices/disks", "b"), Some(1));
    }

    #[test]
    fn sizes_are_short() {
        let short = [0, 1023, 1024, 1536, 64 << 20, (64 << 20) + 1, 1 << 40].map(human);
        assert_eq!(
            short,
            [
                "0 B", "1023 B", "1 KiB", "1.5 KiB", "64 MiB", "64 MiB", "1 TiB"
            ]
        );
    }

    #[test]
    fn a_volume_that_is_not_attached_says_so() {
        let domain = json!({"Spec": {"Devices": {"Disks": [{"Alias": {"Name": "a"}, "Source": {"File": "/nonexistent"}, "Target": {"Device": "sda"}, "Serial": "S"}]}}});
        let row = |name| row(&Root::default(), &domain, name);
        assert_eq!(row("a")["target"], "sda");
        assert_eq!(row("a")["size"], Value::Null);
        assert_eq!(row("b"), json!({"name": "b", "state": "not attached"}));
        let text = table(&[row("a"), row("b")]);
        assert_eq!(text.lines().count(), 3);
        assert!(
            text.lines()
                .nth(2)
                .is_some_and(|line| line.contains("not attached")),
            "{text}"
        );
    }
}
