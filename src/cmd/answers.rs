//! A call's result in the form that virt-handler gets.

use super::stable_text::stable_text;
use api::proto::cmd::v1;
use os::logging::chain;

pub(super) fn success() -> v1::Response {
    v1::Response {
        success: true,
        message: String::new(),
    }
}

pub(super) fn response<T, E: std::error::Error>(result: &Result<T, E>) -> v1::Response {
    match result {
        Ok(_) => success(),
        Err(error) => v1::Response {
            success: false,
            message: stable_text(&chain(error)),
        },
    }
}
