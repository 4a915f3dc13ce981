//! `screenshot`: the guest's screen as a picture.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::target::Target;
use crate::error::CtlError;
use crate::files::FileError;
use crate::view::output::{Format, answer};

/// The arguments of `screenshot`.
#[derive(Debug, Args)]
pub struct ScreenshotArgs {
    /// Where the picture is written, a name that ends in .png; a QEMU before 7.1 only makes .ppm
    file: PathBuf,
    #[command(flatten)]
    target: Target,
}

/// `screenshot`.
///
/// # Errors
/// The launcher has no picture, such as of a
/// guest without a screen, or the file cannot be written.
pub async fn screenshot(args: &ScreenshotArgs, format: Format) -> Result<ExitCode, CtlError> {
    let vm = args.target.connect().await?;
    let (mime, picture) = vm.client.screenshot().await?;
    std::fs::write(&args.file, &picture).map_err(FileError::on("write", &args.file))?;
    let file = args.file.display().to_string();
    let bytes = picture.len();
    let json = json!({"file": file, "mime": mime, "bytes": bytes});
    answer(format, &json, || [format!("{file}: {mime}, {bytes} bytes")])
}
