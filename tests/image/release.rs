//! The files of a release: what it is made of, and that nobody can change it unnoticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read, read_to_string, write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

use super::{at, text, tree};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a command prints that succeeds.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{command:?}: {stdout}\n{stderr}");
    stdout
}

static SBOM: LazyLock<Value> = LazyLock::new(sbom);

fn sbom() -> Value {
    let mut script = Command::new(repository().join("scripts/sbom"));
    serde_json::from_str(&run(script.arg(tree()))).unwrap()
}

/// The packages of a kind, such as "Crate": by name and version.
fn packages(kind: &str) -> BTreeMap<(&'static str, &'static str), &'static Value> {
    let packages = SBOM["packages"].as_array().unwrap().iter();
    packages
        .filter(|one| {
            let id = one["SPDXID"].as_str().unwrap();
            id.starts_with(&format!("SPDXRef-{kind}-"))
        })
        .map(|one| {
            let [name, version] = ["name", "versionInfo"].map(|key| one[key].as_str().unwrap());
            ((name, version), one)
        })
        .collect()
}

/// The relations of a kind, as pairs of ids.
fn relations(kind: &str) -> BTreeSet<(&'static str, &'static str)> {
    let relations = SBOM["relationships"].as_array().unwrap().iter();
    relations
        .filter(|one| one["relationshipType"] == kind)
        .map(|one| {
            let ends = ["spdxElementId", "relatedSpdxElement"];
            let [from, to] = ends.map(|key| one[key].as_str().unwrap());
            (from, to)
        })
        .collect()
}

#[test]
fn the_sbom_has_the_trees_debian_packages() {
    let listed: BTreeSet<_> = packages("Debian").into_keys().collect();
    let status = text("/var/lib/dpkg/status");
    let unpacked: BTreeSet<_> = status
        .split("\n\n")
        .filter_map(|stanza| {
            let field = |name| stanza.lines().find_map(|line| line.strip_prefix(name));
            Some((field("Package: ")?, field("Version: ")?))
        })
        .collect();
    assert_eq!(listed, unpacked);
}

#[test]
fn the_sbom_has_the_crates_of_cargo_lock_that_the_programs_are_made_of() {
    let crates = packages("Crate");
    let lock = read_to_string(repository().join("Cargo.lock")).unwrap();
    let mut locked = BTreeMap::new();
    for entry in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let value = entry.lines().find_map(|line| line.strip_prefix(name))?;
            value.strip_prefix(" = \"")?.strip_suffix('"')
        };
        let key = (field("name").unwrap(), field("version").unwrap());
        locked.insert(key, field("checksum"));
    }
    for (key, package) in &crates {
        let checksum = package["checksums"][0]["checksumValue"].as_str();
        assert_eq!(locked.get(key), Some(&checksum), "{key:?}");
    }
    let linked = relations("DEPENDS_ON");
    for program in [
        "virt-launcher",
        "virt-launcher-monitor",
        "pod-tools",
        "cel-evaluator",
    ] {
        let found = crates_in(&at(&format!("/usr/bin/{program}")));
        assert!(found.len() > 5, "{program} names its crates: {found:?}");
        for name in found {
            let id = format!("SPDXRef-Crate-{}", name.replace('_', "-"));
            let relation = (&*format!("SPDXRef-Program-{program}"), &*id);
            assert!(linked.contains(&relation), "{program} has {name} in it");
        }
    }
}

/// The crates that a program has the sources' names of, for messages of panics: name and version.
fn crates_in(program: &Path) -> BTreeSet<String> {
    let content = read(program).unwrap();
    let content = String::from_utf8_lossy(&content);
    let paths = content.split("/cargo/registry/src/").skip(1);
    let words = paths.filter_map(|path| path.split('/').nth(1));
    words.map(str::to_owned).collect()
}

#[test]
fn the_sbom_is_one_of_spdx_2_3() {
    assert_eq!(SBOM["spdxVersion"], "SPDX-2.3");
    assert_eq!(SBOM["dataLicense"], "CC0-1.0");
    let mut ids = BTreeSet::from(["SPDXRef-DOCUMENT"]);
    for package in SBOM["packages"].as_array().unwrap() {
        let id = package["SPDXID"].as_str().unwrap();
        assert!(ids.insert(id), "{id} stands twice");
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        assert!(id.chars().all(is_allowed), "{id}");
        for field in ["name", "downloadLocation", "licenseDeclared"] {
            assert!(package[field].is_string(), "{id}: {field}");
        }
    }
    for relation in SBOM["relationships"].as_array().unwrap() {
        for end in ["spdxElementId", "relatedSpdxElement"] {
            assert!(ids.contains(relation[end].as_str().unwrap()), "{relation}");
        }
    }
    assert_eq!(*SBOM, sbom(), "it is the same each time");
}

/// Runs the commands that SECURITY.md has for it, beside the files of a release.
fn is_verified(dist: &Path) -> bool {
    let policy = read_to_string(repository().join("SECURITY.md")).unwrap();
    let (_, block) = policy.split_once("```sh\n").unwrap();
    let (commands, _) = block.split_once("```").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", commands]).current_dir(dist);
    shell.output().unwrap().status.success()
}

#[test]
fn a_release_with_one_flipped_byte_is_not_verified() {
    let dir = tempfile::tempdir().unwrap();
    let (key, dist) = (dir.path().join("key"), dir.path().join("dist"));
    let new_key = |path: &Path| {
        let mut command = Command::new("ssh-keygen");
        run(command
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(path));
    };
    new_key(&key);
    run(Command::new(repository().join("scripts/release"))
        .args([&key, &dist])
        .env("BINARIES", at("/usr/bin"))
        .env("TREE", tree()));
    let files: Vec<PathBuf> = std::fs::read_dir(&dist)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 5, "{files:?}");
    let public = dist.join("key.pub");
    std::fs::copy(dir.path().join("key.pub"), &public).unwrap();
    assert!(is_verified(&dist));
    for path in &files {
        let content = read(path).unwrap();
        let mut changed = content.clone();
        changed[content.len() / 2] ^= 1;
        write(path, &changed).unwrap();
        assert!(!is_verified(&dist), "{}", path.display());
        write(path, &content).unwrap();
    }
    assert!(is_verified(&dist));
    let other = dir.path().join("other");
    new_key(&other);
    std::fs::copy(other.with_extension("pub"), &public).unwrap();
    assert!(!is_verified(&dist), "another's key");
}
