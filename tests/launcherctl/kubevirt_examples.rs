//! What `check`, `convert` and `run` say of each of KubeVirt's examples.

#[path = "../kubevirt_examples/mod.rs"]
mod table;

use std::collections::BTreeSet;

use super::{done, has, in_repository, refused};
use table::{EXAMPLES, Outcome, file};

#[test]
fn the_table_has_every_file() {
    let files = std::fs::read_dir(in_repository("tests/kubevirt_examples")).unwrap();
    let files = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> = files.filter(|name| name != "mod.rs").collect();
    let listed = EXAMPLES.iter().map(|(name, _)| format!("{name}.yaml"));
    assert_eq!(files, listed.collect());
}

#[test]
fn each_starts_or_says_why_not() {
    for (name, (note, outcome)) in &EXAMPLES {
        let file = file(name);
        let checked = done(&format!("check {file}"));
        match *note {
            "" => has(&checked, &format!("{file}: ok (checked: ")),
            note => assert!(
                checked.contains(": note: ") && checked.contains(note),
                "{checked}"
            ),
        }
        match outcome {
            Outcome::Refuses(why) => {
                has(&refused(&format!("convert {file}")), why);
                has(&refused(&format!("run {file}")), why);
            }
            Outcome::Starts(options) => {
                has(&done(&format!("convert {file}")), "<domain type=");
                let said = refused(&format!("run {file}"));
                for option in options.split("--").skip(1) {
                    // Up to the path.
                    let asked = option.trim_end_matches(|it: char| it == ' ' || it.is_uppercase());
                    has(&said, &format!("--{asked}"));
                }
            }
        }
    }
}
