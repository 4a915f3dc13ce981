use std::error::Error as _;

use super::*;

fn error(document: &str) -> String {
    CachedAddress::parse(document.as_bytes())
        .unwrap_err()
        .to_string()
}

#[test]
fn the_whole_document() {
    let document = r#"{"Name":"","IP":{"IP":"10.244.1.7","Mask":"////AA==","Label":"","Peer":null},"IPv6":{"Label":""},
        "MAC":"AqoBAgME","AdvertisingIPAddr":"","Routes":[{"Dst":null,"Gw":"10.244.1.1"},
        {"Dst":{"IP":"10.244.0.0","Mask":"//8AAA=="},"Gw":"","MPLSDst":null}],"Mtu":0,"IPAMDisabled":false,"Gateway":"10.244.1.1"}"#;
    let routes = vec![
        Route {
            destination: None,
            gateway: Ipv4Addr::new(10, 244, 1, 1),
        },
        Route {
            destination: Some((Ipv4Addr::new(10, 244, 0, 0), 16)),
            gateway: Ipv4Addr::UNSPECIFIED,
        },
    ];
    let expected = CachedAddress {
        ipam_disabled: false,
        ipv4: Some((
            Ipv4Addr::new(10, 244, 1, 7),
            Some(Ipv4Addr::new(255, 255, 255, 0)),
        )),
        ipv6: None,
        mac: Some(MacAddress([2, 0xaa, 1, 2, 3, 4])),
        gateway: Some(Ipv4Addr::new(10, 244, 1, 1)),
        routes,
    };
    assert_eq!(CachedAddress::parse(document.as_bytes()).unwrap(), expected);
}

#[test]
fn empty_and_null_are_none() {
    let document = r#"{"IP":{},"MAC":null,"Routes":null,"IPAMDisabled":true,"Gateway":""}"#;
    let expected = CachedAddress {
        ipam_disabled: true,
        ..CachedAddress::default()
    };
    assert_eq!(CachedAddress::parse(document.as_bytes()).unwrap(), expected);
}

#[test]
fn what_makes_no_sense_is_named() {
    assert_eq!(error(r#"{"IP":{"IP":"10.0.0"}}"#), r#"invalid IP "10.0.0""#);
    assert_eq!(
        error(r#"{"IP":{"IP":"fd00::1"}}"#),
        r#"invalid IP "fd00::1""#
    );
    assert_eq!(
        error(r#"{"IPv6":{"IP":"10.0.0.1"}}"#),
        r#"invalid IPv6 "10.0.0.1""#
    );
    assert_eq!(
        error(r#"{"IP":{"IP":"10.0.0.1","Mask":"/w=="}}"#),
        r#"invalid Mask "/w==""#
    );
    assert_eq!(error(r#"{"MAC":"AqoB"}"#), r#"invalid MAC "AqoB""#);
    assert_eq!(
        error(r#"{"Routes":[{"Dst":{"IP":"fd00::","Mask":"/////w=="}}]}"#),
        r#"invalid Dst "fd00::""#
    );
    assert_eq!(
        error(r#"{"Routes":[{"Dst":{"IP":"10.0.0.0","Mask":"/wD/AA=="}}]}"#),
        r#"invalid Mask "/wD/AA==""#
    );
    assert_eq!(
        error(&format!(
            r#"{{"Routes":[{}{{}}]}}"#,
            "{},".repeat(MAX_ROUTES)
        )),
        "it has more than 1000 routes"
    );
    assert!(error("5").contains("invalid type"), "{}", error("5"));
    assert!(error("{").contains("EOF"), "{}", error("{"));
}

#[test]
fn a_file_that_never_ends_is_not_read_to_its_end() {
    let cause = |path: &Path| {
        CachedAddress::read(path)
            .unwrap_err()
            .source()
            .unwrap()
            .to_string()
    };
    assert_eq!(cause(Path::new("/dev/zero")), "it is not a regular file");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vif-cache-eth0.json");
    std::fs::write(&path, vec![b' '; (1 << 20) + 1]).unwrap();
    assert_eq!(cause(&path), "it is longer than 1048576 bytes");
    assert!(cause(&folder.path().join("missing")).contains("No such file"));
}

#[test]
fn cve_2026_13218_a_link_instead_of_the_cached_file() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (
        folder.path().join("vif-cache-eth0.json"),
        folder.path().join("other"),
    );
    std::fs::write(&other, "{}").unwrap();
    CachedAddress::read(&other).unwrap();
    std::os::unix::fs::symlink(&other, &path).unwrap();
    let error = CachedAddress::read(&path).unwrap_err();
    assert!(
        error
            .source()
            .unwrap()
            .to_string()
            .contains("symbolic links")
    );
}
