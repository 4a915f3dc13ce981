//! The services over a real socket, with a launcher on libvirt's test driver.

mod calls;
mod guest;

use tokio::sync::oneshot;
use tonic::transport::Channel;

use super::*;
use crate::launcher::tests::{TestLauncher, play, vmi};
use api::proto::cmd::info::CmdInfoRequest;
use api::proto::cmd::info::cmd_info_client::CmdInfoClient;
use api::proto::cmd::v1::cmd_client::CmdClient;
use api::proto::preview::v1::PlanRequest;
use api::proto::preview::v1::preview_client::PreviewClient;

fn request() -> v1::VmiRequest {
    v1::VmiRequest {
        vmi: Some(v1::Vmi {
            vmi_json: Bytes::from(vmi().to_string()),
        }),
        options: Bytes::new(),
    }
}

/// Serves a launcher while `test` runs.
pub(super) fn with_server<F: Future<Output = ()>>(
    test: impl FnOnce(Arc<TestLauncher>, Channel) -> F,
) {
    play(|| async {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("launcher-sock");
        let scene = Arc::new(TestLauncher::begin());
        let listener = UnixListener::bind(&socket).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let launcher = scene.launcher.clone();
        let server = tokio::spawn(serve(listener, launcher, Arc::default(), async {
            stopped.await.unwrap();
        }));
        test(scene, os::grpc::connect(&socket).await.unwrap()).await;
        stop.send(()).unwrap();
        server.await.unwrap().unwrap();
    });
}
