//! `screenshot`: the guest's screen as a picture.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::target::Target;
use crate::error::CtlError;
use crate::files::FileError;
use crate::new_file::check_overwrite;
use crate::view::output::{Format, print, print_bytes};

/// The arguments of `screenshot`.
#[derive(Debug, Args)]
pub struct ScreenshotArgs {
    /// Where the picture is written, a name that ends in .png; a QEMU before 7.1 only makes .ppm. `-` is standard output
    file: PathBuf,
    /// Overwrite FILE if it is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: Target,
}

/// The file's name says another format than that of the picture.
#[derive(Debug, thiserror::Error)]
#[error(
    "{file}: the picture is {mime}; choose a name that ends in .{ending}",
    file = file.display()
)]
pub struct ScreenshotError {
    file: PathBuf,
    mime: String,
    ending: &'static str,
}

/// `screenshot`.
///
/// # Errors
/// If the file is there, its name says another format, the launcher has no picture, such as of a guest without a screen, or the file cannot be written.
pub async fn screenshot(args: &ScreenshotArgs, format: Format) -> Result<ExitCode, CtlError> {
    check_overwrite(&args.file, args.force)?;
    let (mime, picture) = args.target.connect().await?.screenshot().await?;
    if args.file == Path::new("-") {
        print_bytes(&picture)?;
        return Ok(ExitCode::SUCCESS);
    }
    check_ending(&args.file, &mime)?;
    std::fs::write(&args.file, &picture).map_err(FileError::on("write", &args.file))?;
    let file = args.file.display().to_string();
    print(
        format,
        &json!({"file": file, "mime": mime, "bytes": picture.len()}),
        || format!("{file}: {mime}, {} bytes", picture.len()),
    );
    Ok(ExitCode::SUCCESS)
}

/// A name without an ending says nothing of the format.
fn check_ending(file: &Path, mime: &str) -> Result<(), ScreenshotError> {
    let ending = if mime == "image/png" { "png" } else { "ppm" };
    let given = file.extension();
    if given.is_none_or(|given| given.eq_ignore_ascii_case(ending)) {
        return Ok(());
    }
    Err(ScreenshotError {
        file: file.to_owned(),
        mime: mime.to_owned(),
        ending,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_another_format_is_refused() {
        let check = |file, mime| check_ending(Path::new(file), mime);
        for file in ["s.png", "s.PNG", "screen", "/dev/stdout"] {
            assert!(check(file, "image/png").is_ok(), "{file}");
        }
        let refused = check("s.jpg", "image/png").err().map(|e| e.to_string());
        assert_eq!(
            refused.as_deref(),
            Some("s.jpg: the picture is image/png; choose a name that ends in .png")
        );
        assert!(check("s.png", "image/x-portable-pixmap").is_err());
    }
}
