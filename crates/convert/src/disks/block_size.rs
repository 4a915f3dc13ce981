//! `<blockio>`: the block sizes that the guest sees: given ones or the volume's.

use super::Wanted;
use crate::context::BlockDeviceProbe;
use crate::{ConvertError, Input};
use domain::disks::{BlockIo, Disk};

/// Adds the block sizes, and `discardGranularity`, to a disk that has its source.
pub(super) fn apply(
    input: &Input<'_>,
    wanted: Wanted<'_>,
    disk: &mut Disk,
) -> Result<(), ConvertError> {
    let Some(size) = &wanted.disk.block_size else {
        return Ok(());
    };
    if let Some(custom) = &size.custom {
        if let Some(max) = input.arch.max_block_size
            && (custom.logical > max || custom.physical > max)
        {
            return Err(wanted.refuse(
                "blockSize.custom",
                format!(
                    "logical {} and physical {} bytes: {} allows at most {max}",
                    custom.logical, custom.physical, input.arch.name
                ),
            ));
        }
        disk.block_io = Some(BlockIo {
            logical_block_size: custom.logical,
            physical_block_size: custom.physical,
            discard_granularity: custom.discard_granularity,
        });
    } else if size
        .match_volume
        .as_ref()
        .is_some_and(|feature| feature.enabled.unwrap_or(true))
    {
        let found =
            detect(input, disk).map_err(|error| wanted.refuse("blockSize.matchVolume", error))?;
        disk.block_io = Some(found);
    }
    Ok(())
}

/// The block sizes of the volume itself.
fn detect(input: &Input<'_>, disk: &Disk) -> Result<BlockIo, String> {
    let backend = disk.source.backend();
    let backend = backend
        .ok_or("the disk is neither a device nor a file whose block sizes could be matched")?;
    let path = backend.path;
    if !backend.is_block {
        let size = input.ctx.file_block_sizes.get(path);
        let size = *size.ok_or_else(|| format!("the image {path:?} does not exist"))?;
        return Ok(BlockIo {
            logical_block_size: size,
            physical_block_size: size,
            discard_granularity: Some(size),
        });
    }
    let probe = input.ctx.block_device_probes.get(path);
    let probe = probe.ok_or_else(|| format!("the device {path:?} cannot be opened"))?;
    of_device(probe).ok_or_else(|| format!("the device {path:?} says that its block sizes are 0"))
}

/// A size that the device does not know is taken from the other. A discard granularity that is not
/// a multiple of the logical size is replaced by the physical size, as the device reported it.
fn of_device(probe: &BlockDeviceProbe) -> Option<BlockIo> {
    let (logical, physical) = match (probe.logical, probe.physical) {
        (0, 0) => return None,
        (0, physical) => (physical, physical),
        (logical, 0) => (logical, logical),
        sizes => sizes,
    };
    let fits = probe.discard_granularity.is_multiple_of(logical);
    Some(BlockIo {
        logical_block_size: logical,
        physical_block_size: physical,
        discard_granularity: Some(if fits {
            probe.discard_granularity
        } else {
            probe.physical
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(
        logical: u64,
        physical: u64,
        discard_granularity: u64,
    ) -> Option<(u64, u64, Option<u64>)> {
        let found = of_device(&BlockDeviceProbe {
            logical,
            physical,
            discard_granularity,
        });
        found.map(|io| {
            (
                io.logical_block_size,
                io.physical_block_size,
                io.discard_granularity,
            )
        })
    }

    #[test]
    fn sizes_of_a_device_are_completed() {
        assert_eq!(sizes(512, 4096, 4096), Some((512, 4096, Some(4096))));
        assert_eq!(sizes(512, 4096, 1000), Some((512, 4096, Some(4096))));
        assert_eq!(sizes(0, 4096, 0), Some((4096, 4096, Some(0))));
        assert_eq!(sizes(512, 0, 700), Some((512, 512, Some(0))));
        assert_eq!(sizes(0, 0, 512), None);
    }
}
