//! `stats`, `launcher ping`, `domain`, `dumpxml`, `metrics` and `timeline`: a launcher's answers
//! about itself and its domain.

use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::target::VmArgs;
use crate::error::{CtlError, fail};
use crate::view::output::{Format, answer, answer_document, answer_json};
use api::proto::inspect::v1::{Step, TimelineResponse};
use client::running::no_domain;

/// `ping`: checks that the launcher answers; libvirt is not asked.
///
/// # Errors
/// It does not.
pub async fn ping(args: &VmArgs, format: Format) -> Result<ExitCode, CtlError> {
    let vm = args.target().connect().await?;
    vm.client.ping().await?;
    answer(format, &json!({"success": true}), || ["ok".to_owned()])
}

/// `domain`: the JSON of the domain as virt-handler sees it, or null.
///
/// # Errors
/// The launcher does not answer.
pub async fn domain(args: &VmArgs, format: Format) -> Result<ExitCode, CtlError> {
    let vm = args.target().connect().await?;
    answer_json(format, &json!(vm.client.domain().await?))
}

/// `metrics`: OpenMetrics text; as JSON, an object that contains it.
///
/// # Errors
/// The launcher does not answer.
pub async fn metrics(args: &VmArgs, format: Format) -> Result<ExitCode, CtlError> {
    let vm = args.target().connect().await?;
    let metrics = vm.client.metrics().await?;
    answer_document(format, &json!({"openMetricsText": metrics}), &metrics)
}

/// `dumpxml`: libvirt's XML of the running domain.
///
/// # Errors
/// If there is no domain, or the launcher does not have this call (KubeVirt's does not).
pub async fn dumpxml(args: &VmArgs, format: Format) -> Result<ExitCode, CtlError> {
    let vm = args.target().connect().await?;
    let answer = vm.client.debug().await?;
    let xml = answer.domain_xml;
    if let Some(why) = answer.problems.first().filter(|_| xml.is_empty()) {
        fail!("libvirt does not answer: {why}; launcherctl status says more");
    }
    if xml.is_empty() {
        return Err(no_domain().into());
    }
    answer_document(format, &json!({"domainXml": xml}), &xml)
}

/// `stats`: the guest's resource usage.
///
/// # Errors
/// The launcher does not answer, or there is no running guest.
pub async fn stats(args: &VmArgs, format: Format) -> Result<ExitCode, CtlError> {
    let vm = args.target().connect().await?;
    answer_json(format, &json!(vm.client.domain_stats().await?))
}

/// `timeline`: the steps of the start.
///
/// # Errors
/// The launcher does not answer.
pub async fn timeline(args: &VmArgs, format: Format) -> Result<ExitCode, CtlError> {
    let vm = args.target().connect().await?;
    answer_json(format, &document(&vm.client.timeline().await?))
}

/// Times are in microseconds after the launcher's start.
fn document(timeline: &TimelineResponse) -> Value {
    let step = |step: &Step| json!({"part": step.part, "name": step.name, "beganMicros": step.began_micros, "tookMicros": step.took_micros});
    let steps: Vec<Value> = timeline.steps.iter().map(step).collect();
    let began = Timestamp::from_microsecond(timeline.began_unix_micros).unwrap_or_default();
    json!({"began": began.to_string(), "attempts": timeline.attempts, "steps": steps})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(part: &str, name: &str, began: u64, took: Option<u64>) -> Step {
        Step {
            part: part.into(),
            name: name.into(),
            began_micros: began,
            took_micros: took,
        }
    }

    fn example() -> TimelineResponse {
        TimelineResponse {
            began_unix_micros: 1_700_000_000_123_456,
            attempts: 2,
            steps: vec![
                step("pod", "connect", 300, Some(45_250)),
                step("pod", "ready", 46_000, Some(0)),
                step("domain", "start", 3_046_000, None),
            ],
        }
    }

    #[test]
    fn the_document_is_in_microseconds() {
        let document = document(&example());
        assert_eq!(document["began"], "2023-11-14T22:13:20.123456Z");
        assert_eq!(
            document["steps"][0],
            json!({"part": "pod", "name": "connect", "beganMicros": 300, "tookMicros": 45_250})
        );
        assert!(document["steps"][2]["tookMicros"].is_null());
    }
}
