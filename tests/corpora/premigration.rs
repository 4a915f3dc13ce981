//! Domains that arrive by migration, with what KubeVirt's own pre-migration hooks make of them:
//! `xml-fixtures/premigration/cases.jsonl`, a case a line. They are generated: CPU sets and
//! topologies, vCPUs plugged in and not, I/O threads, namespaces in paths, numbered taps, vGPUs;
//! also those that the hooks refuse.

use std::path::Path;

use convert::Context;
use convert::premigration::{Rewrites, rewrite};
use domain::xml::tree::{Element, Node};
use libtest_mimic::Trial;
use serde_json::Value as Json;

use crate::golden;

pub fn tests() -> Vec<Trial> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("xml-fixtures/premigration/cases.jsonl");
    let cases = golden::read(&path);
    let cases: Vec<String> = cases.lines().map(str::to_owned).collect();
    assert!(cases.len() >= 200, "{}", path.display());
    let trial = |(number, line): (usize, String)| {
        Trial::test(format!("premigration/{number}"), move || check(&line))
    };
    cases.into_iter().enumerate().map(trial).collect()
}

fn check(line: &str) -> Result<(), libtest_mimic::Failed> {
    let case: Json = serde_json::from_str(line)?;
    let vmi = serde_json::from_value(case["vmi"].clone())?;
    let context: Context = serde_json::from_value(case["context"].clone())?;
    let rewrites = Rewrites {
        upgrade_ordinal_interfaces: true,
        vgpu: true,
    };
    let found = rewrite(case["xml"].as_str().unwrap(), &vmi, &context, rewrites);
    match (found, case["result"].as_str()) {
        (Err(_), None) => Ok(()),
        (Ok(found), None) => Err(format!("{} is not refused, but\n{found}", case["error"]).into()),
        (Err(error), Some(_)) => Err(error.into()),
        (Ok(found), Some(expected)) => {
            let (found, expected) = (canonical(&found), canonical(expected));
            if found == expected {
                Ok(())
            } else {
                Err(format!("{found}\nis not\n{expected}").into())
            }
        }
    }
}

/// The document without what means nothing to libvirt: the order of elements of different names,
/// and of attributes.
fn canonical(xml: &str) -> String {
    let mut domain = Element::parse(xml).unwrap();
    sort(&mut domain);
    domain.to_xml()
}

fn sort(element: &mut Element) {
    element.children_mut().for_each(sort);
    element.attributes.sort();
    element.nodes.sort_by_key(|node| match node {
        Node::Element(child) => child.name.clone(),
        Node::Text(_) => String::new(),
    });
}
