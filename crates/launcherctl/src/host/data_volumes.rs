//! DataVolumes: claims that a cluster's CDI would fill. Makes blank ones; copies the image given
//! with `--disk` for an import as CDI does, into a raw image of at least the wanted size, so that
//! the file does not change.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::image_content::{Accepts, check_content};
use crate::error::{CtlError, fail, text_error};
use crate::files::{FileError, absolute};
use crate::json::{is_object_at, text_at};
use api::vmi::Quantity;
use os::command::Limits;

/// Limits of an image's conversion: it copies as much as the image has.
const COPY_LIMITS: Limits = Limits {
    memory: 0,
    cpu: 3600,
    wall: Duration::from_secs(3600),
};

/// The DataVolume among the documents that has a volume's name, or the name of its claim.
pub fn find<'a>(documents: &'a [Value], volume: &Value) -> Option<&'a Value> {
    let pointers = ["/dataVolume/name", "/persistentVolumeClaim/claimName"];
    let mut names = pointers.iter().map(|pointer| text_at(volume, pointer));
    let name = names.find(|name| !name.is_empty())?;
    documents.iter().find(|document| {
        text_at(document, "/kind") == "DataVolume" && text_at(document, "/metadata/name") == name
    })
}

/// Fills a claim with a copy of the image, unless it is left from a previous run in a directory of
/// `--root`. Returns a note for the user.
///
/// # Errors
/// There is no image and it is not blank, the image is none, or it has no size.
pub fn place(
    volume: &str,
    data_volume: &Value,
    image: Option<&Path>,
    claim: &Path,
) -> Result<Option<String>, CtlError> {
    if claim.exists() {
        let claim = absolute(claim);
        let claim = claim.display();
        return Ok(image.map(|image| {
            format!(
                "{volume} is what the guest has left in {claim}, and {} is not used; remove the first to use the second",
                image.display()
            )
        }));
    }
    let directory = claim.parent().unwrap_or(claim);
    fs::create_dir_all(directory).map_err(FileError::on("make", directory))?;
    let Some(image) = image else {
        blank(volume, data_volume, claim)?;
        return Ok(None);
    };
    import(image, claim, size(data_volume))?;
    Ok(Some(format!("{volume} is a copy of {}", image.display())))
}

/// The wanted size in bytes.
pub fn size(data_volume: &Value) -> Option<u64> {
    let mut parts = ["storage", "pvc"].iter();
    let size = |part| format!("/spec/{part}/resources/requests/storage");
    parts.find_map(|part| whole_mebibytes(data_volume.pointer(&size(part))?))
}

/// The size of a DataVolume, or the capacity of a `DiskOrCreate` host disk, in bytes: rounded down
/// to 1 MiB as the reference and CDI do. `None` if nothing is left of them.
pub fn whole_mebibytes(quantity: &Value) -> Option<u64> {
    let bytes = Quantity::deserialize(quantity).ok()?.value().ok()?;
    let bytes = u64::try_from(bytes).ok()? >> 20 << 20;
    (bytes > 0).then_some(bytes)
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
            "DataVolume {name:?}: spec.storage.resources.requests.storage is missing, not a size, or less than 1Mi; e.g. 10Gi"
        );
    };
    let file = fs::File::create(claim).map_err(FileError::on("make", claim))?;
    Ok(file.set_len(size).map_err(FileError::on("size", claim))?)
}

/// The URL of the source, else its kind.
fn source_name(data_volume: &Value) -> &str {
    let source = data_volume
        .pointer("/spec/source")
        .and_then(Value::as_object);
    match source.and_then(|source| source.iter().next()) {
        Some((kind, fields)) => match text_at(fields, "/url") {
            "" => kind,
            url => url,
        },
        None => "elsewhere",
    }
}

fn import(file: &Path, claim: &Path, size: Option<u64>) -> Result<(), CtlError> {
    check_content(file, Accepts::Convertible)?;
    let new = claim.with_extension("new");
    let options = ["convert", "-O", "raw"].map(Path::new);
    let arguments = options.into_iter().chain([file, &new]);
    os::command::run("qemu-img", arguments, &[], None, COPY_LIMITS).map_err(|source| {
        text_error!("cannot copy the image {} as a raw one", file.display()).caused_by(source)
    })?;
    let raw = fs::File::options().write(true).open(&new);
    let raw = raw.map_err(FileError::on("open", &new))?;
    let length = raw.metadata().map_err(FileError::on("stat", &new))?.len();
    let whole = length.div_ceil(1 << 20) << 20;
    let size = size.map_or(whole, |size| size.max(whole));
    raw.set_len(size).map_err(FileError::on("size", &new))?;
    Ok(fs::rename(&new, claim).map_err(FileError::on("make", claim))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;

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

    /// The notes, or the first error.
    fn placed(vm: &str, root: &Path, image: Option<&Path>) -> Result<Vec<String>, String> {
        let manifest = Manifest::parse(vm).unwrap();
        let mut notes = Vec::new();
        for (name, volume) in manifest.volumes() {
            if let Some(data_volume) = find(manifest.others(), volume) {
                let claim = root.join(name);
                let image = image.filter(|_| name == "root");
                let note = place(name, data_volume, image, &claim);
                notes.extend(note.map_err(|error| error.to_string())?);
            }
        }
        Ok(notes)
    }

    #[test]
    fn an_import_is_copied_and_a_blank_one_is_made() {
        let root = tempfile::tempdir().unwrap();
        let image = root.path().join("image");
        fs::write(&image, [7; 512]).unwrap();
        let notes = placed(VM, root.path(), Some(&image)).unwrap();
        assert!(notes[0].contains("root is a copy of"), "{notes:?}");
        let claim = |name: &str| fs::read(root.path().join(name)).unwrap();
        assert_eq!((claim("root").len(), claim("root")[511]), (2 << 20, 7));
        assert_eq!(claim("data").len(), 3 << 20);

        // The next run in the same directory keeps the guest's writes.
        fs::write(&image, [8; 512]).unwrap();
        let notes = placed(VM, root.path(), Some(&image)).unwrap();
        assert!(notes[0].contains("image is not used"), "{notes:?}");
        assert_eq!(claim("root")[511], 7);
    }

    #[test]
    fn what_cannot_be_filled_says_why() {
        let root = tempfile::tempdir().unwrap();
        let error = placed(VM, root.path(), None).unwrap_err();
        assert!(
            error.contains("https://example.org/x.qcow2") && error.contains("--disk root=FILE"),
            "{error}"
        );
        let packed = root.path().join("image.xz");
        fs::write(&packed, b"\xfd7zXZ\0....").unwrap();
        let error = placed(VM, root.path(), Some(&packed)).unwrap_err();
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
            None,
        )
        .unwrap_err();
        assert!(
            error.contains("data-dv") && error.contains("10Gi"),
            "{error}"
        );
    }
}
