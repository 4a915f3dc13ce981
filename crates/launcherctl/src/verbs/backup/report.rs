//! Prints a backup and how to restore it.

use std::path::Path;

use serde_json::{Value, json};

use super::left_out::LeftOut;
use super::record::{Record, RecordFile};
use crate::view::size::human_size;

/// For people.
pub fn text(record: &Record, directory: &Path, left_out: &[LeftOut]) -> Vec<String> {
    let mut lines = vec![directory.display().to_string()];
    let parent = record.parent.iter();
    lines.extend(parent.map(|parent| format!("what has changed since {parent}:")));
    lines.extend(record.files.iter().map(|file| {
        format!(
            "  {:<7} {:<20} {:>12}  {}",
            file.target,
            file.volume,
            human_size(file.bytes),
            file.file
        )
    }));
    if !left_out.is_empty() {
        lines.push("not in the backup:".to_owned());
    }
    let left_out = left_out.iter();
    lines.extend(
        left_out.map(|disk| format!("  {:<7} {:<20} {}", disk.target, disk.volume, disk.reason)),
    );
    lines.push(format!("checkpoint: {}", record.checkpoint));
    lines.push(format!("file systems: {}", frozen(record)));
    lines.push("to restore a disk:".to_owned());
    let files = record.files.iter();
    lines.extend(files.map(|file| format!("  {}", restore(directory, file))));
    lines
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
        "leftOut": left_out,
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

/// Quotes a word for a shell.
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
