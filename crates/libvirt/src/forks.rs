//! The children that libvirt's driver forks off this process.
//!
//! Whoever ends this process must know when no child can come any more: a QEMU that only tells what
//! it can do would wait for ever for a driver that is gone.

use std::cell::UnsafeCell;
use std::io;
use std::sync::OnceLock;

/// Held by the thread that forks, while it does so; by [`forbid_forks`] for ever. C's mutex and not
/// Rust's, as one function locks it and another one unlocks it.
struct Forking(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is for all threads; it is only used by pthread_mutex_*(3), through a pointer.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

extern "C" fn lock() {
    // SAFETY: the mutex is initialised, and lives for ever.
    unsafe { libc::pthread_mutex_lock(FORKING.0.get()) };
}

extern "C" fn unlock() {
    // SAFETY: as in `lock`; fork(3) calls this on the thread that has locked it, or in the child,
    // on that thread's copy.
    unsafe { libc::pthread_mutex_unlock(FORKING.0.get()) };
}

/// Makes each fork(3) of this process one that [`forbid_forks`] can end. A second call does
/// nothing.
///
/// Not those of posix_spawn(3), with which Rust starts programs.
///
/// # Errors
/// If there is no memory left.
pub fn control_forks() -> io::Result<()> {
    static CONTROLLED: OnceLock<i32> = OnceLock::new();
    // SAFETY: the functions live for ever and do what fork(3) allows: lock before it, unlock after
    // it in both processes.
    let error = *CONTROLLED
        .get_or_init(|| unsafe { libc::pthread_atfork(Some(lock), Some(unlock), Some(unlock)) });
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// From now on a thread that calls fork(3) waits for the end of the process. For use at the end
/// only: there is no way back.
///
/// Returns false if a fork is in progress just now; then nothing has changed, and the caller asks
/// again.
#[must_use]
pub fn forbid_forks() -> bool {
    // SAFETY: as in `lock`. It is never unlocked.
    unsafe { libc::pthread_mutex_trylock(FORKING.0.get()) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::sync::mpsc::sync_channel;
    use std::thread;
    use std::time::Duration;

    /// Set in the process in which nothing can be forked any more.
    const CHILD: &str = "VIRT_LAUNCHER_TEST_WITHOUT_FORKS";

    /// Runs a program by fork(3), as libvirt does; std does so where something is to be done before
    /// exec(2).
    fn fork_and_run(program: &str) -> io::Result<bool> {
        let mut command = Command::new(program);
        // SAFETY: nothing is done there.
        unsafe { command.pre_exec(|| Ok(())) };
        Ok(command.spawn()?.wait()?.success())
    }

    #[test]
    fn no_thread_forks_once_it_is_forbidden() {
        if std::env::var_os(CHILD).is_none() {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args([
                    "--exact",
                    "forks::tests::no_thread_forks_once_it_is_forbidden",
                ])
                .env(CHILD, "1")
                .stdout(Stdio::null());
            assert!(command.spawn().unwrap().wait().unwrap().success());
            return;
        }
        control_forks().unwrap();
        control_forks().unwrap();
        assert!(fork_and_run("true").unwrap());
        assert!(fork_and_run("true").unwrap(), "the lock is given back");
        while !forbid_forks() {
            thread::yield_now();
        }
        let (about_to_fork, forks) = sync_channel(0);
        let (has_forked, forked) = sync_channel(1);
        thread::spawn(move || {
            about_to_fork.send(()).unwrap();
            has_forked.send(fork_and_run("true")).unwrap();
        });
        forks.recv().unwrap();
        assert!(forked.recv_timeout(Duration::from_millis(300)).is_err());
        // A thread that waits there keeps nobody from ending the process.
        crate::exit_at_once(0);
    }
}
