//! Clients on `launcher-sock` that are many, or not virt-handler's.

use std::io::Write;
use std::os::unix::net::UnixStream;

use api::proto::cmd::v1::{EmptyRequest, Vmi as WireVmi, VmiRequest};
use prost::bytes::Bytes;

use crate::harness::{Pod, Vmi};

/// More than the launcher reads of a request.
const HUGE: usize = 65 << 20;

async fn with_guest(name: &str) -> (Pod, Vmi) {
    let (pod, vmi) = Pod::started(name, &[]).await;
    (pod, vmi)
}

#[tokio::test]
async fn a_thousand_calls_at_once_are_answered() {
    let (pod, vmi) = with_guest("thousand").await;
    let calls: Vec<_> = (0..1000)
        .map(|number| {
            let (mut cmd, request) = (pod.cmd(), pod.request(vmi.value()));
            tokio::spawn(async move {
                match number % 3 {
                    0 => cmd.sync_virtual_machine(request).await.map(drop),
                    1 => cmd.ping(EmptyRequest {}).await.map(drop),
                    _ => cmd.get_domain(EmptyRequest {}).await.map(drop),
                }
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(pod.domain().await["Status"]["Status"], "Running");
    pod.end(&vmi).await;
}

#[tokio::test]
async fn garbage_huge_messages_and_clients_that_never_read_harm_nobody() {
    let (mut pod, vmi) = with_guest("hostile").await;
    let socket = pod.inside("/var/run/kubevirt/sockets/launcher-sock");
    let mut garbage = UnixStream::connect(&socket).unwrap();
    // The launcher may close the connection before all is written.
    let _ = garbage.write_all(&[0xa5; 1 << 20]);
    let silent: Vec<UnixStream> = (0..100)
        .map(|_| {
            let mut client = UnixStream::connect(&socket).unwrap();
            client
                .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                .unwrap();
            client
        })
        .collect();
    let huge = VmiRequest {
        vmi: Some(WireVmi {
            vmi_json: Bytes::from(vec![b' '; HUGE]),
        }),
        options: Bytes::new(),
    };
    let refused = pod.cmd().sync_virtual_machine(huge).await;
    assert!(refused.is_err(), "{refused:?}");
    pod.sync_ok(&vmi).await;
    assert_eq!(pod.domain().await["Status"]["Status"], "Running");
    // Connections that stay open do not keep the pod.
    pod.end(&vmi).await;
    assert_eq!(pod.exit_code().await, 0);
    drop(silent);
}
