//! `launcher timeline`: prints the steps of a launcher's start with their times.

use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::target::Target;
use crate::error::CtlError;
use crate::view::output::{Format, answer_json};
use api::proto::inspect::v1::{Step, TimelineResponse};

/// `launcher timeline`.
///
/// # Errors
/// The launcher does not answer.
pub async fn timeline(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let (_, client) = target.connect().await?;
    answer_json(format, &document(&client.timeline().await?))
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
