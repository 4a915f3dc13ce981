//! Checks the domain XML that a sidecar or plugin returns: a `<domain>` document within the limits
//! of [`domain::xml::tree`], with the name and UUID of the domain it was given.

use domain::excerpt;
use domain::xml::ReadError;
use domain::xml::tree::Element;

/// Why an answer is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The answer has no bytes, or only white space.
    #[error(
        "the answer is empty; a sidecar that changes nothing returns the domain XML it was given"
    )]
    Empty,
    /// The answer is not UTF-8.
    #[error("line {line}: the answer is not UTF-8")]
    NotUtf8 {
        /// Line number, from 1.
        line: usize,
    },
    /// The XML declaration names an encoding that does not fit the bytes.
    #[error("line 1: the answer declares the encoding {0:?}; domain XML has to be UTF-8")]
    Encoding(String),
    /// The answer is not well-formed XML, or exceeds a limit.
    #[error("{0}{remedy}", remedy = remedy(.0))]
    Tree(ReadError),
    #[error("the root element is <{0}>, not <domain>")]
    Root(String),
    #[error(
        "the domain's name was changed from {before:?} to {after:?}: virt-handler would lose the virtual machine"
    )]
    Renamed {
        /// The name in the sidecar's input.
        before: String,
        /// The name that the sidecar returned; empty if it removed the name.
        after: String,
    },
    #[error(
        "the domain's UUID was changed from {before:?} to {after:?}: virt-handler would lose the virtual machine"
    )]
    OtherUuid {
        /// The UUID in the sidecar's input.
        before: String,
        /// The UUID that the sidecar returned; empty if it removed the UUID.
        after: String,
    },
}

/// An accepted answer, as text and as a tree.
#[derive(Debug)]
pub struct Answer {
    /// The answer as it came, without a byte order mark.
    pub text: String,
    pub tree: Element,
}

/// Checks the answer to the document `before`.
///
/// # Errors
/// The first problem found.
pub fn check(before: &Element, answer: &[u8]) -> Result<Answer, AnswerError> {
    let text = text(answer)?;
    let tree = Element::parse(text).map_err(AnswerError::Tree)?;
    if tree.name != "domain" {
        return Err(AnswerError::Root(quoted(&tree.name)));
    }
    same_domain(before, &tree)?;
    Ok(Answer {
        text: text.to_owned(),
        tree,
    })
}

/// What to do about an answer that cannot be read.
fn remedy(error: &ReadError) -> &'static str {
    match error {
        ReadError::StrayText { .. } => "; a script's standard output has the answer only",
        _ => "",
    }
}

