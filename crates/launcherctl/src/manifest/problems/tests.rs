use super::*;

fn found(text: &str) -> Vec<String> {
    let line = |it: &ManifestProblem| format!("{}: {}: {}", it.line, it.field, it.message);
    problems(text, None).iter().map(line).collect()
}

#[test]
fn all_problems_are_found_at_once_with_their_lines() {
    let found = found(
        "kind: VirtualMachine
metadata: {name: Web}
spec:
  template:
    spec:
      domain:
        memroy: {guest: 1Gi}
        cpu: {cores: two, threads: many}
        devices:
          disks:
          - {name: root, disk: {bus: floppy}}
      volumes:
      - {name: root, emptyDisk: {capacity: 1Gi}}
",
    );
    let starts = [
        "2: metadata.name: \"Web\" is not valid",
        "3: spec.runStrategy: missing",
        "4: spec.template.spec.domain.memory.guest: missing",
        "7: spec.template.spec.domain.memroy: unknown field; did you mean memory?",
        "8: spec.template.spec.domain.cpu.cores: expected a whole number",
        "8: spec.template.spec.domain.cpu.threads: expected a whole number",
        "11: spec.template.spec.domain.devices.disks[0].disk.bus: ",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for start in starts {
        let there = found.iter().any(|line| {
            // A missing field is reported at the line of its parent.
            line.split_once(": ").is_some_and(|(_, rest)| {
                start
                    .split_once(": ")
                    .is_some_and(|(_, start)| rest.starts_with(start))
            })
        });
        assert!(there, "{start}: {found:#?}");
    }
    assert!(
        found.iter().any(|line| line.starts_with("8: ")),
        "{found:#?}"
    );
}

#[test]
fn a_volume_with_a_misspelt_source_is_not_missing() {
    let found = found(
        "kind: VirtualMachineInstance
metadata: {name: a}
spec:
  domain:
    memory: {guest: 64Mi}
    devices: {disks: [{name: root, disk: {bus: virtio}}]}
  volumes:
  - {name: root, containerdisk: {image: x}}
",
    );
    assert_eq!(found.len(), 2, "{found:#?}");
    let of_volume = |line: &String| line.starts_with("8: spec.volumes[0]");
    assert!(found.iter().all(of_volume), "{found:#?}");
}

#[test]
fn many_problems_are_counted_and_the_first_are_shown() {
    let vmi = |name: &str, inside: String| {
        format!(
            "kind: VirtualMachineInstance\nmetadata: {{name: {name}}}\nspec:\n  domain:\n    memory: {{guest: 1Gi}}\n    devices: {{}}\n{inside}"
        )
    };
    let unknown = |count| {
        (0..count)
            .map(|n| format!("    unknown{n}: 1\n"))
            .collect::<String>()
    };
    let volumes = |count| {
        let volumes = (0..count).map(|n| format!("  - {{name: A{n}, emptyDisk: {{}}}}\n"));
        format!("  volumes:\n{}", volumes.collect::<String>())
    };
    assert_eq!(found(&vmi("a", unknown(MAX_PROBLEMS))).len(), MAX_PROBLEMS);
    for text in [
        vmi("a", unknown(MAX_PROBLEMS + 1)),
        vmi("a", volumes(3_000)),
        [vmi("a", unknown(60)), vmi("b", unknown(60))].join("---\n"),
    ] {
        let found = found(&text);
        assert_eq!(found.len(), MAX_PROBLEMS + 1, "{found:#?}");
        let last = found.last().map(String::as_str).unwrap_or_default();
        assert!(
            last.ends_with("there are more than 100 problems; mend these first"),
            "{last}"
        );
    }
}

#[test]
fn what_is_no_manifest_has_one_problem() {
    assert_eq!(found("kind: [").len(), 1);
    assert_eq!(found("metadata: {name: a}").len(), 1);
    let instancetype = "kind: VirtualMachine\nmetadata: {name: a}\nspec:\n  runStrategy: Always\n  instancetype: {name: u1}\n  template: {spec: {domain: {}}}\n";
    let found = found(instancetype);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found
            .iter()
            .all(|it| it.starts_with("5: spec.instancetype: ") && it.contains("virtctl expand")),
        "{found:?}"
    );
}

