//! `sidecar-shim`: turns any program or script into a hook sidecar. Flags, files and log texts are
//! those of KubeVirt's shim, so that this one can replace it in images.
//!
//! For each call from the launcher it runs `onDefineDomain` or `preCloudInitIso` from `$PATH`:
//! arguments in, standard output as the answer, standard error to the log.

mod program;
mod service;

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};
use tokio::net::UnixListener;
use tokio::sync::Notify;

use api::pod_paths::HOOKS_DIR;
use hooks::Version;
use os::process::adopt_orphans;
use os::signals::EndSignals;

const USAGE: &str = "usage: sidecar-shim --version v1alpha1|v1alpha2|v1alpha3 [--socket-dir DIR]

Serves hook calls on a socket in /var/run/kubevirt-hooks (or DIR), and runs for each call
  onDefineDomain  --vmi JSON --domain XML        which prints the changed domain
  preCloudInitIso --vmi JSON --cloud-init JSON   which prints the changed cloud-init data
from $PATH.";

/// Limit for calls in progress to end.
const LAST_CALLS_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the shim fails.
#[derive(Debug, thiserror::Error)]
enum ShimError {
    #[error("--version is missing; it is one of v1alpha1, v1alpha2, v1alpha3")]
    NoVersion,
    #[error("--version {0:?} is not known; it is one of v1alpha1, v1alpha2, v1alpha3")]
    OtherVersion(String),
    #[error("no socket can be made in {}; is the directory shared with the launcher?", dir.display())]
    Socket { dir: PathBuf, source: io::Error },
    #[error("the service failed")]
    Serve(#[source] tonic::transport::Error),
    #[error("signals cannot be received")]
    Signals(#[source] io::Error),
}

#[derive(Debug, PartialEq)]
enum Command {
    Help,
    /// The version is checked later: pflag's flag errors end with another status.
    Serve {
        version: String,
        dir: PathBuf,
    },
}

/// Runs until a signal or the launcher's Shutdown. Exit status 0 then, 1 if it cannot serve, 2 for
/// invalid arguments.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    os::logging::init("shim-sidecar");
    let command = match parse(arguments) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let served = match command {
        Command::Help => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Command::Serve { version, dir } => {
            checked_version(&version).and_then(|version| run(version, &dir))
        }
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(reason = %os::logging::chain(&error), "sidecar-shim cannot serve");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: Vec<OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = Parser::from_args(arguments);
    let (mut version, mut dir) = (String::new(), PathBuf::from(HOOKS_DIR));
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("version") => version = parser.value()?.string()?,
            Arg::Long("socket-dir") => dir = parser.value()?.into(),
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help),
            // Ignores arguments that are not flags, as in KubeVirt.
            Arg::Value(_) => {}
            other => return Err(other.unexpected()),
        }
    }
    Ok(Command::Serve { version, dir })
}

fn checked_version(version: &str) -> Result<Version, ShimError> {
    match version {
        "" => Err(ShimError::NoVersion),
        _ => Version::from_name(version).ok_or_else(|| ShimError::OtherVersion(version.to_owned())),
    }
}

fn run(version: Version, dir: &Path) -> Result<(), ShimError> {
    crate::block_on(serve(version, dir)).map_err(ShimError::Signals)?
}

async fn serve(version: Version, dir: &Path) -> Result<(), ShimError> {
    // A container's process 1 gets orphans, and whoever kills the shim finds them. Elsewhere they
    // would go to another process.
    let _ = adopt_orphans();
    let shutdown = Arc::new(Notify::new());
    // Before the socket exists, which a signal would leave behind.
    let stop = stopped(Arc::clone(&shutdown)).map_err(ShimError::Signals)?;
    let (socket, listener) = listen(dir).map_err(|source| ShimError::Socket {
        dir: dir.to_path_buf(),
        source,
    })?;
    tracing::info!(
        "shim is now exposing its services on socket {}",
        socket.display()
    );
    let served = service::serve(listener, version, shutdown, stop, LAST_CALLS_TIMEOUT).await;
    // It may be gone already.
    let _ = std::fs::remove_file(&socket);
    served.map_err(ShimError::Serve)
}

/// Makes its own socket, as several shims may share the directory.
fn listen(dir: &Path) -> io::Result<(PathBuf, UnixListener)> {
    let mut tries = 0;
    loop {
        let path = dir.join(format!("shim-{}.sock", random_name()));
        match UnixListener::bind(&path) {
            Ok(listener) => return Ok((path, listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < 10 => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Four characters, of those in Kubernetes names.
fn random_name() -> String {
    const CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    // The hasher's keys come from the system's random source.
    let mut bits = RandomState::new().build_hasher().finish();
    let mut pick = || {
        let count = CHARACTERS.len() as u64;
        let at = usize::try_from(bits % count).unwrap_or_default();
        bits /= count;
        char::from(CHARACTERS.get(at).copied().unwrap_or(b'a'))
    };
    std::iter::repeat_with(&mut pick).take(4).collect()
}

/// Resolves at the first signal that asks to stop, or after Shutdown.
fn stopped(shutdown: Arc<Notify>) -> io::Result<impl Future<Output = ()>> {
    let mut signals = EndSignals::listen()?;
    Ok(async move {
        tokio::select! {
            name = signals.next() => tracing::info!("sidecar-shim received signal: {name}"),
            () = shutdown.notified() => tracing::info!("The launcher has called Shutdown: ending"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(arguments: &[&str]) -> Result<Command, String> {
        parse(arguments.iter().map(Into::into).collect()).map_err(|error| error.to_string())
    }

    fn serve(version: &str, dir: &str) -> Command {
        Command::Serve {
            version: version.into(),
            dir: dir.into(),
        }
    }

    #[test]
    fn both_spellings_of_a_flag_are_taken() {
        assert_eq!(
            command(&["--version", "v1alpha2"]).unwrap(),
            serve("v1alpha2", HOOKS_DIR)
        );
        assert_eq!(
            command(&["--version=v1alpha2", "--socket-dir=/x", "extra"]).unwrap(),
            serve("v1alpha2", "/x")
        );
    }

    #[test]
    fn an_unknown_flag_is_named() {
        assert!(
            command(&["--versions", "x"])
                .unwrap_err()
                .contains("--versions")
        );
    }

    #[test]
    fn a_version_is_mandatory_and_must_be_known() {
        assert!(matches!(checked_version(""), Err(ShimError::NoVersion)));
        assert!(
            checked_version("v1")
                .unwrap_err()
                .to_string()
                .contains("v1alpha3")
        );
        assert_eq!(checked_version("v1alpha1").unwrap(), Version::V1alpha1);
    }

    #[test]
    fn names_are_four_characters() {
        assert!(
            (0..50)
                .map(|_| random_name())
                .all(|name| name.len() == 4 && name.is_ascii())
        );
    }
}
