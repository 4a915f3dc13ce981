//! Opening paths that users have a say in. A volume, an image and everything in them may be made
//! to lead elsewhere: a symbolic link instead of `disk.img`, `..` in the path of a container disk,
//! a device node or a pipe in a claim. So a path has two parts: a base that the pod itself lays
//! out, and a tail below it that `openat2(2)` resolves beneath the base and, but for image
//! volumes, through no symbolic link at all. What is found must be a regular file or a block
//! device; it is inspected (`O_PATH`) before it is opened.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    FileType, Mode, OFlags, ResolveFlags, Stat, fchmod, fstat, mkdirat, openat, openat2, readlinkat,
};
use rustix::io::Errno;

use super::{PodError, Root};
use api::vmi::ObjectMeta;

/// A directory. A path that is opened through it cannot lead out of it.
#[derive(Debug)]
pub(super) struct Dir {
    fd: OwnedFd,
    path: PathBuf,
    /// Whether the directory is below the user's own root, where a file may be a link that leads
    /// out.
    is_of_user: bool,
}

/// A regular file or block device that has been inspected but not opened yet.
#[derive(Debug)]
pub(super) struct Found {
    fd: OwnedFd,
    path: PathBuf,
    stat: Stat,
}

/// No link, no mount of `/proc`, no way up.
const STRICT: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);
/// Links are taken as if the directory were `/`: an image's own links work, but stay inside.
const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

impl Dir {
    /// A directory that the pod lays out (links such as `/var/run` are followed below the root).
    pub fn of_pod(root: &Root, path: &str) -> Result<Self, PodError> {
        let start = rustix::fs::open(
            root.dir(),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(PodError::io("open", root.dir()))?;
        let path = root.path(path);
        let tail = root.strip(&path).unwrap_or(&path);
        let fd = open_at(
            start.as_fd(),
            tail,
            OFlags::PATH | OFlags::DIRECTORY,
            IN_ROOT,
            &path,
        )?;
        Ok(Self {
            fd,
            path,
            is_of_user: root.is_of_user(),
        })
    }

    /// The same, but below the user's own root (`launcherctl run`) the path may be a link to a
    /// directory outside.
    pub fn of_pod_or_linked(root: &Root, path: &str) -> Result<Self, PodError> {
        let target = match std::fs::read_link(root.path(path)) {
            Ok(target) if root.is_of_user() && target.is_absolute() => target,
            _ => return Self::of_pod(root, path),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&target, flags, Mode::empty());
        Ok(Self {
            fd: opened.map_err(PodError::io("open", &target))?,
            path: target,
            is_of_user: false,
        })
    }

    /// A directory that the pod lays out, made with its parents (mode 0755) where it is missing.
    pub fn of_pod_made(root: &Root, path: &str) -> Result<Self, PodError> {
        match Self::of_pod(root, path) {
            Err(e) if e.is_not_found() => {
                Self::make(root, path, 0o755)?;
                Self::of_pod(root, path)
            }
            other => other,
        }
    }

    /// Makes a directory of the pod with its parents. The mode is exact, whatever the umask; what
    /// exists keeps its own. Links of the pod such as `/var/run` are followed below the root.
    pub fn make(root: &Root, path: &str, mode: u32) -> Result<(), PodError> {
        let mut so_far = String::new();
        let mut dir: Option<Self> = None;
        for part in Path::new(path).components() {
            let Component::Normal(name) = part else {
                continue;
            };
            let parent = match dir.take() {
                Some(dir) => dir,
                None => Self::of_pod(root, "/")?,
            };
            so_far.push('/');
            so_far.push_str(&name.to_string_lossy());
            make_one(parent.as_fd(), name, mode, &root.path(&so_far))?;
            dir = Some(Self::of_pod(root, &so_far)?);
        }
        Ok(())
    }

    /// A directory below, through no link.
    pub fn sub(&self, tail: &str) -> Result<Self, PodError> {
        let path = self.path.join(tail);
        let fd = open_at(
            self.fd.as_fd(),
            Path::new(tail),
            OFlags::PATH | OFlags::DIRECTORY,
            STRICT,
            &path,
        )?;
        Ok(Self {
            fd,
            path,
            is_of_user: self.is_of_user,
        })
    }

    /// A directory directly below, made (mode 0755) where it is missing.
    pub fn sub_made(&self, name: &str) -> Result<Self, PodError> {
        make_one(
            self.fd.as_fd(),
            OsStr::new(name),
            0o755,
            &self.path.join(name),
        )?;
        self.sub(name)
    }

    /// A directory below, where links count as inside this one.
    pub fn sub_within(&self, tail: &str) -> Result<Self, PodError> {
        let path = self.path.join(tail.trim_start_matches('/'));
        let fd = open_at(
            self.fd.as_fd(),
            Path::new(tail),
            OFlags::PATH | OFlags::DIRECTORY,
            IN_ROOT,
            &path,
        )?;
        Ok(Self {
            fd,
            path,
            is_of_user: false,
        })
    }

    /// A file or block device below, through no link, except one that the user has made below their
    /// own root.
    // D-disk-12 (docs/differences.md).
    pub fn find(&self, tail: &str) -> Result<Found, PodError> {
        let target = readlinkat(&self.fd, tail, Vec::new());
        match target.map(|target| PathBuf::from(OsString::from_vec(target.into_bytes()))) {
            Ok(target) if self.is_of_user && target.is_absolute() => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = rustix::fs::open(&target, flags, Mode::empty());
                Found::inspect(fd.map_err(PodError::io("open", &target))?, target)
            }
            _ => self.find_with(tail, STRICT),
        }
    }

