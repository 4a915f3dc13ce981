//! The configuration files of libvirt's daemons: the image's text with the settings known only at
//! run time.
//!
//! Pure functions of text. A key that the image sets stays as it is.

use api::pod_paths::HUGEPAGE_DIR;

/// Additions to `qemu.conf`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QemuConf {
    /// Whether `/dev/hugepages` exists.
    pub hugepages: bool,
    /// `VIRTIOFSD_DEBUG_LOGS=1`.
    pub virtiofsd_debug: bool,
    /// `SHARED_FILESYSTEM_PATHS`: file systems that other nodes share, so that a migration may rely
    /// on them.
    pub shared_filesystems: Vec<String>,
    /// Further keys, with values in the file's syntax.
    pub more: Vec<(&'static str, String)>,
}

impl QemuConf {
    /// Returns `base` with the additions.
    pub fn render(&self, base: &str) -> String {
        let mut text = whole_lines(base);
        let mut keys = Vec::new();
        if self.hugepages {
            keys.push(("hugetlbfs_mount", quoted(HUGEPAGE_DIR)));
        }
        if self.virtiofsd_debug {
            keys.push(("virtiofsd_debug", "1".to_owned()));
        }
        if !self.shared_filesystems.is_empty() {
            let paths: Vec<String> = self
                .shared_filesystems
                .iter()
                .map(|path| quoted(path))
                .collect();
            keys.push(("shared_filesystems", format!("[ {} ]", paths.join(", "))));
        }
        keys.extend(self.more.iter().cloned());
        for (key, value) in keys {
            add(&mut text, key, &value);
        }
        text
    }
}

/// Calls of one client that the daemon handles at a time. Calls waiting for a silent guest agent
/// could use up the default of 5, and Kill would have to wait.
const MAX_CLIENT_REQUESTS: &str = "20";

/// Seconds of a client's silence after which the daemon sends it a keepalive message. The launcher
/// sends its own messages earlier, so it gets none. On a migration target the source's daemon is a
/// client; behind virt-handler's proxies, only the keepalive shows that the source has died.
// D-sup-15 (docs/differences.md).
const KEEPALIVE_INTERVAL: &str = "16";
/// Number of unanswered keepalive messages. After as many more intervals the daemon closes the
/// connection and ends a domain that was arriving over it.
const KEEPALIVE_COUNT: &str = "1";

/// Renders the daemon's own file: `base` (the image's text, or empty), the log filters, and the
/// launcher's settings.
pub fn daemon_conf(base: Option<&str>, log_filters: Option<&str>) -> String {
    let mut text = base.map(whole_lines).unwrap_or_default();
    add(&mut text, "log_outputs", "\"1:stderr\"");
    if base.is_none() {
        // Access to the socket's directory is enough: the pod or this user.
        add(&mut text, "auth_unix_rw", "\"none\"");
    }
    add(&mut text, "max_client_requests", MAX_CLIENT_REQUESTS);
    add(&mut text, "keepalive_interval", KEEPALIVE_INTERVAL);
    add(&mut text, "keepalive_count", KEEPALIVE_COUNT);
    if let Some(filters) = log_filters {
        text.push_str(&format!("log_filters = {}\n", quoted(filters)));
    }
    text
}

/// libvirt's log filters, if its debug log is wanted: those of `--libvirt-log-filters`, else by
/// verbosity from 5 on (a higher verbosity mutes fewer modules), else all of them for
/// `LIBVIRT_DEBUG_LOGS`.
pub fn log_filters(custom: &str, verbosity: Option<i64>, debug: bool) -> Option<String> {
    const FIRST: i64 = 5;
    const MUTED: [&str; 9] = [
        "3:remote",
        "4:event",
        "3:util.json",
        "3:util.object",
        "3:util.dbus",
        "3:util.netlink",
        "3:node_device",
        "3:rpc",
        "3:access",
    ];
    /// Modules that are also muted, each up to this many steps above `FIRST`.
    const AT_FIRST: [(&str, i64); 4] = [
        ("3:util.threadjob", 2),
        ("3:cpu.cpu", 2),
        ("3:qemu.qemu_monitor", 1),
        ("3:qemu.qemu_monitor_json", 0),
    ];
    if !custom.is_empty() {
        return Some(custom.to_owned());
    }
    let step = match verbosity {
        Some(verbosity) if verbosity >= FIRST => verbosity - FIRST,
        _ if debug => i64::MAX,
        _ => return None,
    };
    let mut filters: Vec<&str> = MUTED.to_vec();
    filters.extend(
        AT_FIRST
            .iter()
            .filter(|(_, last)| step <= *last)
            .map(|(filter, _)| *filter),
    );
    if step == 0 {
        filters.push("3:conf.domain_addr");
    }
    filters.push("1:*");
    Some(filters.join(" "))
}

