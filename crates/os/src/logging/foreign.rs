//! Lines of libvirt's and QEMU's own logs, turned into lines of ours.

use super::{LogLine, verbosity, write};

/// Logs a line that a libvirt daemon wrote to its stderr.
pub fn libvirt(text: &str) {
    if let Some(line) = libvirt_line(text, verbosity()) {
        write(&line);
    }
}

/// Logs a line of libvirt in this process. Its errors are those of calls, which return them to who
/// called: they are only details here.
pub fn own_libvirt(text: &str) {
    if let Some(line) =
        libvirt_line(text, verbosity()).filter(|line| !line.is_error() || verbosity() >= 4)
    {
        write(&line);
    }
}

/// Joins the lines of a QEMU log: its command line is written over many.
#[derive(Debug, Default)]
pub struct QemuLines {
    prefix: &'static str,
    begun: String,
}

impl QemuLines {
    /// For lines that get `prefix` in front.
    pub fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            begun: String::new(),
        }
    }

    /// Logs a line, or keeps it until the rest of the command line has come.
    pub fn log(&mut self, text: &str) {
        if let Some(message) = self.join(text) {
            write(
                &LogLine::now("info")
                    .with("subcomponent", "qemu")
                    .with("msg", &message),
            );
        }
    }

    fn join(&mut self, text: &str) -> Option<String> {
        /// A command line has some 10 KiB; more than this is not a command line.
        const MAX_COMMAND_LINE_BYTES: usize = 256 * 1024;
        if text.trim().is_empty() {
            return None;
        }
        if self.begun.is_empty() {
            self.begun.push_str(self.prefix);
        }
        self.begun.push_str(text);
        if text.ends_with('\\') && self.begun.len() < MAX_COMMAND_LINE_BYTES {
            None
        } else {
            Some(std::mem::take(&mut self.begun))
        }
    }
}

/// `time: thread: level : pos : text`, see libvirt's logging page. Other lines are logged as they
/// are.
fn libvirt_line(text: &str, verbosity: u8) -> Option<LogLine> {
    if text.trim().is_empty() {
        return None;
    }
    let parts: Vec<&str> = text.splitn(4, ": ").collect();
    let [time, thread, level, rest] = parts[..] else {
        return Some(plain(text));
    };
    let Some(timestamp) = timestamp(time.trim()) else {
        return Some(plain(text));
    };
    let mut level = match level.trim() {
        "debug" | "info" => "info",
        "error" => "error",
        _ => "warning",
    };
    let (pos, message) = match rest.split_once(": ") {
        Some((pos, message)) if is_position(pos.trim()) => (Some(pos.trim()), message.trim()),
        _ => (None, rest.trim()),
    };
    // Agents differ in what they know; asking is how libvirt finds out.
    if message.contains("unable to execute QEMU agent command") {
        if verbosity < 4 {
            return None;
        }
        level = "warning";
    }
    let line = LogLine::at(level, &timestamp)
        .with("subcomponent", "libvirt")
        .with("thread", thread.trim())
        .with("msg", message);
    Some(match pos {
        Some(pos) => line.with("pos", pos),
        None => line,
    })
}

fn plain(text: &str) -> LogLine {
    LogLine::now("info")
        .with("subcomponent", "libvirt")
        .with("msg", text)
}

/// `function:line`.
fn is_position(text: &str) -> bool {
    text.split_once(':')
        .is_some_and(|(function, line)| !function.is_empty() && line.parse::<u32>().is_ok())
}

