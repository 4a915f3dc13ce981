//! A hook sidecar on this machine, without its image: what `run --sidecar` and `hooks check` start.
//!
//! | Given | Started |
//! |---|---|
//! | a directory, such as an image's tree, with `onDefineDomain` or `preCloudInitIso` | `sidecar-shim`, which calls them |
//! | `PROGRAM ARGUMENTS…` with `{}` in an argument | the program, which serves gRPC on a socket in the directory `{}` |
//! | another program or script | `sidecar-shim`, which calls it as the hook of its name, else as `onDefineDomain` |
//! | nothing, for a sidecar with a ConfigMap | `sidecar-shim`, which calls the ConfigMap's script |

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::processes::{find_on_path, is_executable, tool};
use crate::error::{CtlError, TextError, fail};
use crate::files::FileError;
use crate::manifest::hook_sidecars::{ConfigMapScript, HOOK_PROGRAMS};
use api::pod_paths::{CONFIG_MAP_DIR, file_name};
use hooks::Version;

/// Their directories in an image's tree, or in a directory that has only them.
const PROGRAM_DIRS: [&str; 5] = ["", "usr/local/bin", "usr/bin", "bin", "usr/sbin"];
/// Stands for the socket's directory in an argument.
const SOCKET_DIR: &str = "{}";

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
    /// The shim calls this program, by the hook's name. A relative path is below the VM's
    /// directory.
    Script(PathBuf, &'static str),
}

/// A sidecar on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarProgram {
    kind: Kind,
    /// The shim's version; a sidecar without a shim has its own version.
    pub(super) version: Version,
    /// Name and key of the ConfigMap with its script, which the VM's directory gets.
    pub(super) config_map: Option<(String, String)>,
}

impl SidecarProgram {
    /// From a program or directory, with arguments. A plugin serves gRPC itself.
    ///
    /// # Errors
    /// There is no such program, or the directory has nothing for a shim to call.
    pub fn new(words: &[String], is_plugin: bool) -> Result<Self, CtlError> {
        let Some((first, arguments)) = words.split_first() else {
            fail!("the sidecar's program is empty");
        };
        let of = |kind| {
            Ok(Self {
                kind,
                version: Version::V1alpha3,
                config_map: None,
            })
        };
        if arguments.iter().any(|word| word.contains(SOCKET_DIR)) {
            let (program, arguments) = (PathBuf::from(first), arguments.to_vec());
            if find_on_path(first).is_none() && !is_executable(&program) {
                fail!("{first}: no program has this name, or it is not executable (chmod +x)");
            }
            return of(Kind::Server { program, arguments });
        }
        if is_plugin || !arguments.is_empty() {
            fail!(
                "{first}: a program that serves gRPC itself, as a plugin does, has {{}} in an argument, for the directory of its socket; a script gets no arguments but those of its hook"
            );
        }
        let path = Path::new(first);
        let path = path.canonicalize().map_err(FileError::on("find", path))?;
        if path.is_dir() {
            return of(Kind::Directory(hook_programs(&path)?));
        }
        if !is_executable(&path) {
            fail!(
                "{}: not an executable file; chmod +x makes it one",
                path.display()
            );
        }
        let hook = hook_of(first);
        of(Kind::Script(path, hook))
    }

    /// Of a sidecar whose script a ConfigMap has, the VMI's sidecar `number`.
    pub fn of_config_map(number: usize, script: &ConfigMapScript) -> Self {
        let ConfigMapScript {
            name,
            key,
            hook_path,
        } = script;
        let directory = config_map_dir(number);
        let file = Path::new(directory.trim_start_matches('/')).join(key);
        Self {
            kind: Kind::Script(file, hook_of(hook_path)),
            version: Version::V1alpha3,
            config_map: Some((name.clone(), key.clone())),
        }
    }

