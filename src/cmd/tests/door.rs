//! Accepted and refused input.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use super::*;

const VMI: &str = r#"{"metadata":{"name":"vm1","namespace":"ns1"}}"#;

fn door() -> Door {
    Door::new("ns1_vm1")
}

fn sent(json: impl Into<Bytes>) -> Option<v1::Vmi> {
    Some(v1::Vmi {
        vmi_json: json.into(),
    })
}

#[tokio::test]
async fn the_same_bytes_are_decoded_once() {
    let door = door();
    let first = door.vmi(sent(VMI)).await.unwrap();
    let again = door.vmi(sent(VMI)).await.unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    let other = door.vmi(sent(format!("{VMI} "))).await.unwrap();
    assert!(!Arc::ptr_eq(&first, &other));
    assert!(door.vmi(sent("[]")).await.is_err());
    let after_a_bad_one = door.vmi(sent(format!("{VMI} "))).await.unwrap();
    assert!(Arc::ptr_eq(&other, &after_a_bad_one));
}

#[tokio::test]
async fn requests_without_a_vmi_of_ours_are_refused() {
    let invalid = "No valid vmi object present in command server request";
    assert_eq!(door().vmi(None).await.unwrap_err().to_string(), invalid);
    for bad in [
        "",
        "{",
        "[]",
        "null",
        "{}",
        r#"{"metadata": 1}"#,
        r#"{"metadata": {"name": "vm1"}}"#,
    ] {
        let error = door().vmi(sent(bad)).await.unwrap_err();
        assert_eq!(error.to_string(), invalid, "{bad}");
    }
    // D-start-5 (docs/differences.md).
    let foreign = VMI.replace("vm1", "vm2");
    assert_eq!(
        door().vmi(sent(foreign)).await.unwrap_err().to_string(),
        "this launcher owns the VMI ns1_vm1; the request is about ns1_vm2"
    );
}

#[tokio::test]
async fn a_list_without_end_is_named() {
    let volumes = vec!["{}"; 1_000_000].join(",");
    let json = format!(
        r#"{{"metadata":{{"name":"vm1","namespace":"ns1"}},"spec":{{"volumes":[{volumes}]}}}}"#
    );
    let reason = read_vmi(json.as_bytes()).map(drop).unwrap_err();
    assert_eq!(
        reason.to_string(),
        "spec.volumes has more than 8192 entries"
    );
    assert!(door().vmi(sent(json)).await.is_err());
}

#[tokio::test]
async fn plugins_that_cannot_be_read_fail_the_request() {
    let request = |plugins_json: &'static str| {
        let options = VirtualMachineOptions {
            plugins_json: plugins_json.into(),
            ..VirtualMachineOptions::default()
        };
        v1::VmiRequest {
            vmi: sent(VMI),
            ..v1::VmiRequest::default()
        }
        .with_options(&options)
    };
    let request = door().sync_request(request("{")).await;
    assert_eq!(
        request.unwrap_err().to_string(),
        "the list of plugins cannot be read"
    );
}

/// The test's decoder returns only after this thread has gone on.
#[tokio::test]
async fn other_work_goes_on_while_large_input_is_decoded() {
    let (release, released) = sync_channel::<()>(1);
    let large = Bytes::from(vec![b' '; SMALL_INPUT_BYTES + 1]);
    let door = door();
    let decoded = door.decode(large, move |_| {
        released.recv_timeout(Duration::from_secs(60))
    });
    let go_on = async { release.send(()).unwrap() };
    let (decoded, ()) = tokio::join!(decoded, go_on);
    decoded.unwrap().unwrap();
}

#[tokio::test]
async fn large_inputs_are_decoded_one_at_a_time_also_when_the_caller_gives_up() {
    let (release, released) = sync_channel::<()>(1);
    let large = || Bytes::from(vec![b' '; SMALL_INPUT_BYTES + 1]);
    let door = door();
    let blocked = door.decode(large(), move |_| {
        released.recv_timeout(Duration::from_secs(60))
    });
    assert!(
        tokio::time::timeout(Duration::from_millis(10), blocked)
            .await
            .is_err()
    );
    assert_eq!(door.large_inputs.available_permits(), 0);
    let small = door.decode(Bytes::from_static(b"1"), <[u8]>::len).await;
    assert_eq!(small.unwrap(), 1);
    release.send(()).unwrap();
    let next = door.decode(large(), <[u8]>::len).await;
    assert_eq!(next.unwrap(), SMALL_INPUT_BYTES + 1);
}

/// A NUMA node without CPUs takes two bytes on the wire.
#[tokio::test]
async fn options_without_end_are_refused_before_they_are_decoded() {
    let topology = |cells: usize| VirtualMachineOptions {
        topology: Some(v1::Topology {
            numa_cells: vec![v1::Cell::default(); cells],
        }),
        plugins_json: vec![b' '; 2 * MAX_OPTIONS_BYTES].into(),
        ..VirtualMachineOptions::default()
    };
    let options = Bytes::from(topology(MAX_OPTIONS_BYTES / 4).encode_to_vec());
    assert!(door().options(options).await.is_ok());
    let options = Bytes::from(topology(MAX_OPTIONS_BYTES).encode_to_vec());
    let refused = door().options(options).await.unwrap_err().to_string();
    assert_eq!(
        refused,
        "the options of the request cannot be read: they have 524296 bytes without the plugins; \
         at most 262144 are read"
    );
    let torn = door().options(Bytes::from_static(b"\x22\xff")).await;
    assert!(matches!(
        torn,
        Err(DoorError::Options(InvalidOptions::Protobuf(_)))
    ));
}

/// Each waiting request holds its bytes in memory.
#[tokio::test]
async fn few_requests_wait_to_be_decoded() {
    let (release, released) = sync_channel::<()>(1);
    let large = Bytes::from(vec![b' '; SMALL_INPUT_BYTES + 1]);
    let door = Arc::new(door());
    let decode = |read: Box<dyn FnOnce() + Send>| {
        let (door, large) = (door.clone(), large.clone());
        tokio::spawn(async move { door.decode(large, move |_| read()).await })
    };
    let first = decode(Box::new(move || released.recv().unwrap()));
    while door.large_inputs.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let waiting: Vec<_> = (0..MAX_WAITING).map(|_| decode(Box::new(|| ()))).collect();
    while door.waiting.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let refused = decode(Box::new(|| ())).await.unwrap().unwrap_err();
    assert!(matches!(refused, DoorError::Busy), "{refused}");
    release.send(()).unwrap();
    for decoded in waiting.into_iter().chain([first]) {
        decoded.await.unwrap().unwrap();
    }
}
