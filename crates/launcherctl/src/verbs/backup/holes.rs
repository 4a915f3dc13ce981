//! Holes in the images of a backup: QEMU writes the holes of a disk whose changes are tracked as zeros. A hole in their place
//! reads the same, and takes no space.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use tokio::task::spawn_blocking;

use os::signals::EndSignals;

/// A cluster of qcow2, of which QEMU writes all.
const BLOCK_BYTES: usize = 64 << 10;
/// What is searched at once; a signal is heeded after that.
const BLOCKS_PER_TURN: u32 = 1024;

/// Makes holes of the zeros in a file that nobody writes. What stays as it is does no harm, so there is no error: the file
/// system may have no holes, and a signal ends it early.
pub async fn dig(path: &Path, stop: &mut EndSignals) {
    let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else {
        return;
    };
    let file = Arc::new(file);
    let mut offset = 0;
    loop {
        let opened = file.clone();
        let turn = spawn_blocking(move || dig_from(&opened, offset));
        tokio::select! {
            next = turn => match next {
                Ok(Ok(Some(next))) => offset = next,
                _ => return,
            },
            _ = stop.next() => return,
        }
    }
}

/// The next offset; none at the file's end.
fn dig_from(file: &File, from: u64) -> io::Result<Option<u64>> {
    static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    let length = BLOCK_BYTES as u64;
    let mut block = vec![0; BLOCK_BYTES];
    let mut offset = match seek(file, SeekFrom::Data(from)) {
        // Blocks are counted from the file's beginning.
        Ok(data) => data / length * length,
        // There is no more data.
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // Blocks of zeros that follow each other are one hole.
    let mut zeros_from = offset;
    let mut is_end = false;
    for _ in 0..BLOCKS_PER_TURN {
        match file.read_exact_at(&mut block, offset) {
            Ok(()) => {}
            // The rest is less than a block.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                is_end = true;
                break;
            }
            Err(error) => return Err(error),
        }
        let next = offset.saturating_add(length);
        if *block != ZEROS {
            punch(file, zeros_from, offset)?;
            zeros_from = next;
        }
        offset = next;
    }
    punch(file, zeros_from, offset)?;
    Ok((!is_end).then_some(offset))
}

/// Makes a hole from one offset to another.
fn punch(file: &File, from: u64, to: u64) -> io::Result<()> {
    let length = to.saturating_sub(from);
    if length > 0 {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, hole, from, length)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn zeros_become_holes_and_the_content_stays() {
        let mut content = vec![0; 40 * BLOCK_BYTES + 100];
        content[3 * BLOCK_BYTES + 7] = 1;
        content[40 * BLOCK_BYTES + 50] = 2;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &content).unwrap();
        let before = file.as_file().metadata().unwrap().blocks();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let mut stop = EndSignals::listen().unwrap();
            dig(file.path(), &mut stop).await;
        });
        assert!(std::fs::read(file.path()).unwrap() == content);
        let after = file.as_file().metadata().unwrap().blocks();
        assert!(after < before, "{after} of {before} blocks");
        // Again there is nothing to do.
        assert!(
            dig_from(file.as_file(), content.len() as u64)
                .unwrap()
                .is_none()
        );
    }
}
