use super::*;

/// What grpc-python 1.85 sends first, with two headers of its request and then a ping.
fn python() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(b"\0\0\x06\x04\0\0\0\0\0\0\x02\0\0\0\0"); // SETTINGS
    let mut block = b"@\x05:path\x04/%/b@\n:authority\x0ftmp%2Fauth.sock\x83\x86".to_vec();
    block.extend(b"@\x02te\x08trailers");
    bytes.extend([
        0,
        0,
        u8::try_from(block.len()).unwrap_or(0),
        HEADERS,
        4,
        0,
        0,
        0,
        1,
    ]);
    bytes.extend(block);
    bytes.extend(b"\0\0\x08\x06\0\0\0\0\0:auth%ty"); // PING
    bytes
}

fn passed(mut bytes: Vec<u8>, cut: usize) -> Vec<u8> {
    let mut frames = Frames::default();
    for part in bytes.chunks_mut(cut) {
        frames.pass(part);
    }
    bytes
}

/// `block` as the payload of a frame with these flags, after the preface.
fn frame(kind: u8, flags: u8, block: &[u8]) -> Vec<u8> {
    let length = u8::try_from(block.len()).unwrap_or(u8::MAX);
    [&[0, 0, length, kind, flags, 0, 0, 0, 1], block].concat()
}

fn preface() -> Vec<u8> {
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn only_the_authority_is_changed_however_the_bytes_are_cut() {
    let expected = text(&python()).replace("tmp%2Fauth.sock", "tmp.2Fauth.sock");
    for cut in [1, 2, 3, 7, 24, 33, 1000] {
        assert_eq!(
            text(&passed(python(), cut)),
            expected,
            "cut into pieces of {cut}"
        );
    }
}

#[test]
fn name_by_index_is_known_too() {
    for first in [0x41, 0x01, 0x11] {
        let bytes = [
            preface(),
            frame(HEADERS, 4, &[&[first][..], b"\x03a%b"].concat()),
        ]
        .concat();
        assert!(text(&passed(bytes, 5)).ends_with("a.b"), "{first:#x}");
    }
}

#[test]
fn padding_and_priority_are_no_headers() {
    let block = [
        &[9][..],
        b"\0\0\0\0\x10",
        b"\x41\x03a%b",
        b"\x41\x03a%b\x41\x03a%",
    ]
    .concat();
    let bytes = [
        preface(),
        frame(HEADERS, 4 | PADDED | PRIORITY, &block),
        frame(HEADERS, 4, b"\x41\x03c%d"),
    ]
    .concat();
    let passed = text(&passed(bytes, 1));
    assert!(passed.contains("a.b\x41\x03a%b"), "{passed:?}");
    assert!(passed.ends_with("c.d"), "{passed:?}");
}

#[test]
fn block_goes_on_in_a_continuation() {
    let bytes = [
        preface(),
        frame(HEADERS, 0, b"@\n:auth"),
        frame(CONTINUATION, 4, b"ority\x03a%b"),
    ]
    .concat();
    assert!(text(&passed(bytes, 1000)).ends_with("a.b"));
}

#[test]
fn huffman_coded_value_is_left_alone() {
    let bytes = [preface(), frame(HEADERS, 4, b"\x41\x83a%b")].concat();
    assert_eq!(passed(bytes.clone(), 1), bytes);
}

#[test]
fn long_integers_are_read_to_their_end() {
    // An index of 62 + 100, its value of 130 bytes, then the authority.
    let mut block = vec![0x7f, 99, 0x7f, 3];
    block.extend([b'%'; 130]);
    block.extend(b"\x41\x03a%b");
    let bytes = [preface(), frame(HEADERS, 4, &block)].concat();
    let passed = text(&passed(bytes, 1000));
    assert!(passed.ends_with("a.b"));
    assert_eq!(passed.matches('%').count(), 130);
}

#[test]
fn nonsense_does_no_harm() {
    for seed in 0..2000_u32 {
        let mut state = seed.wrapping_mul(2_654_435_761);
        let noise: Vec<u8> = (0..300)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        let bytes = [preface(), frame(HEADERS, 4, &noise[..250]), noise].concat();
        assert_eq!(passed(bytes.clone(), 11).len(), bytes.len());
    }
}
