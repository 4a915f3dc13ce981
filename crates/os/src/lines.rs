//! Lines of a pipe, for tokio.

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

/// A longer line comes in parts.
pub const MAX_LINE_BYTES: u64 = 512 * 1024;

/// The lines of a pipe or socket.
#[derive(Debug)]
pub struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub fn new(source: R) -> Self {
        Self {
            reader: BufReader::with_capacity(4096, source),
            line: Vec::new(),
        }
    }

    /// The next line, without white space at its end; what is not UTF-8 is replaced. `None` if
    /// there are no more, or they cannot be read. Cancel safe.
    pub async fn next(&mut self) -> Option<String> {
        let begun = u64::try_from(self.line.len()).unwrap_or(u64::MAX);
        let mut rest = (&mut self.reader).take(MAX_LINE_BYTES.saturating_sub(begun));
        match rest.read_until(b'\n', &mut self.line).await {
            Ok(0) if begun == 0 => return None,
            Err(_) => return None,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
        self.line.clear();
        Some(line)
    }
}

/// Gives each line of `source` to `each`, see [`Lines::next`].
pub async fn for_each(source: impl AsyncRead + Unpin, mut each: impl FnMut(&str)) {
    let mut lines = Lines::new(source);
    while let Some(line) = lines.next().await {
        each(&line);
    }
}

#[cfg(test)]
mod tests {
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

    #[tokio::test]
    async fn a_part_that_was_read_before_the_wait_was_given_up_is_not_lost() {
        let (mut writer, reader) = tokio::io::duplex(16);
        let mut lines = Lines::new(reader);
        tokio::io::AsyncWriteExt::write_all(&mut writer, b"on")
            .await
            .unwrap();
        let waited = std::time::Duration::from_millis(1);
        assert!(tokio::time::timeout(waited, lines.next()).await.is_err());
        tokio::io::AsyncWriteExt::write_all(&mut writer, b"e\n")
            .await
            .unwrap();
        assert_eq!(lines.next().await.unwrap(), "one");
    }
}
