//! Builds libvirt's parameters of the migration (`virDomainMigrateToURI3`): the target, the disks
//! to copy, and the domain's XML on the target.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::error::MigrationError;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::read_spec;
use api::migration_options::MigrationOptions;
use api::pod_paths::{MIGRATION_DISKS_PORT, MIGRATION_MEMORY_PORT, MIGRATION_SOCKET_DIR, PodPaths};
use api::vmi::{Quantity, Vmi};
use convert::migration::{TargetRewrite, disks_to_copy, migration_xml, move_to_root};
use domain::DomainSpec;
use libvirt::{DiskCopy, Migration, XmlKind};

/// The only supported compression.
const ZSTD: &str = "zstd";

/// Builds the parameters and the `VIR_MIGRATE_*` flags: auto-converge, post-copy, block migration,
/// unsafe. Blocks, as it reads the domain.
///
/// | `MigrationOptions` | libvirt |
/// |---|---|
/// | `AllowAutoConverge` | `VIR_MIGRATE_AUTO_CONVERGE` |
/// | `AllowPostCopy` | `VIR_MIGRATE_POSTCOPY` |
/// | `UnsafeMigration` | `VIR_MIGRATE_UNSAFE` |
/// | `ParallelMigrationThreads` | `VIR_MIGRATE_PARALLEL` (multifd) |
/// | `Compression` | `VIR_MIGRATE_COMPRESSED` |
/// | `Bandwidth` | `VIR_MIGRATE_PARAM_BANDWIDTH` |
/// | none: virt-handler's sockets | the destination's URI, `VIR_MIGRATE_PARAM_URI` |
/// | none: a block migration | `VIR_MIGRATE_NON_SHARED_INC` |
/// | none: the disks to copy | `VIR_MIGRATE_PARAM_MIGRATE_DISKS`, `VIR_MIGRATE_PARAM_DISKS_URI` |
/// | none: the domain there | `VIR_MIGRATE_PARAM_DEST_XML` |
/// | none: the guest is paused | `VIR_MIGRATE_PAUSED` |
///
/// # Errors
/// libvirt's error, or the XML for the target cannot be made.
pub(super) fn migration(
    domain: &libvirt::DomainHandle,
    flags: &pod::LauncherFlags,
    vmi: &Vmi,
    options: &MigrationOptions,
) -> Result<Migration, LauncherError> {
    let live = read_spec(domain, XmlKind::Live)?;
    let targets = disks_to_copy(&live, vmi);
    let disks = (!targets.is_empty()).then(|| DiskCopy {
        targets,
        uri: format!("unix://{}", socket(flags, vmi, Some(MIGRATION_DISKS_PORT))),
    });
    let is_session = flags.run_as_nonroot || !rustix::process::geteuid().is_root();
    let driver = if is_session { "session" } else { "system" };
    Ok(Migration {
        destination: format!("qemu+unix:///{driver}?socket={}", socket(flags, vmi, None)),
        uri: format!("unix://{}", socket(flags, vmi, Some(MIGRATION_MEMORY_PORT))),
        name: name_on_target(vmi),
        xml: xml(domain, flags, vmi, &live, options)?,
        bandwidth_mib: bandwidth(&options.bandwidth)?,
        parallel_connections: options.parallel_migration_threads,
        compression: compression(options.compression.as_deref()),
        disks,
        block: vmi.is_block_migration(),
        allow_unsafe: options.unsafe_migration,
        auto_converge: options.allow_auto_converge,
        post_copy: options.allow_post_copy,
        paused: domain.state()?.is_paused(),
    })
}

/// The domain's XML on the target, below another root (`TargetRoot`, `TargetPorts`) if asked for.
fn xml(
    domain: &libvirt::DomainHandle,
    flags: &pod::LauncherFlags,
    vmi: &Vmi,
    live: &DomainSpec,
    options: &MigrationOptions,
) -> Result<String, LauncherError> {
    let rewrite = if flags.libvirt_hook_server_and_client {
        TargetRewrite::ByTargetHook
    } else {
        TargetRewrite::BySource
    };
    let sizes = moved_sizes(domain, vmi, live)?;
    let migratable = domain.xml(XmlKind::Migratable)?;
    let prefix = flags.root.prefix();
    let paths = PodPaths {
        root: &prefix,
        hotplug_disk_dir: &flags.hotplug_disk_dir,
        ..PodPaths::default()
    };
    let xml = migration_xml(&migratable, vmi, &sizes, rewrite, &paths);
    let xml = xml.map_err(MigrationError::from)?;
    match &options.target_root {
        // Only a launcher with a root directory needs this: two pods have the same paths.
        Some(target) if !prefix.is_empty() => {
            Ok(move_to_root(&xml, &prefix, target, &options.target_ports)
                .map_err(MigrationError::from)?)
        }
        _ => Ok(xml),
    }
}

