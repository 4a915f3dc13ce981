//! The files that `PreBoot` may change: the cloud-init image and the NVRAM.
//!
//! ```text
//!  guest's file ─► copy in the plugin's directory ─► PreBoot ─► .staging beside the guest's file ─► checked
//!        ▲                                                                                            │
//!        └───────────────── renamed, once all plugins have answered ◄─────────────────────────────────┘
//! ```
//!
//! A plugin never sees the guest's file itself, and what it leaves is checked on a copy that it
//! cannot reach. So the guest's file is whole at every moment, whoever is killed.

use std::any::Any;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use os::failpoints;
use rustix::fs::{Gid, Mode, OFlags, ResolveFlags, Uid, fchmod, fchown, mkdirat, openat, openat2};

/// Directory of the copies, in the plugin's directory.
pub const COPIES_DIR: &str = "preboot";
/// Size limit of a cloud-init image, in bytes. KubeVirt's have 2 MiB.
const MAX_ISO_BYTES: u64 = 64 << 20;
/// Size limit of an NVRAM, in bytes: QEMU's largest flash.
const MAX_NVRAM_BYTES: u64 = 64 << 20;
/// Size of the blocks that are copied and compared.
const BLOCK_BYTES: usize = 64 << 10;
/// Start of the primary volume descriptor (ECMA-119, 6.2.1).
const ISO_DESCRIPTOR: u64 = 16 * 2048;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootFileKind {
    /// ISO 9660, as the launcher made it from the cloud-init data.
    CloudInitIso,
    /// A raw image of the firmware's variables.
    Nvram,
}

