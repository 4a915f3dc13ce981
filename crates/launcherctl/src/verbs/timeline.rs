//! `timeline`: prints the steps of a launcher's start with their times.

use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::target::Target;
use crate::error::CtlError;
use crate::view::output::{Format, Line, answer};
use api::proto::inspect::v1::{Step, TimelineResponse};
use terminal::table;

/// `timeline`.
///
/// # Errors
/// The launcher does not answer.
pub async fn timeline(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let (_, client) = target.connect().await?;
    let timeline = client.timeline().await?;
    answer(format, &document(&timeline), || text(&timeline))
}

/// For programs: times in microseconds after the launcher's start.
pub fn document(timeline: &TimelineResponse) -> Value {
    let step = |step: &Step| json!({"part": step.part, "name": step.name, "beganMicros": step.began_micros, "tookMicros": step.took_micros});
    let steps: Vec<Value> = timeline.steps.iter().map(step).collect();
    json!({"began": began(timeline), "attempts": timeline.attempts, "steps": steps})
}

/// For people: times in milliseconds.
fn text(timeline: &TimelineResponse) -> Vec<Line> {
    let mut lines = vec![format!("the launcher began at {}", began(timeline)).into()];
    let cells = timeline.steps.iter().map(|step| {
        let began = milliseconds(step.began_micros);
        // Empty for a moment, dots while it goes on.
        let took = match step.took_micros {
            None => "…".to_owned(),
            Some(0) => String::new(),
            Some(took) => milliseconds(took),
        };
        format!("{began}\t{took}\t{}\t{}", step.part, step.name)
    });
    lines.extend(table("BEGAN AT MS\tTOOK MS\tPART\tSTEP", cells));
    let attempts = timeline.attempts;
    if attempts > 1 {
        lines.push(format!("the domain's steps are those of attempt {attempts}").into());
    }
    lines
}

fn began(timeline: &TimelineResponse) -> String {
    let began = Timestamp::from_microsecond(timeline.began_unix_micros);
    began.unwrap_or_default().to_string()
}

/// For display: only fractions of a microsecond are lost.
#[allow(clippy::cast_precision_loss)]
fn milliseconds(micros: u64) -> String {
    format!("{:.1}", micros as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::output::joined;

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
    fn the_table_is_in_milliseconds() {
        let expected = "\
the launcher began at 2023-11-14T22:13:20.123456Z
BEGAN AT MS  TOOK MS  PART    STEP
        0.3     45.2  pod     connect
       46.0           pod     ready
     3046.0        …  domain  start
the domain's steps are those of attempt 2";
        assert_eq!(joined(text(&example())), expected);
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