/// The guest-visible sizes of disks whose volumes move to another claim, by target.
fn moved_sizes(
    domain: &libvirt::DomainHandle,
    vmi: &Vmi,
    live: &DomainSpec,
) -> Result<BTreeMap<String, u64>, LauncherError> {
    let is_moved = |name: &str| {
        let mut moved = vmi.status.migrated_volumes.iter();
        moved.any(|volume| volume.volume_name == name)
    };
    let disks = live.devices.disks.iter();
    let moved = disks.filter(|disk| disk.alias.as_ref().is_some_and(|it| is_moved(&it.name)));
    let size = |target: &String| Ok((target.clone(), domain.block_info(target)?.capacity));
    moved.map(|disk| size(&disk.target.device)).collect()
}

/// The socket of virt-handler's migration proxy that leads to the target's libvirt or to its QEMU.
/// The proxy does TLS (`disableTLS`), so there is no `VIR_MIGRATE_TLS`.
fn socket(flags: &pod::LauncherFlags, vmi: &Vmi, port: Option<u16>) -> String {
    let uid = &vmi.metadata.uid;
    let name = match port {
        Some(port) => format!("{uid}-{port}-source.sock"),
        None => format!("{uid}-source.sock"),
    };
    let path = flags.shared(MIGRATION_SOCKET_DIR).join(name);
    path.to_string_lossy().into_owned()
}

/// `VIR_MIGRATE_PARAM_DEST_NAME`, which a decentralized migration may change.
fn name_on_target(vmi: &Vmi) -> String {
    let state = vmi.status.migration_state.as_ref();
    let target = state.and_then(|state| state.target_state.as_ref());
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let identity = target.and_then(|target| {
        Some((
            given(&target.domain_namespace)?,
            given(&target.domain_name)?,
        ))
    });
    match identity {
        Some((namespace, name)) => format!("{namespace}_{name}"),
        None => vmi.domain_name(),
    }
}

/// Returns MiB per second, rounded. A small bandwidth becomes 1, because 0 means no limit.
fn bandwidth(quantity: &Quantity) -> Result<u64, MigrationError> {
    const MIB: u64 = 1 << 20;
    if quantity.0.is_empty() {
        return Ok(0);
    }
    Ok(match quantity.bytes().map_err(MigrationError::Bandwidth)? {
        0 => 0,
        bytes if bytes < MIB => 1,
        bytes => bytes.saturating_add(MIB / 2) / MIB,
    })
}

/// `Compression` as libvirt has it; an unknown method is none.
fn compression(method: Option<&str>) -> Option<String> {
    match method {
        None | Some("" | "none") => None,
        Some(ZSTD) => {
            tracing::info!("Migration compression enabled: method={ZSTD}");
            Some(ZSTD.to_owned())
        }
        Some(method) => {
            tracing::warn!(
                method,
                "Unsupported migration compression method; the memory is not compressed"
            );
            None
        }
    }
}

/// Bytes of all readable files below a directory.
pub(super) fn size_of_files(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        Some(if metadata.is_dir() {
            size_of_files(&entry.path())
        } else {
            metadata.len()
        })
    });
    sizes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bandwidth_is_rounded_to_mebibytes() {
        let mib = |text: &str| bandwidth(&Quantity(text.to_owned())).unwrap();
        assert_eq!((mib(""), mib("0"), mib("1"), mib("64Mi")), (0, 0, 1, 64));
        assert_eq!((mib("1572863"), mib("1572864")), (1, 2));
        assert!(bandwidth(&Quantity("fast".to_owned())).is_err());
    }

    #[test]
    fn the_name_on_the_target_is_the_one_that_it_has_there() {
        let vmi = |target: serde_json::Value| -> Vmi {
            serde_json::from_value(json!({
                "metadata": {"namespace": "ns1", "name": "vm1"},
                "status": {"migrationState": {"targetState": target}},
            }))
            .unwrap()
        };
        let both = json!({"domainNamespace": "ns2", "domainName": "vm2"});
        assert_eq!(name_on_target(&vmi(both)), "ns2_vm2");
        assert_eq!(
            name_on_target(&vmi(json!({"domainNamespace": "ns2"}))),
            "ns1_vm1"
        );
        assert_eq!(name_on_target(&vmi(json!(null))), "ns1_vm1");
    }

    #[test]
    fn files_count_wherever_they_are() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/disk.img"), [0; 100]).unwrap();
        fs::write(dir.path().join("seed.iso"), [0; 11]).unwrap();
        assert_eq!(size_of_files(dir.path()), 111);
        assert_eq!(size_of_files(Path::new("/nonexistent")), 0);
    }
}
