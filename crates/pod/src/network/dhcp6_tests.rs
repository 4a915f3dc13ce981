use super::*;

const PEER: &str = "[fe80::1]:546";
const CLIENT_ID: [u8; 10] = [0, 3, 0, 1, 0x52, 0x54, 0, 1, 2, 3];

fn server() -> Server {
    let config = Config {
        client: "fd10:0:2::2".parse().unwrap(),
        nameservers: vec!["fd00::a".parse().unwrap()],
    };
    Server::new(config, MacAddress([2, 0, 0, 0, 0, 0]))
}

fn answer(packet: &[u8]) -> Result<DhcpAnswer, Ignored> {
    server().answer(packet, PEER.parse().unwrap())
}

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    [
        &code.to_be_bytes(),
        &u16::try_from(value.len()).unwrap().to_be_bytes(),
        value,
    ]
    .concat()
}

fn packet(kind: u8, options: &[Vec<u8>]) -> Vec<u8> {
    [vec![kind, 1, 2, 3], options.concat()].concat()
}

fn association(id: u8) -> Vec<u8> {
    option(3, &[0, 0, 0, id, 0, 0, 0, 0, 0, 0, 0, 0])
}

#[test]
fn a_guest_gets_its_address_for_the_association_it_asks_for() {
    let answer = answer(&packet(
        1,
        &[option(1, &CLIENT_ID), association(9), association(8)],
    ))
    .unwrap();
    assert_eq!(
        (answer.kind, answer.to),
        ("Advertise", PEER.parse().unwrap())
    );
    let lease = [
        &server().config.client.octets()[..],
        &[0x05, 0x25, 0x0a, 0x80, 0x05, 0x25, 0x0a, 0x80],
    ]
    .concat();
    let expected = packet(
        2,
        &[
            option(1, &CLIENT_ID),
            option(
                3,
                &[vec![0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0], option(5, &lease)].concat(),
            ),
            option(2, &[0, 3, 0, 1, 2, 0, 0, 0, 0, 0]),
            option(23, &server().config.nameservers[0].octets()),
        ],
    );
    assert_eq!(answer.bytes, expected);
}

#[test]
fn a_rapid_commit_is_a_reply_at_once() {
    assert_eq!(
        answer(&packet(1, &[option(1, &CLIENT_ID), option(14, &[])]))
            .unwrap()
            .kind,
        "Reply"
    );
}

#[test]
fn every_length_of_a_request_is_survived() {
    let whole = packet(
        1,
        &[
            option(1, &CLIENT_ID),
            association(1),
            option(16, &[1, 2, 3, 4, 0, 1, 5]),
        ],
    );
    let ends = [4, 18, 34, whole.len()];
    for length in 0..=whole.len() {
        let expected = match ends.iter().position(|end| *end == length) {
            None => Err(Ignored::Malformed),
            Some(0) => Err(Ignored::NoClientId),
            Some(_) => Ok("Advertise"),
        };
        assert_eq!(
            answer(&whole[..length]).map(|answer| answer.kind),
            expected,
            "{length} bytes"
        );
    }
}

/// dhcproto's own reader subtracts from these lengths.
#[test]
fn options_that_are_too_short_for_their_kind_do_no_harm() {
    for code in [13, 16, 17, 11] {
        let answer = answer(&packet(
            1,
            &[option(1, &CLIENT_ID), option(code, &[]), association(1)],
        ));
        assert_eq!(answer.unwrap().kind, "Advertise", "option {code}");
    }
}

#[test]
fn who_has_no_identifier_gets_no_answer() {
    for id in [vec![], vec![0], vec![0; 131]] {
        assert_eq!(
            answer(&packet(1, &[option(1, &id)])),
            Err(Ignored::NoClientId)
        );
    }
    assert!(answer(&packet(1, &[option(1, &[7; 130])])).is_ok());
}

#[test]
// D-net-8 (docs/differences.md).
fn messages_of_servers_and_relays_get_no_answer() {
    for kind in [0, 2, 7, 9, 10, 12, 13, 14, 255] {
        assert_eq!(
            answer(&packet(kind, &[option(1, &CLIENT_ID)])),
            Err(Ignored::Kind(kind))
        );
    }
}
