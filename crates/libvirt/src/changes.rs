//! What changes a domain: for the holder of a permission alone.

use std::ffi::{c_int, c_uint};
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd};

use virt::sys;

use super::c;
use super::domain::DomainHandle;
use super::error::{Error, code};
use super::typed_params::TypedParams;

/// Permission to change domains. What gives it out is for the program to say.
pub trait MayChange {}

/// A domain that its holder may change.
#[derive(Debug, Clone)]
pub struct ChangeableDomain(DomainHandle);

impl Deref for ChangeableDomain {
    type Target = DomainHandle;

    fn deref(&self) -> &DomainHandle {
        &self.0
    }
}

/// How to ask the guest to shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// As libvirt sees fit: the agent where it is connected, else ACPI.
    Default,
    /// The power button.
    Acpi,
    Agent,
}

/// How to ask the guest to reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reboot {
    /// As libvirt sees fit.
    Default,
    /// ACPI.
    Acpi,
    Agent,
}

/// What goes, and what stays, with a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undefine {
    /// As KubeVirt: the NVRAM file stays, the checkpoints' metadata go. Without
    /// `VIR_DOMAIN_UNDEFINE_KEEP_TPM`, libvirt keeps a TPM's state if the domain's
    /// `persistent_state` says so.
    KeepNvram,
    /// The definition alone; refused if anything hangs on it.
    Plain,
}

/// Live and persistent, the scope of a change to a running domain.
const LIVE_AND_CONFIG: c_uint = sys::VIR_DOMAIN_AFFECT_LIVE | sys::VIR_DOMAIN_AFFECT_CONFIG;

/// A bit for each of the host's CPUs, and the number of bytes.
fn cpu_map(host_cpus: &[u32]) -> Result<(Vec<u8>, c_int), Error> {
    /// Far above what Linux knows.
    const MAX_CPUS: u32 = 1 << 16;
    let mut map = Vec::new();
    for &cpu in host_cpus {
        if cpu >= MAX_CPUS {
            let message = format!("the host has no CPU {cpu}");
            return Err(Error::own(code::INVALID_ARG, message));
        }
        let byte = cpu as usize / 8;
        map.resize(map.len().max(byte.saturating_add(1)), 0_u8);
        if let Some(bits) = map.get_mut(byte) {
            *bits |= 1 << (cpu % 8);
        }
    }
    let length = c_int::try_from(map.len()).unwrap_or(c_int::MAX);
    Ok((map, length))
}

impl DomainHandle {
    /// The domain, to be changed.
    pub fn changeable(self, _: &impl MayChange) -> ChangeableDomain {
        ChangeableDomain(self)
    }
}

impl ChangeableDomain {
    /// Starts it, its vCPUs stopped if `paused`.
    pub fn start(&self, paused: bool) -> Result<(), Error> {
        let flags = if paused {
            sys::VIR_DOMAIN_START_PAUSED
        } else {
            sys::VIR_DOMAIN_NONE
        };
        // SAFETY: the domain is valid.
        self.done(unsafe { sys::virDomainCreateWithFlags(self.raw(), flags) })
    }

    /// Gives libvirt open files for the domain's next start, under a name that its XML uses
    /// (`fdgroup`). libvirt has duplicates of them, for as long as the connection lasts.
    pub fn associate_fds(&self, name: &str, files: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let name = c::text("the name of the files", name)?;
        let mut files: Vec<c_int> = files.iter().map(AsRawFd::as_raw_fd).collect();
        let count = files
            .len()
            .try_into()
            .map_err(|_| Error::own(code::INVALID_ARG, "too many files".to_owned()))?;
        // SAFETY: domain and string are valid for the call; so are the numbers, which are as many
        // as is said, and the files, which are borrowed.
        self.done(unsafe {
            sys::virDomainFDAssociate(self.raw(), name.as_ptr(), count, files.as_mut_ptr(), 0)
        })
    }

    pub fn suspend(&self) -> Result<(), Error> {
        // SAFETY: the domain is valid.
        self.done(unsafe { sys::virDomainSuspend(self.raw()) })
    }

    /// Lets the vCPUs run again.
    pub fn resume(&self) -> Result<(), Error> {
        // SAFETY: the domain is valid.
        self.done(unsafe { sys::virDomainResume(self.raw()) })
    }

    /// Presses the reset button.
    pub fn reset(&self) -> Result<(), Error> {
        // SAFETY: the domain is valid.
        self.done(unsafe { sys::virDomainReset(self.raw(), 0) })
    }

