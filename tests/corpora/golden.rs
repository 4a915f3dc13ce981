//! Our own examples, each a directory of `xml-fixtures/KIND/`. With `BLESS` in the environment the
//! expected files become what was found.

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;

use crate::corpus::{Differences, test};

/// A test `golden/KIND/NAME` for each directory; the check gets its path.
pub fn tests(kind: &'static str, check: fn(&Path) -> Differences) -> Vec<Trial> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("xml-fixtures");
    let mut directories: Vec<PathBuf> = fs::read_dir(fixtures.join(kind))
        .expect("the fixtures are part of the repository")
        .map(|entry| entry.expect("a directory can be listed").path())
        .filter(|path| path.is_dir())
        .collect();
    directories.sort_unstable();
    directories
        .into_iter()
        .map(|path| {
            let name = format!("golden/{kind}/{}", file_name(&path));
            test(name, move || check(&path))
        })
        .collect()
}

/// The name of the directory.
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// The text of a file of the repository.
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The lines that differ; with `BLESS` the file becomes what was found.
pub fn compare(path: &Path, found: &str) -> Differences {
    if std::env::var_os("BLESS").is_some() {
        let written = fs::write(path, found);
        let failed = written.err().map(|e| format!("{}: {e}", path.display()));
        return failed.into_iter().collect();
    }
    let wanted = match fs::read_to_string(path) {
        Ok(wanted) => wanted,
        Err(e) => return vec![format!("{}: {e}; BLESS=1 writes it", path.display())],
    };
    let (mut wants, mut finds) = (wanted.lines(), found.lines());
    let mut differences = Vec::new();
    for line in 1.. {
        match (wants.next(), finds.next()) {
            (None, None) => break,
            (want, find) if want == find => {}
            (want, find) => differences.push(format!(
                "{} line {line}: {:?}, got {:?}",
                file_name(path),
                want.unwrap_or("the end"),
                find.unwrap_or("the end")
            )),
        }
    }
    differences
}
