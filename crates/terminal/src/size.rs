//! Sizes and amounts for people; how much of a file is written.

/// A size in the largest unit with a value of at least 1, with a decimal unless it is whole.
#[must_use]
pub fn human_size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let Some((unit, shift)) = units.into_iter().find(|(_, shift)| bytes >> shift > 0) else {
        return format!("{bytes} B");
    };
    let tenths = (u128::from(bytes) * 10) >> shift;
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {unit}"),
        (whole, tenth) => format!("{whole}.{tenth} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let short = [0, 1023, 1024, 1536, 64 << 20, (64 << 20) + 1, 1 << 40].map(human_size);
        assert_eq!(
            short,
            [
                "0 B", "1023 B", "1 KiB", "1.5 KiB", "64 MiB", "64 MiB", "1 TiB"
            ]
        );
    }
}
