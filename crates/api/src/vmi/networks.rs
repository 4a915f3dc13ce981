//! `spec.networks`.
use crate::api;

api! {
/// `networks` of `VirtualMachineInstanceSpec`.
Network {
    "name" name: String,
    "pod" pod: Option<PodNetwork>,
    "multus" multus: Option<MultusNetwork>,
    "resourceClaim" resource_claim: Option<ClaimRequest>,
}
/// `resourceClaim` of `Network`.
ClaimRequest {
    "claimName" claim_name: String,
    "requestName" request_name: String,
}
/// `pod` of `Network`.
PodNetwork {
    "vmNetworkCIDR" vm_network_cidr: String,
    "vmIPv6NetworkCIDR" vm_i_pv6_network_cidr: String,
}
/// `multus` of `Network`.
MultusNetwork {
    "default" default: bool,
}
}
