//! Answers of guest agents, in the shapes of real ones (Linux, Windows, FreeBSD) and changed at
//! random, read as KubeVirt's launcher reads them. Each case of `xml-fixtures/agent` has what
//! KubeVirt's own parsers make of it: a value (`reference`), or none (`refused`; a `panic` ends
//! KubeVirt's launcher). Where we differ, it says why (`differs`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::path::Path;

use domain::guest_agent::params::{GuestInfoParams, TypedValue as Param};
use domain::guest_agent::{GuestAgentInfo, Load, answer, limits};
use serde_json::{Value, json};

/// All cases of a file.
fn cases(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xml-fixtures/agent");
    let text = std::fs::read_to_string(path.join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Compares every case; the number of those with a value of the reference's, and of those without.
fn compare(name: &str, read: impl Fn(&Value) -> Option<Value>) -> (usize, usize) {
    let mut counts = (0, 0);
    for case in cases(name) {
        let ours = read(&case);
        let theirs = case.get("reference").cloned();
        match theirs {
            Some(_) => counts.0 += 1,
            None => counts.1 += 1,
        }
        let equal = ours == theirs;
        let expected = case.get("differs").is_none();
        assert_eq!(
            equal, expected,
            "{}: {}\n{}\nours:   {ours:?}\ntheirs: {theirs:?}",
            case["name"], case["differs"], case["answer"]
        );
    }
    counts
}

fn text(case: &Value) -> &str {
    case["answer"].as_str().unwrap()
}

#[test]
// D-agent-3 (docs/differences.md).
fn freeze_status() {
    let read = |case: &Value| {
        let status = answer::freeze_status(text(case)).ok()?;
        Some(json!(status.as_str()))
    };
    assert_eq!(compare("freeze.json", read), (5, 15));
}

#[test]
fn version_and_commands() {
    let read = |case: &Value| {
        let info = answer::agent_info(text(case)).ok()?;
        let mut json = json!({"version": info.version});
        if !info.commands.is_empty() {
            json["supported_commands"] = json!(info.commands);
        }
        Some(json)
    };
    assert_eq!(compare("info.json", read), (56, 43));
}

#[test]
fn filesystems() {
    let read = |case: &Value| {
        let all = answer::filesystems(text(case)).ok()?;
        let all = all.iter().map(|one| {
            let disks = one.disks.iter();
            let disks: Vec<Value> = disks
                .map(|disk| json!({"Serial": disk.serial, "BusType": disk.bus}))
                .collect();
            json!({"Name": one.name, "Mountpoint": one.mount_point, "Type": one.kind,
                "UsedBytes": one.used_bytes, "TotalBytes": one.total_bytes, "Disk": disks})
        });
        Some(all.collect())
    };
    assert_eq!(compare("fsinfo.json", read), (82, 58));
}

/// A parameter of `virDomainGetGuestInfo`: its name and, by libvirt's type, its value.
fn param(given: &Value) -> (String, Param) {
    let (kind, value) = given[1].as_object().unwrap().iter().next().unwrap();
    let value = match kind.as_str() {
        "S" => Param::Text(value.as_str().unwrap().into()),
        "I" | "L" => Param::Signed(value.as_i64().unwrap()),
        "U" | "UL" => Param::Unsigned(value.as_u64().unwrap()),
        "D" => Param::Double(value.as_f64().unwrap()),
        other => panic!("no such type: {other}"),
    };
    (given[0].as_str().unwrap().into(), value)
}

/// Go's null for a list without elements.
fn list(items: Vec<Value>) -> Value {
    if items.is_empty() {
        Value::Null
    } else {
        items.into()
    }
}

fn load(load: Load) -> Value {
    let mut json = json!({});
    for (name, value) in [
        ("Load1m", load.one),
        ("Load5m", load.five),
        ("Load15m", load.fifteen),
    ] {
        json[format!("{name}Set")] = json!(value.is_some());
        json[name] = json!(value.unwrap_or_default());
    }
    json
}

#[test]
fn guest_info() {
    let read = |case: &Value| {
        let given = case["params"].as_array().unwrap();
        let params: GuestInfoParams = given.iter().map(param).collect();
        let interfaces = params.interfaces().into_iter().map(|one| {
            let ips = one.ips.into_iter().map(Value::from).collect();
            json!({"Mac": one.mac, "Ip": one.ip, "IPs": list(ips), "InterfaceName": one.interface_name})
        });
        let users = params.users().into_iter().map(
            |user| json!({"Name": user.name, "Domain": user.domain, "LoginTime": user.login_time}),
        );
        let os = params.os();
        let timezone = params.timezone().unwrap_or_default();
        Some(json!({
            "interfaces": list(interfaces.collect()),
            "users": list(users.collect()),
            "os": {"Name": os.name, "KernelRelease": os.kernel_release, "Version": os.version,
                "PrettyName": os.pretty_name, "VersionId": os.version_id,
                "KernelVersion": os.kernel_version, "Machine": os.machine, "Id": os.id},
            "hostname": params.hostname(),
            "timezone": {"Zone": timezone.name, "Offset": timezone.offset},
            "load": load(params.load()),
        }))
    };
    let (read, refused) = compare("params.json", |case| read(case).map(as_go));
    assert_eq!((read, refused), (122, 0));
}

/// Go writes a whole double without a fraction.
fn as_go(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            #[allow(clippy::cast_possible_truncation, reason = "it is whole and in range")]
            Some(double) if number.is_f64() && double.fract() == 0.0 => json!(double as i64),
            _ => number.into(),
        },
        Value::Array(items) => items.into_iter().map(as_go).collect(),
        Value::Object(map) => map
            .into_iter()
            .map(|(name, one)| (name, as_go(one)))
            .collect(),
        other => other,
    }
}

/// A generator of numbers, the same in each run.
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state >> 11).unwrap()
}

#[test]
fn answers_with_changed_bytes_are_bounded_or_refused() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut read = 0;
    for file in ["freeze.json", "fsinfo.json", "info.json"] {
        for case in cases(file) {
            for _ in 0..20 {
                let mut bytes = text(&case).as_bytes().to_vec();
                for _ in 0..=next(&mut state) % 4 {
                    if !bytes.is_empty() {
                        let at = next(&mut state) % bytes.len();
                        bytes[at] = (next(&mut state) % 256) as u8;
                    }
                }
                let answer = String::from_utf8_lossy(&bytes);
                let all = answer::filesystems(&answer).unwrap_or_default();
                let agent = answer::agent_info(&answer).unwrap_or_default();
                read += usize::from(!all.is_empty() || !agent.version.is_empty());
                assert!(all.len() <= limits::MAX_FILESYSTEMS);
                assert!(agent.version.len() <= limits::MAX_TEXT_BYTES);
                drop(answer::freeze_status(&answer));
                drop(answer::exec_status(&answer));
                let info = GuestAgentInfo {
                    agent,
                    filesystems: all,
                    ..GuestAgentInfo::default()
                };
                let json = serde_json::to_string(&info.document()).unwrap();
                serde_json::from_str::<Value>(&json).unwrap();
            }
        }
    }
    assert!(read > 100, "only {read} could be read");
}
