//! The device plugin's open `/dev/iommu`: received once, acknowledged, and given to libvirt with
//! each start.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;

use api::pod_paths::{IOMMUFD_SOCKET, SHARE_DIR};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::harness::{Pod, Vmi, in_pod};

/// Serves one connection as KubeVirt's device plugin does, with `/dev/null` for `/dev/iommu`;
/// returns the answer.
fn serve(listener: UnixListener) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let descriptors = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let flags = SendFlags::empty();
        sendmsg(&stream, &[IoSlice::new(&[0])], &mut control, flags).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    })
}

#[test]
fn the_iommus_descriptor_is_received_and_given_to_libvirt() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("iommufd").with_counter(&pod);
        let socket = pod.path(&format!("{SHARE_DIR}/{IOMMUFD_SOCKET}"));
        std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let plugin = serve(UnixListener::bind(&socket).unwrap());
        pod.start(&vmi, &[]).await;
        pod.sync_ok(&vmi).await;
        assert_eq!(plugin.join().unwrap(), [0]);
        pod.log_has("Associated the IOMMU's descriptor with the domain")
            .await;
        // Only a newer libvirt has this element.
        let defined = pod.live_xml(&vmi);
        if !defined.contains("<iommufd") {
            let event = pod.handler.k8s_event("IgnoredByLibvirt").await;
            let message = event["message"].as_str().unwrap();
            assert!(message.ends_with(": iommufd"), "{message}");
        }
        pod.end(&vmi).await;
    });
}
