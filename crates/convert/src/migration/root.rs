//! Paths and ports of a VM that moves to a launcher with another root directory on the same
//! machine: pods have the same paths, and ports of their own.

use std::collections::BTreeMap;

use domain::xml::tree::{Element, Node};

use super::DocumentError;

/// The document with all paths below the directory `from` below `to`: images, sockets, logs,
/// arguments of QEMU; and with other host ports forwarded to the guest: `ports` has the new one by
/// the old one.
///
/// # Errors
/// When the document cannot be read.
pub fn move_to_root(
    xml: &str,
    from: &str,
    to: &str,
    ports: &BTreeMap<u16, u16>,
) -> Result<String, DocumentError> {
    let mut domain = Element::parse(xml).map_err(DocumentError::Xml)?;
    let below = |root: &str| format!("{}/", root.trim_end_matches('/'));
    move_paths(&mut domain, &below(from), &below(to));
    if !ports.is_empty() {
        move_ports(&mut domain, ports);
    }
    Ok(domain.to_xml())
}

/// QEMU's user network has its ports as arguments.
fn move_ports(element: &mut Element, ports: &BTreeMap<u16, u16>) {
    for (_, value) in &mut element.attributes {
        if value.starts_with("user,") {
            *value = hostfwd(value, ports);
        }
    }
    for node in &mut element.nodes {
        if let Node::Element(child) = node {
            move_ports(child, ports);
        }
    }
}

/// `-netdev user,…` with other ports in `hostfwd=PROTOCOL:ADDRESS:PORT-:GUEST`.
fn hostfwd(netdev: &str, ports: &BTreeMap<u16, u16>) -> String {
    let moved = |option: &str| {
        let (host, guest) = option.strip_prefix("hostfwd=")?.split_once("-:")?;
        let (address, port) = host.rsplit_once(':')?;
        let port = ports.get(&port.parse().ok()?)?;
        Some(format!("hostfwd={address}:{port}-:{guest}"))
    };
    let options = netdev.split(',');
    let options = options.map(|option| moved(option).unwrap_or_else(|| option.to_owned()));
    options.collect::<Vec<_>>().join(",")
}

fn move_paths(element: &mut Element, from: &str, to: &str) {
    for (_, value) in &mut element.attributes {
        *value = value.replace(from, to);
    }
    for node in &mut element.nodes {
        match node {
            Node::Text(text) => *text = text.replace(from, to),
            Node::Element(child) => move_paths(child, from, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_the_root_moves_and_nothing_else() {
        let xml = "<domain><emulator>/usr/bin/qemu</emulator><nvram>/tmp/vm-1/nvram</nvram>\
             <source file='/tmp/vm-1/a.img'/><log file='/tmp/vm-12/log'/><arg value='x,path=/tmp/vm-1/s'/></domain>";
        let moved = move_to_root(xml, "/tmp/vm-1", "/b & c/vm-2/", &BTreeMap::new()).unwrap();
        let expected = xml.replace("/tmp/vm-1/", "/b &amp; c/vm-2/");
        let parse = |text: &str| Element::parse(text).unwrap();
        assert_eq!(parse(&moved), parse(&expected));
    }

    #[test]
    fn ports_of_this_machine_move_and_those_of_the_guest_do_not() {
        let xml = "<domain><arg value='user,id=a,hostfwd=tcp:127.0.0.1:8080-:22,hostfwd=udp:[::1]:53-:8080'/></domain>";
        let ports = BTreeMap::from([(8080, 40001), (53, 40002)]);
        let moved = move_to_root(xml, "/a", "/b", &ports).unwrap();
        let expected = xml.replace(":8080-", ":40001-").replace(":53-", ":40002-");
        let parse = |text: &str| Element::parse(text).unwrap();
        assert_eq!(parse(&moved), parse(&expected));
    }
}
