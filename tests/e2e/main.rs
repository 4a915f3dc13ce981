//! End to end: the real `virt-launcher`, real libvirt and QEMU, and a guest that boots. The tests act
//! as virt-handler on the pod's sockets and check four sides: the answers, the events, `virsh`, and the guest
//! itself.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

mod adoption;
mod agree;
mod backup;
mod backup_export;
mod backup_faults;
mod bad_input;
mod boot;
mod busy_guest;
mod cdrom;
mod clients;
mod container;
mod daemons;
mod debug;
mod faults;
mod full_disk;
mod full_var_run;
mod growth;
mod guest_agent;
mod hotplug;
mod interfaces;
mod iommufd;
mod jobs;
mod kubelet;
mod launcherctl;
mod lifecycle;
mod many_disks;
mod measure;
mod metrics;
mod migration;
mod migration_source;
mod monitor;
mod network;
mod no_inotify;
mod node_view;
#[cfg(feature = "plugins")]
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
