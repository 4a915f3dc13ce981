//! What a sync would change: launcherctl's own question.

use std::sync::Arc;

use prost::bytes::Bytes;
use tonic::{Request, Response, Status};

use super::LauncherApi;
use api::proto::preview::v1::preview_server::Preview;
use api::proto::preview::v1::{PlanRequest, PlanResponse};
use os::logging::chain;

pub(super) struct Service<L> {
    pub launcher: Arc<L>,
}

#[tonic::async_trait]
impl<L: LauncherApi> Preview for Service<L> {
    async fn plan(&self, request: Request<PlanRequest>) -> Result<Response<PlanResponse>, Status> {
        let answer = match self.launcher.dry_run(request.into_inner().vmi_json).await {
            Ok(plan) => PlanResponse {
                success: true,
                message: String::new(),
                plan_json: Bytes::from(plan.to_string()),
            },
            Err(error) => PlanResponse {
                success: false,
                message: chain(&error),
                plan_json: Bytes::new(),
            },
        };
        Ok(Response::new(answer))
    }
}
