//! `spec.networks`.

use super::Text;
use super::spec::ClaimRequest;
use crate::api;

api! {
/// `networks` of `VirtualMachineInstanceSpec`.
Network {
    "name" name: Text,
    "pod" pod: Option<PodNetwork>,
    "multus" multus: Option<MultusNetwork>,
    "resourceClaim" resource_claim: Option<ClaimRequest>,
}
/// `pod` of `Network`.
PodNetwork {
    "vmNetworkCIDR" vm_network_cidr: Text,
    "vmIPv6NetworkCIDR" vm_i_pv6_network_cidr: Text,
}
/// `multus` of `Network`.
MultusNetwork {
    "networkName" network_name: Text,
    "default" default: bool,
}
}
