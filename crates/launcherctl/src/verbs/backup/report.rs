//! Prints a backup and how to restore it.

use std::path::Path;

use serde_json::{Value, json};

use super::left_out::LeftOut;
use super::record::{Record, RecordFile};
use crate::json::{list_mut, set};
use crate::view::output::{Format, Line};
use terminal::human_size;
use terminal::table;

/// For people.
pub fn text(record: &Record, directory: &Path, left_out: &[LeftOut], format: Format) -> Vec<Line> {
    let mut lines = vec![Line::Row(directory.display().to_string())];
    if let Some(parent) = &record.parent {
        lines.push(format!("what has changed since {parent}:").into());
    }
    let files = record.files.iter().map(|it| {
        let size = human_size(it.bytes);
        format!("{}\t{}\t{size}\t{}", it.target, it.volume, it.file)
    });
    lines.extend(table(format.width(), "DISK\tVOLUME\tSIZE\tFILE", files));
    let others = left_out.iter();
    lines.extend(others.map(|it| {
        let (target, volume, reason) = (&it.target, &it.volume, it.reason);
        format!("{target} ({volume}) is not in the backup: {reason}").into()
    }));
    lines.push(format!("checkpoint: {}", record.checkpoint).into());
    lines.push(format!("file systems: {}", frozen(record)).into());
    lines.push("to restore a disk:".into());
    let files = record.files.iter();
    lines.extend(files.map(|file| Line::Row(format!("  {}", restore(directory, file)))));
    lines
}

/// For programs: the record, with the files' whole paths, and how to restore each.
pub fn json(record: &Record, directory: &Path, left_out: &[LeftOut]) -> Value {
    let mut json = json!(record);
    let shown = |path: &Path| json!(path.display().to_string());
    set(&mut json, "/directory", shown(directory));
    set(&mut json, "/leftOut", json!(left_out));
    for (json, file) in list_mut(&mut json, "/files").iter_mut().zip(&record.files) {
        set(json, "/file", shown(&directory.join(&file.file)));
        set(json, "/restore", json!(restore(directory, file)));
    }
    json
}

fn frozen(record: &Record) -> String {
    match record.quiesce_status.as_str() {
        "Succeeded" => "frozen while the backup began".to_owned(),
        super::ALREADY_FROZEN => "frozen before the backup, and still so".to_owned(),
        "Skipped" => "not frozen, because of --skip-quiesce".to_owned(),
        _ => {
            let cause = match record.message.as_str() {
                "" => {
                    "the launcher's log has the reason, if the guest is not paused and has its agent"
                }
                message => message,
            };
            format!("not frozen, so a disk is as after a power cut: {cause}")
        }
    }
}

/// The command that makes a raw disk of a backup.
fn restore(directory: &Path, file: &RecordFile) -> String {
    let image = quoted(&directory.join(&file.file).display().to_string());
    // qemu-img overwrites a file without asking.
    let disk = quoted(&format!("{}-restored.img", file.volume));
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
