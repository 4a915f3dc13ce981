//! End to end: the real `virt-launcher`, real libvirt and QEMU, and a guest that boots. The tests
//! act as virt-handler on the pod's sockets and check four sides: the answers, the events, `virsh`,
//! and the guest itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

mod adoption;
mod agree;
mod backup;
mod backup_export;
mod backup_faults;
mod backup_kills;
mod bad_input;
mod boot;
mod busy_guest;
mod cdrom;
mod clients;
mod console_log;
mod container;
mod daemons;
mod documents;
#[path = "../executable/mod.rs"]
mod executable;
mod faults;
mod field;
mod full_disk;
mod full_var_run;
mod growth;
mod guest_agent;
mod hotplug;
mod interfaces;
mod iommufd;
mod jobs;
mod kubelet;
mod kubevirt_examples;
mod launcher_hooks;
mod launcherctl;
mod launcherctl_in_pod;
mod launcherctl_run;
mod lifecycle;
mod local_network;
mod local_vms;
mod many_disks;
mod measure;
mod memory_dump_faults;
mod metrics;
mod migrate;
mod migration;
mod migration_faults;
mod migration_guests;
mod migration_launchers;
mod migration_post_copy;
mod migration_source;
mod monitor;
mod network;
mod no_inotify;
mod pids_limit;
mod plugins;
mod preview;
mod resources;
mod restart;
mod scripted_agent;
mod sidecars;
mod slow_start;
mod standalone;
mod statistics;
mod stop;
mod stopped;
mod tags;
mod timeline;
mod torture;
mod tracking;
mod volumes;
mod wake_ups;
