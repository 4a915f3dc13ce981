//! Migrating a domain to another libvirt, and steering that while it goes on.

use std::ffi::{c_int, c_uint};
use std::time::Duration;

use virt::sys;

use super::c;
use super::changes::ChangeableDomain;
use super::domain::DomainHandle;
use super::error::Error;
use super::typed_params::{ParamValue, TypedParams};

/// A live, peer-to-peer migration (`virDomainMigrateToURI3`) after which the target has the
/// definition too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migration {
    /// The connection URI of the target's libvirt.
    pub destination: String,
    /// Where QEMU sends the guest's state.
    pub uri: String,
    /// The domain's name on the target.
    pub name: String,
    /// The domain on the target, running and defined.
    pub xml: String,
    /// Limit of the traffic in MiB a second, also after the switch to post-copy; 0 is none.
    pub bandwidth_mib: u64,
    /// QEMU uses this many connections at the same time.
    pub parallel_connections: Option<u32>,
    /// How the memory is compressed, such as `zstd`.
    pub compression: Option<String>,
    /// Disks that are copied.
    pub disks: Option<DiskCopy>,
    /// Disks are copied into the files and devices that the target has already.
    pub block: bool,
    /// libvirt does not refuse what may lose data.
    pub allow_unsafe: bool,
    /// QEMU slows the vCPUs down when memory changes too fast.
    pub auto_converge: bool,
    /// [`ChangeableDomain::start_post_copy`] is possible.
    pub post_copy: bool,
    /// The guest stays paused on the target.
    pub paused: bool,
}

/// Disks that a migration copies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskCopy {
    /// Targets of the disks, such as `vda`.
    pub targets: Vec<String>,
    /// Where QEMU sends their data.
    pub uri: String,
}

impl Migration {
    /// The `VIR_MIGRATE_*` flags that are set, with their names. The launcher's
    /// `migration_source/document.rs` chooses them.
    fn set_flags(&self) -> impl Iterator<Item = (c_uint, &'static str)> {
        /// A flag and its name.
        macro_rules! flag {
            ($is_set:expr, $name:ident) => {
                ($is_set, (sys::$name, stringify!($name)))
            };
        }
        let flags = [
            flag!(true, VIR_MIGRATE_LIVE),
            flag!(true, VIR_MIGRATE_PEER2PEER),
            flag!(true, VIR_MIGRATE_PERSIST_DEST),
            flag!(self.block, VIR_MIGRATE_NON_SHARED_INC),
            flag!(self.allow_unsafe, VIR_MIGRATE_UNSAFE),
            flag!(self.auto_converge, VIR_MIGRATE_AUTO_CONVERGE),
            flag!(self.post_copy, VIR_MIGRATE_POSTCOPY),
            flag!(self.paused, VIR_MIGRATE_PAUSED),
            flag!(self.parallel_connections.is_some(), VIR_MIGRATE_PARALLEL),
            flag!(self.compression.is_some(), VIR_MIGRATE_COMPRESSED),
        ];
        let set = flags.into_iter().filter(|(is_set, _)| *is_set);
        set.map(|(_, flag)| flag)
    }

    fn flags(&self) -> c_uint {
        self.set_flags().fold(0, |flags, (flag, _)| flags | flag)
    }

    /// libvirt's names of the flags that are set.
    #[must_use]
    pub fn flag_names(&self) -> Vec<&'static str> {
        self.set_flags().map(|(_, name)| name).collect()
    }

    fn params(&self) -> Result<TypedParams, Error> {
        let mut params = TypedParams::new();
        params.add_text(sys::VIR_MIGRATE_PARAM_URI, &self.uri)?;
        params.add_text(sys::VIR_MIGRATE_PARAM_DEST_NAME, &self.name)?;
        params.add_text(sys::VIR_MIGRATE_PARAM_DEST_XML, &self.xml)?;
        params.add_text(sys::VIR_MIGRATE_PARAM_PERSIST_XML, &self.xml)?;
        if self.bandwidth_mib > 0 {
            // Not post-copy's: until that ends, the guest's memory is on two nodes.
            params.add_unsigned(sys::VIR_MIGRATE_PARAM_BANDWIDTH, self.bandwidth_mib)?;
        }
        if let Some(connections) = self.parallel_connections {
            let connections = c_int::try_from(connections).unwrap_or(c_int::MAX);
            params.add_int(sys::VIR_MIGRATE_PARAM_PARALLEL_CONNECTIONS, connections)?;
        }
        if let Some(method) = &self.compression {
            params.add_text(sys::VIR_MIGRATE_PARAM_COMPRESSION, method)?;
        }
        if let Some(disks) = &self.disks {
            params.add_text(sys::VIR_MIGRATE_PARAM_DISKS_URI, &disks.uri)?;
            for target in &disks.targets {
                // Both are lists: the same name once for each disk.
                params.add_text(sys::VIR_MIGRATE_PARAM_MIGRATE_DISKS, target)?;
                params.add_text(sys::VIR_MIGRATE_PARAM_MIGRATE_DISKS_DETECT_ZEROES, target)?;
            }
        }
        Ok(params)
    }
}

