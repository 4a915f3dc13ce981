//! Asks this machine's libvirt whether it takes domains: `virsh` defines them in the driver inside
//! its own process, below a directory that goes afterwards. Nothing is started.

use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{getgid, getuid};

use crate::manifest::{Libvirt, LibvirtAnswer};
use os::command::{self, CommandError, Limits};
use os::logging::chain;

/// libvirt first asks QEMU for its capabilities, which takes long on a busy machine.
const LIMITS: Limits = Limits {
    memory: 0,
    cpu: 60,
    wall: Duration::from_secs(120),
};
/// `virsh` begins the lines of an error with this; the last one has the cause.
const ERROR: &str = "error: ";
/// What `virsh` says after each domain, and how it appears.
const MARK: &str = "@next";
const NEXT: &str = "error: @next";
/// Errors that say nothing of the domain: this machine has no QEMU for the VM's architecture.
const NOT_OF_DOMAIN: [&str; 5] = [
    "Cannot check QEMU binary",
    "could not find capabilities for",
    "no emulator",
    "No emulator found",
    "does not support virt type",
];

/// libvirt and QEMU of this machine.
pub struct OwnLibvirt;

impl Libvirt for OwnLibvirt {
    fn has_kvm(&self) -> bool {
        rustix::fs::access("/dev/kvm", rustix::fs::Access::WRITE_OK).is_ok()
    }

    fn define(&self, xmls: &[String]) -> Vec<LibvirtAnswer> {
        let said = match define(xmls) {
            Ok(Err(CommandError::Failed { stderr, .. })) => stderr,
            Ok(Err(CommandError::NotFound { .. })) => {
                return vec![LibvirtAnswer::NotAsked("virsh is not installed".to_owned())];
            }
            Ok(Err(error)) => return vec![LibvirtAnswer::NotAsked(chain(&error))],
            Ok(Ok(_)) => String::new(),
            Err(error) => {
                let reason = format!("no directory for its driver: {error}");
                return vec![LibvirtAnswer::NotAsked(reason)];
            }
        };
        let mut parts: Vec<&str> = said.split(NEXT).collect();
        let rest = parts.pop().unwrap_or_default();
        if parts.len() < xmls.len() {
            let cause = rest.rsplit(ERROR).next().unwrap_or_default().trim();
            return vec![LibvirtAnswer::NotAsked(format!("virsh gave up: {cause:?}"))];
        }
        parts.into_iter().map(answer).collect()
    }
}

/// What `virsh` has said of a domain.
fn answer(said: &str) -> LibvirtAnswer {
    let Some((_, cause)) = said.rsplit_once(ERROR) else {
        return LibvirtAnswer::Accepted;
    };
    let cause = cause.trim().to_owned();
    match NOT_OF_DOMAIN.iter().any(|text| said.contains(text)) {
        true => LibvirtAnswer::NotAsked(cause),
        false => LibvirtAnswer::Refused(cause),
    }
}

/// Has `virsh` define the domains, one after the other, and say so on standard error between them.
fn define(xmls: &[String]) -> io::Result<Result<Vec<u8>, CommandError>> {
    let root = tempfile::tempdir_in(plain_temporary())?;
    let root = root.path();
    std::fs::create_dir(root.join("etc"))?;
    // QEMU is to run as this user. As the one that libvirt would choose it may not open /dev/kvm,
    // and libvirt would then not keep what it has learnt of QEMU.
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let user = format!("user = \"+{user}\"\ngroup = \"+{group}\"\n");
    std::fs::write(root.join("etc/qemu.conf"), user)?;
    keep_capabilities(root);
    let mut script = String::new();
    for (index, xml) in xmls.iter().enumerate() {
        let file = root.join(format!("{index}.xml"));
        std::fs::write(&file, xml)?;
        let _ = write!(script, "define '{}'; echo --err {MARK}; ", file.display());
    }
    // This fails. Standard error is read only of a program that has failed.
    script.push_str("define /dev/null/none");
    let uri = format!("qemu:///embed?root={}", root.display());
    let arguments = ["-q", "-c", &uri, &script];
    // The user's directories may be missing, or not to be written.
    let [run, cache] = ["run", "cache"].map(|it| root.join(it).display().to_string());
    let environment = [("XDG_RUNTIME_DIR", &*run), ("XDG_CACHE_HOME", &*cache)];
    Ok(command::run("virsh", arguments, &environment, None, LIMITS))
}

/// TMPDIR; `/tmp` instead of one whose path means something else in a URI or to `virsh`.
fn plain_temporary() -> PathBuf {
    let directory = std::env::temp_dir();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    match directory.as_os_str().as_bytes().iter().all(is_plain) {
        true => directory,
        false => "/tmp".into(),
    }
}

/// Makes the directory in which libvirt's driver below `root` keeps QEMU's capabilities a link into
/// the user's cache directory. The first driver asks QEMU, which takes half a second; later ones
/// read its file. libvirt checks itself that the file is about this machine and its QEMU. Without a
/// home directory there is no link, and each driver asks QEMU.
pub fn keep_capabilities(root: &Path) {
    let libvirts = root.join("cache/qemu");
    let mut private = std::fs::DirBuilder::new();
    private.recursive(true).mode(0o700);
    let kept = user_cache().map(|cache| cache.join("virt-launcher/capabilities"));
    if let Some(kept) = kept.filter(|kept| private.create(kept).is_ok())
        && private.create(&libvirts).is_ok()
    {
        // In a directory of --root there may be one from an earlier run.
        let _ = symlink(&kept, libvirts.join("capabilities"));
    }
}

/// The user's cache directory, by the XDG specification; a relative one does not count.
fn user_cache() -> Option<PathBuf> {
    let of = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    // A service may have a home that is not there; nobody wants it made.
    let home = || of("HOME").filter(|home| home.is_dir());
    of("XDG_CACHE_HOME").or_else(|| Some(home()?.join(".cache")))
}
