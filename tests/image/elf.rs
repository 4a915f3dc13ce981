//! Enough of the ELF format to distinguish a static executable from a dynamic one.

const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const PT_INTERP: u32 = 3;

/// Whether this is a 64-bit little-endian ELF file.
pub fn is_elf(file: &[u8]) -> bool {
    file.starts_with(MAGIC)
}

/// Where the program header begins that names a dynamic loader.
pub fn interpreter(file: &[u8]) -> Option<usize> {
    let number = |at: usize, length: usize| {
        let bytes = file[at..at + length].iter().rev();
        bytes.fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
    };
    let (headers, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count)
        .map(|index| headers + index * size)
        .find(|at| number(*at, 4) == PT_INTERP as usize)
}
