//! ISO images of ConfigMaps, Secrets, `downwardAPI` fields, the `serviceAccount` and sysprep.

use super::error::unusable;
use super::iso::{self, Tree};
use super::safe_path::{Dir, optional};
use super::{LauncherFlags, PodError, staged};
use api::pod_paths;
use api::vmi::volumes::{Volume, VolumeSource};

/// Where a volume's files are, and the image that is made of them.
pub(super) struct ConfigVolume<'v> {
    source: String,
    dir: &'static str,
    image: String,
    label: &'v str,
    is_sysprep: bool,
}

const DEFAULT_LABEL: &str = "cfgdata";
/// A sysprep volume has one of these files, in upper or lower case.
pub const ANSWER_FILES: [&str; 2] = ["autounattend.xml", "unattend.xml"];

impl<'v> ConfigVolume<'v> {
    /// The volume's files, and the image's label (`volumeLabel`). `None` for a volume of another
    /// kind.
    pub fn iso_files(volume: &'v Volume) -> Option<Self> {
        let name = &volume.name;
        let iso = |source: &str, dir: &'static str, label: &'v str| Self {
            source: format!("{source}/{name}"),
            dir,
            image: format!("{name}.iso"),
            label: if label.is_empty() {
                DEFAULT_LABEL
            } else {
                label
            },
            is_sysprep: false,
        };
        Some(match volume.source()? {
            VolumeSource::ConfigMap(map) => iso(
                pod_paths::CONFIG_MAP_DIR,
                pod_paths::CONFIG_MAP_IMAGE_DIR,
                &map.volume_label,
            ),
            VolumeSource::Secret(secret) => iso(
                pod_paths::SECRET_DIR,
                pod_paths::SECRET_IMAGE_DIR,
                &secret.volume_label,
            ),
            VolumeSource::DownwardApi(fields) => iso(
                pod_paths::DOWNWARD_API_DIR,
                pod_paths::DOWNWARD_API_IMAGE_DIR,
                &fields.volume_label,
            ),
            VolumeSource::ServiceAccount(_) => Self {
                source: pod_paths::SERVICE_ACCOUNT_DIR.to_owned(),
                image: pod_paths::SERVICE_ACCOUNT_IMAGE.to_owned(),
                ..iso("", pod_paths::SERVICE_ACCOUNT_IMAGE_DIR, "")
            },
            VolumeSource::Sysprep(answers)
                if answers.config_map.is_some() || answers.secret.is_some() =>
            {
                Self {
                    is_sysprep: true,
                    ..iso(
                        pod_paths::SYSPREP_DIR,
                        pod_paths::SYSPREP_IMAGE_DIR,
                        "unattendCD",
                    )
                }
            }
            _ => return None,
        })
    }

    /// Whether the image is made only if a disk uses the volume. Sysprep's image is always made.
    pub fn needs_a_disk(&self) -> bool {
        !self.is_sysprep
    }

    /// Makes the image from the volume's files.
    pub fn make(&self, flags: &LauncherFlags) -> Result<(), PodError> {
        let files = self.files(flags)?;
        iso::make(
            &Dir::of_pod_made(&flags.root, self.dir)?,
            &self.image,
            self.label,
            &Tree::Files(&files),
        )
    }

    /// Makes an empty image of `size` bytes, for a migration target.
    pub fn make_empty(&self, flags: &LauncherFlags, size: u64) -> Result<(), PodError> {
        staged::write_zeros(
            &Dir::of_pod_made(&flags.root, self.dir)?,
            &self.image,
            size,
            0o600,
        )
    }

    fn files(&self, flags: &LauncherFlags) -> Result<Vec<(String, std::path::PathBuf)>, PodError> {
        let dir = optional(Dir::of_pod(&flags.root, &self.source))?.ok_or_else(|| {
            let dir = flags.root.path(&self.source);
            let dir = dir.display();
            unusable!("{dir} is not there; is the volume mounted in this pod?")
        })?;
        let names = dir.entries()?;
        let is_answer = |name: &String| ANSWER_FILES.contains(&name.to_ascii_lowercase().as_str());
        if self.is_sysprep && !names.iter().any(is_answer) {
            let ([one, other], dir) = (ANSWER_FILES, dir.path().display());
            return Err(unusable!(
                "Sysprep drive should contain {one} or {other} but neither were found in {dir}"
            ));
        }
        Ok(names
            .into_iter()
            .map(|name| (name.clone(), dir.path().join(name)))
            .collect())
    }
}
