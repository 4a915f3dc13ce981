//! Copies the log files of passt and QEMU into the pod's log: the files are lost with the pod.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use api::pod_paths::{PASST_LOG, SESSION_QEMU_LOG_DIR};
use os::log_file::{MAX_LINE_BYTES, open_regular};
use os::logging;
use pod::Root;

pub fn dump(root: &Root) {
    dump_file(&root.path(PASST_LOG));
    let dir = root.path(SESSION_QEMU_LOG_DIR);
    match fs::read_dir(&dir) {
        Ok(entries) => {
            let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            files.sort();
            files.iter().for_each(|file| dump_file(file));
        }
        Err(error) => tracing::error!(reason = %error, "failed to read qemu log directory"),
    }
}

fn dump_file(path: &Path) {
    let result = match open_regular(path) {
        Ok(Some(file)) => {
            tracing::info!("dump log file: {}", path.display());
            // Files may be longer than the log's queue.
            each_line(BufReader::new(file), |line| {
                tracing::info!("{line}");
                let is_read = logging::flush();
                if !is_read {
                    tracing::warn!("the rest of {} is left out", path.display());
                }
                is_read
            })
        }
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = result {
        tracing::error!(reason = %error, "failed to read file {}", path.display());
    }
}

/// Shows lines as long as `show` says so.
fn each_line(mut reader: impl BufRead, mut show: impl FnMut(&str) -> bool) -> io::Result<()> {
    let mut line = Vec::new();
    while reader
        .by_ref()
        .take(MAX_LINE_BYTES as u64)
        .read_until(b'\n', &mut line)?
        > 0
        && show(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']))
    {
        line.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        let show = |line: &str| {
            lines.push(line.to_owned());
            true
        };
        each_line(text, show).unwrap();
        lines
    }

    #[test]
    fn lines_come_one_by_one_the_last_one_too() {
        assert_eq!(lines(b"one\r\n\ntwo\nthree"), ["one", "", "two", "three"]);
        assert_eq!(lines(b"\xff\n"), ["\u{fffd}"]);
    }

    #[test]
    fn a_line_without_end_comes_in_parts() {
        let parts = lines(&vec![b'x'; MAX_LINE_BYTES + 1]);
        assert_eq!(
            parts.iter().map(String::len).collect::<Vec<_>>(),
            [MAX_LINE_BYTES, 1]
        );
    }
}
