//! One VMI in one pod gives one domain, whichever program converts it: the library, `launcherctl
//! convert` and a running launcher.

use std::process::Command;

use convert::{self, Context};
use domain::Domain;
use domain::DomainSpec;
use serde_json::{Value, json};

use crate::harness::{Pod, Vmi, in_pod};

/// What the launcher has logged at debug level beside this message.
fn logged(pod: &Pod, message: &str, key: &str) -> String {
    let lines = pod.log();
    let line = lines
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|line| line["msg"] == message);
    line.unwrap_or_else(|| panic!("{message:?} is not in the log"))[key]
        .as_str()
        .unwrap()
        .to_owned()
}

/// `launcherctl convert` with these inputs as files.
fn launcherctl_convert(vmi: &str, context: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_pod-tools"));
    command
        .args(["launcherctl", "convert"])
        .arg(file("vmi.json", vmi))
        .arg("--context")
        .arg(file("context.json", context));
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The parts of `wanted` that are missing in `live`, which may have more. Lists may be in any
/// order.
fn lacking(wanted: &Value, live: &Value, path: &str, out: &mut Vec<String>) {
    match (wanted, live) {
        // libvirt writes these in a form of its own; its first console is the serial port.
        _ if [
            "Spec.Memory",
            "Spec.OS.Type.Machine",
            "Spec.Devices.Consoles",
        ]
        .iter()
        .any(|own| path.starts_with(own)) => {}
        (Value::Object(wanted), Value::Object(live)) => {
            for (key, value) in wanted {
                lacking(
                    value,
                    live.get(key).unwrap_or(&Value::Null),
                    &format!("{path}.{key}"),
                    out,
                );
            }
        }
        (Value::Array(wanted), Value::Array(live)) => {
            for (at, value) in wanted.iter().enumerate() {
                let fits = |live: &&Value| {
                    let mut differences = Vec::new();
                    lacking(value, live, "", &mut differences);
                    differences.is_empty()
                };
                if live.iter().find(fits).is_none() {
                    out.push(format!("{path}[{at}]: {value}"));
                }
            }
        }
        // What Go's decoder reads as unset.
        _ if wanted.is_null() || wanted == "" || wanted == 0 || wanted == live => {}
        _ => out.push(format!("{path}: {wanted}, but {live}")),
    }
}

#[test]
fn library_launcherctl_and_launcher_make_the_same_domain() {
    in_pod(async {
        let mut pod = Pod::new();
        let seed = json!({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"}});
        let vmi = Vmi::new("agree")
            .with_counter(&pod)
            .volume(
                json!({"name": "scratch", "emptyDisk": {"capacity": "8Mi"}}),
                json!({"name": "scratch", "serial": "S", "disk": {"bus": "scsi"}}),
            )
            .volume(
                json!({"name": "image", "containerDisk": {"image": "example/image"}}),
                json!({"name": "image", "disk": {"bus": "sata"}}),
            )
            .volume(seed, json!({"name": "seed", "cdrom": {"bus": "sata"}}))
            .set("/spec/domain/devices/rng", json!({}))
            .set("/spec/domain/devices/watchdog", json!({"name": "dog", "i6300esb": {"action": "reset"}}))
            .set("/spec/domain/devices/inputs", json!([{"name": "tablet", "type": "tablet", "bus": "usb"}]))
            .set("/spec/domain/clock", json!({"utc": {}, "timer": {"hpet": {"present": false}, "pit": {"tickPolicy": "delay"}}}))
            .set("/spec/domain/ioThreadsPolicy", json!("auto"));
        std::fs::write(pod.container_disk(2), vec![0; 1 << 20]).unwrap();
        pod.start(&vmi, &["-v", "4"]).await;
        pod.sync_ok(&vmi).await;

        let context = logged(&pod, "Context of the conversion", "context");
        let by_launcherctl = launcherctl_convert(&vmi.value().to_string(), &context);
        let context: Context = serde_json::from_str(&context).unwrap();
        let parsed: api::vmi::Vmi = serde_json::from_value(vmi.value().clone()).unwrap();
        // It prints the form that sidecars get.
        let converted = DomainSpec::from_xml(&by_launcherctl).unwrap();
        let by_library = convert::domain(&parsed, &context).unwrap();
        assert_eq!(by_library.to_xml(), converted.to_xml());

        // The launcher adds what only it knows: since when the domain has been there.
        let mut defined = DomainSpec::from_xml(&logged(&pod, "Domain to define", "xml")).unwrap();
        defined.metadata = converted.metadata.clone();
        assert_eq!(defined.to_xml(), converted.to_xml());

        // And libvirt runs it: it adds addresses, aliases and controllers, and takes nothing away.
        let running = pod.domain().await;
        let mut differences = Vec::new();
        let document = Domain {
            spec: converted,
            ..Domain::default()
        };
        lacking(
            &serde_json::to_value(&document).unwrap()["Spec"],
            &running["Spec"],
            "Spec",
            &mut differences,
        );
        assert_eq!(
            differences,
            Vec::<String>::new(),
            "{:#}",
            running["Spec"]["Devices"]
        );
    });
}