fn text(answer: &[u8]) -> Result<&str, AnswerError> {
    let text = std::str::from_utf8(answer).map_err(|error| {
        let good = answer.get(..error.valid_up_to()).unwrap_or_default();
        AnswerError::NotUtf8 {
            line: 1 + good.iter().filter(|&&byte| byte == b'\n').count(),
        }
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(AnswerError::Empty);
    }
    match declared_encoding(text) {
        Some(other) if !is_readable_as_utf8(other, text) => {
            Err(AnswerError::Encoding(quoted(other)))
        }
        _ => Ok(text),
    }
}

fn declared_encoding(text: &str) -> Option<&str> {
    let (declaration, _) = text.strip_prefix("<?xml")?.split_once("?>")?;
    let value = declaration
        .split_once("encoding")?
        .1
        .trim_start()
        .strip_prefix('=')?
        .trim_start();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (name, _) = value.strip_prefix(quote)?.split_once(quote)?;
    Some(name)
}

/// Whether the text has the same meaning in this encoding as in UTF-8.
fn is_readable_as_utf8(encoding: &str, text: &str) -> bool {
    let encoding = encoding.to_ascii_lowercase();
    matches!(encoding.as_str(), "utf-8" | "utf8")
        || (text.is_ascii() && !encoding.starts_with("utf-") && !encoding.starts_with("ucs"))
}

/// virt-handler finds the virtual machine by its name and UUID.
// D-hook-8 (docs/differences.md).
fn same_domain(before: &Element, after: &Element) -> Result<(), AnswerError> {
    let text_of =
        |tree: &Element, name: &str| tree.child(name).map(Element::text).unwrap_or_default();
    let (old, new) = (text_of(before, "name"), text_of(after, "name"));
    if old != new {
        return Err(AnswerError::Renamed {
            before: quoted(&old),
            after: quoted(&new),
        });
    }
    let (old, new) = (text_of(before, "uuid"), text_of(after, "uuid"));
    // A sidecar may set a missing UUID, because libvirt would generate one.
    if !old.is_empty() && canonical_uuid(&old) != canonical_uuid(&new) {
        return Err(AnswerError::OtherUuid {
            before: quoted(&old),
            after: quoted(&new),
        });
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    /// A domain's name is `<namespace>_<name>`, each of at most 63 characters.
    const MAX_CHARS: usize = 128;
    excerpt(text, MAX_CHARS)
}

/// libvirt accepts a UUID in either case, and with or without its hyphens.
fn canonical_uuid(uuid: &str) -> String {
    uuid.chars()
        .filter(char::is_ascii_hexdigit)
        .map(|digit| digit.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GIVEN: &str =
        "<domain><name>ns_vm</name><uuid>5d307ca9-b3ef-428c-8861-06e72d69f223</uuid></domain>";

    fn refusal(answer: impl AsRef<[u8]>) -> AnswerError {
        check(&Element::parse(GIVEN).unwrap(), answer.as_ref()).unwrap_err()
    }

    #[test]
    // D-hook-11 (docs/differences.md).
    fn elements_unknown_to_the_launcher_stay_as_they_are() {
        let answer = GIVEN.replace(
            "</domain>",
            "<x:new xmlns:x='urn:x' a=\"1\">\n <b/></x:new></domain>\n",
        );
        let accepted = check(&Element::parse(GIVEN).unwrap(), answer.as_bytes()).unwrap();
        assert_eq!(accepted.text, answer);
    }

    #[test]
    fn a_byte_order_mark_is_removed() {
        let accepted = check(
            &Element::parse(GIVEN).unwrap(),
            format!("\u{feff}{GIVEN}").as_bytes(),
        )
        .unwrap();
        assert_eq!(accepted.text, GIVEN);
    }

    #[test]
    fn an_empty_answer_is_refused() {
        assert_eq!(refusal(""), AnswerError::Empty);
        assert_eq!(refusal(" \n"), AnswerError::Empty);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused_with_their_line() {
        assert_eq!(
            refusal(b"<domain>\n\n\xff</domain>"),
            AnswerError::NotUtf8 { line: 3 }
        );
    }

    #[test]
    fn another_root_element_is_refused() {
        assert_eq!(refusal("<domains/>"), AnswerError::Root("domains".into()));
    }

    #[test]
    fn a_renamed_domain_is_refused() {
        assert!(matches!(
            refusal(GIVEN.replace("ns_vm", "other")),
            AnswerError::Renamed { .. }
        ));
        assert!(
            matches!(refusal("<domain/>"), AnswerError::Renamed { after, .. } if after.is_empty())
        );
    }

    #[test]
    fn a_changed_or_removed_uuid_is_refused_but_another_spelling_is_not() {
        assert!(matches!(
            refusal(GIVEN.replace("5d30", "5d31")),
            AnswerError::OtherUuid { .. }
        ));
        assert!(matches!(
            refusal("<domain><name>ns_vm</name></domain>"),
            AnswerError::OtherUuid { .. }
        ));
        let spelled = GIVEN.replace("5d307ca9-b3ef", "5D307CA9b3ef");
        check(&Element::parse(GIVEN).unwrap(), spelled.as_bytes()).unwrap();
    }

    #[test]
    fn a_declared_encoding_must_match_the_bytes() {
        let given = Element::parse(GIVEN).unwrap();
        for good in ["utf-8", "UTF-8", "us-ascii", "ISO-8859-1"] {
            check(
                &given,
                format!("<?xml version='1.0' encoding='{good}'?>{GIVEN}").as_bytes(),
            )
            .unwrap();
        }
        assert!(matches!(
            refusal(format!("<?xml version='1.0' encoding=\"utf-16\"?>{GIVEN}")),
            AnswerError::Encoding(_)
        ));
        let accent = GIVEN.replace("</domain>", "<title>é</title></domain>");
        assert!(matches!(
            refusal(format!("<?xml version='1.0' encoding='latin1'?>{accent}")),
            AnswerError::Encoding(_)
        ));
    }
}
