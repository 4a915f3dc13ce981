//! Makes the texts of errors stable for virt-handler, which makes a Kubernetes event of each failed
//! sync: events with equal texts become one with a count. The launcher's log has the original text.

use std::borrow::Cow;

use jiff::Timestamp;

/// Comes before the number that libvirt gives each start of a domain: `/domain-7-default_web/`.
const START: &str = "/domain-";

/// Removes QEMU's timestamps and libvirt's start numbers.
// D-vm-18 (docs/differences.md).
pub(super) fn stable_text(text: &str) -> String {
    text.split_inclusive(char::is_whitespace)
        .filter(|word| word.trim_end().parse::<Timestamp>().is_err())
        .map(without_start_number)
        .collect()
}

fn without_start_number(word: &str) -> Cow<'_, str> {
    let stable = word.split_once(START).and_then(|(before, after)| {
        let name = after.trim_start_matches(|c: char| c.is_ascii_digit());
        (name.len() < after.len() && name.starts_with('-'))
            .then(|| format!("{before}/domain{name}"))
    });
    stable.map_or(Cow::Borrowed(word), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_failure_has_the_same_text() {
        let failure = |time: &str, start: u32| {
            stable_text(&format!(
                "LibvirtError(Code=1, Domain=10, Message='internal error: process exited while connecting to monitor: \
                 {time} qemu-system-x86_64: -chardev socket,path=/x/domain-{start}-default_web/m.sock: busy\n\
                 {time} qemu-system-x86_64: gone')"
            ))
        };
        let first = failure("2026-11-23T09:50:57.149202Z", 1);
        assert_eq!(first, failure("2026-11-23T09:51:13.000007Z", 12));
        assert!(
            first.contains("monitor: qemu-system-x86_64: -chardev socket,path=/x/domain-default_web/m.sock: busy\nqemu-"),
            "{first}"
        );
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for text in [
            "",
            "disk \"a\"  (sda): 12 of 33\n",
            "Domain not found: no domain with matching name 'domain-12-x' on 2026-11-23",
            "/x/domain-/y /domain-7/z",
        ] {
            assert_eq!(stable_text(text), text);
        }
    }
}
