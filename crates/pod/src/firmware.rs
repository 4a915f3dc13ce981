//! Choosing EFI images below the OVMF path.

use std::path::Path;

use super::error::unusable;
use super::{LauncherFlags, PodError};
use api::vmi::Vmi;
use convert::context::EfiConfiguration;

/// Confidential computing that needs firmware of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Confidential {
    None,
    Sev,
    Snp,
    Tdx,
}

/// File names of images for one purpose, best first: Debian's 4 MiB flash, of which KubeVirt's
/// image has no files, then the names in KubeVirt's image. Debian 12's 2 MiB images have the latter
/// names too, but do not come up with the secure boot code. Code and variables have the same size.
type Candidates = &'static [(&'static str, &'static str)];

const AARCH64: Candidates = &[("AAVMF_CODE.fd", "AAVMF_VARS.fd")];
const SECURE_BOOT: Candidates = &[
    ("OVMF_CODE_4M.secboot.fd", "OVMF_VARS_4M.ms.fd"),
    ("OVMF_CODE.secboot.fd", "OVMF_VARS.secboot.fd"),
    ("OVMF_CODE.secboot.fd", "OVMF_VARS.ms.fd"),
];
/// The code with secure boot also serves without it, because these variables have no keys.
const PLAIN: Candidates = &[
    ("OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd"),
    ("OVMF_CODE.secboot.fd", "OVMF_VARS.fd"),
    ("OVMF_CODE.fd", "OVMF_VARS.fd"),
];
const SEV: Candidates = &[("OVMF_CODE.cc.fd", "OVMF_VARS.fd")];
/// Stateless: no variables.
const SNP: Candidates = &[("OVMF.amdsev.fd", "")];
const TDX: Candidates = &[("OVMF.inteltdx.fd", "")];
const TDX_SECURE_BOOT: Candidates = &[("OVMF.inteltdx.secboot.fd", "")];

/// The firmware images of an EFI guest; `None` if the VMI asks for none. With
/// `--firmware-auto-selection` libvirt chooses those with secure boot (`secureBoot`, the default).
pub(super) fn choose(
    flags: &LauncherFlags,
    vmi: &Vmi,
    arch: &str,
) -> Result<Option<EfiConfiguration>, PodError> {
    let Some(efi) = vmi
        .spec
        .domain
        .firmware
        .as_ref()
        .and_then(|firmware| firmware.bootloader.as_ref())
        .and_then(|bootloader| bootloader.efi.as_ref())
    else {
        return Ok(None);
    };
    let secure = efi.secure_boot.unwrap_or(true);
    let confidential = confidential(vmi);
    if secure && confidential == Confidential::None && flags.firmware_auto_selection {
        return Ok(Some(EfiConfiguration {
            secure_loader: true,
            uses_firmware_auto_selection: true,
            ..Default::default()
        }));
    }
    let candidates = candidates(arch, secure, confidential);
    let found = candidates
        .iter()
        .find_map(|&(code, vars)| Some((image(flags, code)?, image(flags, vars)?)));
    let Some((efi_code, efi_vars)) = found else {
        return Err(missing(flags, secure, confidential, candidates));
    };
    // TDX has its keys in the image and no SMM, which libvirt's secure="yes" would imply.
    let secure_loader = secure && confidential != Confidential::Tdx;
    Ok(Some(EfiConfiguration {
        efi_code,
        efi_vars,
        secure_loader,
        uses_firmware_auto_selection: false,
    }))
}

/// The firmware images that an EFI guest gets in KubeVirt's launcher image. For a conversion
/// without a pod.
#[must_use]
pub fn in_kubevirts_image(vmi: &Vmi, arch: &str) -> Option<EfiConfiguration> {
    let efi = vmi
        .spec
        .domain
        .firmware
        .as_ref()?
        .bootloader
        .as_ref()?
        .efi
        .as_ref()?;
    let (secure, confidential) = (efi.secure_boot.unwrap_or(true), confidential(vmi));
    let (code, vars) = candidates(arch, secure, confidential)
        .iter()
        .find(|(code, _)| !code.contains("_4M"))?;
    let directory = Path::new(image_directory(arch));
    let path = |name: &str| {
        if name.is_empty() {
            String::default()
        } else {
            directory.join(name).to_string_lossy().into()
        }
    };
    let secure_loader = secure && confidential != Confidential::Tdx;
    Some(EfiConfiguration {
        efi_code: path(code),
        efi_vars: path(vars),
        secure_loader,
        uses_firmware_auto_selection: false,
    })
}

/// Where launcher images have EFI images: virt-controller's `--ovmf-path`.
fn image_directory(arch: &str) -> &'static str {
    if arch == "arm64" {
        "/usr/share/AAVMF"
    } else {
        "/usr/share/OVMF"
    }
}

