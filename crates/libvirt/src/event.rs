//! What libvirt reports by itself, and the C functions that it calls for it.

use std::ffi::{c_char, c_int, c_longlong, c_ulonglong, c_void};
use std::sync::{Arc, Weak};

use virt::sys;

use super::c;
use super::job::{self, JobOperation};
use super::typed_params;

/// Something that happened to a domain, or to the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "`domain` is always the domain's name, `alias` always the device's libvirt alias"
)]
pub enum Event {
    /// Defined, started, paused, stopped, … `detail` is libvirt's, its meaning depends on `event`.
    Lifecycle {
        domain: String,
        event: LifecycleEvent,
        detail: i32,
    },
    /// The guest rebooted by itself.
    Reboot { domain: String },
    /// The guest agent came or went.
    AgentLifecycle {
        domain: String,
        state: AgentState,
        reason: i32,
    },
    /// A device was plugged.
    DeviceAdded { domain: String, alias: String },
    /// The guest has let a device go.
    DeviceRemoved { domain: String, alias: String },
    /// The guest has refused to let a device go.
    DeviceRemovalFailed { domain: String, alias: String },
    /// The balloon has another size, in KiB.
    BalloonChange { domain: String, actual_kib: u64 },
    /// The guest has taken memory of a memory device, or given it back.
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
    /// A migration, dump or backup is over. `success` and `message` (why not) are none where libvirt does not say.
    JobCompleted {
        domain: String,
        operation: JobOperation,
        success: Option<bool>,
        message: Option<String>,
    },
    /// A migration begins to look through the guest's memory once more.
    MigrationIteration { domain: String, iteration: i32 },
    /// A block job changed. `disk` is the target; `kind` and `status` are `virDomainBlockJobType` and
    /// `virConnectDomainEventBlockJobStatus`.
    BlockJob {
        domain: String,
        disk: String,
        kind: i32,
        status: i32,
    },
    /// The guest's clock is now this many seconds off UTC.
    RtcChange { domain: String, offset: i64 },
    /// The connection is closed (`virConnectCloseReason`): open another one.
    Closed { reason: i32 },
}

impl Event {
    /// The domain's name; nothing for an event of the connection.
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
            | Self::MigrationIteration { domain, .. }
            | Self::BlockJob { domain, .. }
            | Self::RtcChange { domain, .. } => Some(domain),
            Self::Closed { .. } => None,
        }
    }
}

/// `virDomainEventType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in libvirt/libvirt-domain.h")]
pub enum LifecycleEvent {
    Defined,
    Undefined,
    Started,
    Suspended,
    Resumed,
    Stopped,
    Shutdown,
    PmSuspended,
    Crashed,
    /// One that a newer libvirt adds.
    Other(i32),
}

impl LifecycleEvent {
    fn from_raw(raw: c_int) -> Self {
        match raw {
            0 => Self::Defined,
            1 => Self::Undefined,
            2 => Self::Started,
            3 => Self::Suspended,
            4 => Self::Resumed,
            5 => Self::Stopped,
            6 => Self::Shutdown,
            7 => Self::PmSuspended,
            8 => Self::Crashed,
            other => Self::Other(other),
        }
    }
}

/// `virConnectDomainEventAgentLifecycleState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "one word each")]
pub enum AgentState {
    Connected,
    Disconnected,
    Other(i32),
}

/// What QEMU did about a failed request (`virDomainEventIOErrorAction`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoAction {
    /// Ignored it.
    None,
    /// Paused the domain.
    Pause,
    /// Reported to the guest.
    Report,
    /// One that a newer libvirt adds.
    Other(i32),
}

/// Where events go. Runs on libvirt's event thread: it must not block and not call libvirt.
pub(super) type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// A C callback without its type; the type that belongs to it is fixed by the event's id.
pub(super) type Callback = unsafe extern "C" fn(sys::virConnectPtr, sys::virDomainPtr, *mut c_void);

