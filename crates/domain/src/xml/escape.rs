//! Escaped text.

/// Escapes for both attributes and text; what XML 1.0 cannot hold becomes U+FFFD, as Go does.
pub(crate) fn escape(raw: &str, out: &mut String) {
    let bytes = raw.as_bytes();
    let mut done = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let (replacement, length) = match byte {
            b'<' => ("&lt;", 1),
            b'>' => ("&gt;", 1),
            b'&' => ("&amp;", 1),
            b'"' => ("&#34;", 1),
            b'\'' => ("&#39;", 1),
            b'\t' => ("&#x9;", 1),
            b'\n' => ("&#xA;", 1),
            b'\r' => ("&#xD;", 1),
            0..b' ' => ("\u{fffd}", 1),
            // U+FFFE and U+FFFF.
            0xef if matches!(bytes.get(at..), Some([_, 0xbf, 0xbe | 0xbf, ..])) => ("\u{fffd}", 3),
            _ => continue,
        };
        out.push_str(raw.get(done..at).unwrap_or_default());
        out.push_str(replacement);
        done = at + length;
    }
    out.push_str(raw.get(done..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(raw: &str) -> String {
        let mut out = String::new();
        escape(raw, &mut out);
        out
    }

    #[test]
    fn what_xml_reserves_is_escaped() {
        assert_eq!(escaped("a<b>&\"c'"), "a&lt;b&gt;&amp;&#34;c&#39;");
        assert_eq!(escaped("\t\r\n"), "&#x9;&#xD;&#xA;");
        assert_eq!(escaped("plain"), "plain");
        assert_eq!(escaped(""), "");
    }

    #[test]
    fn what_xml_cannot_hold_is_replaced() {
        assert_eq!(
            escaped("a\0b\u{1f}c\u{fffe}\u{ffff}d"),
            "a\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}d"
        );
    }

    #[test]
    fn neighbours_of_the_unwritable_stay() {
        let text = "\u{fffd}\u{fff0}\u{10000}ÿ\u{7f}é𝄞";
        assert_eq!(escaped(text), text);
    }
}
