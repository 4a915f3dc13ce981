//! DataVolumes: claims that a cluster's CDI would fill. Makes blank ones; copies the image given
//! with `--disk` for an import as CDI does, into a raw image of at least the wanted size, so that
//! the file does not change.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::image_content::{Accepts, check_content};
use super::registry::VmDir;
use crate::error::{CtlError, fail, text_error};
use crate::files::FileError;
use crate::json::{is_object_at, text_at};
use crate::manifest::Manifest;
use api::pod_paths::PodPaths;
use api::vmi::Quantity;
use os::command::Limits;

/// Limits of an image's conversion: it copies as much as the image has.
const COPY_LIMITS: Limits = Limits {
    memory: 0,
    cpu: 3600,
    wall: Duration::from_secs(3600),
};

/// The result for all DataVolumes.
#[derive(Debug, Default)]
pub struct Placed {
    /// The remaining `--disk` options.
    pub disks: Vec<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Those that cannot be filled: no size, or no image.
    pub errors: Vec<CtlError>,
}

/// Whether the documents contain a volume's DataVolume.
pub fn is_beside(manifest: &Manifest, volume: &Value) -> bool {
    find(manifest.others(), volume).is_some()
}

/// Fills the DataVolumes of the documents that the VMI uses.
pub fn place(manifest: &Manifest, dir: &VmDir, disks: &[String]) -> Placed {
    let mut placed = Placed {
        disks: disks.to_vec(),
        ..Placed::default()
    };
    for (volume, definition) in manifest.volumes() {
        let Some(data_volume) = find(manifest.others(), definition) else {
            continue;
        };
        let claim = dir.path(&PodPaths::default().claim_image(volume));
        let mut options = placed.disks.iter();
        let given =
            options.position(|disk| disk.split_once('=').is_some_and(|(name, _)| name == volume));
        let filled = match given.map(|position| placed.disks.remove(position)) {
            Some(disk) => {
                let file = Path::new(disk.split_once('=').map_or("", |(_, file)| file));
                fill(volume, data_volume, file, &claim).map(|note| placed.notes.push(note))
            }
            // A directory of --root has it from the previous run.
            None if claim.exists() => Ok(()),
            None => blank(volume, data_volume, &claim),
        };
        placed.errors.extend(filled.err());
    }
    placed
}

/// Copies an image, unless the claim exists from a previous run. Returns a note for the user.
fn fill(volume: &str, data_volume: &Value, image: &Path, claim: &Path) -> Result<String, CtlError> {
    if claim.exists() {
        let claim = claim.display();
        return Ok(format!(
            "{volume} is what the guest has left in {claim}; remove that to import the image again"
        ));
    }
    import(image, claim, size(data_volume))?;
    Ok(format!("{volume} is a copy of {}", image.display()))
}

/// A volume's DataVolume, or the one with the name of its claim.
fn find<'a>(documents: &'a [Value], volume: &Value) -> Option<&'a Value> {
    let name = ["/dataVolume/name", "/persistentVolumeClaim/claimName"]
        .iter()
        .map(|pointer| text_at(volume, pointer))
        .find(|name| !name.is_empty())?;
    documents.iter().find(|document| {
        text_at(document, "/kind") == "DataVolume" && text_at(document, "/metadata/name") == name
    })
}

fn size(data_volume: &Value) -> Option<u64> {
    ["storage", "pvc"].iter().find_map(|part| {
        let size = data_volume.pointer(&format!("/spec/{part}/resources/requests/storage"))?;
        let bytes = Quantity::deserialize(size).ok()?.value().ok()?;
        u64::try_from(bytes).ok()
    })
}

fn blank(volume: &str, data_volume: &Value, claim: &Path) -> Result<(), CtlError> {
    let name = text_at(data_volume, "/metadata/name");
    if !is_object_at(data_volume, "/spec/source/blank") {
        fail!(
            "DataVolume {name:?} would be imported from {} by a cluster; give its image with --disk {volume}=FILE",
            source_name(data_volume)
        );
    }
    let Some(size) = size(data_volume) else {
        fail!(
            "DataVolume {name:?}: spec.storage.resources.requests.storage is missing or not a size; e.g. 10Gi"
        );
    };
    make_parent(claim)?;
    let file = fs::File::create(claim).map_err(FileError::on("make", claim))?;
    Ok(file.set_len(size).map_err(FileError::on("size", claim))?)
}

/// The URL of the source, else its kind.
fn source_name(data_volume: &Value) -> String {
    let source = data_volume
        .pointer("/spec/source")
        .and_then(Value::as_object);
    let first = source.and_then(|source| source.iter().next());
    match first.map(|(kind, fields)| (kind, text_at(fields, "/url"))) {
        Some((kind, "")) => kind.clone(),
        Some((_, url)) => url.to_owned(),
        None => "elsewhere".to_owned(),
    }
}

