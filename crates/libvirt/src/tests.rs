//! Against libvirt's test driver, and the QEMU driver embedded in this process.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use super::*;

/// Far more than any of this takes: a lost event fails the test instead of hanging it.
const LONG: Duration = Duration::from_secs(60);

/// A host of its own with one running domain, `test` (`test:///default` would be shared by all
/// tests of the process).
fn connect() -> Connection {
    start_event_loop().unwrap();
    let node = tempfile::NamedTempFile::new().unwrap();
    let domain = "<domain type='test'><name>test</name><memory>8192</memory><os><type>hvm</type></os></domain>";
    std::fs::write(node.path(), format!("<node>{domain}</node>")).unwrap();
    Connection::open(&format!("test://{}", node.path().display())).unwrap()
}

struct Anything;

impl MayChange for Anything {}

fn domain(connection: &Connection) -> ChangeableDomain {
    let domain = connection.lookup("test").unwrap().unwrap();
    domain.changeable(&Anything)
}

#[test]
fn error_is_printed_as_kubevirt_prints_it() {
    let error = Error {
        code: 42,
        domain: 10,
        message: "Domain not found: no domain".into(),
    };
    assert_eq!(
        error.to_string(),
        "LibvirtError(Code=42, Domain=10, Message='Domain not found: no domain')"
    );
}

#[test]
fn error_of_a_call_is_libvirts_own() {
    start_event_loop().unwrap();
    let error = Connection::open("test:///absent.xml").unwrap_err();
    assert_ne!((error.code, error.domain), (0, 0));
    assert!(error.message.contains("absent.xml"), "{error}");
}

#[test]
fn text_with_a_nul_is_refused_by_name() {
    let error = connect()
        .define(&Anything, "<domain>\0</domain>")
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "LibvirtError(Code=8, Domain=0, Message='the domain's XML has a NUL byte at position 8')"
    );
}

#[test]
fn absent_domain_is_none() {
    assert!(connect().lookup("absent").unwrap().is_none());
}

#[test]
fn state_follows_the_calls() {
    let connection = connect();
    let domain = domain(&connection);
    assert!(domain.state().unwrap().is_running());
    domain.suspend().unwrap();
    assert_eq!(
        domain.state().unwrap(),
        DomainState::Paused(PausedReason::User)
    );
    domain.resume().unwrap();
    domain.destroy(false).unwrap();
    assert_eq!(
        domain.state().unwrap(),
        DomainState::Shutoff(ShutoffReason::Destroyed)
    );
    assert!(domain.state().unwrap().is_down());
    domain.start(false).unwrap();
    assert!(domain.state().unwrap().is_running());
}

#[test]
fn state_of_a_domain_that_is_gone_is_an_error() {
    let connection = connect();
    let domain = domain(&connection);
    domain.destroy(false).unwrap();
    domain.undefine(Undefine::Plain).unwrap();
    assert!(domain.state().unwrap_err().is_no_domain());
    assert_eq!(
        domain.name().unwrap(),
        "test",
        "the reference itself stays valid"
    );
}

#[test]
fn clones_outlive_what_they_were_made_of() {
    let connection = connect();
    let copy = domain(&connection).clone();
    drop(connection);
    assert!(copy.is_active().unwrap());
}

#[test]
fn metadata_is_set_and_read_back() {
    let connection = connect();
    let domain = domain(&connection);
    assert_eq!(domain.metadata("http://kubevirt.io").unwrap(), None);
    domain
        .set_metadata(
            "<kubevirt><uid>1</uid></kubevirt>",
            "kubevirt",
            "http://kubevirt.io",
        )
        .unwrap();
    assert!(
        domain
            .metadata("http://kubevirt.io")
            .unwrap()
            .unwrap()
            .contains("<uid>1</uid>")
    );
    assert!(domain.xml(XmlKind::Live).unwrap().contains("kubevirt"));
}

#[test]
fn lifecycle_events_arrive_until_the_registration_goes() {
    let connection = connect();
    let (tx, rx) = mpsc::channel();
    let registration = connection
        .events(move |event| drop(tx.send(event)))
        .unwrap();
    let domain = domain(&connection);
    domain.suspend().unwrap();
    let event = rx.recv_timeout(LONG).unwrap();
    assert_eq!(
        event,
        Event::Lifecycle {
            domain: "test".into(),
            event: LifecycleEvent::Suspended,
        }
    );
    assert_eq!(event.domain(), Some("test"));
    drop(registration);
    domain.resume().unwrap();
    // The sink, and with it the sender, goes with the registration.
    assert_eq!(
        rx.recv_timeout(LONG),
        Err(mpsc::RecvTimeoutError::Disconnected)
    );
}

/// Leaves no QEMU behind, however the test ends.
struct Stop(ChangeableDomain);

impl Drop for Stop {
    fn drop(&mut self) {
        drop(self.0.destroy(false));
    }
}

#[test]
fn qemu_embedded_in_this_process_starts_a_guest() {
    if !Path::new("/usr/bin/qemu-system-x86_64").exists() {
        eprintln!("skipped: no QEMU here");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("etc")).unwrap();
    let conf = "stdio_handler = \"file\"\nuser = \"root\"\ngroup = \"root\"\nsecurity_driver = \"none\"\nnamespaces = [ ]\n";
    std::fs::write(root.path().join("etc/qemu.conf"), conf).unwrap();
    start_event_loop().unwrap();
    let connection =
        Connection::open(&format!("qemu:///embed?root={}", root.path().display())).unwrap();
    assert_eq!(connection.qemu_version().unwrap().split('.').count(), 3);
    assert!(connection.warm_up("qemu").unwrap() > 0);

    let (tx, rx) = mpsc::channel();
    let _registration = connection
        .events(move |event| drop(tx.send(event)))
        .unwrap();
    let domain = connection
        .define(
            &Anything,
            "<domain type='qemu'><name>ns_vm</name><memory unit='MiB'>32</memory>\
             <os><type arch='x86_64' machine='q35'>hvm</type></os>\
             <devices><disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk></devices></domain>",
        )
        .unwrap();
    let _end = Stop(domain.clone());
    domain.start(true).unwrap();
    assert_eq!(
        domain.state().unwrap(),
        DomainState::Paused(PausedReason::User)
    );
    domain.resume().unwrap();
    assert!(domain.start(false).unwrap_err().is_operation_invalid());
    let refused = domain
        .attach_device("<disk type='file'><source file='/absent'/><target dev='vdz'/></disk>");
    assert!(refused.unwrap_err().message.contains("/absent"));
    assert_eq!(
        domain
            .agent_command("{}", Duration::from_secs(1), 1 << 20)
            .unwrap_err()
            .domain,
        10
    );
    domain.destroy(true).unwrap();
    let seen = std::iter::from_fn(|| rx.recv_timeout(LONG).ok())
        .filter_map(|event| match event {
            Event::Lifecycle { event, .. } => Some(event),
            _ => None,
        })
        .take_while(|event| *event != LifecycleEvent::Stopped)
        .collect::<Vec<_>>();
    assert!(seen.starts_with(&[LifecycleEvent::Defined]), "{seen:?}");
    assert!(
        seen.contains(&LifecycleEvent::Started(StartedDetail::Booted))
            && seen.contains(&LifecycleEvent::Resumed),
        "{seen:?}"
    );
    domain.undefine(Undefine::Plain).unwrap();
    assert!(connection.lookup("ns_vm").unwrap().is_none());
}
