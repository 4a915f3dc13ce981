//! Reads a ConfigMap's or Secret's files from a document or a path, and writes them into the VM's
//! directory.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{ConfigKind, Files, NamedFiles, NamedPath};
use crate::error::{CtlError, TextError, fail, text_error};
use crate::files::{FileError, create_private};
use crate::json::{copy_at, text_at};
use crate::manifest::error::FieldError;
use crate::manifest::type_error::wrong_type;
use os::logging::chain;
use os::small_file::{self, Links};

/// Kubernetes' limit of a ConfigMap or Secret.
const MAX_BYTES: u64 = 1 << 20;
/// Kubernetes' limit of a key.
const MAX_KEY_BYTES: usize = 253;

/// The files in a ConfigMap or Secret of the manifest; `None` for other documents.
pub fn of_document(document: &Value) -> Result<Option<NamedFiles>, TextError> {
    let Some(kind) = ConfigKind::of_document(document) else {
        return Ok(None);
    };
    let name = text_at(document, "/metadata/name");
    let mut files = Files::new();
    let (plain, encoded) = kind.fields();
    for field in [encoded, plain] {
        let values = copy_at(document, &format!("/{field}"));
        for (key, value) in values.as_object().into_iter().flatten() {
            let bytes = of_entry((kind, name), field == plain, key, value)?;
            files.insert(key.clone(), bytes);
        }
    }
    Ok(Some(((kind, name.to_owned()), files)))
}

/// The content of a file.
fn of_entry(
    (kind, name): (ConfigKind, &str),
    is_plain: bool,
    key: &str,
    value: &Value,
) -> Result<Vec<u8>, TextError> {
    check_key(kind, name, key)?;
    let Some(text) = value.as_str() else {
        fail!("{kind} {name:?}: the value of {key:?} is not text; quote it");
    };
    if is_plain {
        return Ok(text.as_bytes().to_vec());
    }
    let text: String = text.split_whitespace().collect();
    STANDARD.decode(text).map_err(|source| {
        let (plain, _) = kind.fields();
        text_error!("{kind} {name:?}: the value of {key:?} is not valid Base64; plain text belongs into {plain}")
            .caused_by(source)
    })
}

/// All problems of a ConfigMap or Secret document, each with its field; none for other documents.
pub fn document_problems(document: &Value) -> Vec<FieldError> {
    let Some(kind) = ConfigKind::of_document(document) else {
        return Vec::new();
    };
    let name = text_at(document, "/metadata/name");
    let (plain, encoded) = kind.fields();
    let mut found = Vec::new();
    for field in [plain, encoded] {
        let values = copy_at(document, &format!("/{field}"));
        let wrong = wrong_type::<Map<String, Value>>(&values);
        found.extend(wrong.map(|message| FieldError::new(field, message)));
        for (key, value) in values.as_object().into_iter().flatten() {
            if let Err(error) = of_entry((kind, name), field == plain, key, value) {
                found.push(FieldError::new(format!("{field}.{key}"), chain(&error)));
            }
        }
    }
    found
}

/// The regular files of a directory, or one file.
pub fn of_path(kind: ConfigKind, given: &NamedPath) -> Result<Files, CtlError> {
    let path = &given.path;
    let metadata = fs::metadata(path).map_err(FileError::on("read", path))?;
    let paths = if metadata.is_dir() {
        let entries = fs::read_dir(path).map_err(FileError::on("read", path))?;
        entries.flatten().map(|entry| entry.path()).collect()
    } else {
        vec![path.clone()]
    };
    let mut files = Files::new();
    for path in paths.into_iter().filter(|path| path.is_file()) {
        let key = path.file_name().unwrap_or_default().to_string_lossy();
        // The kubelet keeps versions in hidden directories; editors keep theirs too.
        if key.starts_with("..") {
            continue;
        }
        check_key(kind, &given.name, &key)?;
        match small_file::read_with(&path, MAX_BYTES, Links::Follow) {
            Ok(bytes) => drop(files.insert(key.into_owned(), bytes)),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                let path = path.display();
                fail!("{path} is larger than 1 MiB, the limit of Kubernetes");
            }
            Err(error) => return Err(FileError::on("read", path)(error).into()),
        }
    }
    Ok(files)
}

/// Kubernetes' rule for keys, which also prevents a key from leading to another directory.
fn check_key(kind: ConfigKind, name: &str, key: &str) -> Result<(), TextError> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
    let is_path = key == "." || key.starts_with("..");
    if !key.is_empty() && key.len() <= MAX_KEY_BYTES && key.chars().all(is_valid) && !is_path {
        return Ok(());
    }
    fail!("{kind} {name:?}: invalid key {key:?}: letters, digits, '-', '_' and '.'");
}

/// Writes the files, private to this user, and removes everything else from the directory.
pub fn write(directory: &Path, files: &Files) -> Result<(), FileError> {
    let parent = directory.parent().unwrap_or(directory);
    fs::create_dir_all(parent).map_err(FileError::on("make", parent))?;
    let _ = fs::remove_dir_all(directory);
    let made = fs::DirBuilder::new().mode(0o700).create(directory);
    made.map_err(FileError::on("make", directory))?;
    for (key, bytes) in files {
        let path = directory.join(key);
        let written = create_private(&path)?.write_all(bytes);
        written.map_err(FileError::on("write", path))?;
    }
    Ok(())
}
