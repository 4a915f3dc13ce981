//! Asks this machine's libvirt whether it takes a domain: `virsh` defines it in the driver inside
//! its own process, below a directory that goes afterwards. Nothing is started.

use std::io;
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
/// Errors that say nothing of the domain: this machine has no libvirt's driver, or no QEMU for the
/// VM's architecture.
const NOT_OF_DOMAIN: [&str; 4] = [
    "failed to connect to the hypervisor",
    "Cannot check QEMU binary",
    "could not find capabilities for",
    "no emulator",
];

/// libvirt and QEMU of this machine.
pub struct OwnLibvirt;

impl Libvirt for OwnLibvirt {
    fn has_kvm(&self) -> bool {
        rustix::fs::access("/dev/kvm", rustix::fs::Access::WRITE_OK).is_ok()
    }

    fn define(&self, xml: &str) -> LibvirtAnswer {
        match define(xml) {
            Ok(Ok(_)) => LibvirtAnswer::Accepted,
            Ok(Err(CommandError::Failed { stderr, .. })) => {
                let cause = stderr
                    .rsplit_once(ERROR)
                    .map_or(&*stderr, |(_, cause)| cause);
                let is_of_domain = !NOT_OF_DOMAIN.iter().any(|text| stderr.contains(text));
                match is_of_domain {
                    true => LibvirtAnswer::Refused(cause.trim().to_owned()),
                    false => LibvirtAnswer::NotAsked(cause.trim().to_owned()),
                }
            }
            Ok(Err(CommandError::NotFound { .. })) => {
                LibvirtAnswer::NotAsked("virsh is not installed".to_owned())
            }
            Ok(Err(error)) => LibvirtAnswer::NotAsked(chain(&error)),
            Err(error) => LibvirtAnswer::NotAsked(format!("no directory for its driver: {error}")),
        }
    }
}

fn define(xml: &str) -> io::Result<Result<Vec<u8>, CommandError>> {
    let root = tempfile::tempdir()?;
    let (etc, file) = (root.path().join("etc"), root.path().join("domain.xml"));
    std::fs::create_dir(&etc)?;
    // libvirt's own choice may be a user without access to /dev/kvm, and then keeps nothing.
    let user = format!(
        "user = \"+{}\"\ngroup = \"+{}\"\n",
        getuid().as_raw(),
        getgid().as_raw()
    );
    std::fs::write(etc.join("qemu.conf"), user)?;
    std::fs::write(&file, xml)?;
    keep_capabilities(root.path())?;
    let uri = format!("qemu:///embed?root={}", root.path().display());
    let arguments = ["-c", &uri, "define", &file.display().to_string()].map(str::to_owned);
    Ok(command::run("virsh", arguments, &[], None, LIMITS))
}

/// Lets libvirt's driver below `root` keep QEMU's capabilities in the user's cache directory, where
/// the next one finds them. libvirt itself checks whether they are still those of this machine.
///
/// # Errors
/// The directories cannot be made.
pub fn keep_capabilities(root: &Path) -> io::Result<()> {
    let Some(cache) = user_cache() else {
        return Ok(());
    };
    let capabilities = cache.join("virt-launcher/capabilities");
    let mut private = std::fs::DirBuilder::new();
    private.recursive(true).mode(0o700).create(&capabilities)?;
    let libvirts = root.join("cache/qemu");
    private.create(&libvirts)?;
    match symlink(&capabilities, libvirts.join("capabilities")) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// The user's cache directory, by the XDG specification; a relative one does not count.
fn user_cache() -> Option<PathBuf> {
    let of = |name| std::env::var_os(name).map(PathBuf::from);
    let home = || Some(of("HOME")?.join(".cache"));
    let found = of("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    found.or_else(home).filter(|path| path.is_absolute())
}