impl BootFileKind {
    /// Name of the plugin's copy.
    #[must_use]
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::CloudInitIso => "cloud-init.iso",
            Self::Nvram => "nvram.fd",
        }
    }

    /// Where distributions keep such a file of the firmware, to try a plugin with.
    #[must_use]
    pub fn example_nvram() -> Option<PathBuf> {
        let dirs = [
            "OVMF/OVMF_VARS_4M.fd",
            "OVMF/OVMF_VARS.fd",
            "edk2/ovmf/OVMF_VARS.fd",
        ];
        let mut paths = dirs
            .into_iter()
            .map(|path| Path::new("/usr/share").join(path));
        paths.find(|path| path.is_file())
    }

    /// The name in log lines and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CloudInitIso => "cloud-init image",
            Self::Nvram => "NVRAM",
        }
    }

    const fn max_bytes(self) -> u64 {
        match self {
            Self::CloudInitIso => MAX_ISO_BYTES,
            Self::Nvram => MAX_NVRAM_BYTES,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BootFileError {
    #[error("could not {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    #[error("{} is a link; a plugin's files must not be links", .0.display())]
    Link(PathBuf),
    #[error("the plugin's {name} has {size} bytes; at most {limit} are read")]
    TooLarge {
        name: &'static str,
        size: u64,
        limit: u64,
    },
    #[error("the plugin's cloud-init image is not ISO 9660")]
    NotIso,
    #[error("the plugin's cloud-init image is cut off: it has {size} of {wanted} bytes")]
    CutOff { size: u64, wanted: u64 },
    #[error(
        "the plugin's cloud-init image has the label {after:?}, not {before:?}: cloud-init would not find it"
    )]
    Label { before: String, after: String },
    #[error("the plugin's NVRAM has {after} bytes, not {before}: the firmware would refuse it")]
    NvramSize { before: u64, after: u64 },
    #[error("the plugin's NVRAM does not begin with a firmware volume")]
    NotNvram,
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BootFileError {
    let path = path.to_owned();
    move |source| BootFileError::Io {
        action,
        path,
        source,
    }
}

/// A file that plugins may change.
#[derive(Debug)]
pub struct BootFile {
    kind: BootFileKind,
    /// The guest's file.
    path: PathBuf,
    /// What the file is made from if it is missing: the firmware's NVRAM template.
    template: Option<PathBuf>,
    /// Whether `.staging` has the content that plugins left.
    is_staged: bool,
    /// Dropped with the file.
    _owner: Arc<dyn Any + Send + Sync>,
}

impl BootFile {
    /// The guest's file at `path`, without what an interrupted attempt has left beside it: there
    /// may be one value for a path at a time. The value keeps `owner`. `None` if the file is missing
    /// and has no template, or if this launcher cannot check it, such as an NVRAM in another format.
    #[must_use]
    pub fn claim(
        kind: BootFileKind,
        path: PathBuf,
        template: Option<PathBuf>,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Option<Self> {
        let file = Self {
            kind,
            path,
            template,
            is_staged: false,
            _owner: owner,
        };
        file.clean();
        let content = File::open(file.content()).ok()?;
        let is_known = match kind {
            BootFileKind::CloudInitIso => Descriptor::read(&content).is_ok(),
            BootFileKind::Nvram => is_firmware_volume(&content),
        };
        is_known.then_some(file)
    }

    #[must_use]
    pub fn kind(&self) -> BootFileKind {
        self.kind
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        path.into()
    }

    fn staged(&self) -> PathBuf {
        self.beside(".staging")
    }

    /// The file with the newest content.
    fn content(&self) -> PathBuf {
        match &self.template {
            _ if self.is_staged => self.staged(),
            Some(template) if !self.path.exists() => template.clone(),
            _ => self.path.clone(),
        }
    }

    /// Removes the files that this or an interrupted attempt has left.
    fn clean(&self) {
        for suffix in [".staging", ".staging-next"] {
            let _ = fs::remove_file(self.beside(suffix));
        }
    }

    /// Copies the content into the plugin's directory.
    fn give(&self, copies: &Copies) -> Result<(), BootFileError> {
        let path = self.content();
        let from = File::open(&path).map_err(failed("open", &path))?;
        let to = copies.create(self.kind.file_name())?;
        copy(from, to, self.kind.max_bytes())
            .map_err(failed("copy to the plugin's directory", &path))
    }

    /// Takes the plugin's copy back and checks it. `None` if it was not changed.
    fn take(&self, copies: &Copies) -> Result<Option<Next>, BootFileError> {
        let theirs = copies.open(self.kind.file_name())?;
        let shown = copies.path.join(self.kind.file_name());
        let metadata = theirs.metadata().map_err(failed("inspect", &shown))?;
        if !metadata.is_file() {
            return Err(BootFileError::NotAFile(shown));
        }
        if metadata.len() > self.kind.max_bytes() {
            return Err(BootFileError::TooLarge {
                name: self.kind.name(),
                size: metadata.len(),
                limit: self.kind.max_bytes(),
            });
        }
        let current = self.content();
        let before = File::open(&current).map_err(failed("open", &current))?;
        let next = Next::create(self)?;
        let ours = next.file.try_clone().map_err(failed("copy", &next.path))?;
        copy(theirs, ours, self.kind.max_bytes()).map_err(failed("copy", &shown))?;
        if same_content(&before, &next.file).map_err(failed("compare", &next.path))? {
            return Ok(None);
        }
        match self.kind {
            BootFileKind::CloudInitIso => check_iso(&before, &next.file)?,
            BootFileKind::Nvram => check_nvram(&before, &next.file)?,
        }
        self.finish(&next)?;
        Ok(Some(next))
    }

    /// Gives a checked copy the guest's owner and mode, and writes it to the disk: an NVRAM may be
    /// on a claim, which outlives its node.
    fn finish(&self, next: &Next) -> Result<(), BootFileError> {
        let fail = |source| failed("finish", &next.path)(source);
        let (owner, mode) = match fs::metadata(&self.path) {
            Ok(metadata) => (metadata.clone(), metadata.mode() & 0o777),
            Err(_) => {
                let dir = self.path.parent().unwrap_or(Path::new("/"));
                (fs::metadata(dir).map_err(fail)?, 0o600)
            }
        };
        fchmod(&next.file, Mode::from_raw_mode(mode)).map_err(|error| fail(error.into()))?;
        // Only root can give a file away. Any other user owns the guest's file already.
        let (user, group) = (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()));
        let _ = fchown(&next.file, Some(user), Some(group));
        next.file.sync_all().map_err(fail)
    }

    /// Keeps a finished copy until all plugins have answered.
    fn stage(&mut self, next: &Next) -> Result<(), BootFileError> {
        fs::rename(&next.path, self.staged()).map_err(failed("finish", &next.path))?;
        self.is_staged = true;
        Ok(())
    }

    /// Puts the content that plugins left in the place of the guest's file.
    fn commit(&mut self) -> Result<(), BootFileError> {
        if self.is_staged {
            fs::rename(self.staged(), &self.path)
                .map_err(failed("put in its place", &self.path))?;
            self.is_staged = false;
            tracing::info!(path = %self.path.display(), "Plugins have changed the guest's {}", self.kind.name());
        }
        Ok(())
    }
}

impl Drop for BootFile {
    fn drop(&mut self) {
        self.clean();
    }
}

/// A copy of a plugin's file that is not checked yet.
struct Next {
    path: PathBuf,
    file: File,
}

impl Next {
    fn create(file: &BootFile) -> Result<Self, BootFileError> {
        let path = file.beside(".staging-next");
        let _ = fs::remove_file(&path);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(failed("make", dir))?;
        }
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options.open(&path).map_err(failed("make", &path))?;
        Ok(Self { path, file })
    }
}