/// `2026-01-02 03:04:05.678+0000` as `2026-01-02T03:04:05.678000Z`. libvirt always writes UTC.
fn timestamp(text: &str) -> Option<String> {
    let digits: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    if digits != "0000-00-00 00:00:00.000+0000" {
        return None;
    }
    Some(format!("{}T{}000Z", text.get(..10)?, text.get(11..23)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str, verbosity: u8) -> Option<String> {
        libvirt_line(text, verbosity).map(|line| line.render("virt-launcher"))
    }

    #[test]
    fn a_line_with_a_position() {
        let text = "2026-01-02 03:04:05.678+0000: 42: error : virHostCPUGetCPUID:1467 : Unable to open /dev/kvm: Permission denied";
        assert_eq!(
            render(text, 2).unwrap(),
            "{\"component\":\"virt-launcher\",\"level\":\"error\",\"msg\":\"Unable to open /dev/kvm: Permission denied\",\
             \"pos\":\"virHostCPUGetCPUID:1467\",\"subcomponent\":\"libvirt\",\"thread\":\"42\",\
             \"timestamp\":\"2026-01-02T03:04:05.678000Z\"}\n"
        );
    }

    #[test]
    fn a_line_without_a_position() {
        let text =
            "2026-01-02 03:04:05.678+0000: 42: info : libvirt version: 11.3.0, package: 3 (Debian)";
        assert_eq!(
            render(text, 2).unwrap(),
            "{\"component\":\"virt-launcher\",\"level\":\"info\",\"msg\":\"libvirt version: 11.3.0, package: 3 (Debian)\",\
             \"subcomponent\":\"libvirt\",\"thread\":\"42\",\"timestamp\":\"2026-01-02T03:04:05.678000Z\"}\n"
        );
    }

    #[test]
    fn exactly_four_parts_are_no_trouble() {
        let text = "2026-01-02 03:04:05.678+0000: 42: info : hostname";
        assert!(render(text, 2).unwrap().contains("\"msg\":\"hostname\""));
    }

    #[test]
    fn debug_is_info_and_a_warning_is_a_warning() {
        let line = |level| {
            render(
                &format!("2026-01-02 03:04:05.678+0000: 1: {level} : f:1 : x"),
                2,
            )
            .unwrap()
        };
        assert!(line("debug").contains("\"level\":\"info\""));
        assert!(line("warning").contains("\"level\":\"warning\""));
    }

    #[test]
    fn what_is_no_libvirt_line_is_logged_as_it_is() {
        let text = "/usr/sbin/virtqemud: error while loading shared libraries: libvirt.so.0: cannot open: no such file";
        let line = render(text, 2).unwrap();
        assert!(
            line.contains("\"level\":\"info\"")
                && line.contains("libvirt.so.0: cannot open: no such file")
        );
        assert_eq!(render("  ", 2), None);
    }

    #[test]
    fn agent_commands_that_fail_are_dropped_below_verbosity_4() {
        let text = "2026-01-02 03:04:05.678+0000: 42: error : qemuAgentCheckError:1 : \
                    internal error: unable to execute QEMU agent command 'guest-get-fsinfo': disabled";
        assert_eq!(render(text, 3), None);
        assert!(render(text, 4).unwrap().contains("\"level\":\"warning\""));
    }

    #[test]
    fn an_error_is_told_apart() {
        let line = |level| {
            libvirt_line(
                &format!("2026-01-02 03:04:05.678+0000: 1: {level} : f:1 : x"),
                2,
            )
            .unwrap()
        };
        assert!(line("error").is_error() && !line("warning").is_error());
    }

    #[test]
    fn a_command_line_is_one_message() {
        let mut qemu = QemuLines::new("");
        assert_eq!(qemu.join("/usr/bin/qemu \\"), None);
        assert_eq!(qemu.join("-S \\"), None);
        assert_eq!(
            qemu.join("-msg timestamp=on").unwrap(),
            "/usr/bin/qemu \\-S \\-msg timestamp=on"
        );
        assert_eq!(qemu.join(""), None);
        assert_eq!(
            qemu.join("char device redirected").unwrap(),
            "char device redirected"
        );
    }

    #[test]
    fn a_command_line_without_an_end_is_not_kept_for_ever() {
        let mut qemu = QemuLines::new("[SeaBios]: ");
        let long = format!("{}\\", "x".repeat(1024));
        let messages = (0..1000).filter_map(|_| qemu.join(&long)).count();
        assert!(messages >= 3);
    }
}
