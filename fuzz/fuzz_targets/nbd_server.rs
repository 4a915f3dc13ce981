//! Gives the client that reads backups the bytes of an NBD server.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tokio::io::{join, sink};

// The module is included by its path, because its crate links libvirt.
#[path = "../../src/nbd/mod.rs"]
#[allow(dead_code)]
mod nbd;

/// Number of requests to a server that follows the protocol. The seeds have as many answers.
const REQUESTS: u64 = 8;
const STATUS_BYTES: u32 = 1 << 20;
const READ_BYTES: u32 = 4096;
/// Limit of the extents in an answer, for each context.
const MAX_EXTENTS: usize = 1 << 17;

thread_local! {
    static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
}

fuzz_target!(|data: &[u8]| RUNTIME.with(|runtime| runtime.block_on(talk(data))));

async fn talk(server: &[u8]) {
    let contexts = [
        nbd::BASE_ALLOCATION.to_owned(),
        format!("{}b", nbd::DIRTY_BITMAP),
    ];
    let stream = join(server, sink());
    let Ok(mut client) = nbd::NbdClient::open(stream, "data", &contexts).await else {
        return;
    };
    let _ = (client.size(), client.has_context(0), client.has_context(1));
    for number in 0..REQUESTS {
        let offset = number * u64::from(READ_BYTES);
        let Ok(extents) = client.block_status(offset, STATUS_BYTES).await else {
            return;
        };
        assert_eq!(extents.len(), contexts.len());
        assert!(extents.iter().all(|it| it.len() <= MAX_EXTENTS));
        let Ok(read) = client.read(offset, READ_BYTES).await else {
            return;
        };
        assert_eq!(read.len(), READ_BYTES as usize);
    }
}
