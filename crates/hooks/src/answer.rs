//! Checks the domain XML that a sidecar or plugin returns: a `<domain>` document within the limits
//! of [`domain::xml::tree`], with the name and UUID of the domain it was given.

use domain::excerpt;
use domain::xml::ReadError;
use domain::xml::tree::{Element, Node};

/// Maximum of each: vCPUs, which libvirt describes up to this number (`VIR_DOMAIN_CPUMASK_LEN`),
/// I/O threads and controllers.
const MAX_PARTS: u32 = 16_384;

/// Why an answer is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    /// The answer is not well-formed XML, or exceeds a limit.
    #[error("{0}{remedy}", remedy = remedy(.0))]
    Tree(ReadError),
    #[error("the root element is <{0}>, not <domain>")]
    Root(String),
    /// `name` or `uuid`, its value before the call, and the returned value: empty if removed.
    #[error(
        "the domain's {0} was changed from {1:?} to {2:?}: virt-handler would lose the virtual machine"
    )]
    OtherDomain(&'static str, String, String),
    /// The element or attribute and its text.
    #[error("{0} is {1}, and {MAX_PARTS} at most are permitted: libvirt takes memory for each")]
    TooMany(&'static str, String),
}

/// An accepted answer, as text and as a tree.
#[derive(Debug)]
pub struct Answer {
    /// The answer without its byte order mark and XML declaration. Every later reader then takes it
    /// for UTF-8, as the check did.
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
    few_parts(&tree)?;
    let text = text.to_owned();
    Ok(Answer { text, tree })
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
    let declaration = text.strip_prefix("<?xml");
    let declared = declaration.and_then(|rest| rest.split_once("?>"));
    Ok(declared.map_or(text, |(_, document)| document))
}

/// virt-handler finds the virtual machine by its name and UUID.
// D-hook-8 (docs/differences.md).
fn same_domain(before: &Element, after: &Element) -> Result<(), AnswerError> {
    let rules = [
        ("name", "name", str::to_owned as fn(&str) -> String),
        ("UUID", "uuid", canonical_uuid as fn(&str) -> String),
    ];
    for (what, element, canonical) in rules {
        let (old, new) = (text_of(before, element), text_of(after, element));
        // A sidecar may set a missing UUID, because libvirt would generate one.
        if !old.is_empty() && canonical(&old) != canonical(&new) {
            let (old, new) = (quoted(&old), quoted(&new));
            return Err(AnswerError::OtherDomain(what, old, new));
        }
    }
    Ok(())
}

/// Refuses numbers above [`MAX_PARTS`]. libvirt makes that many vCPUs, I/O threads and disk
/// controllers (up to the one of an address) in its memory before it or QEMU refuses them.
// D-hook-20 (docs/differences.md).
fn few_parts(tree: &Element) -> Result<(), AnswerError> {
    let devices = tree.children().filter(|child| child.name == "devices");
    let addresses = devices
        .flat_map(Element::children)
        .flat_map(Element::children);
    let controllers = addresses.filter_map(|address| address.attribute("controller"));
    let controllers = controllers.map(|number| ("controller", number.to_owned()));
    let counts = ["vcpu", "iothreads"].map(|name| (name, text_of(tree, name)));
    let is_large = |(_, text): &(&str, String)| {
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        !digits.is_empty() && digits.parse().unwrap_or(u32::MAX) > MAX_PARTS
    };
    match counts.into_iter().chain(controllers).find(is_large) {
        Some((what, number)) => Err(AnswerError::TooMany(what, quoted(&number))),
        None => Ok(()),
    }
}

/// The text of the first element `name` without a namespace, with its white space: what libvirt
/// reads by the XPath `string(./NAME[1])`. If the element contains others, whose text libvirt would
/// include, returns the XML of the whole element.
fn text_of(tree: &Element, name: &str) -> String {
    let around = tree.attribute("xmlns").unwrap_or_default();
    let found = tree
        .children()
        .find(|child| child.name == name && child.attribute("xmlns").unwrap_or(around).is_empty());
    match found.map(|element| (element, element.nodes.as_slice())) {
        None | Some((_, [])) => String::new(),
        Some((_, [Node::Text(text)])) => text.clone(),
        Some((element, _)) => element.to_xml(),
    }
}

fn quoted(text: &str) -> String {
    /// A domain's name is `<namespace>_<name>`, each of at most 63 characters.
    const MAX_CHARS: usize = 128;
    excerpt(text, MAX_CHARS)
}

/// libvirt accepts a UUID in either case, and with or without its hyphens.
#[must_use]
pub fn canonical_uuid(uuid: &str) -> String {
    let digits = uuid.chars().filter(char::is_ascii_hexdigit);
    digits.map(|digit| digit.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
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
            AnswerError::OtherDomain("name", ..)
        ));
        assert!(
            matches!(refusal("<domain/>"), AnswerError::OtherDomain(_, _, after) if after.is_empty())
        );
    }

    #[test]
    fn a_name_is_compared_as_libvirt_reads_it() {
        let name = |name: &str| GIVEN.replace("<name>ns_vm</name>", name);
        for renamed in [
            "<name>ns_vm<b>zzz</b></name>",
            "<name><b>ns_vm</b></name>",
            "<name>ns_vm<b/> </name>",
            "<name> ns_vm </name>",
            "<name>\u{a0}ns_vm</name>",
            "<name>ns_vm<!-- --> </name>",
            "<name xmlns='urn:x'>ns_vm</name><name>other</name>",
            "<x:name xmlns:x='urn:x'>ns_vm</x:name>",
            "<name>other</name><name>ns_vm</name>",
        ] {
            let error = refusal(name(renamed));
            assert!(
                matches!(error, AnswerError::OtherDomain("name", ..)),
                "{renamed} {error}"
            );
        }
        for same in [
            "<name>ns_<!-- -->vm</name>",
            "<name>ns<![CDATA[_]]>v&#109;</name>",
            "<name xmlns=''>ns_vm</name><name>other</name>",
        ] {
            check(&Element::parse(GIVEN).unwrap(), name(same).as_bytes()).unwrap();
        }
        let hidden = GIVEN.replace("<uuid>", "<uuid xmlns='urn:x'>");
        assert!(matches!(
            refusal(hidden),
            AnswerError::OtherDomain("UUID", ..)
        ));
    }

    #[test]
    fn a_changed_or_removed_uuid_is_refused_but_another_spelling_is_not() {
        assert!(matches!(
            refusal(GIVEN.replace("5d30", "5d31")),
            AnswerError::OtherDomain("UUID", ..)
        ));
        assert!(matches!(
            refusal("<domain><name>ns_vm</name></domain>"),
            AnswerError::OtherDomain("UUID", ..)
        ));
        let spelled = GIVEN.replace("5d307ca9-b3ef", "5D307CA9b3ef");
        check(&Element::parse(GIVEN).unwrap(), spelled.as_bytes()).unwrap();
    }

    #[test]
    // D-hook-20 (docs/differences.md).
    fn numbers_of_which_libvirt_makes_parts_are_bounded() {
        let with = |part: &str| GIVEN.replace("</domain>", &format!("{part}</domain>"));
        let disk = |controller: &str| {
            format!(
                "<devices/><devices><disk><address type='drive' controller='{controller}'/></disk></devices>"
            )
        };
        for many in [
            "<vcpu placement='static'>40000000</vcpu>",
            "<vcpu> 4<b/>0000000</vcpu>",
            "<iothreads>99999999999999999999</iothreads>",
            &disk("16385"),
        ] {
            let error = refusal(with(many));
            assert!(matches!(error, AnswerError::TooMany(..)), "{many} {error}");
        }
        for few in [
            "<vcpu current='1'>16384</vcpu>",
            "<vcpu/>",
            &disk("16384"),
            &disk(""),
        ] {
            check(&Element::parse(GIVEN).unwrap(), with(few).as_bytes()).unwrap();
        }
    }

    #[test]
    fn libvirt_gets_the_text_that_was_checked_without_a_declared_encoding() {
        for encoding in ["utf-8", "us-ascii", "ISO-8859-1", "UTF-7"] {
            let text = format!("<?xml version='1.0' encoding='{encoding}'?>{GIVEN}");
            let accepted = check(&Element::parse(GIVEN).unwrap(), text.as_bytes()).unwrap();
            assert_eq!(accepted.text, GIVEN);
        }
    }
}
