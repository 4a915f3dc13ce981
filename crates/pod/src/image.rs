//! What an image says about itself, read without any other program. An image's first bytes decide
//! what it is; its file name never does. Nothing that it refers to is opened.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::safe_path::Found;
use super::{LauncherFlags, PodError, Root, disk_source};
use convert::context::DiskInfo;

/// qcow2: <https://www.qemu.org/docs/master/interop/qcow2.html>
const QCOW2: &[u8; 4] = b"QFI\xfb";
/// `incompatible_features`: the guest's data is in another file.
const EXTERNAL_DATA: u64 = 1 << 2;
/// QEMU's own limit for a backing file's name.
const MAX_NAME_BYTES: u32 = 1023;
/// Enough for every signature below.
const HEAD: usize = 112;
const SECTOR: u64 = 512;

/// First bytes of formats that QEMU knows but a container disk must not have.
const OTHER_FORMATS: [(&str, usize, &[u8]); 14] = [
    ("qed", 0, b"QED\0"),
    ("vmdk", 0, b"KDMV"),
    ("vmdk", 0, b"COWD"),
    ("vmdk", 0, b"# Disk DescriptorFile"),
    ("vdi", 64, b"\x7f\x10\xda\xbe"),
    ("vpc", 0, b"conectix"),
    ("vhdx", 0, b"vhdxfile"),
    ("luks", 0, b"LUKS\xba\xbe"),
    ("parallels", 0, b"WithoutFreeSpace"),
    ("parallels", 0, b"WithouFreSpacExt"),
    ("bochs", 0, b"Bochs Virtual HD Image"),
    ("cloop", 0, b"#!/bin/sh\n#V2.0 Format\n"),
    ("gzip", 0, b"\x1f\x8b\x08"),
    ("xz", 0, b"\xfd7zXZ\0"),
];

/// Image format, sizes and backing file.
///
/// # Errors
/// The image cannot be read, is in a format that no disk may have, has a damaged header, or refers
/// to another file for its data.
// D-disk-11 (docs/differences.md).
pub(super) fn inspect(found: &Found) -> Result<DiskInfo, PodError> {
    let file = found.read()?;
    let mut head = [0; HEAD];
    let head = read_up_to(&file, &mut head).map_err(PodError::io("read", found.path()))?;
    let actual_size = allocated(found);
    if head.starts_with(QCOW2) {
        let info = qcow2(&file, head)
            .map_err(|error| PodError::invalid(found.path(), error.to_string()))?;
        return Ok(DiskInfo {
            actual_size,
            ..info
        });
    }
    if let Some((format, ..)) = OTHER_FORMATS.iter().find(|(_, at, signature)| {
        head.get(*at..)
            .is_some_and(|rest| rest.starts_with(signature))
    }) {
        let reason = format!("its format is {format}; convert it to qcow2 or raw");
        return Err(PodError::invalid(found.path(), reason));
    }
    let virtual_size = size(found, &file)?.next_multiple_of(SECTOR);
    Ok(DiskInfo {
        format: String::from("raw"),
        backing_file: String::default(),
        actual_size,
        virtual_size,
    })
}

/// Whether the file begins as a qcow2 image does, whatever follows.
pub(super) fn is_qcow2(found: &Found) -> Result<bool, PodError> {
    let mut head = [0; QCOW2.len()];
    let head = read_up_to(&found.read()?, &mut head).map_err(PodError::io("read", found.path()))?;
    Ok(head == QCOW2)
}

/// How large the guest sees a file or device that the domain has in that format, in bytes. A
/// running QEMU may have been given another size since it opened the file.
///
/// # Errors
/// See [`inspect`]; or the path is not below the root.
pub fn virtual_size(root: &Root, path: &str, format: &str) -> Result<u64, PodError> {
    let found = disk_source::find(
        &LauncherFlags {
            root: root.clone(),
            ..LauncherFlags::default()
        },
        path,
    )?;
    size_in_format(&found, format)
}

