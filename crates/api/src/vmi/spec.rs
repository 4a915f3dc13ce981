//! `spec`: the user's wishes.

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
use super::volumes::Volume;
use crate::api;

api! {
VirtualMachineInstanceSpec {
    "domain" domain: DomainSpec,
    "startStrategy" start_strategy: Option<String>,
    "terminationGracePeriodSeconds" termination_grace_period_seconds: Option<i64>,
    "volumes" volumes: Vec<Volume>,
    "hostname" hostname: String,
    "subdomain" subdomain: String,
    "networks" networks: Vec<Network>,
    "accessCredentials" access_credentials: Vec<AccessCredential>,
    "architecture" architecture: String,
    "resourceClaims" resource_claims: Vec<VirtualMachineInstanceResourceClaim>,
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
    "ioThreadsPolicy" io_threads_policy: Option<String>,
    "ioThreads" io_threads: Option<DiskIoThreads>,
    "chassis" chassis: Option<Chassis>,
    "launchSecurity" launch_security: Option<LaunchSecurity>,
    "rebootPolicy" reboot_policy: Option<String>,
}
/// `resourceClaims` of `VirtualMachineInstanceSpec`.
VirtualMachineInstanceResourceClaim {
    "name" name: String,
    "resourceClaimName" resource_claim_name: Option<String>,
}
}
