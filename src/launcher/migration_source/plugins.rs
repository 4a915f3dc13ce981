//! Lets plugins change or refuse a migration before libvirt begins it (`PreMigrationSource`, VEP
//! 190; KubeVirt v1.10).

use crate::launcher::conversion::ConversionWithHooks;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::blocking;
use api::proto::hooks::plugins::MigrationSettings;
use hooks::HOOKS_TIMEOUT;
use hooks::plugins::LauncherHookPoint;
use libvirt::{ChangeableDomain, Migration, XmlKind};
use prost::bytes::Bytes;

/// Calls the plugins of the last sync. Returns the migration as they left it.
///
/// # Errors
/// A plugin's: the migration must not begin.
pub(super) async fn run(
    conversion: &ConversionWithHooks,
    vmi_json: &Bytes,
    domain: &ChangeableDomain,
    migration: Migration,
) -> Result<Migration, LauncherError> {
    let plugins = conversion.last_plugins().await?;
    if !plugins.has(LauncherHookPoint::PreMigrationSource) {
        return Ok(migration);
    }
    let deadline = os::time::deadline(HOOKS_TIMEOUT);
    let domain = domain.clone();
    let read = move || Ok(domain.xml(XmlKind::Live)?);
    let xml = blocking("reading the domain for the plugins", read).await?;
    let settings = plugins.pre_migration_source(settings(&migration), xml, vmi_json, deadline);
    Ok(with_settings(migration, settings.await?))
}

fn settings(migration: &Migration) -> MigrationSettings {
    let names = migration.flag_names().into_iter();
    let disks = migration.disks.as_ref();
    MigrationSettings {
        flags: names.map(str::to_owned).collect(),
        bandwidth: migration.bandwidth_mib,
        parallel_connections: migration.parallel_connections.unwrap_or(0),
        compression: migration.compression.clone().unwrap_or_default(),
        migrate_disks: disks.map_or_else(Vec::new, |disks| disks.targets.clone()),
    }
}

/// The settings are checked already.
fn with_settings(migration: Migration, settings: MigrationSettings) -> Migration {
    let has = |name: &str| settings.flags.iter().any(|flag| flag == name);
    Migration {
        bandwidth_mib: settings.bandwidth,
        parallel_connections: Some(settings.parallel_connections).filter(|count| *count > 0),
        auto_converge: has("VIR_MIGRATE_AUTO_CONVERGE"),
        post_copy: has("VIR_MIGRATE_POSTCOPY"),
        compression: Some(settings.compression).filter(|method| !method.is_empty()),
        ..migration
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libvirt::DiskCopy;

    #[test]
    fn settings_that_no_plugin_changes_leave_the_migration_as_it_is() {
        let plain = Migration::default();
        let full = Migration {
            bandwidth_mib: 64,
            parallel_connections: Some(4),
            compression: Some("zstd".into()),
            disks: Some(DiskCopy {
                targets: vec!["vda".into()],
                uri: "unix:///s".into(),
            }),
            block: true,
            auto_converge: true,
            post_copy: true,
            ..Migration::default()
        };
        for migration in [plain, full] {
            let same = with_settings(migration.clone(), settings(&migration));
            assert_eq!(same, migration);
        }
    }
}
