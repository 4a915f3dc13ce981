//! Gives the executables their version: the package's version, and in a release build the commit.
//! Packs the relocations of static executables.
//!
//! git tells the commit. Without a repository (a container image is built from a copy) the variable
//! `SOURCE_COMMIT` does. A debug build has no commit, so that a commit does not make cargo build
//! everything again. Time and paths are left out: the same source gives the same executables.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=SOURCE_COMMIT");
    if packs_relocations() {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    let package = env!("CARGO_PKG_VERSION");
    let built = match std::env::var("PROFILE").as_deref() {
        Ok("release") => format!("commit {}", commit()),
        _ => "debug build".to_owned(),
    };
    println!("cargo:rustc-env=VIRT_LAUNCHER_VERSION={package} ({built})");
}

/// Whether the loader reads packed relocations (DT_RELR), which take a hundredth of the space.
/// glibc does since 2.36; an older one would start the program without its relocations. A static
/// program brings its loader along. Others must start on the older glibc of `KubeVirt`'s image
/// (`scripts/check-glibc`).
#[expect(
    clippy::disallowed_methods,
    reason = "a build may wait for getconf, which says one line"
)]
fn packs_relocations() -> bool {
    let features = std::env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if !features.split(',').any(|feature| feature == "crt-static") {
        return false;
    }
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let version = text
        .trim()
        .strip_prefix("glibc ")
        .and_then(|it| it.split_once('.'));
    let version =
        version.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    version.is_some_and(|version: (u32, u32)| version >= (2, 36))
}

fn commit() -> String {
    if let Ok(commit) = std::env::var("SOURCE_COMMIT") {
        return commit;
    }
    // HEAD names the branch, and the branch's file names the commit; both can be in `packed-refs`.
    for name in ["HEAD", "packed-refs"] {
        watch(git(&["rev-parse", "--git-path", name]));
    }
    if let Some(branch) = git(&["symbolic-ref", "-q", "HEAD"]) {
        watch(git(&["rev-parse", "--git-path", &branch]));
    }
    git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned())
}

fn watch(path: Option<String>) {
    // cargo treats a missing file as changed.
    if let Some(path) = path.filter(|path| Path::new(path).exists()) {
        println!("cargo:rerun-if-changed={path}");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a build may wait for git, which says one line"
)]
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