/// How far a long job on a domain is (`virDomainGetJobStats`); sizes in bytes, `None` where QEMU
/// has not said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobStats {
    /// A job is in progress that says how far it is, without an end that is known: a migration.
    pub is_unbounded: bool,
    /// Since the job began.
    pub time_elapsed_ms: Option<u64>,
    pub data_total: Option<u64>,
    pub data_processed: Option<u64>,
    pub data_remaining: Option<u64>,
    pub memory_total: Option<u64>,
    pub memory_processed: Option<u64>,
    pub memory_remaining: Option<u64>,
    /// Pages that are all of one byte.
    pub memory_constant: Option<u64>,
    /// Pages that were sent as they are.
    pub memory_normal: Option<u64>,
    pub memory_normal_bytes: Option<u64>,
    /// Bytes a second.
    pub memory_bps: Option<u64>,
    /// Pages a second that the guest writes to.
    pub memory_dirty_rate: Option<u64>,
    pub memory_page_size: Option<u64>,
    /// How often all of the memory was looked through.
    pub memory_iteration: Option<u64>,
    pub memory_postcopy_requests: Option<u64>,
    /// Bytes a second.
    pub disk_bps: Option<u64>,
    /// As expected now; of a completed job, as it was.
    pub downtime_ms: Option<u64>,
    pub downtime_net_ms: Option<u64>,
    /// Percent by which auto-converge slows the vCPUs down.
    pub auto_converge_throttle: Option<u64>,
}

impl JobStats {
    fn set(&mut self, name: &str, value: u64) {
        let field = match name {
            "time_elapsed" => &mut self.time_elapsed_ms,
            "data_total" => &mut self.data_total,
            "data_processed" => &mut self.data_processed,
            "data_remaining" => &mut self.data_remaining,
            "memory_total" => &mut self.memory_total,
            "memory_processed" => &mut self.memory_processed,
            "memory_remaining" => &mut self.memory_remaining,
            "memory_constant" => &mut self.memory_constant,
            "memory_normal" => &mut self.memory_normal,
            "memory_normal_bytes" => &mut self.memory_normal_bytes,
            "memory_bps" => &mut self.memory_bps,
            "memory_dirty_rate" => &mut self.memory_dirty_rate,
            "memory_page_size" => &mut self.memory_page_size,
            "memory_iteration" => &mut self.memory_iteration,
            "memory_postcopy_requests" => &mut self.memory_postcopy_requests,
            "disk_bps" => &mut self.disk_bps,
            "downtime" => &mut self.downtime_ms,
            "downtime_net" => &mut self.downtime_net_ms,
            "auto_converge_throttle" => &mut self.auto_converge_throttle,
            _ => return,
        };
        *field = Some(value);
    }
}

impl DomainHandle {
    /// How far the job that is in progress is.
    pub fn job_stats(&self) -> Result<JobStats, Error> {
        self.read_job_stats(0)
    }

    /// Statistics of the last job that has ended. libvirt keeps them until the next one.
    pub fn completed_job_stats(&self) -> Result<JobStats, Error> {
        self.read_job_stats(
            sys::VIR_DOMAIN_JOB_STATS_COMPLETED | sys::VIR_DOMAIN_JOB_STATS_KEEP_COMPLETED,
        )
    }

    fn read_job_stats(&self, flags: c_uint) -> Result<JobStats, Error> {
        let mut params = TypedParams::new();
        let (list, len) = params.places();
        let mut kind = 0;
        // SAFETY: the domain and the three places are valid; we free the list's content.
        c::check(unsafe { sys::virDomainGetJobStats(self.raw(), &mut kind, list, len, flags) })?;
        let mut stats = JobStats {
            is_unbounded: u32::try_from(kind) == Ok(sys::VIR_DOMAIN_JOB_UNBOUNDED),
            ..JobStats::default()
        };
        for (name, value) in params.read() {
            match value {
                ParamValue::Unsigned(value) => stats.set(&name, value),
                ParamValue::Signed(value) => stats.set(&name, u64::try_from(value).unwrap_or(0)),
                ParamValue::Text(_) | ParamValue::Double(_) => {}
            }
        }
        Ok(stats)
    }
}

