//! Ends an orphan QEMU, whose launcher died or was killed.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{MonitorError, reap};
use os::procfs::{children, command_line};
use os::signals::SignalQueue;

/// Asks QEMU to exit and waits while it writes out the guest's data. QEMU is a child of this
/// process from its start, as libvirt's daemon, which may still run, detaches it.
///
/// # Errors
/// It has not exited afterwards.
// D-sup-10 (docs/differences.md).
pub fn end(signals: &SignalQueue, grace: Duration) -> Result<(), MonitorError> {
    let found = qemus();
    if found.is_empty() {
        return Ok(());
    }
    tracing::info!("Killing QEMU gracefully.");
    signal(&found, Signal::TERM);
    let deadline = os::time::deadline(grace).into_std();
    loop {
        reap();
        let Some(pid) = qemus().into_iter().find(|pid| found.contains(pid)) else {
            return Ok(());
        };
        if signals
            .next(Some(deadline))
            .map_err(MonitorError::Signals)?
            .is_none()
        {
            signal(&qemus(), Signal::KILL);
            return Err(MonitorError::QemuStays {
                pid: pid.as_raw_nonzero().get(),
                seconds: grace.as_secs(),
            });
        }
    }
}

// D-sup-9 (docs/differences.md).
fn qemus() -> Vec<Pid> {
    children()
        .into_iter()
        .filter(|pid| is_qemu(&command_line(*pid)))
        .collect()
}

/// Distributions name its executable differently.
fn is_qemu(command: &str) -> bool {
    command.contains("qemu-system") || command.contains("qemu-kvm")
}

fn signal(pids: &[Pid], signal: Signal) {
    for pid in pids {
        // It may have exited meanwhile.
        let _ = kill_process(*pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_is_known_by_the_names_that_distributions_give_it() {
        assert!(is_qemu(
            "/usr/bin/qemu-system-x86_64 -name guest=default_vm"
        ));
        assert!(is_qemu("/usr/libexec/qemu-kvm -name guest=default_vm"));
        assert!(!is_qemu("/usr/bin/swtpm socket"));
    }
}