fn confidential(vmi: &Vmi) -> Confidential {
    let Some(security) = &vmi.spec.domain.launch_security else {
        return Confidential::None;
    };
    match (&security.snp, &security.sev, &security.tdx) {
        (Some(_), _, _) => Confidential::Snp,
        (None, Some(_), _) => Confidential::Sev,
        (None, None, Some(_)) => Confidential::Tdx,
        (None, None, None) => Confidential::None,
    }
}

/// Secure boot and SEV exclude each other, as do secure boot and SNP; Arm has no secure boot.
fn candidates(arch: &str, secure: bool, confidential: Confidential) -> Candidates {
    match (arch, confidential, secure) {
        ("arm64", Confidential::None, false) => AARCH64,
        ("arm64", _, _) => &[],
        (_, Confidential::None, true) => SECURE_BOOT,
        (_, Confidential::None, false) => PLAIN,
        (_, Confidential::Sev, false) => SEV,
        (_, Confidential::Snp, false) => SNP,
        (_, Confidential::Sev | Confidential::Snp, true) => &[],
        (_, Confidential::Tdx, false) => TDX,
        (_, Confidential::Tdx, true) => TDX_SECURE_BOOT,
    }
}

/// The image's path if it exists; empty for no name.
fn image(flags: &LauncherFlags, name: &str) -> Option<String> {
    if name.is_empty() {
        return Some(String::default());
    }
    let path = Path::new(&flags.ovmf_path).join(name);
    path.exists().then(|| path.to_string_lossy().into())
}

