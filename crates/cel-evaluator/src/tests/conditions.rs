//! Tests the values that conditions read from the VMI and the domain.

use serde_json::json;

use super::{DOMAIN, ExpressionInput, condition, condition_on, input};

const CONDITIONS: &[(&str, bool)] = &[
    (r#"vmi.Labels["app"] == "test""#, true),
    (r#"vmi.Labels["app"] == "other""#, false),
    (
        r#"vmi.ObjectMeta.Namespace == "default" && vmi.Name.startsWith("test")"#,
        true,
    ),
    (r#"domainSpec.Type == "kvm""#, true),
    ("has(domainSpec.Memory)", true),
    ("has(domainSpec.CPU)", false),
    (r#"domainSpec.CPU.Mode == """#, true),
    (r#"domainSpec.Name.contains("test")"#, true),
    ("domainSpec.Memory.Value == uint(1024)", true),
    ("domainSpec.Devices.Disks.size() == 2", true),
    (
        r#"domainSpec.Devices.Disks.exists(d, d.Source.File.File == "/a.img")"#,
        true,
    ),
    (
        r#"domainSpec.Devices.Disks.all(d, has(d.Source.Block))"#,
        false,
    ),
    (
        r#"domainSpec.Devices.Disks.filter(d, has(d.Source.Block))[0].Source.Block.Dev == "/dev/b""#,
        true,
    ),
    (
        "has(domainSpec.Devices.Interfaces[0].Source.Ethernet)",
        true,
    ),
    (
        "domainSpec.Devices.Interfaces[0].Address.PCI.Bus == 1u",
        true,
    ),
    ("has(domainSpec.Devices.Interfaces[0].Driver)", false),
    (
        r#"domainSpec.QEMUCommandline.Args[0].Value == "-fw_cfg""#,
        true,
    ),
    ("vmi.Spec.Domain.CPU.Cores == 4u", true),
    ("vmi.Spec.Domain.CPU.Sockets == 0u", true),
    ("has(vmi.Spec.Domain.Memory)", false),
    (
        r#"vmi.Spec.Domain.Resources.Requests["memory"] == "1Gi""#,
        true,
    ),
    (
        r#"vmi.Spec.Domain.Devices.Disks[0].DiskDevice.Disk.Bus == "virtio""#,
        true,
    ),
    (
        r#"vmi.Spec.Domain.Devices.Disks[0].Disk.Bus == "virtio""#,
        true,
    ),
    (r#"vmi.Spec.Tolerations[0].TolerationSeconds == 30"#, true),
    (
        r#"size(vmi.Annotations) == 0 && !("x" in vmi.Annotations)"#,
        true,
    ),
];

#[test]
// D-hook-9 (docs/differences.md).
fn conditions_see_the_vmi_and_the_domain() {
    for (text, expected) in CONDITIONS {
        assert_eq!(condition(text), Ok(*expected), "{text}");
    }
}

#[test]
fn wrong_conditions_are_refused() {
    for (text, expected) in [
        ("invalid @@@ syntax", "compiling expression"),
        (
            "vmi.Nonsense == 1",
            "compiling expression: undefined field 'Nonsense'",
        ),
        (
            "true || domainSpec.CPU.Nonsense == 1",
            "undefined field 'Nonsense'",
        ),
        (
            "domainSpec.Devices.Disks.exists(d, d.Nonsense == 1)",
            "undefined field 'Nonsense'",
        ),
        ("vmi.Name", "condition must return bool, got string"),
        (r#"vmi.Annotations["x"]"#, "x"),
        ("nonsense == 1", "nonsense"),
        (&" ".repeat(100_001), "size exceeds limit"),
    ] {
        let error = condition(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

fn kubernetes_types() -> ExpressionInput {
    let vmi = json!({
        "metadata": {"name": "vm", "creationTimestamp": "2024-05-01T10:00:00Z"},
        "spec": {
            "domain": {
                "features": {"acpi": {}, "apic": {"endOfInterrupt": true}},
                "resources": {"requests": {"memory": "1Gi"}},
                "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
            },
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
            ]}}},
            "tolerations": [{"key": "gpu"}],
            "volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "claim", "hotpluggable": true}}],
            "livenessProbe": {"httpGet": {"port": "http"}}, "readinessProbe": {"tcpSocket": {"port": 80}},
        }
    });
    input(DOMAIN, vmi)
}

const KUBERNETES_CONDITIONS: &[(&str, bool)] = &[
    (
        r#"vmi.Spec.Volumes[0].PersistentVolumeClaim.ClaimName == "claim""#,
        true,
    ),
    (
        r#"vmi.Spec.Volumes[0].PersistentVolumeClaim.PersistentVolumeClaimVolumeSource.ClaimName == "claim""#,
        true,
    ),
    ("vmi.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly", false),
    (r#""memory" in vmi.Spec.Domain.Resources.Requests"#, true),
    ("vmi.Spec.Domain.Resources.Limits.size() == 0", true),
    (
        r#"vmi.Spec.Tolerations.exists(t, t.Effect == "" && t.Key == "gpu")"#,
        true,
    ),
    (
        "has(vmi.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)",
        false,
    ),
    (
        r#"vmi.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
                .exists(t, t.MatchExpressions.exists(e, e.Key == "zone" && "a" in e.Values))"#,
        true,
    ),
    ("vmi.Spec.DNSConfig.Nameservers.size() == 0", true),
    ("vmi.Spec.ReadinessProbe.TCPSocket.Port.IntVal == 80", true),
    (
        r#"vmi.Spec.ReadinessProbe.TCPSocket.Port.StrVal == """#,
        true,
    ),
    (
        r#"vmi.Spec.LivenessProbe.HTTPGet.Port.StrVal == "http" && vmi.Spec.LivenessProbe.HTTPGet.Port.IntVal == 0"#,
        true,
    ),
    (
        r#"vmi.CreationTimestamp.Time < timestamp("2025-01-01T00:00:00Z")"#,
        true,
    ),
    (
        "vmi.Status.MigrationState.StartTimestamp.Time.getFullYear() == 1970",
        true,
    ),
    (
        "has(vmi.Spec.Domain.Devices.Interfaces[0].Masquerade)",
        true,
    ),
    // In Go, a field that is not a pointer is set if it is not zero.
    ("has(vmi.Spec.Domain.Features.ACPI)", false),
    ("has(vmi.Spec.Domain.Features.APIC)", true),
    (
        "has(domainSpec.OS.Type.Arch) && has(domainSpec.Devices.Disks[0].Target)",
        true,
    ),
];

#[test]
fn kubernetes_types_read_as_in_go() {
    let input = kubernetes_types();
    for (text, expected) in KUBERNETES_CONDITIONS {
        assert_eq!(condition_on(text, &input), Ok(*expected), "{text}");
    }
}

#[test]
fn conditions_that_go_refuses_are_refused_with_its_texts() {
    let input = kubernetes_types();
    for (text, expected) in [
        (
            "vmi.Spec.Domain.CPU.Cores == 4",
            "found no matching overload for '_==_' applied to '(uint, int)'",
        ),
        (
            "domainSpec.Memory.Value > 1024",
            "found no matching overload for '_>_' applied to '(uint, int)'",
        ),
        ("vmi.Name == null", "'_==_' applied to '(string, null"),
        (
            r#"vmi["Name"] == "x""#,
            "found no matching overload for '_[_]' applied to '(v1.VirtualMachineInstance, string)'",
        ),
        (
            r#"vmi.Labels["nope"] == "x""#,
            "evaluating expression: no such key: nope",
        ),
        (
            r#"domainSpec.Devices.Disks[5].Device == "disk""#,
            "evaluating expression: index out of bounds: 5",
        ),
        ("1 / 0 == 1", "evaluating expression: division by zero"),
    ] {
        let error = condition_on(text, &input).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
