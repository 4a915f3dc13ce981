//! Statistics of a domain.

use std::ffi::{c_int, c_uint};
use std::ptr;
use std::time::Duration;

use virt::sys;

use super::c;
use super::domain::DomainHandle;
use super::error::{Error, code};
use super::typed_params::{self, ParamValue};

/// Which statistics [`DomainHandle::stats`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatsGroups {
    /// CPU time, balloon, vCPUs, network interfaces, disks, the dirty rate.
    All,
    /// The dirty rate alone.
    DirtyRate,
}

impl StatsGroups {
    fn bits(self) -> c_uint {
        match self {
            Self::All => {
                sys::VIR_DOMAIN_STATS_CPU_TOTAL
                    | sys::VIR_DOMAIN_STATS_BALLOON
                    | sys::VIR_DOMAIN_STATS_VCPU
                    | sys::VIR_DOMAIN_STATS_INTERFACE
                    | sys::VIR_DOMAIN_STATS_BLOCK
                    | sys::VIR_DOMAIN_STATS_DIRTYRATE
            }
            Self::DirtyRate => sys::VIR_DOMAIN_STATS_DIRTYRATE,
        }
    }
}

impl DomainHandle {
    /// The domain's statistics by name, such as `block.0.rd.bytes`. While a job runs, those for
    /// which QEMU has to be asked are left out: no call waits.
    pub fn stats(&self, groups: StatsGroups) -> Result<Vec<(String, ParamValue)>, Error> {
        let mut domains = [self.raw(), ptr::null_mut()];
        let mut records: *mut sys::virDomainStatsRecordPtr = ptr::null_mut();
        // SAFETY: the list of domains ends with null, and `records` is written on success.
        let count = c::check(unsafe {
            sys::virDomainListGetStats(
                domains.as_mut_ptr(),
                groups.bits(),
                &raw mut records,
                sys::VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT,
            )
        })?;
        // SAFETY: with a count above zero there is a first record, with as many parameters as it
        // says. They stay until the list is freed below.
        let stats = unsafe {
            match records.as_ref() {
                Some(record) if count > 0 && !(**record).params.is_null() => {
                    let length = usize::try_from((**record).nparams).unwrap_or(0);
                    typed_params::read((**record).params, length)
                }
                _ => Vec::new(),
            }
        };
        // SAFETY: libvirt's own list, freed once; null is allowed.
        unsafe { sys::virDomainStatsRecordListFree(records) };
        Ok(stats)
    }

    /// The guest's memory: pairs of a `VIR_DOMAIN_MEMORY_STAT_*` tag and its value.
    pub fn memory_stats(&self) -> Result<Vec<(u32, u64)>, Error> {
        const COUNT: usize = sys::VIR_DOMAIN_MEMORY_STAT_NR as usize;
        let mut stats = [sys::virDomainMemoryStatStruct { tag: 0, val: 0 }; COUNT];
        // SAFETY: the domain is valid, the array as long as its length says.
        let count = c::check(unsafe {
            sys::virDomainMemoryStats(
                self.raw(),
                stats.as_mut_ptr(),
                sys::VIR_DOMAIN_MEMORY_STAT_NR,
                0,
            )
        })?;
        let count = usize::try_from(count).unwrap_or(0);
        let stats = stats.iter().take(count);
        Ok(stats
            .filter_map(|stat| Some((u32::try_from(stat.tag).ok()?, stat.val)))
            .collect())
    }

    /// For each vCPU, on which of the host's CPUs it may run.
    pub fn vcpu_pinning(&self) -> Result<Vec<Vec<bool>>, Error> {
        let host_cpus = self.host_cpus()?;
        let mut info = sys::virDomainInfo {
            state: 0,
            maxMem: 0,
            memory: 0,
            nrVirtCpu: 0,
            cpuTime: 0,
        };
        // SAFETY: domain and struct are valid for the call.
        c::check(unsafe { sys::virDomainGetInfo(self.raw(), &raw mut info) })?;
        let map_bytes = host_cpus.div_ceil(8).max(1);
        let mut maps = vec![0_u8; map_bytes.saturating_mul(usize::from(info.nrVirtCpu).max(1))];
        let length = c_int::try_from(map_bytes)
            .map_err(|_| Error::own(code::INVALID_ARG, "the host has too many CPUs".to_owned()))?;
        // SAFETY: the buffer has room for as many maps of that length as there are vCPUs.
        let count = c::check(unsafe {
            sys::virDomainGetVcpuPinInfo(
                self.raw(),
                c_int::from(info.nrVirtCpu),
                maps.as_mut_ptr(),
                length,
                sys::VIR_DOMAIN_AFFECT_CURRENT,
            )
        })?;
        let bit = |map: &[u8], cpu: usize| {
            map.get(cpu / 8)
                .is_some_and(|byte| byte >> (cpu % 8) & 1 == 1)
        };
        let maps = maps
            .chunks(map_bytes)
            .take(usize::try_from(count).unwrap_or(0));
        Ok(maps
            .map(|map| (0..host_cpus).map(|cpu| bit(map, cpu)).collect())
            .collect())
    }

    /// Begins to measure, for this time (rounded up to seconds), how fast the guest writes to its
    /// memory.
    pub fn start_dirty_rate_calculation(&self, time: Duration) -> Result<(), Error> {
        let seconds = c_int::try_from(time.as_millis().div_ceil(1000)).unwrap_or(c_int::MAX);
        let mode = sys::VIR_DOMAIN_DIRTYRATE_MODE_PAGE_SAMPLING;
        // SAFETY: the domain is valid.
        c::check(unsafe { sys::virDomainStartDirtyRateCalc(self.raw(), seconds, mode) }).map(drop)
    }

    /// How many CPUs the host has.
    fn host_cpus(&self) -> Result<usize, Error> {
        let mut node = sys::virNodeInfo {
            model: [0; 32],
            memory: 0,
            cpus: 0,
            mhz: 0,
            nodes: 0,
            sockets: 0,
            cores: 0,
            threads: 0,
        };
        // SAFETY: the connection belongs to the domain and lives as long as that.
        unsafe {
            let connection = sys::virDomainGetConnect(self.raw());
            if connection.is_null() {
                return Err(Error::last());
            }
            c::check(sys::virNodeGetInfo(connection, &raw mut node))?;
        }
        // Also those that are offline, as in the maps of pinned vCPUs.
        let cpus = [node.nodes, node.sockets, node.cores, node.threads];
        Ok(cpus
            .into_iter()
            .fold(1, |product, it| product.saturating_mul(it as usize)))
    }
}
