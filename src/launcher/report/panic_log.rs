//! Finds a guest's panic in QEMU's log.

use std::path::Path;

use domain::object::GuestPanicInfo;

/// How much of the log's end is searched; a panic is one of its last lines.
const END: u64 = 64 << 10;

/// The last panic in the log at `path`.
pub(super) fn last_panic(path: &Path) -> Option<GuestPanicInfo> {
    match os::small_file::tail(path, END) {
        Ok(bytes) => String::from_utf8_lossy(&bytes)
            .lines()
            .rev()
            .find_map(parse),
        Err(error) => {
            tracing::warn!(path = %path.display(), reason = %error, "Failed to read panic info from log");
            None
        }
    }
}

/// Parses a line such as `2024-09-30 16:30:49.506+0000: panic hyper-v: arg1='0x5a', arg2='0x1', …`.
fn parse(line: &str) -> Option<GuestPanicInfo> {
    let (_, rest) = line.split_once("panic ")?;
    let (kind, rest) = rest.trim_start().split_once(':')?;
    if kind.is_empty() || kind.contains(char::is_whitespace) {
        return None;
    }
    let arg = |name: &str| {
        let (_, text) = rest.split_once(name)?;
        let digits = text
            .trim_start_matches(['\'', '"'])
            .trim_start_matches("0x");
        let digits = digits.split(|c: char| !c.is_ascii_hexdigit()).next()?;
        u64::from_str_radix(digits, 16).ok()
    };
    Some(GuestPanicInfo {
        kind: kind.into(),
        arg1: arg("arg1=").unwrap_or_default(),
        arg2: arg("arg2=").unwrap_or_default(),
        arg3: arg("arg3=").unwrap_or_default(),
        arg4: arg("arg4=").unwrap_or_default(),
        arg5: arg("arg5=").unwrap_or_default(),
    })
}

/// The event's text, and the document's.
pub(super) fn describe(info: Option<GuestPanicInfo>) -> (String, GuestPanicInfo) {
    match info {
        None => (
            "GuestPanicked (details unavailable)".to_owned(),
            GuestPanicInfo {
                kind: "unknown".into(),
                ..GuestPanicInfo::default()
            },
        ),
        Some(info) if info.kind == "hyper-v" => {
            let GuestPanicInfo {
                arg1,
                arg2,
                arg3,
                arg4,
                arg5,
                ..
            } = &info;
            let text = format!(
                "GuestPanicked: '{arg1:#x}', '{arg2:#x}', '{arg3:#x}', '{arg4:#x}', '{arg5:#x}'"
            );
            (text, info)
        }
        Some(info) => (format!("GuestPanicked: type={}", info.kind), info),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_panic_in_the_log_counts() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("ns1_vm1.log");
        let mut text = "x".repeat(200 << 10);
        text += "\n2026-01-01 10:00:00.000+0000: panic hyper-v: arg1='0x1', arg2='0x2'\n";
        text += "2026-01-01 10:00:01.000+0000: panic hyper-v: arg1='0x5a', arg2='0x1', arg3='0xfffff803', arg4='0x0', arg5='0x0'\nbye\n";
        std::fs::write(&log, text).unwrap();
        let info = last_panic(&log).unwrap();
        assert_eq!(
            (info.kind.as_str(), info.arg1, info.arg2, info.arg3),
            ("hyper-v", 0x5a, 1, 0xffff_f803)
        );
        assert_eq!(
            describe(Some(info)).0,
            "GuestPanicked: '0x5a', '0x1', '0xfffff803', '0x0', '0x0'"
        );
    }

    #[test]
    fn other_kinds_have_a_name_only() {
        let info =
            parse("2026-01-01 10:00:00.000+0000: panic s390: core='0' psw-mask='0x0'").unwrap();
        assert_eq!(describe(Some(info)).0, "GuestPanicked: type=s390");
    }

    #[test]
    fn a_log_that_says_nothing_gives_unknown() {
        assert_eq!(last_panic(Path::new("/nonexistent")), None);
        for line in [
            "",
            "panic",
            "panic :",
            "Kernel panic - not syncing: no",
            "panic hyper-v",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
        let (text, info) = describe(None);
        assert_eq!(
            (text.as_str(), info.kind.as_str()),
            ("GuestPanicked (details unavailable)", "unknown")
        );
    }
}
