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
    /// Where its data go: the file itself if there is none now, else a free name beside it.
    pub place: String,
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

/// With what an image that only QEMU has is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    EndOfVm,
    /// Nobody can pause the guest.
    EndWithoutLauncher,
    Detaching,
}

impl RemovedImage {
    /// What is wrong, and what brings the image back, with `{vm}` as in the rules for problems.
    #[must_use]
    pub fn explained(&self, loss: Loss) -> (String, String) {
        let Self {
            volume,
            file,
            place,
            ..
        } = self;
        let (who, remedy) = match &self.last {
            LastOfImage::Link(link) => (
                "the VM has the last link to",
                format!(
                    "it becomes {place} when the VM ends, or at once by ln {} {place}",
                    link.display()
                ),
            ),
            LastOfImage::Open(open) => ("only QEMU has", {
                let pid = open.iter().nth(2).unwrap_or_default().to_string_lossy();
                let copy = format!("copy it (cp {} {place})", open.display());
                let stop = "launcherctl stop{vm} --force";
                match loss {
                    Loss::EndOfVm => format!(
                        "let the guest write everything (sync), pause it, {copy}, then {stop}"
                    ),
                    Loss::EndWithoutLauncher => {
                        format!("stop QEMU (kill -STOP {pid}), {copy}, then {stop}")
                    }
                    Loss::Detaching => format!(
                        "unmount it in the guest, {copy}, then launcherctl removevolume {volume} --force"
                    ),
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
        let lost = match loss {
            _ if !self.is_lost() => "",
            Loss::Detaching => ", which is lost when the disk is detached or the VM ends",
            _ => ", which is lost when the VM ends",
        };
        (format!("{what}{lost}"), remedy)
    }

    /// Whether it goes with the VM.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.last, LastOfImage::Open(_))
    }
}