#[test]
fn what_stands_beside_a_vm_and_is_not_read_is_named() {
    let vm = "kind: VirtualMachineInstance\nmetadata: {name: a}\nspec:\n  domain:\n    memory: {guest: 64Mi}\n";
    let claim = format!("{vm}---\nkind: PersistentVolumeClaim\n");
    assert_eq!(places(&claim), ["7: kind"]);
    assert_eq!(problems(&claim, None)[0].severity, Severity::Note);
    assert!(places(&format!("{vm}---\nkind: DataVolume\n")).is_empty());
}

/// What follows from an error is no news: no note says that `run` leaves the interface out.
#[test]
fn an_interface_with_a_misspelt_binding_is_no_interface_of_a_cluster() {
    let vm = "kind: VirtualMachineInstance\nmetadata: {name: a}\nspec:\n  domain:\n    memory: {guest: 64Mi}\n    devices:\n      interfaces: [{name: a, masqerade: {}}]\n  networks: [{name: a, pod: {}}]\n";
    let interface = "7: spec.domain.devices.interfaces[0]";
    assert_eq!(places(vm), [&format!("{interface}.masqerade"), interface]);
    assert!(
        problems(vm, None)
            .iter()
            .all(|it| it.severity == Severity::Error)
    );
}

/// The problems' lines and fields.
fn places(text: &str) -> Vec<String> {
    let place = |it: &ManifestProblem| format!("{}: {}", it.line, it.field);
    problems(text, None).iter().map(place).collect()
}

#[test]
fn a_value_of_the_wrong_type_has_one_problem() {
    let text = "kind: VirtualMachineInstance
metadata: {name: a}
spec:
  domain:
    memory: 1Gi
    cpu: 2
    devices:
      disks:
      - root
      - {name: data, disk: virtio}
  volumes:
  - {name: data, emptyDisk: 1Gi}
";
    assert_eq!(
        places(text),
        [
            "5: spec.domain.memory",
            "6: spec.domain.cpu",
            "9: spec.domain.devices.disks[0]",
            "10: spec.domain.devices.disks[1].disk",
            "12: spec.volumes[0].emptyDisk",
        ]
    );
}

#[test]
fn a_list_for_an_object_does_not_hide_the_rest() {
    let text = "kind: VirtualMachineInstance\nmetadata:\n- name: a\nspec: {domain: {memory: {guest: 1Gx}, cpu: 2}}\n";
    let found = places(text);
    assert_eq!(
        found,
        [
            "2: metadata.name",
            "3: metadata[0]",
            "4: spec.domain.cpu",
            "4: spec.domain.memory.guest"
        ]
    );
}

#[test]
fn rules_and_refusals_are_found_together() {
    let text = "kind: VirtualMachineInstance
metadata: {name: a}
spec:
  domain:
    machine: {type: q36}
    memory: {guest: 1Gb}
    devices:
      disks:
      - {name: root, bootOrder: 1, disk: {bus: virtio}}
      - {name: root, bootOrder: 1, disk: {bus: floppy}}
      - {name: lost, disk: {bus: scsi}}
      interfaces:
      - {name: defalt, masquerade: {}}
  networks:
  - {name: default, pod: {}}
  volumes:
  - {name: root, containerDisk: {image: x}}
  - {name: root, emptyDisk: {capacity: 1Gg}}
  - {name: data, persistentVolumeClaim: {}}
  - name: nothing
";
    assert_eq!(
        places(text),
        [
            "5: spec.domain.machine.type",
            "6: spec.domain.memory.guest",
            "10: spec.domain.devices.disks[1].name",
            "10: spec.domain.devices.disks[1].disk.bus",
            "10: spec.domain.devices.disks[1].bootOrder",
            "11: spec.domain.devices.disks[2].name",
            "13: spec.domain.devices.interfaces[0].name",
            "15: spec.networks[0].name",
            "18: spec.volumes[1].name",
            "18: spec.volumes[1].emptyDisk.capacity",
            "19: spec.volumes[2].persistentVolumeClaim.claimName",
            "20: spec.volumes[3]",
        ]
    );
}

#[test]
fn syntax_errors_have_one_line_and_say_what_to_do() {
    for (text, start) in [
        ("a:\n  - name: root\n   disk: {}\n", "3: : invalid YAML: "),
        ("a: {b: 1\nc: {}\n", "2: : invalid YAML: "),
        ("a: \"b\nc: d\n", "2: : invalid YAML: invalid indentation"),
    ] {
        let found = found(text);
        assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
        assert!(!found[0].contains('\n'), "{found:?}");
    }
}

