//! The cards in the domain XML.

use std::ops::Range;

use super::{Forward, HostNetwork};
use crate::manifest::Card;

const END_OF_DOMAIN: &str = "</domain>";
/// Namespace of `<qemu:commandline>`: arguments that libvirt passes on unread.
const QEMU_NAMESPACE: &str = "http://libvirt.org/schemas/domain/qemu/1.0";
/// libvirt does not know these cards, and takes slots of the root bus from the lower end, and from
/// 0x1d on.
const SLOTS: Range<usize> = 0x14..0x1f;

/// Adds the cards to the domain; `None` if the text is not a domain. A domain that already has them
/// is unchanged.
pub(super) fn add_cards(network: &HostNetwork, domain: &str) -> Option<String> {
    if network.cards.iter().any(|card| domain.contains(&card.mac)) {
        return Some(domain.to_owned());
    }
    let (free, bus) = (free_slots(domain), root_bus(domain));
    let arguments = |(index, card)| {
        let forwards: &[Forward] = if index == 0 { &network.forwards } else { &[] };
        // QEMU refuses cards for which there is none.
        let slot = free.get(index).copied().unwrap_or(SLOTS.end);
        arguments(index, &format!("bus={bus},addr={slot:#x}"), card, forwards)
    };
    let cards: String = network.cards.iter().enumerate().map(arguments).collect();
    let (front, back) = domain.rsplit_once(END_OF_DOMAIN)?;
    Some(format!(
        "{front}<qemu:commandline xmlns:qemu=\"{QEMU_NAMESPACE}\">{cards}</qemu:commandline>{END_OF_DOMAIN}{back}"
    ))
}

/// The machine's bus without a bridge before it.
fn root_bus(domain: &str) -> &'static str {
    let is_old = |quote| {
        ["pc-i440fx".to_owned(), format!("pc{quote}")]
            .iter()
            .any(|name| domain.contains(&format!("machine={quote}{name}")))
    };
    match is_old('"') || is_old('\'') {
        true => "pci.0",
        false => "pcie.0",
    }
}

/// The slots that no device of the domain has, on any bus: a sidecar may have added devices.
fn free_slots(domain: &str) -> Vec<usize> {
    let domain = domain.to_ascii_lowercase();
    let is_free = |slot: &usize| {
        let texts = [format!("{slot:#x}"), slot.to_string()];
        let mut attributes = texts
            .iter()
            .flat_map(|it| [format!("slot=\"{it}\""), format!("slot='{it}'")]);
        !attributes.any(|it| domain.contains(&it))
    };
    SLOTS.filter(is_free).collect()
}

/// QEMU's arguments for a card on its user network: libvirt has no element for the ports.
fn arguments(index: usize, place: &str, card: &Card, forwards: &[Forward]) -> String {
    let forward = |it: &Forward| {
        // The guest's side is IPv4 in any case.
        let (protocol, host, guest) = (it.protocol.name(), it.listen_address(), it.guest);
        format!(",hostfwd={protocol}:{host}-:{guest}")
    };
    let forwards: String = forwards.iter().map(forward).collect();
    let device = match card.model.as_str() {
        "virtio" if cfg!(target_arch = "s390x") => "virtio-net-ccw".to_owned(),
        "virtio" => format!("virtio-net-pci,{place}"),
        model => format!("{model},{place}"),
    };
    let boot = card.boot_order.map_or_else(
        || ",romfile=".to_owned(),
        |order| format!(",bootindex={order}"),
    );
    let mac = &card.mac;
    [
        "-netdev".to_owned(),
        format!("user,id=launcherctl{index}{forwards}"),
        "-device".to_owned(),
        format!("{device},netdev=launcherctl{index},mac={mac}{boot}"),
    ]
    .map(|argument| format!("<qemu:arg value=\"{argument}\"></qemu:arg>"))
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> HostNetwork {
        let card = |name: &str, mac: &str| Card {
            name: name.to_owned(),
            model: "virtio".to_owned(),
            mac: mac.to_owned(),
            boot_order: None,
        };
        HostNetwork {
            cards: vec![
                card("default", "52:54:00:00:00:01"),
                card("other", "52:54:00:00:00:02"),
            ],
            forwards: vec!["8080:80".parse().unwrap()],
        }
    }

    #[test]
    fn the_user_networks_cards_are_arguments_of_qemu() {
        let domain = "<domain><devices></devices></domain>";
        let xml = add_cards(&network(), domain).unwrap();
        let netdev = "user,id=launcherctl0,hostfwd=tcp:127.0.0.1:8080-:80\"";
        assert!(xml.contains(netdev), "{xml}");
        assert!(
            xml.contains("netdev=launcherctl1,mac=52:54:00:00:00:02,romfile=\""),
            "{xml}"
        );
        assert!(xml.ends_with("</qemu:commandline></domain>"), "{xml}");
        assert_eq!(add_cards(&network(), &xml).unwrap(), xml, "idempotent");
        assert_eq!(add_cards(&network(), "text"), None);
        for (machine, bus) in [("\"pc-q35-9.2\"", "pcie.0"), ("'pc'", "pci.0")] {
            let os = format!("<domain><os><type machine={machine}>hvm</type></os>");
            let domain = domain.replace("<domain>", &os);
            let xml = add_cards(&network(), &domain).unwrap();
            assert!(xml.contains(&format!("bus={bus},")), "{xml}");
        }
    }

    #[test]
    fn a_slot_that_a_sidecar_has_given_away_is_skipped() {
        let domain = r#"<domain><devices><disk><address type="pci" slot="0x14"/></disk>
            <disk><address type='pci' slot='22'/></disk></devices></domain>"#;
        let xml = add_cards(&network(), domain).unwrap();
        for card in [
            "addr=0x15,netdev=launcherctl0",
            "addr=0x17,netdev=launcherctl1",
        ] {
            assert!(xml.contains(card), "{xml}");
        }
    }
}