    /// From one argument: a path, else split at spaces.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn parse(text: &str, is_plugin: bool) -> Result<Self, CtlError> {
        if Path::new(text).exists() {
            return Self::new(&[text.to_owned()], is_plugin);
        }
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Self::new(&words, is_plugin)
    }

    /// The command that serves on a socket in `socket_dir`. The directory `links`, in the VM's,
    /// must live as long as the sidecar.
    ///
    /// # Errors
    /// Files for the shim cannot be made.
    pub fn command(&self, socket_dir: &Path, links: &Path) -> Result<Command, FileError> {
        let programs = match &self.kind {
            Kind::Server { program, arguments } => {
                let dir = socket_dir.display().to_string();
                let mut command = Command::new(program);
                command.args(arguments.iter().map(|word| word.replace(SOCKET_DIR, &dir)));
                return Ok(command);
            }
            Kind::Directory(dir) => dir.clone(),
            Kind::Script(script, hook) => {
                let (link, vm_dir) = (links.join(hook), links.parent().unwrap_or(links));
                if script.is_relative() {
                    let script = vm_dir.join(script);
                    let executable = fs::Permissions::from_mode(0o700);
                    fs::set_permissions(&script, executable)
                        .map_err(FileError::on("make executable", script))?;
                }
                let _ = fs::remove_file(&link);
                std::os::unix::fs::symlink(vm_dir.join(script), &link)
                    .map_err(FileError::on("make", &link))?;
                links.to_owned()
            }
        };
        let found = tool("sidecar-shim").map_err(FileError::on("find", "this program"));
        let mut command = Command::from(found?);
        command
            .args(["--version", self.version.name(), "--socket-dir"])
            .arg(socket_dir)
            .env("PATH", search_path(&programs));
        Ok(command)
    }
}

/// The hook as which a program of this path is called.
fn hook_of(path: &str) -> &'static str {
    let mut hooks = HOOK_PROGRAMS.into_iter();
    hooks
        .find(|hook| *hook == file_name(path))
        .unwrap_or(HOOK_PROGRAMS[0])
}

/// Where the ConfigMap of a sidecar is, below the VM's directory. No volume can have the name.
pub(super) fn config_map_dir(number: usize) -> String {
    format!("{CONFIG_MAP_DIR}/hook-sidecar.{number}")
}

fn search_path(first: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(first.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(dirs).unwrap_or_else(|_| first.into())
}

fn hook_programs(dir: &Path) -> Result<PathBuf, TextError> {
    let mut candidates = PROGRAM_DIRS.into_iter().map(|below| dir.join(below));
    let has_one = |it: &PathBuf| {
        HOOK_PROGRAMS
            .iter()
            .any(|name| is_executable(&it.join(name)))
    };
    if let Some(found) = candidates.find(has_one) {
        return Ok(found);
    }
    fail!(
        "{} has no executable onDefineDomain or preCloudInitIso, in it or in its usr/bin or usr/local/bin; a sidecar that serves gRPC itself is given as a program with {{}} for the directory of its socket",
        dir.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<SidecarProgram, CtlError> {
        SidecarProgram::parse(text, false)
    }

    fn refusal(text: &str) -> String {
        words(text).unwrap_err().to_string()
    }

    #[test]
    fn a_directory_an_image_a_script_and_a_server_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("usr/bin");
        fs::create_dir_all(&bin).unwrap();
        let shown = dir.path().display().to_string();
        assert!(refusal(&shown).contains("has no executable onDefineDomain or preCloudInitIso"));
        let script = bin.join("onDefineDomain");
        fs::write(&script, "").unwrap();
        assert!(refusal(&script.display().to_string()).contains("not an executable file"));
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let kind = |text: &str| words(text).unwrap().kind;
        let bin = bin.canonicalize().unwrap();
        assert_eq!(kind(&shown), Kind::Directory(bin.clone()));
        assert_eq!(
            kind(&script.display().to_string()),
            Kind::Script(bin.join("onDefineDomain"), "onDefineDomain")
        );
        let spaced = dir.path().join("a b");
        fs::copy(&script, &spaced).unwrap();
        let spaced = spaced.display().to_string();
        assert!(matches!(kind(&spaced), Kind::Script(..)));
        let extra = words(&format!("{shown} extra")).unwrap_err();
        assert!(extra.to_string().contains("no arguments"), "{extra}");
        let server = words("/bin/sh --dir={}").unwrap();
        let command = server.command(Path::new("/run/s"), dir.path()).unwrap();
        let arguments: Vec<_> = command.as_std().get_args().collect();
        assert_eq!(arguments, ["--dir=/run/s"]);
        assert!(refusal("./nothing {}").starts_with("./nothing: no program has this name"));
        assert_eq!(refusal(" "), "the sidecar's program is empty");
        let plugin = SidecarProgram::parse(&script.display().to_string(), true).unwrap_err();
        let said = plugin.to_string();
        assert!(said.contains("{} in an argument"), "{said}");
    }
}
