//! No files of a crate use each other in a circle.
//!
//! An arrow goes from a file to each other file of its crate that it names: in a `use`, or in a
//! path. A name that a module imports leads on to the file that declares it. No arrow goes from a
//! module to its own parts, for which a `mod.rs` is there. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::source::Source;
use super::{expect_none, files, read};

/// A module by its names below the crate's root.
type Module = Vec<String>;

/// The modules of a crate that have files, without tests.
struct Crate {
    files: BTreeMap<Module, (String, Source)>,
}

impl Crate {
    /// `paths` are the crate's files below `directory`, which has its `lib.rs` or `main.rs`.
    fn new(directory: &Path, paths: &[PathBuf]) -> Self {
        let root = if paths.contains(&directory.join("lib.rs")) {
            "lib"
        } else {
            "main"
        };
        let mut files = BTreeMap::new();
        for path in paths {
            let below = path.strip_prefix(directory).unwrap().with_extension("");
            let mut module: Module = below
                .iter()
                .map(|part| part.to_str().unwrap().to_owned())
                .collect();
            if module == [root] || module.last().is_some_and(|name| name == "mod") {
                module.pop();
            }
            let path = path.to_str().unwrap();
            files.insert(module, (path.to_owned(), Source::new(&read(path))));
        }
        let mut found = Self { files };
        found.forget_tests();
        found
    }

    /// Keeps the modules that are declared, from the root down, for more than tests.
    fn forget_tests(&mut self) {
        let is_declared = |module: &Module| {
            (0..module.len()).all(|depth| {
                let declaring = self.files.get(&module[..depth]);
                declaring.is_some_and(|(_, source)| source.modules.contains(&module[depth]))
            })
        };
        let declared: BTreeSet<Module> = self
            .files
            .keys()
            .filter(|module| is_declared(module))
            .cloned()
            .collect();
        self.files.retain(|module, _| declared.contains(module));
    }

    /// The module in whose file the path ends that `module` has in its text. None outside this
    /// crate.
    fn resolve(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Module::new(),
            "self" => module.clone(),
            "super" => {
                let mut parent = module.clone();
                parent.pop();
                parent
            }
            _ => {
                rest = path;
                module.clone()
            }
        };
        let is_relative = rest.len() == path.len();
        for (index, name) in rest.iter().enumerate() {
            if name == "super" {
                at.pop();
                continue;
            }
            let mut child = at.clone();
            child.push(name.clone());
            if self.files.contains_key(&child) {
                at = child;
                continue;
            }
            let (_, source) = self.files.get(&at)?;
            let imported = source.imports.iter().find(|import| import.name == *name);
            return match imported {
                Some(import) if depth < 8 => {
                    let whole = [&import.path[..], &rest[index + 1..]].concat();
                    self.resolve(&at, &whole, depth + 1)
                }
                Some(_) => None,
                None if is_relative && index == 0 => None,
                None => Some(at),
            };
        }
        Some(at)
    }

    /// The files that each file uses.
    fn arrows(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let arrows = self.files.iter().map(|(module, (file, source))| {
            let imports = source.imports.iter().map(|import| &import.path);
            let used = imports
                .chain(&source.paths)
                .filter_map(|path| self.resolve(module, path, 0))
                .filter(|used| !used.starts_with(module))
                .map(|used| self.files[&used].0.as_str());
            (file.as_str(), used.collect())
        });
        arrows.collect()
    }
}

/// The circles, each as the sorted names of its files.
fn circles<'a>(arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<Vec<&'a str>> {
    let reached: BTreeMap<_, _> = arrows
        .keys()
        .map(|file| (*file, reachable(arrows, file)))
        .collect();
    let circle_of = |file: &&'a str| {
        let back = |other: &&&str| reached[**other].contains(file);
        reached[file].iter().filter(back).copied().collect()
    };
    let all = arrows.keys().map(circle_of);
    all.filter(|circle: &Vec<_>| circle.len() > 1).collect()
}

fn reachable<'a>(arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = arrows[from].iter().copied().collect();
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(&arrows[file]);
        }
    }
    reached
}

#[test]
fn no_files_of_a_crate_use_each_other_in_a_circle() {
    let all = files();
    let manifests = all.iter().filter(|path| path.ends_with("Cargo.toml"));
    let mut findings = Vec::new();
    for manifest in manifests {
        let directory = manifest.with_file_name("src");
        let mut sources = all.clone();
        sources.retain(|path| {
            path.starts_with(&directory) && path.extension().is_some_and(|it| it == "rs")
        });
        let files = Crate::new(&directory, &sources);
        let arrows = files.arrows();
        let circles = circles(&arrows);
        findings.extend(circles.iter().map(|circle| circle.join(", ")));
    }
    expect_none("files that use each other in a circle", &findings);
}

#[test]
fn a_circle_is_found_behind_what_a_module_re_exports() {
    let file = |path: &str, text: &str| (path.to_owned(), Source::new(text));
    let module = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut found = Crate {
        files: BTreeMap::from([
            (module(&[]), file("lib.rs", "mod a; pub mod b;")),
            (
                module(&["a"]),
                file("a.rs", "use crate::b::{Deep, other as o}; fn f() { o() }"),
            ),
            (
                module(&["b"]),
                file("b/mod.rs", "mod c; pub use c::Deep; pub fn other() {}"),
            ),
            (
                module(&["b", "c"]),
                file(
                    "b/c.rs",
                    "// crate::x\npub struct Deep(&'static str);\nfn f() { super::super::a::f(\"crate::b\") }",
                ),
            ),
        ]),
    };
    found.forget_tests();
    assert_eq!(
        circles(&found.arrows()),
        BTreeSet::from([vec!["a.rs", "b/c.rs"]])
    );
}

#[test]
fn tests_make_no_circle() {
    let source = Source::new(
        "mod a;\n#[cfg(test)]\nmod model;\n#[cfg(test)]\nmod tests { use crate::b::C; }\nuse crate::d::E;",
    );
    assert_eq!(source.modules, BTreeSet::from(["a".to_owned()]));
    let names: Vec<_> = source.imports.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["E"]);
}
