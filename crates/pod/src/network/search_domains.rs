//! Search domains as DHCP carries them.

/// The domains that may be sent. Any other domain would spoil the whole option in the guest.
// D-net-5 (docs/differences.md).
pub(crate) fn valid_search_domains(domains: &[String]) -> Vec<String> {
    let (valid, invalid): (Vec<_>, Vec<_>) = domains
        .iter()
        .cloned()
        .partition(|domain| is_domain_name(domain));
    if !invalid.is_empty() {
        tracing::warn!(
            domains = invalid.join(" "),
            "invalid search domains are not given to the guest"
        );
    }
    valid
}

/// Labels of 1 to 63 letters, digits and hyphens between dots; the last begins with a letter; a dot
/// may follow.
fn is_domain_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let labels: Vec<&str> = name.split('.').collect();
    let valid = |label: &&str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let ends = |byte: Option<&u8>| byte.is_some_and(|byte| inner(*byte));
        let bytes = label.as_bytes();
        bytes.len() <= 63
            && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
            && ends(bytes.first())
            && bytes.last() != Some(&b'-')
            && (bytes.len() == 1 || bytes.last() != Some(&b'_'))
    };
    let top = labels.last().is_some_and(|top| {
        top.starts_with(|first: char| first.is_ascii_lowercase()) && !top.contains('_')
    });
    name.len() <= 253 && top && labels.iter().all(valid)
}

/// RFC 1035: each label with its length before it, and an empty one at the end. Names are not
/// compressed.
pub(crate) fn domain_octets(domain: &str) -> Vec<u8> {
    let labels = domain.split('.').filter(|label| !label.is_empty());
    let mut bytes: Vec<u8> = labels
        .flat_map(|label| u8::try_from(label.len()).into_iter().chain(label.bytes()))
        .collect();
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_names() {
        let long = format!("{}.example", "a".repeat(63));
        for name in [
            "a",
            "cluster.local",
            "x1.y-z.example.",
            "_tcp.example",
            "9.example",
            "a_b.example",
            long.as_str(),
        ] {
            assert!(is_domain_name(name), "{name}");
        }
        let longer = format!("{}.example", "a".repeat(64));
        let far = "abcdefgh.".repeat(28) + "example";
        for name in [
            "",
            ".",
            "..",
            "-a.example",
            "a-.example",
            "a..b",
            "1.2.3.4",
            "a.b_c",
            "A.example",
            "a b",
            "é.example",
            "a_.example",
            &longer,
            &far,
        ] {
            assert!(!is_domain_name(name), "{name}");
        }
    }

    #[test]
    fn names_are_written_label_by_label() {
        assert_eq!(domain_octets("a.example"), b"\x01a\x07example\x00");
        assert_eq!(domain_octets("a.example."), b"\x01a\x07example\x00");
    }
}