impl ChangeableDomain {
    /// Migrates the domain. Blocks until it runs on the target, or the migration has failed.
    pub fn migrate(&self, migration: &Migration) -> Result<(), Error> {
        let destination = c::text("the URI of the target", &migration.destination)?;
        let params = migration.params()?;
        let (list, len) = params.as_raw();
        let len = c_uint::try_from(len).unwrap_or(0);
        let flags = migration.flags();
        // SAFETY: domain, string and list are valid for the call, which only reads them.
        self.done(unsafe {
            sys::virDomainMigrateToURI3(self.raw(), destination.as_ptr(), list, len, flags)
        })
    }

    /// Ends the job that is in progress: a migration's guest goes on here. Returns before that.
    pub fn abort_job(&self) -> Result<(), Error> {
        // SAFETY: the domain is valid.
        self.done(unsafe { sys::virDomainAbortJob(self.raw()) })
    }

    /// Lets the guest run on the target at once; memory that is missing follows. There is no way
    /// back.
    pub fn start_post_copy(&self) -> Result<(), Error> {
        // SAFETY: the domain is valid.
        self.done(unsafe { sys::virDomainMigrateStartPostCopy(self.raw(), 0) })
    }

    /// How long the guest may stand still at the end of the migration that is in progress.
    pub fn set_max_downtime(&self, downtime: Duration) -> Result<(), Error> {
        let milliseconds = u64::try_from(downtime.as_millis()).unwrap_or(u64::MAX);
        // SAFETY: the domain is valid.
        self.done(unsafe { sys::virDomainMigrateSetMaxDowntime(self.raw(), milliseconds, 0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migration() -> Migration {
        // It initializes libvirt.
        crate::start_event_loop().unwrap();
        Migration {
            destination: "qemu+unix:///session?socket=/s".into(),
            uri: "unix:///m".into(),
            name: "ns1_vm1".into(),
            xml: "<domain/>".into(),
            ..Migration::default()
        }
    }

    #[test]
    fn what_is_not_asked_for_is_left_to_libvirt() {
        let plain = migration();
        assert_eq!(plain.flags(), 1 | 2 | 8);
        let names: Vec<_> = plain.params().unwrap().read().into_iter().collect();
        let text = |name: &str, value: &str| (name.to_owned(), ParamValue::Text(value.to_owned()));
        assert_eq!(
            names,
            [
                text("migrate_uri", "unix:///m"),
                text("destination_name", "ns1_vm1"),
                text("destination_xml", "<domain/>"),
                text("persistent_xml", "<domain/>"),
            ]
        );
    }

    #[test]
    fn every_option_has_its_flag_and_its_parameter() {
        let all = Migration {
            bandwidth_mib: 64,
            parallel_connections: Some(8),
            compression: Some("zstd".into()),
            disks: Some(DiskCopy {
                targets: vec!["vda".into(), "vdb".into()],
                uri: "unix:///d".into(),
            }),
            block: true,
            allow_unsafe: true,
            auto_converge: true,
            post_copy: true,
            paused: true,
            ..migration()
        };
        let flags = [1, 2, 8, 32, 128, 512, 2048, 8192, 32768, 131_072];
        assert_eq!(all.flags(), flags.iter().sum::<u32>());
        let params = all.params().unwrap().read();
        let values = |name: &str| -> Vec<ParamValue> {
            let named = params.iter().filter(|(it, _)| it == name);
            named.map(|(_, value)| value.clone()).collect()
        };
        let texts = |list: &[&str]| -> Vec<ParamValue> {
            list.iter()
                .map(|it| ParamValue::Text((*it).to_owned()))
                .collect()
        };
        assert_eq!(values("bandwidth"), [ParamValue::Unsigned(64)]);
        assert_eq!(values("bandwidth.postcopy"), []);
        assert_eq!(values("parallel.connections"), [ParamValue::Signed(8)]);
        assert_eq!(values("compression"), texts(&["zstd"]));
        assert_eq!(values("disks_uri"), texts(&["unix:///d"]));
        assert_eq!(values("migrate_disks"), texts(&["vda", "vdb"]));
        assert_eq!(
            values("migrate_disks_detect_zeroes"),
            texts(&["vda", "vdb"])
        );
    }

    #[test]
    fn stats_are_read_by_libvirts_names() {
        let mut stats = JobStats::default();
        stats.set("data_remaining", 7);
        stats.set("memory_iteration", 3);
        stats.set("something_new", 1);
        let expected = JobStats {
            data_remaining: Some(7),
            memory_iteration: Some(3),
            ..JobStats::default()
        };
        assert_eq!(stats, expected);
    }
}