    /// Asks the guest to reboot.
    pub fn reboot(&self, mode: Reboot) -> Result<(), Error> {
        let flags = match mode {
            Reboot::Default => sys::VIR_DOMAIN_REBOOT_DEFAULT,
            Reboot::Acpi => sys::VIR_DOMAIN_REBOOT_ACPI_POWER_BTN,
            Reboot::Agent => sys::VIR_DOMAIN_REBOOT_GUEST_AGENT,
        };
        // SAFETY: the domain is valid.
        self.done(unsafe { sys::virDomainReboot(self.raw(), flags) })
    }

    /// Asks the guest to shut down; returns when it is asked, not when it is down.
    pub fn shutdown(&self, mode: Shutdown) -> Result<(), Error> {
        let flags = match mode {
            Shutdown::Default => sys::VIR_DOMAIN_SHUTDOWN_DEFAULT,
            Shutdown::Acpi => sys::VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN,
            Shutdown::Agent => sys::VIR_DOMAIN_SHUTDOWN_GUEST_AGENT,
        };
        // SAFETY: the domain is valid.
        self.done(unsafe { sys::virDomainShutdownFlags(self.raw(), flags) })
    }

    /// Pulls the plug. With `graceful`, QEMU gets time to flush its caches, and is not killed with
    /// SIGKILL if it does not go.
    pub fn destroy(&self, graceful: bool) -> Result<(), Error> {
        let flags = if graceful {
            sys::VIR_DOMAIN_DESTROY_GRACEFUL
        } else {
            sys::VIR_DOMAIN_DESTROY_DEFAULT
        };
        // SAFETY: the domain is valid.
        self.done(unsafe { sys::virDomainDestroyFlags(self.raw(), flags) })
    }

    pub fn undefine(&self, what: Undefine) -> Result<(), Error> {
        let flags = match what {
            Undefine::KeepNvram => {
                sys::VIR_DOMAIN_UNDEFINE_KEEP_NVRAM | sys::VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
            }
            Undefine::Plain => 0,
        };
        // SAFETY: the domain is valid.
        self.done(unsafe { sys::virDomainUndefineFlags(self.raw(), flags) })
    }

    /// Plugs a device into the running domain and its definition.
    pub fn attach_device(&self, xml: &str) -> Result<(), Error> {
        let xml = c::text("the device's XML", xml)?;
        // SAFETY: domain and string are valid for the call.
        self.done(unsafe {
            sys::virDomainAttachDeviceFlags(self.raw(), xml.as_ptr(), LIVE_AND_CONFIG)
        })
    }

    /// Takes a device out of the definition, and asks the guest to let it go. It is gone when
    /// [`super::Event::DeviceRemoved`] arrives.
    pub fn detach_device(&self, xml: &str) -> Result<(), Error> {
        let xml = c::text("the device's XML", xml)?;
        // SAFETY: domain and string are valid for the call.
        self.done(unsafe {
            sys::virDomainDetachDeviceFlags(self.raw(), xml.as_ptr(), LIVE_AND_CONFIG)
        })
    }

    /// As [`Self::detach_device`], the running domain alone: for a guest that is asked again.
    pub fn detach_device_live(&self, xml: &str) -> Result<(), Error> {
        let xml = c::text("the device's XML", xml)?;
        // SAFETY: domain and string are valid for the call.
        self.done(unsafe {
            sys::virDomainDetachDeviceFlags(self.raw(), xml.as_ptr(), sys::VIR_DOMAIN_AFFECT_LIVE)
        })
    }

    /// As [`Self::detach_device`], the definition alone.
    pub fn detach_device_config(&self, xml: &str) -> Result<(), Error> {
        let xml = c::text("the device's XML", xml)?;
        // SAFETY: domain and string are valid for the call.
        self.done(unsafe {
            sys::virDomainDetachDeviceFlags(self.raw(), xml.as_ptr(), sys::VIR_DOMAIN_AFFECT_CONFIG)
        })
    }

    /// Changes a device of the running domain and its definition: a CD-ROM's medium, a link's
    /// state.
    pub fn update_device(&self, xml: &str) -> Result<(), Error> {
        self.update(xml, LIVE_AND_CONFIG)
    }

    /// As [`Self::update_device`], the running domain alone.
    pub fn update_device_live(&self, xml: &str) -> Result<(), Error> {
        self.update(xml, sys::VIR_DOMAIN_AFFECT_LIVE)
    }

    fn update(&self, xml: &str, flags: c_uint) -> Result<(), Error> {
        let xml = c::text("the device's XML", xml)?;
        // SAFETY: domain and string are valid for the call.
        self.done(unsafe { sys::virDomainUpdateDeviceFlags(self.raw(), xml.as_ptr(), flags) })
    }

