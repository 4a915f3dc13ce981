//! What a plugin may change of a migration's settings.

use std::collections::BTreeSet;

use api::proto::hooks::plugins::MigrationSettings;
use domain::excerpt;

const PARALLEL: &str = "VIR_MIGRATE_PARALLEL";
const COMPRESSED: &str = "VIR_MIGRATE_COMPRESSED";
/// Flags that a plugin may set and clear. The launcher or the guest's data depends on the others.
const CHANGEABLE: [&str; 4] = [
    "VIR_MIGRATE_AUTO_CONVERGE",
    "VIR_MIGRATE_POSTCOPY",
    PARALLEL,
    COMPRESSED,
];
/// QEMU's limit (`multifd-channels`).
const MAX_CONNECTIONS: u32 = 255;
/// libvirt's limit in MiB a second: it counts bytes in 63 bits.
const MAX_BANDWIDTH: u64 = i64::MAX.unsigned_abs() >> 20;
/// Longest name of a compression method, in bytes.
const MAX_METHOD_BYTES: usize = 32;
/// Longest quoted text of a plugin, in characters.
const MAX_QUOTED_CHARS: usize = 64;

/// Why the settings that a plugin returns are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("it changed the flag {0}; a plugin may change {CHANGEABLE:?} only")]
    Flag(String),
    #[error("it changed the list of copied disks, which a plugin may not change")]
    Disks,
    #[error("{connections} parallel connections with {PARALLEL} {}; it needs 1 to {MAX_CONNECTIONS}, and 0 without", set(*is_set))]
    Connections { connections: u32, is_set: bool },
    #[error("the compression {method:?} with {COMPRESSED} {}; it needs a method of libvirt, and none without", set(*is_set))]
    Compression { method: String, is_set: bool },
    #[error("a bandwidth of {0} MiB a second; libvirt takes at most {MAX_BANDWIDTH}")]
    Bandwidth(u64),
}

fn set(is_set: bool) -> &'static str {
    if is_set { "set" } else { "not set" }
}

/// Checks a plugin's settings. Returns them with the flags sorted.
///
/// # Errors
/// The first setting that a plugin may not change, or that libvirt would misread.
// D-hook-17 (docs/differences.md).
pub fn check(
    before: &MigrationSettings,
    mut after: MigrationSettings,
) -> Result<MigrationSettings, SettingsError> {
    let old: BTreeSet<&str> = before.flags.iter().map(String::as_str).collect();
    let new: BTreeSet<&str> = after.flags.iter().map(String::as_str).collect();
    let mut changed = old.symmetric_difference(&new);
    if let Some(flag) = changed.find(|flag| !CHANGEABLE.contains(flag)) {
        return Err(SettingsError::Flag(excerpt(flag, MAX_QUOTED_CHARS)));
    }
    if before.migrate_disks != after.migrate_disks {
        return Err(SettingsError::Disks);
    }
    let (connections, is_set) = (after.parallel_connections, new.contains(PARALLEL));
    if is_set != (1..=MAX_CONNECTIONS).contains(&connections) || (!is_set && connections > 0) {
        return Err(SettingsError::Connections {
            connections,
            is_set,
        });
    }
    let (method, is_set) = (&after.compression, new.contains(COMPRESSED));
    let is_method = method.len() <= MAX_METHOD_BYTES
        && method
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_set == method.is_empty() || !is_method {
        return Err(SettingsError::Compression {
            method: excerpt(method, MAX_QUOTED_CHARS),
            is_set,
        });
    }
    if after.bandwidth > MAX_BANDWIDTH {
        return Err(SettingsError::Bandwidth(after.bandwidth));
    }
    after.flags = new.into_iter().map(str::to_owned).collect();
    Ok(after)
}

/// The changes for the log and for people: `bandwidth: 0 → 64`, `+ VIR_MIGRATE_PARALLEL`.
#[must_use]
pub fn changes(before: &MigrationSettings, after: &MigrationSettings) -> Vec<String> {
    let is_new = |flag: &&String| !before.flags.contains(*flag);
    let is_gone = |flag: &&String| !after.flags.contains(*flag);
    let added = after.flags.iter().filter(is_new);
    let removed = before.flags.iter().filter(is_gone);
    let mut changes: Vec<String> = added.map(|flag| format!("+ {flag}")).collect();
    changes.extend(removed.map(|flag| format!("- {flag}")));
    let values = |settings: &MigrationSettings| {
        [
            ("bandwidth", settings.bandwidth.to_string()),
            (
                "parallelConnections",
                settings.parallel_connections.to_string(),
            ),
            ("compression", format!("{:?}", settings.compression)),
        ]
    };
    for ((name, old), (_, new)) in values(before).into_iter().zip(values(after)) {
        if old != new {
            changes.push(format!("{name}: {old} → {new}"));
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(change: impl FnOnce(&mut MigrationSettings)) -> MigrationSettings {
        let mut settings = MigrationSettings {
            flags: vec!["VIR_MIGRATE_LIVE".into(), "VIR_MIGRATE_POSTCOPY".into()],
            migrate_disks: vec!["vda".into()],
            ..MigrationSettings::default()
        };
        change(&mut settings);
        settings
    }

    #[test]
    fn a_plugin_may_tune_a_migration() {
        let before = settings(|_| {});
        let after = settings(|it| {
            it.flags = ["VIR_MIGRATE_PARALLEL", "VIR_MIGRATE_LIVE"]
                .map(str::to_owned)
                .to_vec();
            it.parallel_connections = 4;
            it.bandwidth = 64;
        });
        let accepted = check(&before, after).unwrap();
        assert_eq!(accepted.flags, ["VIR_MIGRATE_LIVE", "VIR_MIGRATE_PARALLEL"]);
        assert_eq!(
            changes(&before, &accepted),
            [
                "+ VIR_MIGRATE_PARALLEL",
                "- VIR_MIGRATE_POSTCOPY",
                "bandwidth: 0 → 64",
                "parallelConnections: 0 → 4"
            ]
        );
        assert_eq!(check(&before, before.clone()).unwrap(), before);
    }

    #[test]
    // D-hook-17 (docs/differences.md).
    fn what_the_launcher_or_the_data_depends_on_stays() {
        let before = settings(|_| {});
        type Change = fn(&mut MigrationSettings);
        let refused: [(Change, &str); 8] = [
            (|it| it.flags.clear(), "VIR_MIGRATE_LIVE"),
            (|it| it.flags.push("VIR_MIGRATE_UNSAFE".into()), "UNSAFE"),
            (|it| it.migrate_disks.clear(), "copied disks"),
            (|it| it.parallel_connections = 2, "not set"),
            (|it| it.flags.push(PARALLEL.into()), "0 parallel"),
            (|it| it.flags.push(COMPRESSED.into()), "compression \"\""),
            (|it| it.compression = "zstd".into(), "zstd"),
            (|it| it.bandwidth = u64::MAX, "bandwidth"),
        ];
        for (change, text) in refused {
            let error = check(&before, settings(change)).unwrap_err().to_string();
            assert!(error.contains(text), "{text:?} is not in {error:?}");
        }
    }
}
