//! What the worst documents cost: each is decoded by a process of its own, whose memory nothing
//! else has used before.
#![cfg(target_os = "linux")]

use std::env::{current_exe, var};
use std::fs;
use std::process::Command;

use api::json::{MAX_ENTRIES, MAX_VALUES, from_slice};
use api::vmi::Vmi;
use serde_json::Value;

/// Limit of a message to the launcher.
const MESSAGE_BYTES: usize = 4 << 20;
/// What decoding may add to the memory of the process: see docs/security.md.
const MAX_KIB: u64 = 32 << 10;
/// The file with the document that a child decodes, and as what.
const DOCUMENT: &str = "COST_TEST_DOCUMENT";
const TYPE: &str = "COST_TEST_TYPE";

/// The process's peak of memory so far, in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

/// In the child: decodes the document, and prints what that has added to the peak, and whether it
/// is accepted.
fn decode(document: &str) {
    let json = fs::read(document).unwrap();
    let before = peak();
    let is_ok = match var(TYPE).unwrap().as_str() {
        "VMI" => from_slice::<Vmi>(&json).is_ok(),
        _ => from_slice::<Value>(&json).is_ok(),
    };
    println!("\nCOST {} {is_ok}", peak() - before);
}

/// What a child prints: the added memory in KiB, and whether the document is accepted.
fn cost(document: &str, of_type: &str) -> (u64, bool) {
    let child = Command::new(current_exe().unwrap())
        .args(["--nocapture", "the_worst_documents"])
        .env(DOCUMENT, document)
        .env(TYPE, of_type)
        .output()
        .unwrap();
    let output = String::from_utf8(child.stdout).unwrap();
    let line = output.lines().find_map(|line| line.strip_prefix("COST "));
    let (kib, is_ok) = line.unwrap().split_once(' ').unwrap();
    (kib.parse().unwrap(), is_ok == "true")
}

fn list(entry: &str, count: usize) -> String {
    format!("[{}]", vec![entry; count].join(","))
}

fn vmi(spec: &str) -> String {
    format!(r#"{{"metadata":{{"name":"a","namespace":"b"}},"spec":{{{spec}}}}}"#)
}

/// As many entries as the limits allow, in all lists of the largest types.
fn full_lists() -> String {
    let full = list("{}", MAX_ENTRIES - 8);
    let devices = ["disks", "interfaces", "inputs", "gpus", "hostDevices"];
    let devices: Vec<String> = devices
        .iter()
        .map(|name| format!(r#""{name}":{full}"#))
        .collect();
    vmi(&format!(
        r#""volumes":{full},"domain":{{"devices":{{{}}}}}"#,
        devices.join(",")
    ))
}

#[test]
fn the_worst_documents_take_a_bounded_amount_of_memory() {
    if let Ok(document) = var(DOCUMENT) {
        return decode(&document);
    }
    let endless = |entry: &str| list(entry, MESSAGE_BYTES / (entry.len() + 1));
    let volumes = vmi(&format!(r#""volumes":{}"#, endless("{}")));
    let disks = vmi(&format!(
        r#""domain":{{"devices":{{"disks":{}}}}}"#,
        endless("{}")
    ));
    let spread = vec![list(r#"{"":0}"#, MAX_ENTRIES - 1); MESSAGE_BYTES / MAX_ENTRIES / 7];
    let objects = list(
        &list(r#"{"":0}"#, MAX_ENTRIES / 2 - 1),
        MAX_VALUES / MAX_ENTRIES,
    );
    let text = vmi(&format!(
        r#""hostname":"{}""#,
        "a".repeat(MESSAGE_BYTES - 100)
    ));
    for (name, json, is_legal) in [
        ("volumes without end", volumes, false),
        ("disks without end", disks, false),
        (
            "objects without end",
            format!("[{}]", spread.join(",")),
            false,
        ),
        ("lists at their limit", full_lists(), true),
        ("objects at their limit", objects, true),
        ("one long text", text, true),
    ] {
        let file = std::env::temp_dir().join(format!("cost-{}.json", std::process::id()));
        fs::write(&file, &json).unwrap();
        let document = file.to_str().unwrap();
        let (typed, _) = cost(document, "VMI");
        let (untyped, is_ok) = cost(document, "value");
        fs::remove_file(&file).unwrap();
        let size = json.len() >> 10;
        println!("{name}: {size} KiB of JSON, {typed} KiB as a VMI, {untyped} KiB as a value");
        assert!(typed.max(untyped) <= MAX_KIB, "{name}: {typed}, {untyped}");
        assert_eq!(is_ok, is_legal, "{name}");
    }
}