/// Every event that the launcher listens to: its id, and the function of the type that this id asks for.
pub(super) const LISTENED_EVENTS: [(sys::virDomainEventID, *const ()); 14] = [
    (sys::VIR_DOMAIN_EVENT_ID_LIFECYCLE, lifecycle as *const ()),
    (sys::VIR_DOMAIN_EVENT_ID_REBOOT, reboot as *const ()),
    (sys::VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE, agent as *const ()),
    (
        sys::VIR_DOMAIN_EVENT_ID_DEVICE_ADDED,
        device_added as *const (),
    ),
    (
        sys::VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED,
        device_removed as *const (),
    ),
    (
        sys::VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED,
        device_removal_failed as *const (),
    ),
    (
        sys::VIR_DOMAIN_EVENT_ID_MEMORY_DEVICE_SIZE_CHANGE,
        memory_device_size as *const (),
    ),
    (
        sys::VIR_DOMAIN_EVENT_ID_BALLOON_CHANGE,
        balloon as *const (),
    ),
    (
        sys::VIR_DOMAIN_EVENT_ID_IO_ERROR_REASON,
        io_error as *const (),
    ),
    (sys::VIR_DOMAIN_EVENT_ID_TRAY_CHANGE, tray as *const ()),
    (
        sys::VIR_DOMAIN_EVENT_ID_JOB_COMPLETED,
        job_completed as *const (),
    ),
    (
        sys::VIR_DOMAIN_EVENT_ID_MIGRATION_ITERATION,
        migration_iteration as *const (),
    ),
    (sys::VIR_DOMAIN_EVENT_ID_BLOCK_JOB_2, block_job as *const ()),
    (sys::VIR_DOMAIN_EVENT_ID_RTC_CHANGE, rtc as *const ()),
];

/// The sink as C keeps it: `opaque` of each registration, given back to [`release`] once.
///
/// It is a weak one. Events end when the registration drops the sink, even if libvirt never releases `opaque`, as some
/// drivers don't for a close callback that they ignore.
pub(super) fn opaque(sink: &Sink) -> *mut c_void {
    Box::into_raw(Box::new(Arc::downgrade(sink))).cast()
}

type Kept = Weak<dyn Fn(Event) + Send + Sync>;