#[test]
fn an_unknown_architecture_does_not_hide_the_rest() {
    let text = "kind: VirtualMachineInstance
metadata: {name: a}
spec:
  architecture: x86_64
  domain:
    memory: {guest: 64Mi}
    devices: {disks: [{name: root, disk: {bus: floppy}}]}
  volumes: [{name: root, emptyDisk: {capacity: 1Gi}}]
";
    let found = found(text);
    assert_eq!(
        found[0],
        "4: spec.architecture: \"x86_64\" is not supported; did you mean amd64?"
    );
    assert!(
        found.len() == 2 && found[1].starts_with("7: spec.domain.devices.disks[0].disk.bus"),
        "{found:?}"
    );
}

#[test]
fn fields_outside_the_template_are_checked() {
    let text = "kind: VirtualMachine
metadata: {name: a}
spec:
  running: \"true\"
  runStrategy: always
  template: {spec: {domain: {memory: {guest: 64Mi}, devices: {}}}}
";
    let found = found(text);
    assert_eq!(found.len(), 3, "{found:?}");
    for (line, start) in found.iter().zip([
            "4: spec.running: expected true or false, found the text \"true\"; write true without quotes",
            "4: spec.running: both running and runStrategy",
            "5: spec.runStrategy: \"always\" is not supported; expected Always, ",
        ]) {
            assert!(line.starts_with(start), "{line}");
        }
}

#[test]
fn a_vm_says_whether_it_runs() {
    let vm = |spec: &str| {
        found(&format!(
            "kind: VirtualMachine\nmetadata: {{name: a}}\nspec:\n{spec}  template: {{spec: {{domain: {{memory: {{guest: 64Mi}}, devices: {{}}}}}}}}\n"
        ))
    };
    for missing in ["", "  running:\n", "  runStrategy: null\n"] {
        let found = vm(missing);
        assert!(
            found.len() == 1 && found[0].contains(": spec.runStrategy: missing; "),
            "{missing}: {found:?}"
        );
    }
    for given in ["  running: false\n", "  runStrategy: Halted\n"] {
        assert_eq!(vm(given), Vec::<String>::new());
    }
}

#[test]
fn the_labels_of_a_vm_and_of_its_template_have_their_own_places() {
    let text = "kind: VirtualMachine
metadata: {name: a, labels: [b]}
spec:
  runStrategy: Always
  template:
    metadata: {labels: {c: 5}, annotations: [d]}
    spec: {domain: {memory: {guest: 64Mi}, devices: {}}}
";
    assert_eq!(
        places(text),
        [
            "2: metadata.labels",
            "6: spec.template.metadata.annotations",
            "6: spec.template.metadata.labels.c",
        ]
    );
}

#[test]
fn config_maps_and_secrets_beside_the_vm_are_checked() {
    let text = "kind: VirtualMachineInstance
metadata: {name: a}
spec: {domain: {memory: {guest: 64Mi}, devices: {}}}
---
kind: ConfigMap
metadata: {name: settings}
data: {mode: 5, level: high}
---
kind: Secret
metadata: {name: keys}
data:
  a: plain text!
  b: aGVsbG8=
stringData: [a]
";
    let found = found(text);
    let starts = [
        "7: data.mode: ConfigMap \"settings\": the value of \"mode\" is not text",
        "12: data.a: Secret \"keys\": the value of \"a\" is not valid Base64; plain text belongs into stringData",
        "14: stringData: expected an object with fields, found a list",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (line, start) in found.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn a_sound_manifest_has_none() {
    let text = "kind: VirtualMachineInstance\nmetadata: {name: a}\nspec: {domain: {memory: {guest: 64Mi}, devices: {}}}\n";
    assert_eq!(found(text), Vec::<String>::new());
}

#[test]
fn the_texts_of_problems_are_bounded() {
    let long = "x".repeat(1 << 20);
    let vmi = format!(
        "apiVersion: {long}\nkind: VirtualMachineInstance\nspec:\n  ? {long}\n  : 1\n  domain: {{}}\n"
    );
    let found = problems(&vmi, None);
    assert!(
        found.iter().any(|it| it.message.contains("xxx")),
        "{}",
        found.len()
    );
    for problem in found {
        let size = problem.field.len() + problem.message.len();
        assert!(size < 20_000, "{size}");
    }
}
