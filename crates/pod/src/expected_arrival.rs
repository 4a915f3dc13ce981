//! Keeps what is known of a domain that is to come from another node, for a later launcher: libvirt
//! gives no XML of a domain that comes.

use os::small_file;

use super::{PodError, Root};
use api::pod_paths::EXPECTED_ARRIVAL;
use domain::metadata::KubeVirtMetadata;

/// Limit of the file, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// The metadata of the domain that an earlier launcher expected, if they can be read.
#[must_use]
pub fn expected_arrival(root: &Root) -> Option<KubeVirtMetadata> {
    let kept = small_file::read(&root.path(EXPECTED_ARRIVAL), MAX_BYTES).ok()?;
    domain::xml::from_str("kubevirt", str::from_utf8(&kept).ok()?).ok()
}

/// Keeps the metadata of the domain that this pod is prepared for.
///
/// # Errors
/// The file cannot be written.
pub fn keep_arrival(root: &Root, metadata: &KubeVirtMetadata) -> Result<(), PodError> {
    let path = root.path(EXPECTED_ARRIVAL);
    small_file::replace(&path, metadata.to_xml().as_bytes()).map_err(PodError::io("write", path))
}

/// The domain has come, or will not. If the file stays, a later launcher expects it once more.
pub fn forget_arrival(root: &Root) {
    drop(small_file::remove(&root.path(EXPECTED_ARRIVAL)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::metadata::{MigrationMetadata, Time};

    #[test]
    // D-sup-16 (docs/differences.md).
    fn the_next_launcher_knows_the_arrival_until_it_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let path = root.path(EXPECTED_ARRIVAL);
        let migration = MigrationMetadata {
            uid: "m-1".into(),
            start_timestamp: Some(Time::now()),
            ..MigrationMetadata::default()
        };
        let metadata = KubeVirtMetadata {
            uid: "u-1".into(),
            migration: Some(migration),
            disk_failed: true,
            ..KubeVirtMetadata::default()
        };
        let error = keep_arrival(&root, &metadata).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert_eq!(expected_arrival(&root), None);
        keep_arrival(&root, &metadata).unwrap();
        assert_eq!(expected_arrival(&root), Some(metadata));
        std::fs::write(&path, "<kubevirt").unwrap();
        assert_eq!(expected_arrival(&root), None);
        forget_arrival(&root);
        forget_arrival(&root);
        assert!(!path.exists());
    }
}