/// `virFreeCallback` of what [`opaque`] made.
pub(super) unsafe extern "C" fn release(opaque: *mut c_void) {
    // SAFETY: libvirt calls this once, after the last callback, with the pointer that `opaque` made.
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

/// The name of a domain that libvirt lends to a callback.
///
/// # Safety
/// `domain` is the pointer that libvirt passed, and the callback has not returned.
unsafe fn name(domain: sys::virDomainPtr) -> String {
    // SAFETY: the caller's promise; the name belongs to the domain and is copied at once.
    unsafe { c::copy(sys::virDomainGetName(domain)) }
}

// SAFETY of the functions below: libvirt calls each with a domain and strings that live for the call, and with the
// `opaque` of its registration, which it releases only after the last call.

unsafe extern "C" fn lifecycle(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    event: c_int,
    detail: c_int,
    opaque: *mut c_void,
) -> c_int {
    // SAFETY: see above.
    unsafe {
        let event = LifecycleEvent::from_raw(event);
        send(
            opaque,
            Event::Lifecycle {
                domain: name(domain),
                event,
                detail,
            },
        );
    }
    0
}

unsafe extern "C" fn reboot(_: sys::virConnectPtr, domain: sys::virDomainPtr, opaque: *mut c_void) {
    // SAFETY: see above.
    unsafe {
        send(
            opaque,
            Event::Reboot {
                domain: name(domain),
            },
        )
    }
}

unsafe extern "C" fn agent(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    state: c_int,
    reason: c_int,
    opaque: *mut c_void,
) {
    let state = match state {
        1 => AgentState::Connected,
        2 => AgentState::Disconnected,
        other => AgentState::Other(other),
    };
    // SAFETY: see above.
    unsafe {
        send(
            opaque,
            Event::AgentLifecycle {
                domain: name(domain),
                state,
                reason,
            },
        )
    }
}

unsafe extern "C" fn device_added(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    alias: *const c_char,
    opaque: *mut c_void,
) {
    // SAFETY: see above.
    unsafe {
        send(
            opaque,
            Event::DeviceAdded {
                domain: name(domain),
                alias: c::copy(alias),
            },
        )
    }
}

unsafe extern "C" fn device_removed(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    alias: *const c_char,
    opaque: *mut c_void,
) {
    // SAFETY: see above.
    unsafe {
        send(
            opaque,
            Event::DeviceRemoved {
                domain: name(domain),
                alias: c::copy(alias),
            },
        )
    }
}

unsafe extern "C" fn device_removal_failed(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    alias: *const c_char,
    opaque: *mut c_void,
) {
    // SAFETY: see above.
    unsafe {
        send(
            opaque,
            Event::DeviceRemovalFailed {
                domain: name(domain),
                alias: c::copy(alias),
            },
        )
    }
}

unsafe extern "C" fn balloon(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    actual: c_ulonglong,
    opaque: *mut c_void,
) {
    // SAFETY: see above.
    unsafe {
        send(
            opaque,
            Event::BalloonChange {
                domain: name(domain),
                actual_kib: actual,
            },
        )
    }
}

unsafe extern "C" fn memory_device_size(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    alias: *const c_char,
    bytes: c_ulonglong,
    opaque: *mut c_void,
) {
    // SAFETY: see above.
    unsafe {
        send(
            opaque,
            Event::MemoryDeviceSize {
                domain: name(domain),
                alias: c::copy(alias),
                bytes,
            },
        )
    }
}

unsafe extern "C" fn io_error(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    path: *const c_char,
    alias: *const c_char,
    action: c_int,
    reason: *const c_char,
    opaque: *mut c_void,
) {
    let action = match action {
        0 => IoAction::None,
        1 => IoAction::Pause,
        2 => IoAction::Report,
        other => IoAction::Other(other),
    };
    // SAFETY: see above.
    unsafe {
        let (domain, path, alias, reason) =
            (name(domain), c::copy(path), c::copy(alias), c::copy(reason));
        send(
            opaque,
            Event::IoError {
                domain,
                path,
                alias,
                action,
                reason,
            },
        );
    }
}

unsafe extern "C" fn tray(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    alias: *const c_char,
    reason: c_int,
    opaque: *mut c_void,
) {
    // SAFETY: see above.
    unsafe {
        send(
            opaque,
            Event::TrayChange {
                domain: name(domain),
                alias: c::copy(alias),
                open: reason == 0,
            },
        )
    }
}

unsafe extern "C" fn job_completed(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    params: sys::virTypedParameterPtr,
    count: c_int,
    opaque: *mut c_void,
) {
    let values = match usize::try_from(count) {
        // SAFETY: libvirt lends a list of that many values for the call.
        Ok(count) if !params.is_null() => unsafe { typed_params::read(params, count) },
        _ => Vec::new(),
    };
    // SAFETY: see above.
    unsafe {
        send(
            opaque,
            Event::JobCompleted {
                domain: name(domain),
                operation: JobOperation::of(&values),
                success: job::success(&values),
                message: job::error_message(&values).map(str::to_owned),
            },
        )
    }
}

unsafe extern "C" fn migration_iteration(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    iteration: c_int,
    opaque: *mut c_void,
) {
    // SAFETY: see above.
    unsafe {
        send(
            opaque,
            Event::MigrationIteration {
                domain: name(domain),
                iteration,
            },
        )
    }
}

unsafe extern "C" fn block_job(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    disk: *const c_char,
    kind: c_int,
    status: c_int,
    opaque: *mut c_void,
) {
    // SAFETY: see above.
    unsafe {
        send(
            opaque,
            Event::BlockJob {
                domain: name(domain),
                disk: c::copy(disk),
                kind,
                status,
            },
        )
    }
}

unsafe extern "C" fn rtc(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    offset: c_longlong,
    opaque: *mut c_void,
) {
    // SAFETY: see above.
    unsafe {
        send(
            opaque,
            Event::RtcChange {
                domain: name(domain),
                offset,
            },
        )
    }
}

/// `virConnectCloseFunc`.
pub(super) unsafe extern "C" fn closed(_: sys::virConnectPtr, reason: c_int, opaque: *mut c_void) {
    // SAFETY: as above.
    unsafe { send(opaque, Event::Closed { reason }) }
}
