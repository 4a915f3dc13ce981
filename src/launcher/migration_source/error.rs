use convert::migration::DocumentError;

/// libvirt's text for an aborted migration.
const CANCELED: &str = "canceled by client";
/// QEMU's text, with two spaces in one place, for a target volume that is too small.
const TOO_SMALL: &str = "has to be smaller or equal to the actual size of the containing file";

/// Why a migration does not start or fails. Texts that other components match on are exact.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The request's options do not have virt-handler's format.
    #[error("no valid migration options object present in command server request")]
    Options(#[source] serde_json::Error),
    /// The bandwidth is not a quantity.
    #[error("the migration's bandwidth cannot be used")]
    Bandwidth(#[source] api::vmi::QuantityError),
    /// A backup is in progress.
    #[error("cannot migrate VMI until backup {0} is completed")]
    Backup(String),
    /// virt-controller has not prepared the migration.
    #[error("cannot migrate VMI until migrationState is ready")]
    NotReady,
    /// The migration has ended; another attempt needs a migration with a new UID.
    #[error("migration job {uid} already executed; it {outcome}")]
    AlreadyExecuted { uid: String, outcome: String },
    /// The migration was cancelled before libvirt started it.
    #[error("Live migration has been aborted")]
    Aborted,
    /// libvirt reported the migration's end to an earlier launcher.
    #[error("the migration ended while the launcher was restarted, and the guest has not left")]
    LauncherRestarted,
    /// One of KubeVirt's functional tests requests the failure.
    #[error("Failed migration to satisfy functional test condition")]
    FunctionalTest,
    /// The document for the target cannot be made.
    #[error("the domain cannot be described for the target")]
    Document(#[from] DocumentError),
    /// The guest does not release its SR-IOV devices.
    #[error("the guest has not released its SR-IOV devices within {seconds} s: {}", devices.join(", "))]
    NotReleased {
        /// The time limit.
        seconds: u64,
        /// The devices that remain.
        devices: Vec<String>,
    },
}

/// The `failureReason` for virt-handler: libvirt's, unless KubeVirt has a text of its own for that
/// failure. An abort has one text, because libvirt's error for it depends on which side finishes
/// first. libvirt's error has the format of its Go library, as in KubeVirt's metadata.
// D-mig-8 (docs/differences.md).
pub(super) fn failure_reason(error: &dyn std::error::Error, is_aborted: bool) -> String {
    let reason = os::logging::chain(error).replacen("LibvirtError(", "virError(", 1);
    let words: Vec<&str> = reason.split_whitespace().collect();
    if is_aborted || reason.contains(CANCELED) {
        MigrationError::Aborted.to_string()
    } else if words.join(" ").contains(TOO_SMALL) {
        format!(
            "Volume migration cannot be performed because the destination volume is smaller than the source volume: {reason}"
        )
    } else {
        reason
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(message: &str) -> libvirt::Error {
        libvirt::Error {
            code: 9,
            domain: 10,
            message: message.to_owned(),
        }
    }

    fn reason(message: &str) -> String {
        failure_reason(&error(message), false)
    }

    #[test]
    fn what_kubevirt_knows_is_said_in_its_words() {
        let aborted = reason("operation aborted: migration out: canceled by client");
        assert_eq!(aborted, "Live migration has been aborted");
        let lost = failure_reason(&error("internal error: client socket is closed"), true);
        assert_eq!(lost, aborted);
        let volume = reason(
            "The sum of offset (0) and size (9) has to be smaller or equal to the  actual size of the containing file (1)",
        );
        let known = "Volume migration cannot be performed because the destination volume is smaller than the source volume: ";
        assert!(
            volume.starts_with(known) && volume.contains("the  actual size"),
            "{volume}"
        );
    }

    #[test]
    fn other_failures_are_libvirts() {
        let text = "virError(Code=9, Domain=10, Message='internal error: client socket is closed')";
        assert_eq!(reason("internal error: client socket is closed"), text);
    }
}
