//! Lines of a pipe, for tokio.

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

/// A longer line comes in parts.
pub const MAX_LINE_BYTES: u64 = 512 * 1024;

/// Gives each line of `source` to `each`, without white space at its end, until `source` ends. What
/// is not UTF-8 is replaced.
pub async fn for_each(source: impl AsyncRead + Unpin, mut each: impl FnMut(&str)) {
    let mut reader = BufReader::with_capacity(4096, source);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut rest = (&mut reader).take(MAX_LINE_BYTES);
        match rest.read_until(b'\n', &mut line).await {
            // A pipe that cannot be read has no more lines.
            Ok(0) | Err(_) => return,
            Ok(_) => each(String::from_utf8_lossy(&line).trim_end()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    async fn lines(text: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for_each(text, |line| lines.push(line.to_owned())).await;
        lines
    }

    #[tokio::test]
    async fn lines_come_one_by_one_the_last_one_too() {
        assert_eq!(
            lines(b"one\r\n\ntwo\nthree").await,
            ["one", "", "two", "three"]
        );
        assert_eq!(lines(b"\xff\n").await, ["\u{fffd}"]);
    }

    #[tokio::test]
    async fn a_line_without_end_comes_in_parts() {
        let max = usize::try_from(MAX_LINE_BYTES).unwrap();
        let parts: Vec<usize> = lines(&vec![b'x'; 3 * max + 1])
            .await
            .iter()
            .map(String::len)
            .collect();
        assert_eq!(parts, [max, max, max, 1]);
    }
}
