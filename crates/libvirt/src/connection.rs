//! A connection to libvirt.

use std::ffi::{CStr, c_char, c_int, c_ulong};
use std::sync::Arc;

use virt::sys;

use super::c;
use super::changes::{ChangeableDomain, MayChange};
use super::domain::DomainHandle;
use super::error::Error;
use super::event::{self, Callback, Event, Sink};
use super::typed_params::{ParamValue, TypedParams};

/// An open connection. Clones share it; it is closed with the last of them, its domains and its
/// registrations.
#[derive(Debug, Clone)]
pub struct Connection {
    raw: Arc<Raw>,
}

#[derive(Debug)]
struct Raw(sys::virConnectPtr);

// SAFETY: libvirt's objects are reference-counted under a lock, and its functions may be called on
// one connection from any thread at the same time (libvirt.org, "Thread safety"); errors are kept
// for each thread.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: the pointer is open and this is its only owner's last use. A failure is not ours
        // to mend.
        unsafe { sys::virConnectClose(self.0) };
    }
}

impl Connection {
    /// Opens `uri`. Events arrive only when [`super::start_event_loop`] was called before.
    pub fn open(uri: &str) -> Result<Self, Error> {
        let uri = c::text("the connection URI", uri)?;
        // SAFETY: `uri` outlives the call.
        let raw = unsafe { sys::virConnectOpen(uri.as_ptr()) };
        if raw.is_null() {
            Err(Error::last())
        } else {
            Ok(Self {
                raw: Arc::new(Raw(raw)),
            })
        }
    }

    /// Asks the daemon each `seconds` whether it is there. When it has been silent `count` times
    /// the connection closes: calls that wait in it fail, and [`Event::Closed`] tells. Not for a
    /// driver inside the process.
    pub fn keep_alive(&self, seconds: u16, count: u32) -> Result<(), Error> {
        // SAFETY: the connection is valid.
        c::check(unsafe { sys::virConnectSetKeepAlive(self.ptr(), c_int::from(seconds), count) })
            .map(drop)
    }

    fn ptr(&self) -> sys::virConnectPtr {
        self.raw.0
    }

