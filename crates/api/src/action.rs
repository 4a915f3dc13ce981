//! The calls that change a domain and take nothing but its VMI.

/// What can be done to a domain, besides syncing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Stop the vCPUs until [`Self::Unpause`].
    Pause,
    /// Let them run again.
    Unpause,
    /// Press the reset button.
    Reset,
    /// Ask the guest to reboot.
    SoftReboot,
    /// Ask the guest to shut down.
    Shutdown,
    /// Force off (libvirt: destroy).
    Kill,
    Delete,
}
