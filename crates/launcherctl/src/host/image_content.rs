//! Checks a file given as an image by its size and beginning, to name a mistake before the guest
//! finds nothing to boot from.

use std::fs;
use std::io::Read;
use std::path::Path;

use crate::error::{CtlError, fail};
use crate::files::FileError;

/// A raw image's size is a multiple of it.
const SECTOR_BYTES: u64 = 512;
/// QEMU writes past the page cache only to images whose size is a multiple of it, on some file
/// systems.
pub const BLOCK_BYTES: u64 = 4096;
/// The beginnings of images in formats that can be converted.
const CONVERTIBLE: [(&[u8], &str); 4] = [
    (b"KDMV", "a VMDK image"),
    (b"vhdxfile", "a VHDX image"),
    (b"conectix", "a VHD image"),
    (b"<<< ", "a VDI image"),
];
/// The beginnings of compressed files, and the programs that unpack them.
const COMPRESSED: [(&[u8], &str); 3] = [
    (b"\x1f\x8b", "gunzip"),
    (b"\xfd7zXZ\0", "unxz"),
    (b"\x28\xb5\x2f\xfd", "unzstd"),
];
/// The beginning of a qcow2 image.
const QCOW2: &[u8] = b"QFI\xfb";

/// The images that a volume accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepts {
    /// The launcher reads it as raw: the image of a claim, or of a volume added to a running VM.
    Raw,
    /// The image of a container disk.
    RawOrQcow2,
    /// Whatever qemu-img reads, as it is converted.
    Convertible,
}

/// Checks whether a user's file can be such an image.
///
/// # Errors
/// It is something else, or unreadable.
pub fn check_content(image: &Path, accepts: Accepts) -> Result<(), CtlError> {
    let file = image.display();
    let metadata = image.metadata().map_err(FileError::on("find", image))?;
    let bytes = metadata.len();
    if !metadata.is_file() || bytes == 0 {
        fail!("{file}: not a file with an image; truncate -s 1G makes a blank disk of that size");
    }
    let mut head = Vec::new();
    let read = fs::File::open(image).and_then(|it| it.take(16).read_to_end(&mut head));
    read.map_err(FileError::on("read", image))?;
    let begins = |magic: &[u8]| head.starts_with(magic);
    if let Some((_, tool)) = COMPRESSED.iter().find(|(magic, _)| begins(magic)) {
        fail!("{file}: it is compressed; unpack it first: {tool} {file}");
    }
    let other = CONVERTIBLE.iter().find(|(magic, _)| begins(magic));
    let (is_qcow2, is_raw) = (begins(QCOW2), other.is_none() && !begins(QCOW2));
    match (other, accepts) {
        _ if accepts == Accepts::Convertible => {}
        (Some((_, what)), _) => fail!(
            "{file}: {what}; a raw image is expected: qemu-img convert -O raw {file} {file}.raw makes one"
        ),
        (None, Accepts::Raw) if is_qcow2 => fail!(
            "{file}: it is a qcow2 image, and the launcher reads this volume as a raw one: the guest would see the qcow2 header; qemu-img convert -O raw {file} {file}.raw makes a raw image"
        ),
        _ => {}
    }
    if is_raw && accepts != Accepts::Convertible && !bytes.is_multiple_of(SECTOR_BYTES) {
        fail!(
            "{file}: its {bytes} bytes are not a multiple of {SECTOR_BYTES}, as those of a raw image are: is it an image, and copied or downloaded in full? If so, truncate -s %{BLOCK_BYTES} {file} fills it up"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(image: &Path, accepts: Accepts) -> String {
        check_content(image, accepts).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_an_image_is_named_with_what_it_is() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        let refused = |content: &[u8]| {
            fs::write(&file, content).unwrap();
            refused(&file, Accepts::RawOrQcow2)
        };
        let shown = file.display();
        assert!(refused(b"tiny").starts_with(&format!("{shown}: its 4 bytes are not a multiple")));
        let text = refused(&[b'#'; 513]);
        assert!(
            text.contains(&format!("truncate -s %4096 {shown}")),
            "{text}"
        );
        assert!(refused(b"KDMV....").contains("a VMDK image"));
        assert!(refused(b"\x1f\x8b\x08").contains(&format!("gunzip {shown}")));
        assert!(refused(b"").contains("not a file with an image"));
        fs::write(&file, [0; 512]).unwrap();
        check_content(&file, Accepts::RawOrQcow2).unwrap();
    }

    #[test]
    fn the_remedy_is_an_image_that_the_volume_takes() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let write = |content: &[u8]| {
            fs::write(image.path(), [content, &[0; 512]].concat()).unwrap();
        };
        write(b"KDMV");
        assert!(refused(image.path(), Accepts::Raw).contains("qemu-img convert -O raw"));
        assert!(refused(image.path(), Accepts::RawOrQcow2).contains("qemu-img convert -O raw"));
        check_content(image.path(), Accepts::Convertible).unwrap();
        write(QCOW2);
        assert!(refused(image.path(), Accepts::Raw).contains("qemu-img convert -O raw"));
        check_content(image.path(), Accepts::RawOrQcow2).unwrap();
        check_content(image.path(), Accepts::Convertible).unwrap();
    }

    #[test]
    fn only_a_regular_file_is_an_image() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |file: &Path| refused(file, Accepts::Raw);
        assert!(refused(dir.path()).contains("not a file with an image"));
        assert!(refused(&dir.path().join("none")).starts_with("cannot find"));
    }
}
