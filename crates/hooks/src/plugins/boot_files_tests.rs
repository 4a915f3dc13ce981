//! What plugins may leave of the cloud-init image and the NVRAM.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// The descriptor of an ISO image with this label, and `rest` behind it.
fn iso(label: &str, rest: &[u8]) -> Vec<u8> {
    let mut image = vec![0; 17 * 2048];
    image[16 * 2048..16 * 2048 + 6].copy_from_slice(b"\x01CD001");
    image[16 * 2048 + 40..16 * 2048 + 40 + label.len()].copy_from_slice(label.as_bytes());
    image[16 * 2048 + 80] = 17;
    image[16 * 2048 + 128 + 1] = 8;
    image.extend(rest);
    image
}

fn nvram(variable: u8) -> Vec<u8> {
    let mut image = vec![variable; 8192];
    image[40..44].copy_from_slice(b"_FVH");
    image
}

struct Bed {
    dir: tempfile::TempDir,
    files: Vec<BootFile>,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("plugin")).unwrap();
        fs::write(at("seed.iso"), iso("cidata", b"given")).unwrap();
        fs::set_permissions(at("seed.iso"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(at("vars"), nvram(1)).unwrap();
        let files = vec![
            BootFile::claim(
                BootFileKind::CloudInitIso,
                at("seed.iso"),
                None,
                Arc::new(()),
            )
            .unwrap(),
            BootFile::claim(BootFileKind::Nvram, at("vars"), None, Arc::new(())).unwrap(),
        ];
        Self { dir, files }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What a plugin leaves of its copies.
    fn plugin(&mut self, edit: impl FnOnce(&Path)) -> Result<Vec<&'static str>, String> {
        let copies = give(&self.files, &self.path("plugin")).unwrap();
        edit(&copies.path);
        take(&mut self.files, &copies).map_err(|error| os::logging::chain(&error))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn each_plugin_sees_what_the_one_before_left_and_the_guest_gets_the_last() {
    let mut bed = Bed::new();
    let changed = bed.plugin(|copies| {
        assert_eq!(fs::read(copies.join("nvram.fd")).unwrap(), nvram(1));
        fs::write(copies.join("cloud-init.iso"), iso("cidata", b"first")).unwrap();
    });
    assert_eq!(changed.unwrap(), ["cloud-init image"]);
    let changed = bed.plugin(|copies| {
        let seen = fs::read(copies.join("cloud-init.iso")).unwrap();
        assert_eq!(seen, iso("cidata", b"first"));
        fs::write(copies.join("new"), nvram(2)).unwrap();
        fs::rename(copies.join("new"), copies.join("nvram.fd")).unwrap();
    });
    assert_eq!(changed.unwrap(), ["NVRAM"]);
    assert_eq!(bed.plugin(|_| {}).unwrap(), Vec::<&str>::new());
    // Nothing of it has reached the guest's files yet.
    let given = fs::read(bed.path("seed.iso")).unwrap();
    assert_eq!(given, iso("cidata", b"given"));
    commit(std::mem::take(&mut bed.files)).unwrap();
    let last = fs::read(bed.path("seed.iso")).unwrap();
    assert_eq!(last, iso("cidata", b"first"));
    assert_eq!(fs::read(bed.path("vars")).unwrap(), nvram(2));
    let mode = fs::metadata(bed.path("seed.iso")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(bed.names(), ["plugin", "seed.iso", "vars"]);
    assert!(fs::read_dir(bed.path("plugin")).unwrap().next().is_none());
}

#[test]
fn a_copy_that_the_guest_could_not_use_is_refused() {
    type Edit = fn(&Path);
    let cut: Edit = |copies| {
        let image = iso("cidata", b"");
        fs::write(copies.join("cloud-init.iso"), &image[..image.len() - 1]).unwrap();
    };
    let refused: [(Edit, &str); 10] = [
        (cut, "not ISO 9660"),
        (
            |copies| {
                let mut image = iso("cidata", b"");
                image[16 * 2048 + 80] = 18;
                fs::write(copies.join("cloud-init.iso"), image).unwrap();
            },
            "cut off: it has 34816 of 36864 bytes",
        ),
        (
            |copies| fs::write(copies.join("cloud-init.iso"), iso("other", b"")).unwrap(),
            "the label \"other\", not \"cidata\"",
        ),
        (
            |copies| fs::write(copies.join("cloud-init.iso"), "text").unwrap(),
            "not ISO 9660",
        ),
        (
            |copies| fs::write(copies.join("nvram.fd"), [0; 8192]).unwrap(),
            "firmware volume",
        ),
        (
            |copies| fs::write(copies.join("nvram.fd"), &nvram(2)[..4096]).unwrap(),
            "has 4096 bytes, not 8192",
        ),
        (
            |copies| fs::remove_file(copies.join("nvram.fd")).unwrap(),
            "open",
        ),
        (
            |copies| {
                let file = File::create(copies.join("nvram.fd")).unwrap();
                file.set_len(MAX_NVRAM_BYTES + 1).unwrap();
            },
            "at most",
        ),
        (
            |copies| {
                fs::remove_file(copies.join("nvram.fd")).unwrap();
                symlink("/etc/passwd", copies.join("nvram.fd")).unwrap();
            },
            "preboot/nvram.fd is a link; a plugin's files must not be links",
        ),
        (
            |copies| {
                fs::remove_file(copies.join("nvram.fd")).unwrap();
                fs::create_dir(copies.join("nvram.fd")).unwrap();
            },
            "not a regular file",
        ),
    ];
    for (edit, text) in refused {
        let mut bed = Bed::new();
        let error = bed.plugin(edit).unwrap_err();
        assert!(error.contains(text), "{text:?} is not in {error:?}");
        drop(std::mem::take(&mut bed.files));
        assert_eq!(bed.names(), ["plugin", "seed.iso", "vars"]);
        let given = fs::read(bed.path("seed.iso")).unwrap();
        assert_eq!(given, iso("cidata", b"given"));
        assert_eq!(fs::read(bed.path("vars")).unwrap(), nvram(1));
    }
}

#[test]
fn a_link_in_place_of_the_copies_is_removed_and_not_followed() {
    let bed = Bed::new();
    fs::create_dir(bed.path("elsewhere")).unwrap();
    fs::write(bed.path("elsewhere/kept"), "").unwrap();
    symlink(bed.path("elsewhere"), bed.path("plugin/preboot")).unwrap();
    let copies = give(&bed.files, &bed.path("plugin")).unwrap();
    assert!(!fs::symlink_metadata(&copies.path).unwrap().is_symlink());
    fs::rename(&copies.path, bed.path("plugin/moved")).unwrap();
    symlink(bed.path("elsewhere"), &copies.path).unwrap();
    drop(copies);
    assert!(bed.path("elsewhere/kept").exists());
}

#[test]
fn what_a_killed_launcher_has_left_goes() {
    let bed = Bed::new();
    fs::write(bed.path("vars.staging"), "half").unwrap();
    fs::write(bed.path("vars.staging-next"), "half").unwrap();
    BootFile::claim(BootFileKind::Nvram, bed.path("vars"), None, Arc::new(())).unwrap();
    assert_eq!(bed.names(), ["plugin", "seed.iso", "vars"]);
}

#[test]
fn a_missing_nvram_is_made_from_the_template_only_if_a_plugin_changes_it() {
    let mut bed = Bed::new();
    fs::write(bed.path("template"), nvram(7)).unwrap();
    let (path, template) = (bed.path("new/vars"), Some(bed.path("template")));
    let find = || {
        BootFile::claim(
            BootFileKind::Nvram,
            path.clone(),
            template.clone(),
            Arc::new(()),
        )
    };
    bed.files = vec![find().unwrap()];
    assert!(bed.plugin(|_| {}).unwrap().is_empty());
    commit(std::mem::take(&mut bed.files)).unwrap();
    assert!(!path.exists());
    bed.files = vec![find().unwrap()];
    bed.plugin(|copies| fs::write(copies.join("nvram.fd"), nvram(8)).unwrap())
        .unwrap();
    commit(std::mem::take(&mut bed.files)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), nvram(8));
    assert!(BootFile::claim(BootFileKind::Nvram, bed.path("none"), None, Arc::new(())).is_none());
}
