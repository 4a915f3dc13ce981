//! libvirt itself reads what we write: every domain of the corpora for amd64 is defined with
//! libvirt's test driver, which parses and checks a document as the real ones do, but runs nothing.

use std::sync::{Mutex, OnceLock, PoisonError};

use api::vmi::Vmi;
use convert::Context;
use libtest_mimic::Trial;
use libvirt::{Connection, Error, MayChange, Undefine, start_event_loop};

use crate::corpus::{self, Case, Differences};

/// What libvirt refuses in domains that the reference makes just so; part of its message, and why.
const REFUSED: &[(&str, &str)] = &[
    (
        "Memory size must be specified",
        "a unit test's VMI without memory; admission gives every VMI some",
    ),
    (
        "Unknown disk name 'a'",
        "a unit test's disk without a bus; admission gives every disk one",
    ),
    (
        "Invalid value for attribute 'device' in element 'disk': ''",
        "a unit test's disk that is not a disk, LUN or CD-ROM; admission makes it a disk",
    ),
    (
        "Missing required attribute 'retries'",
        "spinlocks without a count; admission fills it in",
    ),
    (
        "HyperV spinlock retry count must be at least",
        "spinlocks with a count that admission refuses",
    ),
    (
        "missing 'value' attribute for HyperV feature 'vendor_id'",
        "a vendor id without a value; admission refuses it",
    ),
    (
        "'launchSecurity': 'tdx'",
        "libvirt 11.3 does not know TDX yet",
    ),
    (
        "device='lun' is only valid for block type",
        "a LUN on a file; virt-handler reports it when it inspects the claim",
    ),
    (
        "Invalid value for attribute 'type' in element 'interface': ''",
        "an interface without a binding; admission gives every interface one",
    ),
    (
        "Invalid value for attribute 'start' in element 'range'",
        "a port 0; admission refuses it",
    ),
    (
        "Invalid value for attribute 'action' in element 'watchdog': ''",
        "a watchdog without an action; admission fills it in",
    ),
    (
        "firmware auto selection disabled",
        "an EFI guest in a context without firmware images",
    ),
    (
        "Only one vgpu device can have 'ramfb'",
        "two displays on GPUs; admission refuses it",
    ),
    (
        "Multiple panic devices with model",
        "two panic devices of a model; libvirt takes one",
    ),
    (
        "USB is disabled",
        "a unit test's USB host device on a machine without USB",
    ),
    (
        "element 'model': 'test-video'",
        "a unit test's made-up video model",
    ),
    (
        "Invalid value for attribute 'type' in element 'model': ''",
        "a unit test's video device without a model",
    ),
    (
        "element 'hostdev': 'sriov-test'",
        "a unit test's made-up kind of host device",
    ),
    (
        "specified more than once",
        "a CPU feature that the VMI names twice",
    ),
];

pub fn tests() -> Vec<Trial> {
    let files = ["domain-xml/generated.jsonl", "domain-xml/recorded.jsonl"];
    let is_accepted = |case: &Case| {
        case.get("error").is_none() && case.value["context"]["architecture"] == "amd64"
    };
    corpus::tests("libvirt_accepts", &files, is_accepted, check)
}

/// libvirt's test driver, for one case at a time: many of them have the same name.
fn connection() -> &'static Mutex<Connection> {
    static CONNECTION: OnceLock<Mutex<Connection>> = OnceLock::new();
    CONNECTION.get_or_init(|| {
        start_event_loop().expect("libvirt's event loop starts");
        let connection = Connection::open("test:///default");
        Mutex::new(connection.expect("libvirt's test driver is always there"))
    })
}

fn check(case: &Case) -> Differences {
    let vmi: Vmi =
        serde_json::from_value(case.value["vmi"].clone()).expect("a VMI of the corpus can be read");
    let context: Context = serde_json::from_value(case.value["context"].clone())
        .expect("a context of the corpus can be read");
    let domain = convert::domain(&vmi, &context).expect("the reference accepts it");
    match define(&domain.to_xml()) {
        Err(error) if !is_known(&error) => vec![error.to_string()],
        _ => Vec::new(),
    }
}

fn is_known(error: &Error) -> bool {
    REFUSED.iter().any(|(text, _)| error.message.contains(text))
}

struct Test;

impl MayChange for Test {}

fn define(xml: &str) -> Result<(), Error> {
    let connection = connection().lock().unwrap_or_else(PoisonError::into_inner);
    connection.define(&Test, xml)?.undefine(Undefine::Plain)
}
