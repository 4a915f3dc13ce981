//! A dry run of a sync, for launcherctl.

use std::sync::Arc;

use prost::bytes::Bytes;
use tonic::{Request, Response, Status};

use super::door::{Door, DoorError};
use crate::launcher::Launcher;
use api::proto::cmd::v1;
use api::proto::preview::v1::preview_server::Preview;
use api::proto::preview::v1::{PlanRequest, PlanResponse};
use os::logging::chain;

pub(super) struct Service {
    pub launcher: Arc<Launcher>,
    pub door: Arc<Door>,
}

#[tonic::async_trait]
impl Preview for Service {
    async fn plan(&self, request: Request<PlanRequest>) -> Result<Response<PlanResponse>, Status> {
        let vmi = v1::Vmi {
            vmi_json: request.into_inner().vmi_json,
        };
        let request = v1::VmiRequest {
            vmi: Some(vmi),
            options: Bytes::new(),
        };
        let plan: Result<_, DoorError> = async {
            let request = self.door.sync_request(request).await?;
            Ok(self.launcher.syncs.plan(request).await?)
        }
        .await;
        let answer = match plan {
            Ok(plan) => PlanResponse {
                success: true,
                message: String::new(),
                plan_json: Bytes::from(plan),
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