    /// The domain of this name, if there is one.
    pub fn lookup(&self, name: &str) -> Result<Option<DomainHandle>, Error> {
        let name = c::text("the domain's name", name)?;
        // SAFETY: connection and string are valid; the reference that comes back is given to
        // `DomainHandle`.
        let found =
            unsafe { DomainHandle::take(sys::virDomainLookupByName(self.ptr(), name.as_ptr())) };
        match found {
            Ok(domain) => Ok(Some(domain)),
            Err(error) if error.is_no_domain() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The node's keys for guests with encrypted memory (SEV), by libvirt's names.
    pub fn sev_info(&self) -> Result<Vec<(String, ParamValue)>, Error> {
        let mut params = TypedParams::new();
        let (list, len) = params.places();
        // SAFETY: the connection and both places are valid; we free the result.
        c::check(unsafe { sys::virNodeGetSEVInfo(self.ptr(), list, len, 0) })?;
        Ok(params.read())
    }

    /// Defines a persistent domain, or gives an existing one (same name and UUID) a new definition.
    pub fn define(
        &self,
        permission: &impl MayChange,
        xml: &str,
    ) -> Result<ChangeableDomain, Error> {
        let xml = c::text("the domain's XML", xml)?;
        // SAFETY: as in `lookup`.
        let defined = unsafe {
            DomainHandle::take(sys::virDomainDefineXMLFlags(self.ptr(), xml.as_ptr(), 0))
        };
        Ok(defined?.changeable(permission))
    }

    /// The hypervisor's version, as KubeVirt writes it: `QEMU 10.0.2`.
    pub fn qemu_version(&self) -> Result<String, Error> {
        let mut version: c_ulong = 0;
        // SAFETY: `version` is a valid place for the result.
        c::check(unsafe { sys::virConnectGetVersion(self.ptr(), &mut version) })?;
        Ok(format!(
            "QEMU {}.{}.{}",
            version / 1_000_000,
            version / 1_000 % 1_000,
            version % 1_000
        ))
    }

    /// The host's capabilities (XML).
    pub fn capabilities(&self) -> Result<String, Error> {
        // SAFETY: the connection is open; the result is ours to free.
        unsafe { c::take(sys::virConnectGetCapabilities(self.ptr())) }
    }

    /// Makes libvirt probe QEMU now and keep the answer in its cache (in memory, and in a file for
    /// the next daemon). This takes seconds, and is otherwise the longest wait of the first start.
    /// `kind` as in [`Self::check_machine`]. Returns the answer's size.
    pub fn warm_up(&self, kind: &str) -> Result<usize, Error> {
        self.domain_capabilities(kind, None).map(|xml| xml.len())
    }

    /// Fails with [`Error::is_invalid_argument`] if QEMU does not have the machine type, in
    /// libvirt's words. `kind` is `kvm` or `qemu`, `arch` libvirt's name of the architecture.
    pub fn check_machine(&self, kind: &str, arch: &str, machine: &str) -> Result<(), Error> {
        let arch = c::text("the architecture", arch)?;
        let machine = c::text("the machine type", machine)?;
        self.domain_capabilities(kind, Some((&arch, &machine)))
            .map(drop)
    }

    /// What domains on the default emulator may be (XML), with the given architecture and machine
    /// type, or the default ones.
    fn domain_capabilities(
        &self,
        kind: &str,
        machine: Option<(&CStr, &CStr)>,
    ) -> Result<String, Error> {
        let kind = c::text("the domain's type", kind)?;
        let any = std::ptr::null();
        let (arch, machine) = machine.map_or((any, any), |(arch, machine)| {
            (arch.as_ptr(), machine.as_ptr())
        });
        // SAFETY: the strings outlive the call, null asks for the default; the result is ours to
        // free.
        unsafe {
            c::take(sys::virConnectGetDomainCapabilities(
                self.ptr(),
                any,
                arch,
                machine,
                kind.as_ptr(),
                0,
            ))
        }
    }

    /// The CPU models that libvirt knows for an architecture. Empty: all that QEMU has.
    pub fn cpu_models(&self, arch: &str) -> Result<Vec<String>, Error> {
        let arch = c::text("the architecture", arch)?;
        let mut list: *mut *mut c_char = std::ptr::null_mut();
        // SAFETY: `arch` outlives the call. On success `list` is null, or an array of that many
        // strings and a null; the strings and the array are ours to free, once each.
        unsafe {
            let count = c::check(sys::virConnectGetCPUModelNames(
                self.ptr(),
                arch.as_ptr(),
                &mut list,
                0,
            ))?;
            if list.is_null() {
                return Ok(Vec::new());
            }
            let models = (0..usize::try_from(count).unwrap_or_default())
                .map(|i| c::take(*list.add(i)))
                .collect();
            libc::free(list.cast());
            models
        }
    }

    /// Registers `sink` for all events of all domains, and for the end of the connection, until the
    /// registration is dropped. The sink runs on the event loop's thread: it must not block, and
    /// not call libvirt.
    pub fn events(
        &self,
        sink: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Registration, Error> {
        let sink: Sink = Arc::new(sink);
        let mut registration = Registration {
            connection: self.clone(),
            ids: Vec::new(),
            close: false,
            _sink: sink.clone(),
        };
        // Before the other calls: if the connection is lost earlier, nobody is told, but those calls
        // fail.
        registration.close = self.on_close(&sink)?;
        for &(id, function) in event::LISTENED_EVENTS {
            match self.register(id, function, &sink) {
                Ok(callback) => registration.ids.push(callback),
                // Drivers other than QEMU's (libvirt's test driver) do not have them all.
                Err(error) if error.is_unsupported() => {
                    tracing::debug!(event = id, "No such events here")
                }
                Err(error) => return Err(error),
            }
        }
        Ok(registration)
    }

    fn register(
        &self,
        id: sys::virDomainEventID,
        function: *const (),
        sink: &Sink,
    ) -> Result<c_int, Error> {
        let opaque = event::opaque(sink);
        // SAFETY: `event::LISTENED_EVENTS` pairs each id with a function of the type that libvirt
        // calls for it, which C asks to pass as a generic callback; `opaque` is released by
        // libvirt, or here if it never took it over.
        unsafe {
            let callback = std::mem::transmute::<*const (), Callback>(function);
            let any_domain = std::ptr::null_mut();
            let registered = c::check(sys::virConnectDomainEventRegisterAny(
                self.ptr(),
                any_domain,
                id as c_int,
                Some(callback),
                opaque,
                Some(event::release),
            ));
            if registered.is_err() {
                event::release(opaque);
            }
            registered
        }
    }

    /// True when registered; false for a driver whose connections do not close by themselves.
    fn on_close(&self, sink: &Sink) -> Result<bool, Error> {
        let opaque = event::opaque(sink);
        // SAFETY: as in `register`.
        unsafe {
            let done = c::check(sys::virConnectRegisterCloseCallback(
                self.ptr(),
                Some(event::closed),
                opaque,
                Some(event::release),
            ));
            match done {
                Ok(_) => Ok(true),
                Err(error) => {
                    event::release(opaque);
                    if error.is_unsupported() {
                        Ok(false)
                    } else {
                        Err(error)
                    }
                }
            }
        }
    }
}

/// A live registration for events; they stop when it is dropped.
#[must_use = "events stop when it is dropped"]
pub struct Registration {
    connection: Connection,
    ids: Vec<c_int>,
    close: bool,
    /// The only lasting owner: callbacks hold weak references.
    _sink: Sink,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("ids", &self.ids)
            .finish_non_exhaustive()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the ids come from this connection, which `self` keeps open. That a dead
        // connection refuses does not matter: nothing arrives from it any more.
        unsafe {
            for id in self.ids.drain(..) {
                sys::virConnectDomainEventDeregisterAny(self.connection.ptr(), id);
            }
            if self.close {
                sys::virConnectUnregisterCloseCallback(self.connection.ptr(), Some(event::closed));
            }
        }
    }
}
