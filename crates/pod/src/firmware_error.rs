//! Why an EFI guest gets no firmware.

/// No firmware can be had for an EFI guest.
#[derive(Debug, thiserror::Error)]
#[error(
    "EFI OVMF roms missing for booting in EFI mode with SecureBoot={secure_boot}, SEV/SEV-ES={sev}, SEV-SNP={snp}, TDX={tdx}"
)]
pub struct FirmwareError {
    /// The VMI asks for secure boot.
    pub secure_boot: bool,
    /// The VMI asks for SEV or SEV-ES.
    pub sev: bool,
    /// The VMI asks for SEV-SNP.
    pub snp: bool,
    /// The VMI asks for TDX.
    pub tdx: bool,
    /// Why it is missing, and what to do.
    pub source: MissingFirmware,
}

/// Why firmware is missing.
#[derive(Debug, thiserror::Error)]
pub enum MissingFirmware {
    /// There is no such firmware.
    #[error(
        "no known firmware supports this combination; change the VMI's boot loader or launch security"
    )]
    NoCombination,
    /// It is not installed.
    #[error(
        "{dir:?} has none of: {}; install them or set --ovmf-path",
        files.join(", ")
    )]
    NotInstalled {
        /// `--ovmf-path`.
        dir: String,
        /// What would do: the code image, and the variables' if there is one.
        files: Vec<String>,
    },
}
