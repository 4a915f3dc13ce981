//! Devices that the guest finds by the user's tags.

use serde_json::{Value, json};

use crate::harness::{Pod, Vmi};
use crate::sidecars::{Sidecar, script};

#[tokio::test]
async fn the_config_drive_says_where_a_tagged_device_is() {
    let mut pod = Pod::new();
    let card = |name: &str, tag: &str, mac: &str| json!({"name": name, "tag": tag, "macAddress": mac, "bridge": {}});
    let vmi = Vmi::new("tags")
        .with_image(&pod)
        .set(
            "/spec/domain/devices/interfaces",
            json!([card("back", "", "02:00:00:00:00:0b"), card("front", "uplink", "02:00:00:00:00:0f")]),
        )
        .set(
            "/spec/networks",
            json!([{"name": "back", "multus": {"networkName": "b"}}, {"name": "front", "multus": {"networkName": "f"}}]),
        )
        .volume(
            json!({"name": "seed", "cloudInitConfigDrive": {"userData": "#cloud-config\n"}}),
            json!({"name": "seed", "disk": {"bus": "virtio"}}),
        );
    // The pod has no network of its own here; QEMU's needs none.
    let programs = tempfile::tempdir().unwrap();
    script(
        programs.path(),
        "onDefineDomain",
        r#"printf '%s' "$4" | sed 's|<interface type="">|<interface type="user">|'"#,
    );
    let _sidecar = Sidecar::shim(&pod, 0, "v1alpha3", programs.path());
    pod.start(&vmi, &["--hook-sidecars", "1"]).await;
    let mut guest = pod.boot(&vmi).await;

    let metadata: Value = serde_json::from_str(&guest.run("seed meta-data").await).unwrap();
    let devices = metadata["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 1, "{metadata}");
    let device = &devices[0];
    assert_eq!(
        (&device["type"], &device["bus"], &device["tags"]),
        (&json!("nic"), &json!("pci"), &json!(["uplink"]))
    );
    assert_eq!(device["mac"], "02:00:00:00:00:0f");
    // The guest finds the card at that address.
    let address = device["address"].as_str().unwrap();
    assert_eq!(
        guest
            .run(&format!(
                "cat /sys/bus/pci/devices/{address}/virtio*/net/*/address"
            ))
            .await,
        "02:00:00:00:00:0f"
    );
}