/// As [`virtual_size`].
pub(super) fn size_in_format(found: &Found, format: &str) -> Result<u64, PodError> {
    match format {
        // The guest sees a raw image as it is, whatever it contains.
        "raw" => Ok(size(found, &found.read()?)?.next_multiple_of(SECTOR)),
        _ => Ok(inspect(found)?.virtual_size),
    }
}

/// Refuses an image that refers to other files: QEMU would open them, wherever they are.
pub(super) fn must_stand_alone(path: &Path, info: &DiskInfo) -> Result<(), PodError> {
    if info.backing_file.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "it has the backing file {:?}; an image must have all of its data itself (qemu-img rebase -b \"\")",
        info.backing_file
    );
    Err(PodError::invalid(path, reason))
}

/// Bytes that a file takes up: `st_blocks` counts 512 bytes, whatever the file system's block size
/// is.
pub(super) fn allocated(found: &Found) -> u64 {
    u64::try_from(found.stat().st_blocks).unwrap_or_default() * 512
}

/// Bytes of a file or device.
pub(super) fn size(found: &Found, file: &File) -> Result<u64, PodError> {
    if !found.is_block() {
        return Ok(u64::try_from(found.stat().st_size).unwrap_or_default());
    }
    rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))
        .map_err(PodError::io("find the size of", found.path()))
}

/// The start of the file: as much of it as there is and fits in the buffer.
fn read_up_to<'b>(file: &File, buffer: &'b mut [u8]) -> std::io::Result<&'b [u8]> {
    let mut done = 0;
    while let Some(rest @ [_, ..]) = buffer.get_mut(done..) {
        match file.read_at(rest, done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(buffer.get(..done).unwrap_or_default())
}

/// Why a qcow2 image is refused.
#[derive(Debug, thiserror::Error)]
enum Qcow2Error {
    #[error("its qcow2 header is damaged ({0}); copy or build the image again")]
    Damaged(&'static str),
    #[error(
        "its qcow version is {0}, not 2 or 3; unless it is damaged, convert it (qemu-img convert -O qcow2)"
    )]
    Version(u64),
    #[error(
        "it keeps its data in another file (data_file); an image must have all of its data itself"
    )]
    ExternalData,
    #[error("it is encrypted, and the guest has no key for it; decrypt it (qemu-img convert)")]
    Encrypted,
}

