//! A hook sidecar on this machine, without its image: what `run --sidecar` and `hooks check` start.
//!
//! | Given | Started |
//! |---|---|
//! | a directory, such as an image's tree, with `onDefineDomain` or `preCloudInitIso` | `sidecar-shim`, which calls them |
//! | `PROGRAM ARGUMENTS…` with `{}` in an argument | the program, which serves gRPC on a socket in the directory `{}` |
//! | another program or script | `sidecar-shim`, which calls it as `onDefineDomain` |

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use tokio::process::Command;

use crate::files::FileError;
use hooks::Version;

/// The hook programs that the shim calls.
const HOOK_PROGRAMS: [&str; 2] = ["onDefineDomain", "preCloudInitIso"];
/// Their directories in an image's tree, or in a directory that has only them.
const PROGRAM_DIRS: [&str; 5] = ["", "usr/local/bin", "usr/bin", "bin", "usr/sbin"];
/// Stands for the socket's directory in an argument.
const SOCKET_DIR: &str = "{}";

#[derive(Debug, thiserror::Error)]
pub enum SidecarProgramError {
    #[error(transparent)]
    File(#[from] FileError),
    /// Nothing was given.
    #[error("the sidecar's program is empty")]
    Empty,
    /// The directory has no hook program.
    #[error(
        "{dir} has neither onDefineDomain nor preCloudInitIso (executable, in it or in its usr/bin or usr/local/bin); a sidecar that serves gRPC itself is given as a program with {{}} for the directory of its socket",
        dir = .0.display()
    )]
    NoHookProgram(PathBuf),
    /// The file cannot be run.
    #[error("{file}: not an executable file; chmod +x makes it one", file = .0.display())]
    NotExecutable(PathBuf),
    /// Extra arguments for a program that the shim calls.
    #[error(
        "{program} gets no arguments but those of its hook, so {extra:?} cannot be given to it; a program that serves gRPC itself has {{}} in an argument, for the directory of its socket"
    )]
    Arguments {
        program: String,
        /// The arguments after it.
        extra: String,
    },
}

/// How to start a sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// It serves gRPC itself.
    Server {
        program: PathBuf,
        arguments: Vec<String>,
    },
    /// The shim calls hook programs in this directory.
    Directory(PathBuf),
    /// The shim calls this program as `onDefineDomain`.
    Script(PathBuf),
}

/// A sidecar on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarProgram {
    kind: Kind,
    /// The shim's version.
    version: Version,
}

impl SidecarProgram {
    /// From a program or directory, with arguments.
    ///
    /// # Errors
    /// There is no such program, or the directory has nothing for a shim to call.
    pub fn new(words: &[String]) -> Result<Self, SidecarProgramError> {
        let (first, arguments) = words.split_first().ok_or(SidecarProgramError::Empty)?;
        let kind = if arguments.iter().any(|word| word.contains(SOCKET_DIR)) {
            Kind::Server {
                program: PathBuf::from(first),
                arguments: arguments.to_vec(),
            }
        } else {
            let path = Path::new(first);
            let path = path.canonicalize().map_err(FileError::on("find", path))?;
            if !arguments.is_empty() {
                return Err(SidecarProgramError::Arguments {
                    program: first.clone(),
                    extra: arguments.join(" "),
                });
            }
            if path.is_dir() {
                Kind::Directory(hook_programs(&path)?)
            } else if !is_executable(&path) {
                return Err(SidecarProgramError::NotExecutable(path));
            } else {
                Kind::Script(path)
            }
        };
        Ok(Self {
            kind,
            version: Version::V1alpha3,
        })
    }

    /// From one argument, split at spaces.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn parse(text: &str) -> Result<Self, SidecarProgramError> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Self::new(&words)
    }

    /// With a shim of this version; a sidecar without a shim has its own version.
    pub fn with_version(self, version: Version) -> Self {
        Self { version, ..self }
    }

    /// The command that serves on a socket in `socket_dir`. The directory `links` must live as long
    /// as the sidecar.
    ///
    /// # Errors
    /// Files for the shim cannot be made.
    pub fn command(&self, socket_dir: &Path, links: &Path) -> Result<Command, SidecarProgramError> {
        let programs = match &self.kind {
            Kind::Server { program, arguments } => {
                let dir = socket_dir.display().to_string();
                let mut command = Command::new(program);
                command.args(arguments.iter().map(|word| word.replace(SOCKET_DIR, &dir)));
                return Ok(command);
            }
            Kind::Directory(dir) => dir.clone(),
            Kind::Script(script) => {
                let link = links.join("onDefineDomain");
                let _ = fs::remove_file(&link);
                std::os::unix::fs::symlink(script, &link).map_err(FileError::on("make", &link))?;
                links.to_owned()
            }
        };
        let found =
            super::pod_tools::tool("sidecar-shim").map_err(FileError::on("find", "this program"));
        let mut command = Command::from(found?);
        command
            .args(["--version", self.version.name(), "--socket-dir"])
            .arg(socket_dir)
            .env("PATH", search_path(&programs));
        Ok(command)
    }
}

fn search_path(first: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(first.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(dirs).unwrap_or_else(|_| first.into())
}

fn hook_programs(dir: &Path) -> Result<PathBuf, SidecarProgramError> {
    let mut candidates = PROGRAM_DIRS.iter().map(|below| dir.join(below));
    let has_program = |dir: &PathBuf| {
        HOOK_PROGRAMS
            .iter()
            .any(|name| is_executable(&dir.join(name)))
    };
    candidates
        .find(has_program)
        .ok_or_else(|| SidecarProgramError::NoHookProgram(dir.to_owned()))
}

/// Whether this user may run the file.
pub fn is_executable(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn words(text: &str) -> Result<SidecarProgram, SidecarProgramError> {
        SidecarProgram::parse(text)
    }

    #[test]
    fn a_directory_an_image_a_script_and_a_server_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("usr/bin");
        fs::create_dir_all(&bin).unwrap();
        let shown = dir.path().display().to_string();
        assert!(matches!(
            words(&shown),
            Err(SidecarProgramError::NoHookProgram(_))
        ));
        let script = bin.join("onDefineDomain");
        fs::write(&script, "").unwrap();
        assert!(matches!(
            words(&script.display().to_string()),
            Err(SidecarProgramError::NotExecutable(_))
        ));
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let kind = |text: &str| words(text).unwrap().kind;
        let bin = bin.canonicalize().unwrap();
        assert_eq!(kind(&shown), Kind::Directory(bin.clone()));
        assert_eq!(
            kind(&script.display().to_string()),
            Kind::Script(bin.join("onDefineDomain"))
        );
        let extra = words(&format!("{shown} extra")).unwrap_err();
        assert!(extra.to_string().contains("\"extra\""), "{extra}");
        let server = words("./watchdog --dir={}").unwrap();
        let command = server.command(Path::new("/run/s"), dir.path()).unwrap();
        let arguments: Vec<_> = command.as_std().get_args().collect();
        assert_eq!(arguments, ["--dir=/run/s"]);
        assert!(matches!(words(" "), Err(SidecarProgramError::Empty)));
    }
}
