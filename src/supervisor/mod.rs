//! The entry point of the pod: start order, signals, the grace period, the end.
//!
//! | File | Its part |
//! |---|---|
//! | `environment` | the pod's environment variables; the flags are in `pod::flags` |
//! | `start`, `start_error`, `root_lock` | from the command line to ready, and the end |
//! | `command_socket` | virt-handler's socket |
//! | `running` | from ready to the end of QEMU |
//! | `backend`, `layout`, `libvirt_conf` | libvirt, as this launcher runs it: its daemons or the driver in this process |
//! | `daemons`, `daemon_process`, `daemon_error` | virtqemud (or libvirtd) and virtlogd: started, adopted, restarted |
//! | `libvirt_hook` | the hook by which a migration target changes the domain that arrives |
//! | `libvirt_connection` | the connection to libvirt, and a new one when it is lost |
//! | `qemu_log`, `console_log` | the QEMU process's log, and the limit of its console's log |
//! | `metrics` | the metrics of the processes, and the socket for all |
//! | `orphans` | reaping processes that have lost their parents |
//! | `stop`, `guest` | the end |
//! | `standalone` | a VMI from the environment |

mod backend;
mod command_socket;
mod console_log;
mod daemon_error;
mod daemon_process;
mod daemons;
mod environment;
mod guest;
mod layout;
mod libvirt_conf;
mod libvirt_connection;
mod libvirt_hook;
mod metrics;
mod orphans;
mod qemu_log;
mod root_lock;
mod running;
mod standalone;
mod start;
mod start_error;
mod stop;

use std::io::{self, PipeReader};
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::runtime::{Builder, Runtime};

use environment::Environment;
use os::{lines, logging};
use pod::LauncherFlags;

/// Exit status (exit code) of a launcher that cannot go on; the reference's panics use it too.
pub const FAILED: u8 = 2;

/// Limit of concurrent blocking calls, each on a thread. As many may hang: two reads, a change, an
/// immediate request, a kill, two calls of the agent, a job's four, and a copy of the metadata.
/// Others need a slot of `LibvirtDomain`, so that Kill finds a thread.
const MAX_BLOCKING_THREADS: usize = 12;
/// Size of a thread's stack, in bytes. The embedded driver runs on these threads, with all of
/// libvirt below it.
const THREAD_STACK: usize = 1024 * 1024;

/// Runs the launcher to its end. If it fails, the last log line says why.
///
/// The process exits here instead of returning from `main`: libvirt's event loop and hanging
/// libvirt calls still run on other threads. exit(3)'s cleanup of libvirt and its libraries would
/// run beside them, and dropping a value, such as a connection to a daemon that hangs, could block.
// D-sup-18 (docs/differences.md).
pub fn run(flags: LauncherFlags) -> ! {
    let status = run_to_end(flags);
    logging::flush();
    libvirt::exit_at_once(status)
}

fn run_to_end(flags: LauncherFlags) -> u8 {
    let environment = Environment::of_process();
    let libvirt_log = libvirt::divert_log();
    libvirt::keep_small();
    // Not earlier: it starts a thread, and `divert_log` needs a process with one thread.
    logging::queue_lines();
    set_verbosity(&flags, &environment);
    tracing::info!("virt-launcher {}", os::version::get());
    tracing::info!("Hypervisor set to {}", flags.hypervisor);
    match runtime() {
        Ok(runtime) => {
            copy_libvirt_log(libvirt_log, &runtime);
            let result = runtime.block_on(async {
                let result = start::run_pod(flags, environment).await;
                orphans::kill_children().await;
                result
            });
            // A call that hangs in libvirt must not keep the pod.
            std::mem::forget(runtime);
            match result {
                Ok(()) => {
                    tracing::info!("Exiting...");
                    0
                }
                Err(error) => fail(&error),
            }
        }
        Err(error) => fail(&error),
    }
}

/// One thread for all that waits, and a few for blocking calls, to save memory in every pod. Code
/// relies on the one: look for "await" in comments, and at `Vm::subscribe` and
/// `Vm::metadata_changes`. The blocking threads stay: in a pod at its process limit no new thread
/// could start, and calls, Kill among them, would wait for a thread forever.
// D-sup-19 (docs/differences.md).
fn runtime() -> io::Result<Runtime> {
    os::serving_thread::mark();
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_keep_alive(Duration::MAX)
        .thread_stack_size(THREAD_STACK)
        .build()
}

/// Copies the log that libvirt writes in this process to the launcher's.
fn copy_libvirt_log(log: Result<Option<PipeReader>, libvirt::DivertError>, runtime: &Runtime) {
    let _here = runtime.enter();
    let lines = log.and_then(|pipe| {
        let receiver = pipe.map(|pipe| pipe::Receiver::from_owned_fd(pipe.into()));
        Ok(receiver.transpose()?)
    });
    match lines {
        Ok(Some(pipe)) => drop(runtime.spawn(lines::for_each(pipe, logging::foreign::own_libvirt))),
        Ok(None) => {}
        Err(error) => tracing::warn!(reason = %error, "libvirt's own log is not part of this one"),
    }
}

fn set_verbosity(flags: &LauncherFlags, environment: &Environment) {
    logging::set_verbosity(flags.verbosity);
    if let Some(text) = &environment.verbosity {
        logging::set_verbosity_of_label(text);
    }
}

fn fail(error: &dyn std::error::Error) -> u8 {
    logging::fatal(&logging::chain(error));
    FAILED
}