/// The directory of a plugin's copies, in the plugin's directory. Dropping it removes the copies,
/// because they hold secrets.
#[derive(Debug)]
pub struct Copies {
    dir: OwnedFd,
    pub path: PathBuf,
}

impl Copies {
    /// Makes the directory, after removing what was there.
    pub fn make(plugin_dir: &Path) -> Result<Self, BootFileError> {
        let path = plugin_dir.join(COPIES_DIR);
        let fail = |error: rustix::io::Errno| failed("make", &path)(error.into());
        remove(&path)?;
        let directory = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let parent = rustix::fs::open(plugin_dir, directory, Mode::empty()).map_err(fail)?;
        mkdirat(&parent, COPIES_DIR, Mode::RWXU).map_err(fail)?;
        let dir = openat(&parent, COPIES_DIR, directory, Mode::empty()).map_err(fail)?;
        // The plugin's container may have another user of the same group.
        fchmod(&dir, Mode::RWXU | Mode::RWXG).map_err(fail)?;
        Ok(Self { dir, path })
    }

    fn create(&self, name: &str) -> Result<File, BootFileError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fail = |error: rustix::io::Errno| failed("make", &self.path.join(name))(error.into());
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP;
        let file = openat(&self.dir, name, flags | OFlags::NOFOLLOW, mode).map_err(fail)?;
        fchmod(file.as_fd(), mode).map_err(fail)?;
        Ok(file.into())
    }

    /// Opens a copy, through no link and out of no other directory. A pipe does not block.
    fn open(&self, name: &str) -> Result<File, BootFileError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.dir, name, flags, Mode::empty(), resolve)
            .map(File::from)
            .map_err(|error| match error {
                rustix::io::Errno::LOOP => BootFileError::Link(self.path.join(name)),
                _ => failed("open", &self.path.join(name))(error.into()),
            })
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            tracing::warn!(reason = %os::logging::chain(&error), "A plugin's copies remain");
        }
    }
}

/// Removes the copies. A link in their place is removed, not followed.
fn remove(path: &Path) -> Result<(), BootFileError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Copies all files into a plugin's directory.
///
/// # Errors
/// [`BootFileError::Io`].
pub fn give(files: &[BootFile], plugin_dir: &Path) -> Result<Copies, BootFileError> {
    let copies = Copies::make(plugin_dir)?;
    for file in files {
        file.give(&copies)?;
    }
    failpoints::hit("preboot.given");
    Ok(copies)
}

/// Takes all copies back. Returns the names of the changed ones. If one copy is refused, none is
/// used.
///
/// # Errors
/// The first copy that is refused.
pub fn take(files: &mut [BootFile], copies: &Copies) -> Result<Vec<&'static str>, BootFileError> {
    let taken = files.iter().map(|file| file.take(copies));
    let taken: Vec<Option<Next>> = taken.collect::<Result<_, _>>()?;
    failpoints::hit("preboot.taken");
    let mut changed = Vec::new();
    for (file, next) in files.iter_mut().zip(taken) {
        if let Some(next) = next {
            file.stage(&next)?;
            changed.push(file.kind.name());
        }
    }
    Ok(changed)
}

