//! An image of the user's whose file was removed or replaced while its VM runs.

use std::path::PathBuf;

/// The user's image of a claim or a host disk, whose file was removed or replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedImage {
    pub volume: String,
    /// Where it was.
    pub file: String,
    /// Whether another file is there now.
    pub is_replaced: bool,
    pub last: LastOfImage,
}

/// Where the data of such an image still are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LastOfImage {
    /// The VM's link.
    Link(PathBuf),
    /// QEMU's open file, below /proc.
    Open(PathBuf),
    /// Another name, if that is known.
    OtherName(Option<PathBuf>),
}

impl RemovedImage {
    /// What is wrong, and what brings the image back. Without a launcher nobody can pause the guest.
    #[must_use]
    pub fn explained(&self, has_launcher: bool) -> (String, String) {
        let Self { volume, file, .. } = self;
        let name = match self.is_replaced {
            true => format!("{file}.guest"),
            false => file.clone(),
        };
        let (who, remedy) = match &self.last {
            LastOfImage::Link(link) => (
                "the VM has the last link to",
                format!(
                    "it becomes {name} when the VM ends, or at once by ln {} {name}",
                    link.display()
                ),
            ),
            LastOfImage::Open(open) => ("only QEMU has", {
                let pid = open.iter().nth(2).unwrap_or_default().to_string_lossy();
                let copy = format!("copy it (cp {} {file}.guest)", open.display());
                match has_launcher {
                    true => format!("pause the guest, {copy}, and do not resume it"),
                    false => format!("stop QEMU (kill -STOP {pid}) and {copy}"),
                }
            }),
            LastOfImage::OtherName(now) => {
                let (is_now, it) = match now {
                    Some(now) => (format!("is {0}", now.display()), now.display().to_string()),
                    None => ("has another name".to_owned(), "that file".to_owned()),
                };
                let cause = format!(
                    "volume {volume} uses the file that was {file} before and {is_now} now, so what the guest writes is not in {file}"
                );
                return (cause, format!("give {it} to the next run to keep that"));
            }
        };
        let what = match self.is_replaced {
            true => format!("volume {volume} uses the file that was {file} before, and {who} it"),
            false => format!("{who} {file} of volume {volume}"),
        };
        let lost = if self.is_lost() {
            ", which is lost when the VM ends"
        } else {
            ""
        };
        (format!("{what}{lost}"), remedy)
    }

    /// Whether it goes with the VM.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.last, LastOfImage::Open(_))
    }
}