/// Adds `key`, unless present.
fn add(text: &mut String, key: &str, value: &str) {
    if !text.lines().any(|line| sets(line, key)) {
        text.push_str(&format!("{key} = {value}\n"));
    }
}

/// Whether `line` sets `key`; a comment does not.
fn sets(line: &str, key: &str) -> bool {
    line.split_once('=')
        .is_some_and(|(name, _)| name.trim() == key)
}

fn whole_lines(text: &str) -> String {
    let mut text = text.to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// A string of libvirt's configuration language. It has no escapes, so it cannot contain a quote.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace(['"', '\n'], ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_added_without_a_reason() {
        assert_eq!(
            QemuConf::default().render("user = \"qemu\"\n"),
            "user = \"qemu\"\n"
        );
    }

    #[test]
    fn runtime_additions_come_after_the_images_lines() {
        let conf = QemuConf {
            hugepages: true,
            virtiofsd_debug: true,
            shared_filesystems: vec!["/a".into(), "/b".into()],
            more: vec![("stdio_handler", "\"file\"".into())],
        };
        assert_eq!(
            conf.render("user = \"qemu\""),
            "user = \"qemu\"\nhugetlbfs_mount = \"/dev/hugepages\"\nvirtiofsd_debug = 1\n\
             shared_filesystems = [ \"/a\", \"/b\" ]\nstdio_handler = \"file\"\n"
        );
    }

    #[test]
    fn key_of_the_image_stays_and_a_second_start_adds_nothing() {
        let conf = QemuConf {
            hugepages: true,
            ..QemuConf::default()
        };
        assert_eq!(
            conf.render("hugetlbfs_mount=\"/mnt\"\n"),
            "hugetlbfs_mount=\"/mnt\"\n"
        );
        let once = conf.render("#hugetlbfs_mount = \"/commented\"\n");
        assert_eq!(conf.render(&once), once);
        assert!(once.ends_with("hugetlbfs_mount = \"/dev/hugepages\"\n"));
    }

    #[test]
    fn quote_in_a_path_cannot_end_the_string() {
        let conf = QemuConf {
            shared_filesystems: vec!["/a\" ]\nuser = \"root".into()],
            ..QemuConf::default()
        };
        assert_eq!(
            conf.render(""),
            "shared_filesystems = [ \"/a ]user = root\" ]\n"
        );
    }

    #[test]
    fn daemon_logs_to_stderr_and_gets_our_limits() {
        let ours = "max_client_requests = 20\nkeepalive_interval = 16\nkeepalive_count = 1\n";
        let base = "listen_tls=0\nlog_outputs=\"1:stderr\"\n";
        assert_eq!(daemon_conf(Some(base), None), format!("{base}{ours}"));
        assert_eq!(
            daemon_conf(None, None),
            format!("log_outputs = \"1:stderr\"\nauth_unix_rw = \"none\"\n{ours}")
        );
        assert!(daemon_conf(None, Some("1:qemu")).ends_with("log_filters = \"1:qemu\"\n"));
    }

    #[test]
    fn filters_of_the_flag_come_first() {
        assert_eq!(
            log_filters("1:qemu", Some(9), true).as_deref(),
            Some("1:qemu")
        );
    }

    #[test]
    fn below_verbosity_5_there_is_no_debug_log() {
        assert_eq!(log_filters("", None, false), None);
        assert_eq!(log_filters("", Some(4), false), None);
    }

    #[test]
    fn fewer_modules_are_muted_the_higher_the_verbosity() {
        const LEAST: &str = "3:remote 4:event 3:util.json 3:util.object 3:util.dbus 3:util.netlink 3:node_device 3:rpc 3:access";
        let filters = |verbosity| log_filters("", Some(verbosity), false);
        let expected = |more: &str| Some(format!("{LEAST}{more} 1:*"));
        assert_eq!(
            filters(5),
            expected(
                " 3:util.threadjob 3:cpu.cpu 3:qemu.qemu_monitor 3:qemu.qemu_monitor_json 3:conf.domain_addr"
            )
        );
        assert_eq!(
            filters(6),
            expected(" 3:util.threadjob 3:cpu.cpu 3:qemu.qemu_monitor")
        );
        assert_eq!(filters(7), expected(" 3:util.threadjob 3:cpu.cpu"));
        assert_eq!(filters(8), expected(""));
        assert_eq!(filters(11), expected(""));
    }

    #[test]
    fn debug_logs_switch_is_the_highest_verbosity() {
        assert_eq!(
            log_filters("", None, true),
            log_filters("", Some(10), false)
        );
        assert_eq!(
            log_filters("", Some(3), true),
            log_filters("", Some(10), false)
        );
        assert_eq!(
            log_filters("", Some(6), true),
            log_filters("", Some(6), false),
            "verbosity is asked first"
        );
    }
}
