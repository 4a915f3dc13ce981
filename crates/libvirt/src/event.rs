//! What libvirt reports by itself, and the C functions that it calls for it.

use std::ffi::{c_char, c_int, c_ulonglong, c_void};
use std::sync::{Arc, Weak};

use virt::sys;

use super::c;
use super::c_enum::c_enum;
use super::job::{self, JobOperation};
use super::typed_params;

/// Something that happened to a domain, or to the connection. `domain` is the domain's name,
/// `alias` a device's alias.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Defined, started, paused, stopped, …
    Lifecycle {
        domain: String,
        event: LifecycleEvent,
    },
    /// The guest rebooted by itself.
    Reboot { domain: String },
    /// The guest agent came or went.
    AgentLifecycle { domain: String, state: AgentState },
    /// A device was attached.
    DeviceAdded { domain: String, alias: String },
    /// The guest has released a device.
    DeviceRemoved { domain: String, alias: String },
    /// The guest has refused to release a device.
    DeviceRemovalFailed { domain: String, alias: String },
    /// The balloon has another size, in KiB.
    BalloonChange { domain: String, actual_kib: u64 },
    /// The guest uses this many bytes of a memory device now.
    MemoryDeviceSize {
        domain: String,
        alias: String,
        bytes: u64,
    },
    /// A disk failed. `path` is its source; `reason` is QEMU's word, `enospc` or empty.
    IoError {
        domain: String,
        path: String,
        alias: String,
        action: IoAction,
        reason: String,
    },
    /// A CD-ROM's tray was opened (`true`) or closed.
    TrayChange {
        domain: String,
        alias: String,
        open: bool,
    },
    /// A migration, dump or backup is over. `success` and `message` (why not) are `None` where
    /// libvirt does not say.
    JobCompleted {
        domain: String,
        operation: JobOperation,
        success: Option<bool>,
        message: Option<String>,
    },
    /// A migration begins another pass over the guest's memory.
    MigrationIteration { domain: String, iteration: i32 },
    /// The connection is closed: open another one.
    Closed { reason: CloseReason },
}

impl Event {
    /// The domain's name; `None` for an event of the connection.
    pub fn domain(&self) -> Option<&str> {
        match self {
            Self::Lifecycle { domain, .. }
            | Self::Reboot { domain }
            | Self::AgentLifecycle { domain, .. }
            | Self::DeviceAdded { domain, .. }
            | Self::DeviceRemoved { domain, .. }
            | Self::DeviceRemovalFailed { domain, .. }
            | Self::BalloonChange { domain, .. }
            | Self::MemoryDeviceSize { domain, .. }
            | Self::IoError { domain, .. }
            | Self::TrayChange { domain, .. }
            | Self::JobCompleted { domain, .. }
            | Self::MigrationIteration { domain, .. } => Some(domain),
            Self::Closed { .. } => None,
        }
    }
}

/// `virDomainEventType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifecycleEvent {
    Defined,
    Undefined,
    Started(StartedDetail),
    Suspended,
    Resumed,
    Stopped,
    Shutdown,
    PmSuspended,
    Crashed(CrashedDetail),
    /// A newer libvirt's number.
    Other(i32),
}

impl LifecycleEvent {
    /// `detail` says more of some events: its meaning depends on `event`.
    fn from_raw(event: c_int, detail: c_int) -> Self {
        match event {
            0 => Self::Defined,
            1 => Self::Undefined,
            2 => Self::Started(StartedDetail::from_raw(detail)),
            3 => Self::Suspended,
            4 => Self::Resumed,
            5 => Self::Stopped,
            6 => Self::Shutdown,
            7 => Self::PmSuspended,
            8 => Self::Crashed(CrashedDetail::from_raw(detail)),
            other => Self::Other(other),
        }
    }
}

c_enum! {
    /// `virDomainEventStartedDetailType`.
    pub enum StartedDetail: i32 {
        Booted = 0,
        /// The domain comes from another node.
        Migrated = 1,
        Restored = 2,
        FromSnapshot = 3,
        Wakeup = 4,
    }
}

c_enum! {
    /// `virDomainEventCrashedDetailType`.
    pub enum CrashedDetail: i32 {
        Panicked = 0,
        /// The guest has loaded a crash kernel, and goes on.
        Crashloaded = 1,
    }
}

c_enum! {
    /// `virConnectDomainEventAgentLifecycleState`.
    pub enum AgentState: i32 {
        Connected = 1,
        Disconnected = 2,
    }
}

c_enum! {
    /// What QEMU did about a failed request (`virDomainEventIOErrorAction`).
    pub enum IoAction: i32 {
        /// QEMU ignored it.
        None = 0,
        /// QEMU paused the domain.
        Pause = 1,
        /// QEMU reported it to the guest.
        Report = 2,
    }
}

c_enum! {
    /// `virConnectCloseReason`.
    pub enum CloseReason: i32 {
        Error = 0,
        Eof = 1,
        Keepalive = 2,
        Client = 3,
    }
}

/// Where events go. Runs on libvirt's event thread: it must not block and not call libvirt.
pub(super) type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// A C callback without its type; the type that belongs to it is fixed by the event's id.
pub(super) type Callback = unsafe extern "C" fn(sys::virConnectPtr, sys::virDomainPtr, *mut c_void);

/// The sink as C keeps it: `opaque` of each registration, given back to [`release`] once.
///
/// It is a weak one. Events end when the registration drops the sink, even if libvirt never
/// releases `opaque`, as some drivers do not for a close callback that they ignore.
pub(super) fn opaque(sink: &Sink) -> *mut c_void {
    Box::into_raw(Box::new(Arc::downgrade(sink))).cast()
}

type Kept = Weak<dyn Fn(Event) + Send + Sync>;

