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

impl Network {
    /// Whether it is a Multus network besides the primary one.
    pub fn is_secondary(&self) -> bool {
        self.pod.is_none() && self.multus.as_ref().is_some_and(|multus| !multus.default)
    }

    /// Whether it may be the primary network: the pod's, or a Multus network in its place.
    pub fn is_primary(&self) -> bool {
        self.pod.is_some() || self.multus.as_ref().is_some_and(|multus| multus.default)
    }
}