/// Puts all changed files in their places.
///
/// # Errors
/// [`BootFileError::Io`]. Each file is either the old or the new one.
pub fn commit(mut files: Vec<BootFile>) -> Result<(), BootFileError> {
    for file in &mut files {
        file.commit()?;
        failpoints::hit("preboot.committing");
    }
    Ok(())
}

/// Copies at most `limit` bytes; a file that grows meanwhile is an error.
fn copy(from: File, mut to: File, limit: u64) -> io::Result<()> {
    let copied = io::copy(&mut from.take(limit.saturating_add(1)), &mut to)?;
    if copied > limit {
        return Err(io::Error::other(format!("it has more than {limit} bytes")));
    }
    to.flush()
}

fn same_content(a: &File, b: &File) -> io::Result<bool> {
    let length = a.metadata()?.len();
    if length != b.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    let mut at = 0;
    while at < length {
        let rest = usize::try_from(length.saturating_sub(at)).unwrap_or(BLOCK_BYTES);
        left.truncate(rest);
        right.truncate(rest);
        a.read_exact_at(&mut left, at)?;
        b.read_exact_at(&mut right, at)?;
        if left != right {
            return Ok(false);
        }
        at = at.saturating_add(left.len() as u64);
    }
    Ok(true)
}

/// The primary volume descriptor of an ISO 9660 image (ECMA-119, 8.4).
struct Descriptor {
    label: String,
    /// Size of the volume, in bytes.
    size: u64,
}

impl Descriptor {
    fn read(file: &File) -> Result<Self, BootFileError> {
        let mut sector = [0; 2048];
        file.read_exact_at(&mut sector, ISO_DESCRIPTOR)
            .map_err(|_| BootFileError::NotIso)?;
        let little_endian = |at: usize, length: usize| {
            let bytes = sector
                .get(at..at.saturating_add(length))
                .unwrap_or_default();
            let value = bytes.iter().rev();
            value.fold(0_u64, |value, byte| (value << 8) | u64::from(*byte))
        };
        if sector.get(..6) != Some(b"\x01CD001") {
            return Err(BootFileError::NotIso);
        }
        let label = String::from_utf8_lossy(sector.get(40..72).unwrap_or_default());
        let label = label.trim_end_matches([' ', '\0']).to_owned();
        let size = little_endian(80, 4).saturating_mul(little_endian(128, 2));
        Ok(Self { label, size })
    }
}

fn check_iso(before: &File, after: &File) -> Result<(), BootFileError> {
    let (old, new) = (Descriptor::read(before)?, Descriptor::read(after)?);
    // cloud-init looks for the label, in either case.
    if !old.label.eq_ignore_ascii_case(&new.label) {
        return Err(BootFileError::Label {
            before: old.label,
            after: new.label,
        });
    }
    let size = after.metadata().map_err(|_| BootFileError::NotIso)?.len();
    if size < new.size {
        return Err(BootFileError::CutOff {
            size,
            wanted: new.size,
        });
    }
    Ok(())
}

fn check_nvram(before: &File, after: &File) -> Result<(), BootFileError> {
    let size = |file: &File| file.metadata().map_or(0, |metadata| metadata.len());
    let (old, new) = (size(before), size(after));
    if old != new {
        return Err(BootFileError::NvramSize {
            before: old,
            after: new,
        });
    }
    if is_firmware_volume(after) {
        Ok(())
    } else {
        Err(BootFileError::NotNvram)
    }
}

/// Whether the file begins with a firmware volume (UEFI PI, EFI_FIRMWARE_VOLUME_HEADER).
fn is_firmware_volume(file: &File) -> bool {
    let mut signature = [0; 4];
    file.read_exact_at(&mut signature, 40).is_ok() && signature == *b"_FVH"
}

#[cfg(test)]
#[path = "boot_files_tests.rs"]
mod tests;