/// `virFreeCallback` of what [`opaque`] made.
pub(super) unsafe extern "C" fn release(opaque: *mut c_void) {
    // SAFETY: libvirt calls this once, after the last callback, with the pointer that `opaque`
    // made.
    drop(unsafe { Box::from_raw(opaque.cast::<Kept>()) });
}

/// Passes an event on, if there still is a listener.
///
/// # Safety
/// `opaque` comes from [`opaque`] and is not released yet.
unsafe fn send(opaque: *mut c_void, event: Event) {
    // SAFETY: the caller's promise.
    let kept = unsafe { &*opaque.cast::<Kept>() };
    if let Some(sink) = kept.upgrade() {
        sink(event);
    }
}

/// A callback's argument: as libvirt passes it, and copied.
trait Argument {
    type Lent;

    /// # Safety
    /// libvirt has passed `lent` to a callback that has not returned.
    unsafe fn copied(lent: Self::Lent) -> Self;
}

impl Argument for String {
    type Lent = *const c_char;

    unsafe fn copied(lent: *const c_char) -> Self {
        // SAFETY: libvirt's strings are null, or end with NUL and live for the call.
        unsafe { c::copy(lent) }
    }
}

/// Passed by value.
macro_rules! plain_arguments {
    ($($type:ty),*) => {$(
        impl Argument for $type {
            type Lent = Self;

            unsafe fn copied(lent: Self) -> Self {
                lent
            }
        }
    )*};
}

plain_arguments!(c_int, c_ulonglong, sys::virTypedParameterPtr);

/// Declares [`LISTENED_EVENTS`] and its C functions: each copies its arguments and passes the event
/// on.
macro_rules! callbacks {
    ($($id:ident: $function:ident($domain:ident $(, $argument:ident: $type:ty)*) $(-> $result:ty)? => $event:expr;)*) => {
        /// Every event that the launcher listens to: its id, and the function of the type that this
        /// id asks for.
        pub(super) const LISTENED_EVENTS: &[(sys::virDomainEventID, *const ())] =
            &[$((sys::$id, $function as *const ())),*];

        $(unsafe extern "C" fn $function(
            _: sys::virConnectPtr,
            $domain: sys::virDomainPtr,
            $($argument: <$type as Argument>::Lent,)*
            opaque: *mut c_void,
        ) $(-> $result)? {
            // SAFETY: libvirt lends the domain, its name and the arguments for the call.
            let ($domain, $($argument,)*) = unsafe {
                (c::copy(sys::virDomainGetName($domain)), $(<$type as Argument>::copied($argument),)*)
            };
            let event = $event;
            // SAFETY: `opaque` comes from the registration, which libvirt releases after the last
            // call.
            unsafe { send(opaque, event) };
            $(<$result>::default())?
        })*
    };
}

callbacks! {
    VIR_DOMAIN_EVENT_ID_LIFECYCLE: lifecycle(domain, event: c_int, detail: c_int) -> c_int =>
        Event::Lifecycle { domain, event: LifecycleEvent::from_raw(event, detail) };
    VIR_DOMAIN_EVENT_ID_REBOOT: reboot(domain) => Event::Reboot { domain };
    VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE: agent_lifecycle(domain, state: c_int, _reason: c_int) =>
        Event::AgentLifecycle { domain, state: AgentState::from_raw(state) };
    VIR_DOMAIN_EVENT_ID_DEVICE_ADDED: device_added(domain, alias: String) =>
        Event::DeviceAdded { domain, alias };
    VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED: device_removed(domain, alias: String) =>
        Event::DeviceRemoved { domain, alias };
    VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED: device_removal_failed(domain, alias: String) =>
        Event::DeviceRemovalFailed { domain, alias };
    VIR_DOMAIN_EVENT_ID_MEMORY_DEVICE_SIZE_CHANGE:
        memory_device_size(domain, alias: String, bytes: c_ulonglong) =>
        Event::MemoryDeviceSize { domain, alias, bytes };
    VIR_DOMAIN_EVENT_ID_BALLOON_CHANGE: balloon_change(domain, actual_kib: c_ulonglong) =>
        Event::BalloonChange { domain, actual_kib };
    VIR_DOMAIN_EVENT_ID_IO_ERROR_REASON:
        io_error(domain, path: String, alias: String, action: c_int, reason: String) =>
        Event::IoError { domain, path, alias, action: IoAction::from_raw(action), reason };
    VIR_DOMAIN_EVENT_ID_TRAY_CHANGE: tray_change(domain, alias: String, reason: c_int) =>
        Event::TrayChange { domain, alias, open: reason == 0 };
    VIR_DOMAIN_EVENT_ID_JOB_COMPLETED:
        job_completed(domain, params: sys::virTypedParameterPtr, count: c_int) => {
            let values = match usize::try_from(count) {
                // SAFETY: libvirt lends a list of that many values for the call.
                Ok(count) if !params.is_null() => unsafe { typed_params::read(params, count) },
                _ => Vec::new(),
            };
            Event::JobCompleted {
                domain,
                operation: JobOperation::of(&values),
                success: job::success(&values),
                message: job::error_message(&values).map(str::to_owned),
            }
        };
    VIR_DOMAIN_EVENT_ID_MIGRATION_ITERATION: migration_iteration(domain, iteration: c_int) =>
        Event::MigrationIteration { domain, iteration };
}

/// `virConnectCloseFunc`.
pub(super) unsafe extern "C" fn closed(_: sys::virConnectPtr, reason: c_int, opaque: *mut c_void) {
    let reason = CloseReason::from_raw(reason);
    // SAFETY: libvirt passes the `opaque` of the registration, which it releases after this call.
    unsafe { send(opaque, Event::Closed { reason }) }
}
