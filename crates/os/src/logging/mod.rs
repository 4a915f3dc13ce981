//! The log: one JSON object a line on stderr, with KubeVirt's keys in alphabetical order.
//!
//! `tracing` is the interface. Levels are KubeVirt's verbosities: `info!` is 2 (the default),
//! `debug!` is 4, `trace!` is 6. An error goes in the field `reason`; an object's `kind`, `name`,
//! `namespace` and `uid` are fields of these names. The log's lines from libvirt and QEMU come in
//! through [`foreign`].

pub mod foreign;
mod line;
mod queue;

use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

pub use line::LogLine;
use queue::Queue;

pub const DEFAULT_VERBOSITY: u8 = 2;

static COMPONENT: OnceLock<&'static str> = OnceLock::new();
static VMI: OnceLock<LoggedVmi> = OnceLock::new();
static VERBOSITY: AtomicU8 = AtomicU8::new(DEFAULT_VERBOSITY);
/// Keeps lines whole: stderr itself is not locked across writes of other libraries, but ours go out
/// in one piece.
static OUT: Mutex<()> = Mutex::new(());

static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();
/// How long the end of a process, or a panic, waits for its last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts the log of this process. `component` is its name in every line. A second call changes
/// nothing.
pub fn init(component: &'static str) {
    if COMPONENT.set(component).is_ok() {
        let subscriber = tracing_subscriber::registry().with(Json);
        // It fails only when there is one already, as in tests.
        drop(tracing::subscriber::set_global_default(subscriber));
        std::panic::set_hook(Box::new(|panic| {
            write_in_any_case(&LogLine::of_panic(panic));
            flush();
        }));
    }
}

/// From now on no line waits for a reader of the log. The process calls [`flush`] before it ends.
pub fn queue_lines() {
    match Queue::start(std::io::stderr()) {
        Ok(queue) => drop(QUEUE.set(queue)),
        Err(error) => tracing::warn!(reason = %error, "Lines of the log wait until they are read"),
    }
}

/// Waits for the lines that are queued, a second at most. Returns whether all are written.
pub fn flush() -> bool {
    QUEUE.get().is_none_or(|queue| queue.flush(FLUSH_TIMEOUT))
}

/// The VMI that this process serves. Lines about it carry `kind`, `name`, `namespace` and `uid`, as
/// in the reference, where the kind is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedVmi {
    pub name: String,
    pub namespace: String,
    pub uid: String,
}

/// Where lines come from that are about the VMI: modules, by the beginning of their path.
const ABOUT_THE_VMI: [&str; 4] = ["virt_launcher::launcher", "convert", "hooks", "pod"];

/// Names the VMI of all further lines. A second call changes nothing.
pub fn set_vmi(vmi: LoggedVmi) {
    drop(VMI.set(vmi));
}

/// The VMI that a line from `target`, a module's path, is about.
fn vmi_of(target: &str) -> Option<&'static LoggedVmi> {
    let is_below = |module: &str| {
        let rest = target.strip_prefix(module);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    if ABOUT_THE_VMI.into_iter().any(is_below) {
        VMI.get()
    } else {
        None
    }
}

/// Sets KubeVirt's verbosity (`-v`, `VIRT_LAUNCHER_LOG_VERBOSITY`).
pub fn set_verbosity(verbosity: u8) {
    VERBOSITY.store(verbosity, Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

/// Where a pod's programs have the verbosity of the VMI's label `logVerbosity` from; it counts more
/// than `-v`.
pub const VERBOSITY_VARIABLE: &str = "VIRT_LAUNCHER_LOG_VERBOSITY";

/// Sets the verbosity to what [`VERBOSITY_VARIABLE`] says, and logs that in the reference's words.
pub fn set_verbosity_of_label(text: &str) {
    let number = text
        .trim()
        .parse()
        .ok()
        .and_then(|number: i64| u8::try_from(number.min(u8::MAX.into())).ok());
    match number {
        Some(verbosity) => {
            set_verbosity(verbosity);
            tracing::info!("set log verbosity to {verbosity}");
        }
        None => tracing::warn!(
            "failed to set log verbosity. The value of logVerbosity label should be an integer, got {text} instead."
        ),
    }
}

pub fn verbosity() -> u8 {
    VERBOSITY.load(Ordering::Relaxed)
}

/// The last line of a process that cannot go on. Kubernetes shows the last lines of the log as the
/// container's termination message, so nothing must come after it.
pub fn fatal(message: &str) {
    write_in_any_case(&LogLine::now("fatal").with("msg", message));
}

/// Limit of an error's text, in the log and for others, in bytes: a sidecar's own message has 4,096
/// characters. A text of a VMI or manifest may be as long as the document.
const MAX_ERROR_BYTES: usize = 8 << 10;

/// An error's text without its middle, where it is long: the beginning names the field, the end
/// says what is expected.
#[must_use]
pub fn cut(mut text: String) -> String {
    if text.len() > MAX_ERROR_BYTES {
        let begin = text.floor_char_boundary(MAX_ERROR_BYTES * 3 / 4);
        let end = text.ceil_char_boundary(text.len() - MAX_ERROR_BYTES / 4);
        text.replace_range(begin..end, "…");
    }
    text
}

/// An error with all its causes on one line, outermost first; each message leaves out what its
/// source says. It is [`cut`].
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some libraries repeat their source.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    cut(text)
}

fn component() -> &'static str {
    COMPONENT.get().copied().unwrap_or("virt-launcher")
}

