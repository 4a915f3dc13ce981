#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
//! The service over a real socket, with a launcher of the test's own behind it.

mod calls;
mod guest;
mod stub;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot;
use tonic::transport::Channel;

use super::*;
use api::proto::cmd::info::CmdInfoRequest;
use api::proto::cmd::info::cmd_info_client::CmdInfoClient;
use api::proto::cmd::v1;
use api::proto::cmd::v1::cmd_client::CmdClient;
use api::proto::inspect::v1::{LastSyncResponse, Step};
use api::proto::preview::v1::PlanRequest;
use api::proto::preview::v1::preview_client::PreviewClient;
use stub::Failure;
pub(super) use stub::with_server;

fn request(json: &'static str) -> v1::VmiRequest {
    let options = VirtualMachineOptions {
        mem_balloon_stats_period: 10,
        ..VirtualMachineOptions::default()
    };
    v1::VmiRequest {
        vmi: Some(v1::Vmi {
            vmi_json: Bytes::from_static(json.as_bytes()),
        }),
        options: Some(options),
    }
}