fn missing(
    flags: &LauncherFlags,
    secure: bool,
    confidential: Confidential,
    candidates: Candidates,
) -> PodError {
    let why = if candidates.is_empty() {
        "no known firmware supports this combination; change the VMI's boot loader or launch security".to_owned()
    } else {
        let name = |(code, vars): &(&str, &str)| match *vars {
            "" => (*code).to_owned(),
            vars => format!("{code} with {vars}"),
        };
        let files: Vec<String> = candidates.iter().map(name).collect();
        let files = files.join(", ");
        format!(
            "{:?} has none of: {files}; install them or set --ovmf-path",
            flags.ovmf_path
        )
    };
    let [sev, snp, tdx] =
        [Confidential::Sev, Confidential::Snp, Confidential::Tdx].map(|it| it == confidential);
    unusable!(
        "EFI OVMF roms missing for booting in EFI mode with SecureBoot={secure}, SEV/SEV-ES={sev}, SEV-SNP={snp}, TDX={tdx}: {why}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_pod_the_images_are_kubevirts() {
        let efi = |arch, domain: &str| {
            in_kubevirts_image(&vmi(domain), arch).map(|efi| {
                let (code, vars) = (efi.efi_code, efi.efi_vars);
                format!("{code} {vars} {}", efi.secure_loader)
            })
        };
        for (arch, domain, expected) in [
            (
                "amd64",
                SECURE,
                "/usr/share/OVMF/OVMF_CODE.secboot.fd /usr/share/OVMF/OVMF_VARS.secboot.fd true",
            ),
            (
                "amd64",
                INSECURE,
                "/usr/share/OVMF/OVMF_CODE.secboot.fd /usr/share/OVMF/OVMF_VARS.fd false",
            ),
            (
                "arm64",
                INSECURE,
                "/usr/share/AAVMF/AAVMF_CODE.fd /usr/share/AAVMF/AAVMF_VARS.fd false",
            ),
        ] {
            assert_eq!(efi(arch, domain).as_deref(), Some(expected));
        }
        assert_eq!(efi("amd64", "{}"), None);
    }

    fn vmi(domain: &str) -> Vmi {
        serde_json::from_str(&format!(r#"{{"spec":{{"domain":{domain}}}}}"#)).unwrap()
    }

    /// The names of the images chosen of these files, and whether the loader is secure.
    fn chosen(files: &[&str], arch: &str, domain: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        let flags = LauncherFlags {
            ovmf_path: dir.path().to_string_lossy().into_owned(),
            ..LauncherFlags::default()
        };
        let efi = choose(&flags, &vmi(domain), arch).map_err(|e| os::logging::chain(&e))?;
        Ok(efi.map_or_else(String::new, |efi| {
            assert!(!efi.uses_firmware_auto_selection);
            let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
            let (code, vars) = (base(&efi.efi_code), base(&efi.efi_vars));
            format!("{code} {vars} {}", efi.secure_loader)
        }))
    }

    #[track_caller]
    fn chooses(files: &[&str], arch: &str, domain: &str, expected: &str) {
        let efi = chosen(files, arch, domain);
        assert_eq!(efi.as_deref(), Ok(expected), "{files:?} {domain}");
    }

    const SECURE: &str = r#"{"firmware":{"bootloader":{"efi":{}}}}"#;
    const INSECURE: &str = r#"{"firmware":{"bootloader":{"efi":{"secureBoot":false}}}}"#;

    #[test]
    fn a_bios_guest_needs_no_images() {
        chooses(
            &[],
            "amd64",
            r#"{"firmware":{"bootloader":{"bios":{}}}}"#,
            "",
        );
    }

    #[test]
    fn secure_boot_is_the_default_and_needs_variables_with_keys() {
        let files = [
            "OVMF_CODE.secboot.fd",
            "OVMF_VARS.fd",
            "OVMF_VARS.secboot.fd",
        ];
        chooses(
            &files,
            "amd64",
            SECURE,
            "OVMF_CODE.secboot.fd OVMF_VARS.secboot.fd true",
        );
        let error = chosen(&files[..2], "amd64", SECURE).unwrap_err();
        assert!(error.starts_with("EFI OVMF roms missing for booting in EFI mode with SecureBoot=true, SEV/SEV-ES=false"), "{error}");
        assert!(error.contains("OVMF_VARS.secboot.fd"), "{error}");
    }

    #[test]
    fn without_secure_boot_the_code_that_could_is_preferred() {
        chooses(
            &["OVMF_CODE.secboot.fd", "OVMF_CODE.fd", "OVMF_VARS.fd"],
            "amd64",
            INSECURE,
            "OVMF_CODE.secboot.fd OVMF_VARS.fd false",
        );
        chooses(
            &["OVMF_CODE.fd", "OVMF_VARS.fd"],
            "amd64",
            INSECURE,
            "OVMF_CODE.fd OVMF_VARS.fd false",
        );
    }

    #[test]
    fn flash_sizes_are_never_mixed() {
        let debian_13 = [
            "OVMF_CODE_4M.secboot.fd",
            "OVMF_CODE_4M.fd",
            "OVMF_VARS_4M.fd",
            "OVMF_VARS_4M.ms.fd",
        ];
        chooses(
            &debian_13,
            "amd64",
            SECURE,
            "OVMF_CODE_4M.secboot.fd OVMF_VARS_4M.ms.fd true",
        );
        chooses(
            &debian_13,
            "amd64",
            INSECURE,
            "OVMF_CODE_4M.fd OVMF_VARS_4M.fd false",
        );
        assert!(chosen(&["OVMF_CODE.fd", "OVMF_VARS_4M.fd"], "amd64", INSECURE).is_err());
    }

    #[test]
    fn confidential_guests_have_firmware_of_their_own() {
        let files = [
            "OVMF_CODE.cc.fd",
            "OVMF_VARS.fd",
            "OVMF.amdsev.fd",
            "OVMF.inteltdx.fd",
            "OVMF.inteltdx.secboot.fd",
        ];
        let with = |secure: bool, what: &str| {
            format!(
                r#"{{"firmware":{{"bootloader":{{"efi":{{"secureBoot":{secure}}}}}}},"launchSecurity":{{"{what}":{{}}}}}}"#
            )
        };
        chooses(
            &files,
            "amd64",
            &with(false, "sev"),
            "OVMF_CODE.cc.fd OVMF_VARS.fd false",
        );
        chooses(
            &files,
            "amd64",
            &with(false, "snp"),
            "OVMF.amdsev.fd  false",
        );
        chooses(
            &files,
            "amd64",
            &with(false, "tdx"),
            "OVMF.inteltdx.fd  false",
        );
        chooses(
            &files,
            "amd64",
            &with(true, "tdx"),
            "OVMF.inteltdx.secboot.fd  false",
        );
        assert!(
            chosen(&files, "amd64", &with(true, "sev"))
                .unwrap_err()
                .contains("no known firmware supports this combination")
        );
    }

    #[test]
    fn arm_has_no_secure_boot() {
        let files = ["AAVMF_CODE.fd", "AAVMF_VARS.fd"];
        chooses(
            &files,
            "arm64",
            INSECURE,
            "AAVMF_CODE.fd AAVMF_VARS.fd false",
        );
        assert!(chosen(&files, "arm64", SECURE).is_err());
    }

    #[test]
    fn automatic_selection_leaves_secure_boot_to_libvirt() {
        let flags = LauncherFlags {
            firmware_auto_selection: true,
            ovmf_path: "/nowhere".into(),
            ..LauncherFlags::default()
        };
        let efi = choose(&flags, &vmi(SECURE), "amd64").unwrap().unwrap();
        assert!(efi.uses_firmware_auto_selection && efi.secure_loader && efi.efi_code.is_empty());
    }
}