fn write(line: &LogLine) {
    put(line, Queue::push);
}

/// Writes one of the last lines of a process.
fn write_in_any_case(line: &LogLine) {
    put(line, Queue::push_in_any_case);
}

/// Writes one line. That stderr is closed is nothing that could be reported.
fn put(line: &LogLine, push: fn(&Queue, String)) {
    let text = line.render(component());
    if let Some(queue) = QUEUE.get() {
        return push(queue, text);
    }
    let _whole = OUT.lock();
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The crates of this workspace: KubeVirt's verbosity is for their lines.
const OUR_CRATES: [&str; 14] = [
    "api",
    "cel_evaluator",
    "client",
    "convert",
    "domain",
    "hooks",
    "launcherctl",
    "libvirt",
    "os",
    "pod",
    "pod_tools",
    "terminal",
    "tools",
    "virt_launcher",
];

struct Json;

impl<S: Subscriber> Layer<S> for Json {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        // Libraries speak up from warnings on; their details are not KubeVirt's verbosity.
        let origin = metadata.target().split("::").next().unwrap_or_default();
        let ours = OUR_CRATES.contains(&origin);
        shown(*metadata.level(), ours, verbosity())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::from_level(match verbosity() {
            0..=3 => Level::INFO,
            4..=5 => Level::DEBUG,
            _ => Level::TRACE,
        }))
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let line = LogLine::of(event);
        let line = match vmi_of(event.metadata().target()) {
            Some(vmi) => line.about(vmi),
            None => line,
        };
        write(&line);
    }
}

fn shown(level: Level, ours: bool, verbosity: u8) -> bool {
    match level {
        Level::ERROR | Level::WARN => true,
        _ if !ours => false,
        Level::INFO => verbosity >= 2,
        Level::DEBUG => verbosity >= 4,
        Level::TRACE => verbosity >= 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_error_keeps_its_beginning_and_its_end() {
        let error = std::io::Error::other(format!("field: {} is too long", "é".repeat(100_000)));
        let text = chain(&error);
        assert!(text.starts_with("field: é") && text.ends_with("é is too long"));
        assert!((8_000..8_300).contains(&text.len()), "{}", text.len());
    }

    #[test]
    fn lines_of_the_domain_manager_are_about_the_vmi() {
        set_vmi(LoggedVmi {
            name: "vm1".to_owned(),
            namespace: "ns1".to_owned(),
            uid: "u-1".to_owned(),
        });
        for target in [
            "virt_launcher::launcher::start",
            "pod",
            "hooks::client",
            "pod::network::servers",
        ] {
            assert!(vmi_of(target).is_some(), "{target}");
        }
        for target in [
            "virt_launcher::supervisor::start",
            "podman",
            "virt_launcher",
        ] {
            assert!(vmi_of(target).is_none(), "{target}");
        }
    }

    #[test]
    fn verbosity_2_shows_info_and_worse() {
        assert!(
            shown(Level::INFO, true, 2)
                && shown(Level::WARN, true, 2)
                && shown(Level::ERROR, true, 2)
        );
        assert!(!shown(Level::DEBUG, true, 2) && !shown(Level::TRACE, true, 2));
    }

    #[test]
    fn verbosity_0_shows_warnings_and_errors_only() {
        assert!(!shown(Level::INFO, true, 0) && shown(Level::WARN, true, 0));
    }

    #[test]
    fn each_crate_of_the_workspace_is_ours() {
        let crates = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
        for folder in crates {
            let name = folder.unwrap().file_name().into_string().unwrap();
            let name = name.replace('-', "_");
            assert!(OUR_CRATES.contains(&name.as_str()), "{name}");
        }
    }

    #[test]
    fn libraries_are_heard_from_warnings_on() {
        assert!(!shown(Level::INFO, false, 9) && shown(Level::WARN, false, 0));
    }
}