    /// A file below, where links count as inside this directory (container images have some).
    pub fn find_within(&self, tail: &str) -> Result<Found, PodError> {
        self.find_with(tail, IN_ROOT)
    }

    fn find_with(&self, tail: &str, how: ResolveFlags) -> Result<Found, PodError> {
        let path = self.path.join(tail.trim_start_matches('/'));
        // O_NOFOLLOW with O_PATH would find the link itself; the resolve flags refuse it.
        let fd = open_at(self.fd.as_fd(), Path::new(tail), OFlags::PATH, how, &path)?;
        Found::inspect(fd, path)
    }

    /// Names of the entries, sorted.
    pub fn entries(&self) -> Result<Vec<String>, PodError> {
        let fail = || PodError::io("list", &self.path);
        let dir = rustix::fs::openat(
            &self.fd,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e: Errno| fail()(e))?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(dir).map_err(|e: Errno| fail()(e))? {
            let entry = entry.map_err(|e: Errno| fail()(e))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Where the directory is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn make_one(parent: BorrowedFd<'_>, name: &OsStr, mode: u32, shown: &Path) -> Result<(), PodError> {
    let fail = PodError::io("make the directory", shown);
    match mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) => {
            let made = openat(
                parent,
                name,
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            );
            made.and_then(|fd| fchmod(fd, Mode::from_raw_mode(mode)))
                .map_err(fail)
        }
        Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(fail(e)),
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn open_at(
    dir: BorrowedFd<'_>,
    tail: &Path,
    flags: OFlags,
    how: ResolveFlags,
    shown: &Path,
) -> Result<OwnedFd, PodError> {
    let tail = if tail.as_os_str().is_empty() {
        Path::new(".")
    } else {
        tail
    };
    // EAGAIN: something was renamed meanwhile, so the kernel could not be sure and asks to try
    // again.
    let mut attempts = 0;
    loop {
        match openat2(dir, tail, flags | OFlags::CLOEXEC, Mode::empty(), how) {
            Err(Errno::AGAIN) if attempts < 64 => attempts += 1,
            Err(Errno::LOOP) => {
                return Err(PodError::Hostile {
                    path: shown.into(),
                    what: "is reached through a symbolic link",
                });
            }
            Err(Errno::XDEV) => {
                return Err(PodError::Hostile {
                    path: shown.into(),
                    what: "leads out of its directory",
                });
            }
            result => return result.map_err(PodError::io("open", shown)),
        }
    }
}

impl Found {
    fn inspect(fd: OwnedFd, path: PathBuf) -> Result<Self, PodError> {
        let stat = fstat(&fd).map_err(PodError::io("inspect", &path))?;
        let found = Self { fd, path, stat };
        match found.file_type() {
            FileType::RegularFile | FileType::BlockDevice => Ok(found),
            FileType::Directory => Err(found.hostile("is a directory, not a file or block device")),
            FileType::CharacterDevice => {
                Err(found.hostile("is a character device, not a file or block device"))
            }
            FileType::Fifo => Err(found.hostile("is a pipe, not a file or block device")),
            FileType::Socket => Err(found.hostile("is a socket, not a file or block device")),
            _ => Err(found.hostile("is neither a file nor a block device")),
        }
    }

    fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Whether this is a block device; otherwise it is a regular file.
    pub fn is_block(&self) -> bool {
        self.file_type() == FileType::BlockDevice
    }

    /// The path as it was asked for.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The real path of the file: no element of it is a link.
    pub fn real_path(&self) -> Result<PathBuf, PodError> {
        std::fs::read_link(self.by_descriptor()).map_err(PodError::io("resolve", &self.path))
    }

    /// What `fstat(2)` says.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Opens the very file that was inspected, even if its name means another file by now.
    pub fn open(&self, flags: OFlags) -> Result<File, PodError> {
        // O_NONBLOCK: never wait for a device. This opens our own descriptor, not the path.
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        rustix::fs::open(self.by_descriptor(), flags, Mode::empty())
            .map(File::from)
            .map_err(PodError::io("open", &self.path))
    }

    /// Opens it for reading.
    pub fn read(&self) -> Result<File, PodError> {
        self.open(OFlags::RDONLY)
    }

    /// The file's content, at most the first `limit` bytes.
    pub fn content(&self, limit: u64) -> Result<Vec<u8>, PodError> {
        let mut data = Vec::new();
        let read = self.read()?.take(limit).read_to_end(&mut data);
        read.map_err(PodError::io("read", &self.path))?;
        Ok(data)
    }

    fn by_descriptor(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    fn hostile(&self, what: &'static str) -> PodError {
        PodError::Hostile {
            path: self.path.clone(),
            what,
        }
    }
}

impl AsFd for Found {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A name that becomes one element of a path. Kubernetes allows only DNS labels as names of
/// volumes. A VMI that comes another way must not lead out of its directory either.
pub(super) fn checked_name<'n>(what: &'static str, name: &'n str) -> Result<&'n str, PodError> {
    let bad = name.is_empty()
        || name.len() > 253
        || name.starts_with('.')
        || name.contains(['/', '\0', ',', '='])
        || name.contains(char::is_control);
    if bad {
        let name = name.to_owned();
        return Err(PodError::FileName { what, name });
    }
    Ok(name)
}

/// The directory of the VMI's own files below `dir`.
pub(super) fn vmi_dir(dir: &str, metadata: &ObjectMeta) -> Result<String, PodError> {
    let name = checked_name("the VMI's name", &metadata.name)?;
    let namespace = match metadata.namespace.as_str() {
        "" => "",
        namespace => checked_name("the VMI's namespace", namespace)?,
    };
    Ok(format!("{dir}/{namespace}/{name}"))
}

/// Turns the error that a file does not exist into `Ok(None)`.
pub(super) fn optional<T>(result: Result<T, PodError>) -> Result<Option<T>, PodError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.is_not_found() => Ok(None),
        // A file where a directory would have to be: nothing can be below it.
        Err(PodError::File(error)) if error.source.kind() == io::ErrorKind::NotADirectory => {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}
