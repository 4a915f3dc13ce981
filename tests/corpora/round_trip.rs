//! Every domain of the corpora is read, written and read again: nothing that the schema knows gets
//! lost, and what the reference wrote is written in the same order, attributes included.

use domain::DomainSpec;
use libtest_mimic::Trial;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::corpus::{self, Case, Differences};

pub fn tests() -> Vec<Trial> {
    let files = [
        "domain-xml/recorded.jsonl",
        "domain-xml/generated.jsonl",
        "domain-json/live.jsonl",
        "disk-plan/generated.jsonl",
    ];
    let is_accepted = |case: &Case| case.get("error").is_none();
    corpus::tests("round_trip", &files, is_accepted, documents)
}

/// What of each document of the case is lost.
fn documents(case: &Case) -> Differences {
    // What libvirt wrote is in libvirt's order, with elements beyond the schema.
    let ours = !case.name.starts_with("live/") && !case.name.ends_with("-libvirt");
    let documents = [("xml", ours), ("live", ours), ("wanted", true)];
    let found = documents
        .iter()
        .filter(|(member, _)| case.get(member).is_some())
        .flat_map(|(member, same_order)| {
            check(case.text(member), *same_order)
                .unwrap_or_else(|e| vec![e])
                .into_iter()
                .map(move |line| format!("{member}: {line}"))
        });
    found.collect()
}

fn check(text: &str, same_order: bool) -> Result<Differences, String> {
    let domain = DomainSpec::from_xml(text).map_err(|e| e.to_string())?;
    let written = domain.to_xml();
    let again =
        DomainSpec::from_xml(&written).map_err(|e| format!("cannot read what we wrote: {e}"))?;
    let mut found = Vec::new();
    if again != domain {
        found.push("something got lost in writing".to_owned());
    }
    if again.to_xml() != written {
        found.push("written twice, the texts differ".to_owned());
    }
    if same_order {
        let (want, got) = (events(text)?, events(&written)?);
        let at = want
            .iter()
            .zip(&got)
            .position(|(want, got)| want != got)
            .unwrap_or(want.len().min(got.len()));
        let end = String::from("the end");
        let (want, got) = (want.get(at).unwrap_or(&end), got.get(at).unwrap_or(&end));
        if want != got {
            found.push(format!("event {at}: {want}, got {got}"));
        }
    }
    Ok(found)
}

/// Tags and texts in their order, without indentation.
fn events(text: &str) -> Result<Vec<String>, String> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut out = Vec::new();
    loop {
        match reader.read_event().map_err(|e| e.to_string())? {
            Event::Start(start) => out.push(tag(&start)?),
            Event::End(end) => out.push(format!("</{}>", end.name().into_inner())),
            Event::Text(text) if text.trim().is_empty() => {}
            Event::Text(text) => out.push(text.into_inner().into_owned()),
            Event::GeneralRef(name) => out.push(format!("&{};", &*name)),
            Event::Eof => return Ok(out),
            _ => {}
        }
    }
}

fn tag(start: &BytesStart<'_>) -> Result<String, String> {
    let mut out = format!("<{}", start.name().into_inner());
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|e| e.to_string())?;
        out += &format!(" {}={:?}", attribute.key.into_inner(), attribute.value);
    }
    Ok(out)
}
