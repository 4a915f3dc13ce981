//! What is printed of a backup, and how it is restored.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::left_out::LeftOut;
use super::record::{Record, RecordFile};
use crate::ctl::volume_table::human_size;

/// For people.
pub fn text(record: &Record, directory: &Path, left_out: &[LeftOut]) -> String {
    let mut text = match &record.parent {
        Some(parent) => format!("{}\nwhat has changed since {parent}:", directory.display()),
        None => directory.display().to_string(),
    };
    for file in &record.files {
        let _ = write!(
            text,
            "\n  {:<7} {:<20} {:>12}  {}",
            file.target,
            file.volume,
            human_size(file.bytes),
            file.file
        );
    }
    if !left_out.is_empty() {
        text.push_str("\nnot in the backup:");
    }
    for disk in left_out {
        let _ = write!(
            text,
            "\n  {:<7} {:<20} {}",
            disk.target, disk.volume, disk.reason
        );
    }
    let _ = write!(text, "\ncheckpoint: {}", record.checkpoint);
    let _ = write!(text, "\nfile systems: {}", frozen(record));
    text.push_str("\nto restore a disk:");
    for file in &record.files {
        let _ = write!(text, "\n  {}", restore(directory, file));
    }
    text
}

/// For programs.
pub fn json(record: &Record, directory: &Path, left_out: &[LeftOut]) -> Value {
    let file = |file: &RecordFile| {
        json!({
            "volume": file.volume,
            "target": file.target,
            "file": directory.join(&file.file).display().to_string(),
            "bytes": file.bytes,
            "restore": restore(directory, file),
        })
    };
    json!({
        "directory": directory.display().to_string(),
        "checkpoint": record.checkpoint,
        "parent": record.parent,
        "started": record.started,
        "quiesceStatus": record.quiesce_status,
        "message": record.message,
        "files": record.files.iter().map(file).collect::<Vec<_>>(),
        "leftOut": left_out.iter().map(LeftOut::to_json).collect::<Vec<_>>(),
    })
}

fn frozen(record: &Record) -> String {
    match record.quiesce_status.as_str() {
        "Succeeded" => "frozen while the backup began".to_owned(),
        super::ALREADY_FROZEN => "frozen before the backup, and still so".to_owned(),
        "Skipped" => "not frozen, because of --skip-quiesce".to_owned(),
        _ => {
            let cause = match record.message.as_str() {
                "" => "is the guest paused, or its agent not connected?",
                message => message,
            };
            format!("not frozen, so a disk is as after a power cut: {cause}")
        }
    }
}

/// The command that makes a raw disk of a backup.
fn restore(directory: &Path, file: &RecordFile) -> String {
    let image = quoted(&directory.join(&file.file).display().to_string());
    let disk = quoted(&format!("{}.img", file.volume));
    format!("qemu-img convert -O raw {image} {disk}")
}

/// A word of a shell's command.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:=@%+-,".contains(c);
    if word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_spaces_is_one_word_of_the_command() {
        assert_eq!(quoted("/a/b-1.qcow2"), "/a/b-1.qcow2");
        assert_eq!(quoted("/my backups/it's"), r"'/my backups/it'\''s'");
    }
}
