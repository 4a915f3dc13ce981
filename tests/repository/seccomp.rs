//! The seccomp profile has what every container runtime reads in the same way, and docs/image.md
//! tells its size.

use std::collections::BTreeMap;

use serde_json::Value;

use super::read;

#[test]
fn the_profile_allows_calls_by_sorted_names_and_nothing_else() {
    let profile: Value = serde_json::from_str(&read("container/seccomp.json")).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    // ENOSYS: a C library tries an older call then, and does not after EPERM.
    assert_eq!(profile["defaultErrnoRet"], 38);
    let mut has_arguments = BTreeMap::new();
    for rule in profile["syscalls"].as_array().unwrap() {
        assert_eq!(rule["action"], "SCMP_ACT_ALLOW");
        // A runtime that does not know a field ignores it; two arguments are "and" in one, "or" in
        // the other.
        let fields: Vec<_> = rule.as_object().unwrap().keys().collect();
        let arguments = rule["args"].as_array();
        assert!(
            match arguments {
                None => fields == ["action", "names"],
                Some(arguments) => fields == ["action", "args", "names"] && arguments.len() == 1,
            },
            "{rule}"
        );
        let names = rule["names"].as_array().unwrap();
        let names: Vec<_> = names.iter().map(|name| name.as_str().unwrap()).collect();
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
        for name in names {
            let before = has_arguments.insert(name.to_owned(), arguments.is_some());
            assert!(
                before.is_none() || before == Some(true) && arguments.is_some(),
                "{name} twice"
            );
        }
    }
    let size = format!("allows {} system calls", has_arguments.len());
    assert!(read("docs/image.md").contains(&size), "{size}");
}
