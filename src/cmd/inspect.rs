//! What launcherctl asks a launcher about itself.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::LauncherApi;
use api::proto::inspect::v1::inspect_server::Inspect;
use api::proto::inspect::v1::{TimelineRequest, TimelineResponse};

pub(super) struct Service<L> {
    pub launcher: Arc<L>,
}

#[tonic::async_trait]
impl<L: LauncherApi> Inspect for Service<L> {
    async fn timeline(
        &self,
        _: Request<TimelineRequest>,
    ) -> Result<Response<TimelineResponse>, Status> {
        Ok(Response::new(self.launcher.timeline()))
    }
}