fn qcow2(file: &File, head: &[u8]) -> Result<DiskInfo, Qcow2Error> {
    use Qcow2Error::Damaged;
    let u32_at = |at: usize| {
        head.get(at..at + 4)
            .and_then(|bytes| Some(u32::from_be_bytes(bytes.try_into().ok()?)))
    };
    let u64_at = |at: usize| {
        head.get(at..at + 8)
            .and_then(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?)))
    };
    let field = |value: Option<u64>| value.ok_or(Damaged("too short"));

    let version = field(u32_at(4).map(u64::from))?;
    if !(2..=3).contains(&version) {
        return Err(Qcow2Error::Version(version));
    }
    if version == 3 && field(u64_at(72))? & EXTERNAL_DATA != 0 {
        return Err(Qcow2Error::ExternalData);
    }
    if field(u32_at(32).map(u64::from))? != 0 {
        return Err(Qcow2Error::Encrypted);
    }
    let (cluster_bits, virtual_size) = (field(u32_at(20).map(u64::from))?, field(u64_at(24))?);
    if !(9..=21).contains(&cluster_bits) {
        return Err(Damaged("cluster size"));
    }
    if virtual_size > i64::MAX as u64 {
        return Err(Damaged("size"));
    }
    let (name_at, name_length) = (field(u64_at(8))?, field(u32_at(16).map(u64::from))?);
    let backing_file = if name_at == 0 {
        String::default()
    } else {
        let length = u32::try_from(name_length)
            .ok()
            .filter(|length| *length <= MAX_NAME_BYTES)
            .ok_or(Damaged("backing file name"))?;
        let mut name = vec![0; length as usize];
        file.read_exact_at(&mut name, name_at)
            .map_err(|_| Damaged("backing file name"))?;
        // Any backing file name counts, even an empty one.
        let name = String::from_utf8_lossy(&name);
        if name.is_empty() {
            String::from("(no name)")
        } else {
            name.as_ref().into()
        }
    };
    Ok(DiskInfo {
        format: String::from("qcow2"),
        backing_file,
        actual_size: 0,
        virtual_size,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Root;
    use super::super::safe_path::Dir;
    use super::*;

    fn inspected(content: &[u8]) -> Result<DiskInfo, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("image"), content).unwrap();
        inspect(
            &Dir::of_pod(&Root::new(dir.path()), "/")
                .unwrap()
                .find("image")
                .unwrap(),
        )
        .map_err(|e| e.to_string())
    }

    fn header(
        version: u32,
        features: u64,
        cluster_bits: u32,
        size: u64,
        backing: &[u8],
    ) -> Vec<u8> {
        let mut bytes = QCOW2.to_vec();
        bytes.extend(version.to_be_bytes());
        bytes.extend(if backing.is_empty() { 0 } else { 128_u64 }.to_be_bytes());
        bytes.extend(u32::try_from(backing.len()).unwrap().to_be_bytes());
        bytes.extend(cluster_bits.to_be_bytes());
        bytes.extend(size.to_be_bytes());
        bytes.resize(72, 0);
        bytes.extend(features.to_be_bytes());
        bytes.resize(128, 0);
        bytes.extend(backing);
        bytes
    }

    #[test]
    fn what_has_no_signature_is_raw() {
        let info = inspected(&[0; 1000]).unwrap();
        assert_eq!((info.format.as_str(), info.virtual_size), ("raw", 1024));
        assert_eq!(inspected(b"").unwrap().virtual_size, 0);
    }

    #[test]
    fn a_qcow2_header_is_read() {
        let info = inspected(&header(3, 0, 16, 1 << 30, b"")).unwrap();
        assert_eq!(
            (
                info.format.as_str(),
                info.virtual_size,
                info.backing_file.as_str()
            ),
            ("qcow2", 1 << 30, "")
        );
        let info = inspected(&header(2, EXTERNAL_DATA, 16, 512, b"/etc/shadow")).unwrap();
        assert_eq!(info.backing_file, "/etc/shadow");
        assert!(
            must_stand_alone(Path::new("x"), &info)
                .unwrap_err()
                .to_string()
                .contains("has the backing file \"/etc/shadow\"")
        );
    }

    #[test]
    fn an_external_data_file_is_refused() {
        assert!(
            inspected(&header(3, EXTERNAL_DATA, 16, 512, b""))
                .unwrap_err()
                .contains("keeps its data in another file")
        );
    }

    #[test]
    fn damaged_headers_are_refused() {
        for (bytes, what) in [
            (QCOW2.to_vec(), "too short"),
            (header(1, 0, 16, 512, b""), "qcow version is 1"),
            (header(9, 0, 16, 512, b""), "qcow version is 9"),
            (header(3, 0, 64, 512, b""), "cluster size"),
            (header(3, 0, 16, u64::MAX, b""), "(size)"),
            (header(3, 0, 16, 512, &[b'x'; 2000]), "backing file name"),
            (
                header(3, 0, 16, 512, b"/cut").split_at(130).0.to_vec(),
                "backing file name",
            ),
        ] {
            assert!(inspected(&bytes).unwrap_err().contains(what), "{what}");
        }
    }

    #[test]
    fn other_formats_are_refused_by_name() {
        for (format, at, signature) in OTHER_FORMATS {
            let mut content = vec![0; 4096];
            content[at..at + signature.len()].copy_from_slice(signature);
            assert!(
                inspected(&content)
                    .unwrap_err()
                    .contains(&format!("its format is {format};")),
                "{format}"
            );
        }
    }
}