    /// How many vCPUs the guest has. It may be asked to give some back, and need not.
    pub fn set_vcpus(&self, count: u32) -> Result<(), Error> {
        let flags = sys::VIR_DOMAIN_VCPU_LIVE | sys::VIR_DOMAIN_VCPU_CONFIG;
        // SAFETY: the domain is valid.
        self.done(unsafe { sys::virDomainSetVcpusFlags(self.raw(), count, flags) })
    }

    /// On which of the host's CPUs a vCPU may run.
    pub fn pin_vcpu(&self, vcpu: u32, host_cpus: &[u32]) -> Result<(), Error> {
        let (mut map, length) = cpu_map(host_cpus)?;
        let map = map.as_mut_ptr();
        // SAFETY: domain and map are valid for the call, and the map is as long as `length` says.
        self.done(unsafe {
            sys::virDomainPinVcpuFlags(self.raw(), vcpu, map, length, LIVE_AND_CONFIG)
        })
    }

    /// On which of the host's CPUs QEMU's threads other than vCPUs and I/O threads may run.
    pub fn pin_emulator(&self, host_cpus: &[u32]) -> Result<(), Error> {
        let (mut map, length) = cpu_map(host_cpus)?;
        let map = map.as_mut_ptr();
        // SAFETY: as above.
        self.done(unsafe { sys::virDomainPinEmulator(self.raw(), map, length, LIVE_AND_CONFIG) })
    }

    /// Gives a guest with encrypted memory a secret, before it runs.
    pub fn set_launch_secret(&self, header: &str, secret: &str) -> Result<(), Error> {
        let (header, secret) = (
            c::text("the secret's header", header)?,
            c::text("the secret", secret)?,
        );
        let params =
            TypedParams::of_texts(&[(c"sev-secret-header", &header), (c"sev-secret", &secret)])?;
        let (list, len) = params.as_raw();
        // SAFETY: domain and list are valid for the call.
        self.done(unsafe { sys::virDomainSetLaunchSecurityState(self.raw(), list, len, 0) })
    }

    /// Gives a disk, by target or source path, this many bytes.
    pub fn block_resize(&self, disk: &str, bytes: u64) -> Result<(), Error> {
        let disk = c::text("the disk's name", disk)?;
        // SAFETY: domain and string are valid for the call.
        self.done(unsafe {
            sys::virDomainBlockResize(
                self.raw(),
                disk.as_ptr(),
                bytes,
                sys::VIR_DOMAIN_BLOCK_RESIZE_BYTES,
            )
        })
    }

    /// Tells QEMU that a block device has grown to its present size.
    pub fn block_resize_to_capacity(&self, disk: &str) -> Result<(), Error> {
        let disk = c::text("the disk's name", disk)?;
        let flags = sys::VIR_DOMAIN_BLOCK_RESIZE_BYTES | sys::VIR_DOMAIN_BLOCK_RESIZE_CAPACITY;
        // SAFETY: domain and string are valid for the call.
        self.done(unsafe { sys::virDomainBlockResize(self.raw(), disk.as_ptr(), 0, flags) })
    }

    /// Sets the metadata element `xml` of namespace `uri`, under the prefix `key`, in the running
    /// domain (if it runs) and its definition.
    pub fn set_metadata(&self, xml: &str, key: &str, uri: &str) -> Result<(), Error> {
        let flags = if self.is_active()? {
            LIVE_AND_CONFIG
        } else {
            sys::VIR_DOMAIN_AFFECT_CONFIG
        };
        let (xml, key, uri) = (
            c::text("the metadata", xml)?,
            c::text("the key", key)?,
            c::text("the URI", uri)?,
        );
        // SAFETY: domain and strings are valid for the call.
        self.done(unsafe {
            sys::virDomainSetMetadata(
                self.raw(),
                sys::VIR_DOMAIN_METADATA_ELEMENT as c_int,
                xml.as_ptr(),
                key.as_ptr(),
                uri.as_ptr(),
                flags,
            )
        })
    }

    /// Writes the guest's memory, without its devices, into the file `path` as an ELF file. Takes
    /// as long as that takes.
    pub fn dump_memory(&self, path: &str) -> Result<(), Error> {
        let path = c::text("the path of the dump", path)?;
        let format = sys::VIR_DOMAIN_CORE_DUMP_FORMAT_RAW;
        // SAFETY: domain and string are valid for the call.
        self.done(unsafe {
            sys::virDomainCoreDumpWithFormat(
                self.raw(),
                path.as_ptr(),
                format as c_uint,
                sys::VIR_DUMP_MEMORY_ONLY as c_uint,
            )
        })
    }
}
