//! `screenshot`: the guest's screen as a picture.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::error::CtlError;
use super::files::FileError;
use super::output::{Format, print};
use super::target::Target;

/// The arguments of `screenshot`.
#[derive(Debug, Args)]
pub struct ScreenshotArgs {
    /// Where the picture is written: PNG, or PPM from a QEMU before 7.1
    file: PathBuf,
    #[command(flatten)]
    target: Target,
}

/// `screenshot`.
///
/// # Errors
/// If the launcher has no picture, such as of a guest without a screen, or the file cannot be written.
pub async fn screenshot(args: &ScreenshotArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (mime, picture) = args.target.connect().await?.screenshot().await?;
    std::fs::write(&args.file, &picture).map_err(FileError::on("write", &args.file))?;
    let file = args.file.display().to_string();
    print(
        format,
        &json!({"file": file, "mime": mime, "bytes": picture.len()}),
        || format!("{file}: {mime}, {} bytes", picture.len()),
    );
    Ok(ExitCode::SUCCESS)
}
