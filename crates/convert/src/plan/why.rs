//! The reasons for changes, for people and for the log.

use std::fmt;

/// Why a disk is changed. Volumes are named as the VMI names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The volume is no longer wanted.
    Gone { volume: String },
    /// The volume is new.
    New { volume: String },
    /// The volume is to be at another target.
    Moved {
        volume: String,
        /// The target that it leaves.
        from: String,
        /// The target that it comes to.
        to: String,
    },
    /// The target is to hold another volume.
    Replaced {
        /// The volume that leaves.
        old: String,
        /// The volume that comes.
        new: String,
    },
    /// A medium comes into an empty drive.
    Inserted {
        /// The volume that comes.
        volume: String,
    },
    /// A medium leaves its drive.
    Ejected {
        /// The volume that leaves.
        volume: String,
    },
    /// A medium takes the place of another.
    Swapped {
        /// The medium that leaves.
        old: String,
        /// The medium that comes.
        new: String,
    },
    /// The claim has room for more than the guest sees.
    Grown {
        volume: String,
        /// Bytes that the guest sees.
        from: u64,
        /// Bytes that it could see.
        to: u64,
    },
    /// The volume's file or device cannot be opened yet: virt-handler may still be mounting it.
    NotReady {
        volume: String,
        /// Its file or device.
        path: String,
    },
    /// The target is taken by a disk that cannot be unplugged from a running domain.
    Occupied {
        /// The volume that stays.
        old: String,
        /// The volume that cannot come.
        new: String,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { volume } => write!(f, "volume {volume:?} is no longer wanted"),
            Self::New { volume } => write!(f, "volume {volume:?} is new"),
            Self::Moved { volume, from, to } => {
                write!(f, "volume {volume:?} moves from {from} to {to}")
            }
            Self::Replaced { old, new } => write!(f, "volume {new:?} takes the place of {old:?}"),
            Self::Inserted { volume } => write!(f, "medium {volume:?} comes into the empty drive"),
            Self::Ejected { volume } => write!(f, "medium {volume:?} leaves the drive"),
            Self::Swapped { old, new } => write!(f, "medium {new:?} takes the place of {old:?}"),
            Self::Grown { volume, from, to } => write!(
                f,
                "the claim of volume {volume:?} has grown: {to} bytes instead of {from}"
            ),
            Self::NotReady { volume, path } => write!(
                f,
                "volume {volume:?} has to wait: {path} cannot be opened yet"
            ),
            Self::Occupied { old, new } => {
                write!(
                    f,
                    "volume {new:?} has to wait: {old:?} holds its target and cannot be unplugged from a running domain"
                )
            }
        }
    }
}
