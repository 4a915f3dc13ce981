//! Volumes that come and go while the guest runs: what `virtctl addvolume` and `removevolume` do in a
//! cluster, for a VM of `launcherctl run`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::client::{Client, show};
use super::session::Session;
use super::{CtlError, Output, Target, session};
use crate::proto::cmd::v1::VirtualMachineOptions;

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
    /// Cache mode: none, writethrough or writeback
    #[arg(long)]
    cache: Option<String>,
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

/// `addvolume`: attaches a disk to the running guest.
///
/// # Errors
/// If the name is taken, the file is none, or the launcher refuses.
pub async fn add(args: AddArgs, output: Output) -> Result<ExitCode, CtlError> {
    let (session, client) = running(&args.target).await?;
    let mut vmi = session.load_vmi()?;
    if position(&vmi, "/spec/volumes", &args.name).is_some() {
        return Err(CtlError::Target(format!("the VM has a volume {:?} already", args.name)));
    }
    let disk = disk(&args);
    push(&mut vmi, "/spec/domain/devices/disks", disk.clone());
    push(&mut vmi, "/spec/volumes", json!({"name": args.name, "persistentVolumeClaim": {"claimName": args.name, "hotpluggable": true}}));
    let status = json!({"name": args.name, "phase": "Ready", "hotplugVolume": {"attachPodName": "launcherctl", "attachPodUID": ""}});
    push(&mut vmi, "/status/volumeStatus", status);
    vmi["status"]["phase"] = json!("Running");
    if args.dry_run {
        show(output, &json!({"add": disk}), || format!("would add {disk}"));
        return Ok(ExitCode::SUCCESS);
    }
    let place = place(&session, &args.name);
    link(&args.file, &place)?;
    let synced = client.sync(&vmi, VirtualMachineOptions::default()).await;
    let attached = match synced {
        Ok(()) => client.domain().await?.and_then(|domain| find(&domain, &args.name).cloned()),
        Err(error) => {
            let _ = fs::remove_file(&place);
            return Err(error);
        }
    };
    let Some(attached) = attached else {
        let _ = fs::remove_file(&place);
        return Err(CtlError::Target(format!("{} was not attached; can the launcher read {}?", args.name, place.display())));
    };
    session.store_vmi(&vmi)?;
    let target = text(&attached, "/Target/Device");
    show(output, &json!({"name": args.name, "target": target}), || format!("{} is attached as {target}", args.name));
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
    let hotplugged = volume.is_some_and(|at| vmi["spec"]["volumes"][at]["persistentVolumeClaim"]["hotpluggable"] == true);
    if !hotplugged {
        return Err(CtlError::Target(format!("the VM has no hotplugged volume {:?}; launcherctl volumes lists them", args.name)));
    }
    for list in ["/spec/volumes", "/spec/domain/devices/disks", "/status/volumeStatus"] {
        take_out(&mut vmi, list, &args.name);
    }
    if args.dry_run {
        show(output, &json!({"remove": args.name}), || format!("would remove {}", args.name));
        return Ok(ExitCode::SUCCESS);
    }
    client.sync(&vmi, VirtualMachineOptions::default()).await?;
    session.store_vmi(&vmi)?;
    until_gone(&client, &args.name).await?;
    // Its second name goes; the image stays where the user has it.
    let place = place(&session, &args.name);
    fs::remove_file(&place).map_err(CtlError::file("remove", &place))?;
    show(output, &json!({"name": args.name, "removed": true}), || format!("{} is detached", args.name));
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
    let names = vmi.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
    let rows: Vec<Value> = names.filter_map(|volume| volume["name"].as_str()).map(|name| row(&domain, name)).collect();
    show(output, &Value::from(rows.clone()), || table(&rows));
    Ok(ExitCode::SUCCESS)
}

async fn running(target: &Target) -> Result<(Session, Client), CtlError> {
    let (session, socket) = session::resolve(target)?;
    let session = session.ok_or_else(|| CtlError::Target("volumes need the launcher's --root or --name, not its socket".into()))?;
    Ok((session, Client::connect(&socket).await?))
}

