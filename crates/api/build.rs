//! Compiles the wire contract in proto/ with protox, so that no protoc is needed.

use std::error::Error;

const FILES: [&str; 12] = [
    "../../proto/cmd.proto",
    "../../proto/cmd_info.proto",
    "../../proto/notify.proto",
    "../../proto/notify_info.proto",
    "../../proto/hooks_info.proto",
    "../../proto/hooks_v1alpha1.proto",
    "../../proto/hooks_v1alpha2.proto",
    "../../proto/hooks_v1alpha3.proto",
    "../../proto/hooks_plugins.proto",
    "../../proto/preview.proto",
    "../../proto/inspect.proto",
    "../../proto/nbd.proto",
];

const CAMEL_CASE: &str = r#"#[derive(serde::Serialize)] #[serde(rename_all = "camelCase")]"#;
const TAGGED: &str =
    r#"#[derive(serde::Serialize)] #[serde(tag = "event", rename_all = "lowercase")]"#;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=../../proto");
    let files = protox::compile(FILES, ["../../proto"])?;
    // Bodies that may be large are taken out of the received frame without a copy.
    tonic_prost_build::configure()
        .bytes(".kubevirt")
        .bytes(".launcher")
        // launcherctl prints what a migration does as JSON, too.
        .type_attribute("launcher.inspect.v1.MigrationEvent.event", TAGGED)
        .type_attribute("launcher.inspect.v1.MigrationBegan", CAMEL_CASE)
        .type_attribute("launcher.inspect.v1.MigrationStep", CAMEL_CASE)
        .type_attribute("launcher.inspect.v1.MigrationSample", CAMEL_CASE)
        .type_attribute("launcher.inspect.v1.MigrationDecision", CAMEL_CASE)
        .type_attribute("launcher.inspect.v1.MigrationEnded", CAMEL_CASE)
        .compile_fds(files)?;
    Ok(())
}
