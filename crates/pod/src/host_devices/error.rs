//! Why a host device of the VMI cannot be used.

use domain::PciAddressError;

/// Attributes of a claimed device: its PCI address, or the UUID of a mediated device.
pub(super) const PCI: &str = "resource.kubernetes.io/pciBusID";
pub(super) const MDEV: &str = "mdevUUID";

/// The host devices that the pod was given cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostDeviceError {
    /// The VMI has more or fewer devices than the pod was given.
    #[error(
        "the VMI has {} {kind} ({}), but the pod was given {} ({}); does the node have enough of this resource, \
         and did its device plugin set the resource's variable?",
        wanted.len(), wanted.join(", "), given.len(), given.join(", ")
    )]
    Count {
        /// Such as `GPUs`.
        kind: &'static str,
        wanted: Vec<String>,
        /// The aliases of those that the pod was given.
        given: Vec<String>,
    },
    /// A device plugin or driver gives an invalid PCI address.
    #[error("device {device:?}")]
    PciAddress {
        device: String,
        #[source]
        source: PciAddressError,
    },
    /// A device plugin gives an invalid USB address.
    #[error("device {device:?}: {address:?} is not a USB address such as 1:4 (bus and device)")]
    UsbAddress { device: String, address: String },
    /// A resource claim does not have the device.
    #[error("device {device:?}: claim {claim:?}, request {request:?}")]
    Claim {
        device: String,
        /// The claim's name in the VMI.
        claim: String,
        /// The request's name in the claim.
        request: String,
        #[source]
        source: ClaimError,
    },
    /// A VM with several vGPUs cannot migrate.
    #[error("vGPU live migration currently only supports a single vGPU, found {count}")]
    SeveralMigratingGpus {
        /// The vGPUs that the pod was given.
        count: usize,
    },
    /// The network status of the pod lacks an SR-IOV interface.
    #[error(
        "interface {interface:?}: {file} does not have a PCI address for its network; has the SR-IOV plugin published device information?"
    )]
    NoSriovAddress {
        interface: String,
        /// The file of the downward API.
        file: String,
    },
    /// A claim for an SR-IOV interface has a mediated device.
    #[error("interface {interface:?}: claim {claim:?} does not have a PCI device")]
    SriovClaim {
        interface: String,
        /// The claim's name in the VMI.
        claim: String,
    },
}

/// Why a resource claim does not give a device.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The VMI lacks one of the names.
    #[error("claimName and requestName are both needed")]
    NoName,
    /// The VMI's list of claims lacks the claim.
    #[error("spec.resourceClaims has no such claim")]
    NoClaim,
    /// The drivers have left no metadata, or several.
    #[error(
        "{dir} has {count} files named *-metadata.json; exactly one driver can serve a request"
    )]
    MetadataFiles {
        dir: String,
        /// How many files there are.
        count: usize,
    },
    /// The metadata are about other requests.
    #[error("{file} does not list this request; it lists {}", requests.join(", "))]
    NoRequest {
        file: String,
        /// The requests that it has.
        requests: Vec<String>,
    },
    /// The request has no device, or several.
    #[error("the request has {0} devices; exactly one is supported")]
    Devices(usize),
    /// The device's attributes do not say which one it is.
    #[error("the device has neither the attribute {MDEV} nor {PCI}")]
    NoAttribute,
}
