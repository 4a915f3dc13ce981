//! Runs against a server of the test, byte by byte.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut reply = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
    for number in [option, kind, data.len() as u32] {
        reply.extend(number.to_be_bytes());
    }
    reply.extend(data);
    reply
}

/// A chunk of the answer to the first request.
fn chunk(flags: u16, kind: u16, data: &[u8]) -> Vec<u8> {
    let mut chunk = 0x668e_33ef_u32.to_be_bytes().to_vec();
    chunk.extend(flags.to_be_bytes());
    chunk.extend(kind.to_be_bytes());
    chunk.extend(1_u64.to_be_bytes());
    chunk.extend((data.len() as u32).to_be_bytes());
    chunk.extend(data);
    chunk
}

/// What a server with an export of 1 MiB and one context sends during the handshake.
pub(crate) fn greeting() -> Vec<u8> {
    let mut sent = b"NBDMAGICIHAVEOPT\x00\x03".to_vec();
    sent.extend(option_reply(8, 1, &[]));
    sent.extend(option_reply(10, 4, b"\x00\x00\x00\x07base:allocation"));
    sent.extend(option_reply(10, 1, &[]));
    let mut info = vec![0, 0];
    info.extend((1_u64 << 20).to_be_bytes());
    info.extend([0, 0]);
    sent.extend(option_reply(7, 3, &info));
    sent.extend(option_reply(7, 1, &[]));
    sent
}

/// Answers the request at the end of `received`, if there is one, in a single chunk.
pub(crate) fn answer_to(received: &[u8], kind: u16, data: &[u8]) -> Option<Vec<u8>> {
    let (_, request) = received.split_last_chunk::<28>()?;
    if !request.starts_with(&[0x25, 0x60, 0x95, 0x13]) {
        return None;
    }
    let mut answer = chunk(1, kind, data);
    answer[8..16].copy_from_slice(&request[8..16]);
    Some(answer)
}

/// A client whose server sends `sent`, whatever the request.
async fn client(sent: &[u8]) -> Result<(NbdClient<DuplexStream>, DuplexStream), NbdError> {
    let (ours, mut theirs) = duplex(1 << 20);
    theirs.write_all(sent).await.unwrap();
    let contexts = [BASE_ALLOCATION.to_owned(), "qemu:dirty-bitmap:c".to_owned()];
    Ok((NbdClient::open(ours, "data", &contexts).await?, theirs))
}

/// Reads 8 bytes at offset 16; `answer` follows the greeting.
async fn read(answer: &[u8]) -> Result<Vec<u8>, NbdError> {
    let sent = [greeting(), answer.to_vec()].concat();
    let (mut client, server) = client(&sent).await?;
    let (mut server, _end) = tokio::io::split(server);
    let read = client.read(16, 8).await;
    drop(client);
    let mut asked = Vec::new();
    server.read_to_end(&mut asked).await.unwrap();
    let request = asked.split_at(asked.len() - 28).1.to_vec();
    assert_eq!(request[..8], [0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0]);
    assert_eq!(request[16..], [0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 8]);
    read
}

#[tokio::test]
async fn the_handshake_finds_size_and_contexts() {
    let (client, _server) = client(&greeting()).await.unwrap();
    assert_eq!(client.size(), 1 << 20);
    assert!(client.has_context(0) && !client.has_context(1));
}

#[tokio::test]
async fn data_and_holes_are_put_together() {
    let data = chunk(0, 1, b"\x00\x00\x00\x00\x00\x00\x00\x14data");
    let hole = chunk(1, 2, b"\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x04");
    assert_eq!(read(&[data, hole].concat()).await.unwrap(), b"\0\0\0\0data");
}

#[tokio::test]
async fn an_error_of_the_server_is_passed_on() {
    let error = chunk(1, 0x8001, b"\x00\x00\x00\x05\x00\x04oops");
    let error = read(&error).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the NBD server cannot read at offset 16 (error 5): oops"
    );
    let simple = b"\x67\x44\x66\x98\x00\x00\x00\x16\x00\x00\x00\x00\x00\x00\x00\x01";
    assert!(matches!(
        read(simple).await,
        Err(NbdError::Request { code: 22, .. })
    ));
    let refused = [
        b"NBDMAGICIHAVEOPT\x00\x03".to_vec(),
        option_reply(8, 1, &[]),
        option_reply(10, 0x8000_0006, b"no such export"),
    ];
    let error = client(&refused.concat()).await.err().unwrap();
    assert!(error.to_string().contains("no such export"), "{error}");
}

#[tokio::test]
async fn what_the_protocol_does_not_allow_is_refused() {
    let at = |offset: u64, data: &[u8]| [offset.to_be_bytes().to_vec(), data.to_vec()].concat();
    for (what, answer) in [
        ("too little", chunk(1, 1, &at(16, b"data"))),
        ("too much", chunk(1, 1, &at(16, b"123456789"))),
        ("before", chunk(1, 1, &at(15, b"12345678"))),
        ("far away", chunk(1, 1, &at(u64::MAX, b"12345678"))),
        ("a large hole", chunk(1, 2, &at(16, &[0xff; 4]))),
        ("a short part", chunk(1, 1, b"123")),
        ("another kind", chunk(1, 77, b"")),
        ("block status", chunk(1, 5, &[0; 12])),
        ("nothing", chunk(1, 0, b"")),
        ("another cookie", {
            let mut other = chunk(1, 1, &at(16, b"12345678"));
            other[15] = 9;
            other
        }),
        ("a long answer", {
            let mut long = chunk(1, 1, b"");
            long[16] = 0xff;
            long
        }),
        ("no answer", vec![0; 32]),
        ("short error", chunk(1, 0x8001, b"\0")),
    ] {
        let error = read(&answer).await.unwrap_err();
        assert!(matches!(error, NbdError::Protocol(_)), "{what}: {error:?}");
    }
}

#[tokio::test]
async fn the_status_of_parts_is_read_for_each_context() {
    let mut status = vec![0, 0, 0, 7];
    for number in [65536_u32, 3, 131_072, 0] {
        status.extend(number.to_be_bytes());
    }
    let sent = [greeting(), chunk(1, 5, &status)].concat();
    let (mut client, _server) = client(&sent).await.unwrap();
    let found = client.block_status(0, 1 << 20).await.unwrap();
    let expected = [(65536, 3), (131_072, 0)];
    let expected = expected.map(|(length, flags)| Extent { length, flags });
    assert_eq!(found, [expected.to_vec(), Vec::new()]);
}

#[tokio::test]
async fn a_handshake_that_is_none_is_refused() {
    for sent in [
        b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
        b"NBDMAGICIHAVEOPT\x00\x00".to_vec(),
        [
            b"NBDMAGICIHAVEOPT\x00\x03".to_vec(),
            option_reply(9, 1, &[]),
        ]
        .concat(),
        [
            b"NBDMAGICIHAVEOPT\x00\x03".to_vec(),
            vec![0x00, 0x03, 0xe8, 0x89, 0x04, 0x55, 0x65, 0xa9, 0, 0, 0, 8],
            vec![0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff],
        ]
        .concat(),
        [
            b"NBDMAGICIHAVEOPT\x00\x03".to_vec(),
            option_reply(8, 3, &[]).repeat(100),
        ]
        .concat(),
    ] {
        let error = client(&sent).await.err().unwrap();
        assert!(matches!(error, NbdError::Protocol(_)), "{error:?}");
    }
}
