//! Replaces the executable of a running launcher, for launcherctl.

use std::path::PathBuf;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::launcher::Launcher;
use api::proto::upgrade::v1::upgrade_server::Upgrade;
use api::proto::upgrade::v1::{HandOverRequest, HandOverResponse};
use os::logging::chain;

pub(super) struct Service {
    pub launcher: Arc<Launcher>,
}

#[tonic::async_trait]
impl Upgrade for Service {
    async fn hand_over(
        &self,
        request: Request<HandOverRequest>,
    ) -> Result<Response<HandOverResponse>, Status> {
        let executable = PathBuf::from(request.into_inner().executable);
        let outcome = self.launcher.hand_over.request(executable).await;
        Ok(Response::new(HandOverResponse {
            success: outcome.is_ok(),
            message: outcome.map_or_else(|error| chain(&error), |()| String::new()),
        }))
    }
}