fn disk(args: &AddArgs) -> Value {
    let bus = match args.bus {
        Bus::Scsi => "scsi",
        Bus::Virtio => "virtio",
    };
    let mut disk = json!({"name": args.name, "disk": {"bus": bus}});
    for (key, value) in [("serial", &args.serial), ("cache", &args.cache)] {
        if let Some(value) = value {
            disk[key] = json!(value);
        }
    }
    disk
}

/// Where the node agent would have mounted the claim.
fn place(session: &Session, name: &str) -> PathBuf {
    session.path(&format!("/var/run/kubevirt/hotplug-disks/{name}.img"))
}

fn link(file: &Path, place: &Path) -> Result<(), CtlError> {
    let file = file.canonicalize().map_err(CtlError::file("find", file))?;
    if let Some(directory) = place.parent() {
        fs::create_dir_all(directory).map_err(CtlError::file("make", directory))?;
    }
    let _ = fs::remove_file(place);
    fs::hard_link(&file, place).map_err(CtlError::file("link into the VM's directory", file))
}

/// There is no event for a second client to wait for: virt-handler's part has the notify socket.
async fn until_gone(client: &Client, name: &str) -> Result<(), CtlError> {
    let gone = async {
        while client.domain().await?.is_some_and(|domain| find(&domain, name).is_some()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    let late = || CtlError::Target(format!("the guest has not given {name} back within {} s; is it still in use there?", DETACH.as_secs()));
    tokio::time::timeout(DETACH, gone).await.map_err(|_| late())?
}

fn find<'a>(domain: &'a Value, name: &str) -> Option<&'a Value> {
    domain.pointer("/Spec/Devices/Disks")?.as_array()?.iter().find(|disk| disk["Alias"]["Name"] == name)
}

fn row(domain: &Value, name: &str) -> Value {
    let Some(disk) = find(domain, name) else {
        return json!({"name": name, "state": "not attached"});
    };
    let source = [text(disk, "/Source/File"), text(disk, "/Source/Dev")].concat();
    let size = fs::metadata(&source).map(|file| file.size()).ok();
    json!({"name": name, "target": text(disk, "/Target/Device"), "source": source, "size": size, "serial": text(disk, "/Serial"), "state": "attached"})
}

fn table(rows: &[Value]) -> String {
    let line = |name: &str, target: &str, size: &str, serial: &str, state: &str, source: &str| {
        format!("{name:<20} {target:<7} {size:>13} {serial:<20} {state:<13} {source}").trim_end().to_owned()
    };
    let mut lines = vec![line("NAME", "TARGET", "SIZE", "SERIAL", "STATE", "SOURCE")];
    for row in rows {
        let part = |key: &str| row[key].as_str().unwrap_or("-");
        let size = row["size"].as_u64().map_or_else(|| "-".into(), |size| size.to_string());
        lines.push(line(part("name"), part("target"), &size, part("serial"), part("state"), part("source")));
    }
    lines.join("\n")
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn position(vmi: &Value, list: &str, name: &str) -> Option<usize> {
    vmi.pointer(list)?.as_array()?.iter().position(|item| item["name"] == name)
}

fn push(vmi: &mut Value, list: &str, item: Value) {
    if let Some(items) = vmi.pointer_mut(list).and_then(Value::as_array_mut) {
        items.push(item);
    }
}

fn take_out(vmi: &mut Value, list: &str, name: &str) {
    if let Some(items) = vmi.pointer_mut(list).and_then(Value::as_array_mut) {
        items.retain(|item| item["name"] != name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_is_not_attached_says_so() {
        let domain = json!({"Spec": {"Devices": {"Disks": [{"Alias": {"Name": "a"}, "Source": {"File": "/nonexistent"}, "Target": {"Device": "sda"}, "Serial": "S"}]}}});
        assert_eq!(row(&domain, "a")["target"], "sda");
        assert_eq!(row(&domain, "b"), json!({"name": "b", "state": "not attached"}));
        let text = table(&[row(&domain, "a"), row(&domain, "b")]);
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().nth(2).is_some_and(|line| line.contains("not attached")), "{text}");
    }
}