fn import(file: &Path, claim: &Path, size: Option<u64>) -> Result<(), CtlError> {
    check_content(file, Accepts::Convertible)?;
    make_parent(claim)?;
    let new = claim.with_extension("new");
    let arguments = [
        "convert".as_ref(),
        "-O".as_ref(),
        "raw".as_ref(),
        file.as_os_str(),
        new.as_os_str(),
    ];
    os::command::run("qemu-img", arguments, &[], None, COPY_LIMITS).map_err(|source| {
        text_error!("cannot copy the image {} as a raw one", file.display()).caused_by(source)
    })?;
    let raw = fs::OpenOptions::new()
        .write(true)
        .open(&new)
        .map_err(FileError::on("open", &new))?;
    let length = raw.metadata().map_err(FileError::on("stat", &new))?.len();
    if let Some(size) = size.filter(|size| *size > length) {
        raw.set_len(size).map_err(FileError::on("size", &new))?;
    }
    Ok(fs::rename(&new, claim).map_err(FileError::on("make", claim))?)
}

fn make_parent(claim: &Path) -> Result<(), FileError> {
    let directory = claim.parent().unwrap_or(claim);
    fs::create_dir_all(directory).map_err(FileError::on("make", directory))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const VM: &str = "
kind: VirtualMachine
metadata: {name: a}
spec:
  dataVolumeTemplates:
  - {metadata: {name: root-dv}, spec: {source: {http: {url: 'https://example.org/x.qcow2'}}, pvc: {resources: {requests: {storage: 2Mi}}}}}
  template:
    spec:
      domain: {memory: {guest: 64Mi}}
      volumes:
      - {name: root, dataVolume: {name: root-dv}}
      - {name: data, persistentVolumeClaim: {claimName: data-dv}}
      - {name: other, persistentVolumeClaim: {claimName: other}}
---
kind: DataVolume
metadata: {name: data-dv}
spec: {source: {blank: {}}, storage: {resources: {requests: {storage: 3Mi}}}}
";

    fn placed(
        vm: &str,
        root: &Path,
        disks: &[String],
    ) -> Result<(Vec<String>, Vec<String>), String> {
        let manifest = Manifest::parse(vm).unwrap();
        let placed = place(&manifest, &VmDir::at(root.to_owned()), disks);
        match placed.errors.first() {
            Some(error) => Err(error.to_string()),
            None => Ok((placed.disks, placed.notes)),
        }
    }

    #[test]
    fn an_import_is_copied_and_a_blank_one_is_made() {
        let root = tempfile::tempdir().unwrap();
        let image = root.path().join("image");
        fs::write(&image, [7; 512]).unwrap();
        let disks = [format!("root={}", image.display()), "other=x".to_owned()];
        let (rest, notes) = placed(VM, root.path(), &disks).unwrap();
        assert_eq!(rest, ["other=x"]);
        assert!(notes[0].contains("root is a copy of"), "{notes:?}");
        let claim = |name: &str| {
            let claims = root.path().join("var/run/kubevirt-private/vmi-disks");
            fs::read(claims.join(name).join("disk.img")).unwrap()
        };
        assert_eq!((claim("root").len(), claim("root")[511]), (2 << 20, 7));
        assert_eq!(claim("data").len(), 3 << 20);

        // The next run in the same directory keeps the guest's writes.
        fs::write(&image, [8; 512]).unwrap();
        let (_, notes) = placed(VM, root.path(), &disks).unwrap();
        assert!(notes[0].contains("import the image again"), "{notes:?}");
        assert_eq!(claim("root")[511], 7);
    }

    #[test]
    fn what_cannot_be_filled_says_why() {
        let root = tempfile::tempdir().unwrap();
        let error = placed(VM, root.path(), &[]).unwrap_err();
        assert!(
            error.contains("https://example.org/x.qcow2") && error.contains("--disk root=FILE"),
            "{error}"
        );
        let packed = root.path().join("image.xz");
        fs::write(&packed, b"\xfd7zXZ\0....").unwrap();
        let error = placed(VM, root.path(), &[format!("root={}", packed.display())]).unwrap_err();
        assert!(error.contains("unxz"), "{error}");
        let sizeless = VM
            .replace("storage: 3Mi", "storage: much")
            .replace("root-dv}", "unused}");
        // Without the claims of the volumes before.
        let root = tempfile::tempdir().unwrap();
        let error = placed(
            &sizeless.replace(
                "{http: {url: 'https://example.org/x.qcow2'}}",
                "{blank: {}}",
            ),
            root.path(),
            &[],
        )
        .unwrap_err();
        assert!(
            error.contains("data-dv") && error.contains("10Gi"),
            "{error}"
        );
    }
}
