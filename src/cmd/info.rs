//! The supported versions of the cmd service.

use tonic::{Request, Response, Status};

use api::proto::cmd::info::cmd_info_server::CmdInfo;
use api::proto::cmd::info::{CmdInfoRequest, CmdInfoResponse};

/// Answers virt-handler's first call, with `supportedCmdVersions`.
pub(super) struct Info;

#[tonic::async_trait]
impl CmdInfo for Info {
    async fn info(&self, _: Request<CmdInfoRequest>) -> Result<Response<CmdInfoResponse>, Status> {
        Ok(Response::new(CmdInfoResponse {
            supported_cmd_versions: vec![1],
        }))
    }
}
