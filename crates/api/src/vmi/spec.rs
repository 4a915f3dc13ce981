//! `spec`: what the user asked for.

use std::collections::BTreeMap;

use super::Text;
use super::access_credentials::AccessCredential;
use super::clock::Clock;
use super::cpu::Cpu;
use super::devices::Devices;
use super::disks::DiskIoThreads;
use super::features::Features;
use super::firmware::{Chassis, Firmware};
use super::launch_security::LaunchSecurity;
use super::memory::{Memory, ResourceRequirements};
use super::networks::Network;
use super::status::Machine;
use super::volumes::{UtilityVolume, Volume};
use crate::api;

api! {
/// VirtualMachineInstanceSpec.
VirtualMachineInstanceSpec {
    "priorityClassName" priority_class_name: Text,
    "domain" domain: DomainSpec,
    "nodeSelector" node_selector: BTreeMap<Text, Text>,
    "schedulerName" scheduler_name: Text,
    "serviceAccountName" service_account_name: Text,
    "evictionStrategy" eviction_strategy: Option<Text>,
    "startStrategy" start_strategy: Option<Text>,
    "terminationGracePeriodSeconds" termination_grace_period_seconds: Option<i64>,
    "volumes" volumes: Vec<Volume>,
    "hostname" hostname: Text,
    "subdomain" subdomain: Text,
    "networks" networks: Vec<Network>,
    "accessCredentials" access_credentials: Vec<AccessCredential>,
    "architecture" architecture: Text,
    "resourceClaims" resource_claims: Vec<VirtualMachineInstanceResourceClaim>,
    "utilityVolumes" utility_volumes: Vec<UtilityVolume>,
}
/// `domain` of `VirtualMachineInstanceSpec`.
DomainSpec {
    "resources" resources: ResourceRequirements,
    "cpu" cpu: Option<Cpu>,
    "memory" memory: Option<Memory>,
    "machine" machine: Option<Machine>,
    "firmware" firmware: Option<Firmware>,
    "clock" clock: Option<Clock>,
    "features" features: Option<Features>,
    "devices" devices: Devices,
    "ioThreadsPolicy" io_threads_policy: Option<Text>,
    "ioThreads" io_threads: Option<DiskIoThreads>,
    "chassis" chassis: Option<Chassis>,
    "launchSecurity" launch_security: Option<LaunchSecurity>,
    "rebootPolicy" reboot_policy: Option<Text>,
}
/// `resourceClaims` of `VirtualMachineInstanceSpec`.
VirtualMachineInstanceResourceClaim {
    "name" name: Text,
    "resourceClaimName" resource_claim_name: Option<Text>,
    "resourceClaimTemplateName" resource_claim_template_name: Option<Text>,
}
/// `resourceClaim` of `Network`.
ClaimRequest {
    "claimName" claim_name: Text,
    "requestName" request_name: Text,
}
}
