//! The entry point of the pod: start order, signals, the grace period, the end.
//!
//! | File | Its part |
//! |---|---|
//! | `environment` | what the pod is told, besides the config (`pod::flags`) |
//! | `start` | the life of the pod, in order |
//! | `backend`, `daemons`, `layout`, `libvirt_conf` | libvirt, as it is run here |
//! | `running`, `process` | a daemon's process, started or found; any process that is no child |
//! | `link` | the connection to it, kept |
//! | `qemu`, `qemu_log` | the process that matters, and what it says |
//! | `orphans` | processes that lost their parents |
//! | `stop`, `guest`, `signals` | the end |
//! | `standalone` | a VMI from the environment |

mod backend;
mod daemons;
mod environment;
mod guest;
mod layout;
mod libvirt_conf;
mod link;
mod orphans;
mod process;
mod qemu;
mod qemu_log;
mod running;
mod signals;
mod standalone;
mod start;
mod stop;

use std::io;
use std::process::ExitCode;

use tokio::net::unix::pipe;
use tokio::runtime::{Builder, Runtime};

use environment::Environment;
use os::logging;
use pod::Config;

/// Exit status of a launcher that can't go on; the reference's panics have it too.
pub const FAILED: u8 = 2;

/// libvirt's calls that may run at the same time, each on a thread: reads, one change, one kill, and the pod's files.
const BLOCKING_THREADS: usize = 12;
/// The embedded driver runs on these, with all of libvirt below it.
const STACK: usize = 1024 * 1024;

/// Runs the launcher to its end. The last line of the log is why it ended, if it failed.
pub fn run(config: Config) -> ExitCode {
    let environment = Environment::of_process();
    let libvirt_log = libvirt::divert_log();
    set_verbosity(&config, &environment);
    tracing::info!("virt-launcher {}", os::version::get());
    tracing::info!("Hypervisor set to {}", config.hypervisor);
    match runtime() {
        Ok(runtime) => {
            follow(libvirt_log, &runtime);
            let result = runtime.block_on(start::live(config, environment));
            // What still hangs in libvirt does not keep the pod.
            runtime.shutdown_background();
            orphans::end_probes();
            match result {
                Ok(()) => {
                    tracing::info!("Exiting...");
                    ExitCode::SUCCESS
                }
                Err(error) => fail(&error),
            }
        }
        Err(error) => fail(&error),
    }
}

/// One thread for all that only waits, and a few for what blocks: memory is counted in every pod.
fn runtime() -> io::Result<Runtime> {
    libvirt::keep_small();
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_stack_size(STACK)
        .build()
}

/// Turns what libvirt says in this process into lines of our log.
fn follow(libvirt_log: io::Result<Option<io::PipeReader>>, runtime: &Runtime) {
    let _here = runtime.enter();
    let lines = libvirt_log.and_then(|pipe| {
        pipe.map(|pipe| pipe::Receiver::from_owned_fd(pipe.into()))
            .transpose()
    });
    match lines {
        Ok(pipe) => drop(runtime.spawn(daemons::log_lines(pipe, logging::foreign::own_libvirt))),
        Err(error) => tracing::warn!(reason = %error, "libvirt's own log is not part of this one"),
    }
}

fn set_verbosity(config: &Config, environment: &Environment) {
    logging::set_verbosity(config.verbosity);
    if let Some(text) = &environment.verbosity {
        logging::set_verbosity_of_label(text);
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    logging::fatal(&logging::chain(error));
    ExitCode::from(FAILED)
}
