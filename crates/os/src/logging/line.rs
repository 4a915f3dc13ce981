//! One line of the log.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::PanicHookInfo;
use std::path::Path;

use jiff::Timestamp;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// A line in the making: keys and values, sorted when it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct LogLine(BTreeMap<String, Value>);

impl LogLine {
    /// A line of this level (`info`, `warning`, `error`, `fatal`) and this moment.
    pub fn now(level: &str) -> Self {
        Self::at(level, &stamp(Timestamp::now()))
    }

    /// A line of this level with its time as text (`2006-01-02T15:04:05.000000Z`).
    pub fn at(level: &str, timestamp: &str) -> Self {
        Self(BTreeMap::new())
            .with("level", level)
            .with("timestamp", timestamp)
    }

    /// With one more key.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.0.insert(key.to_owned(), Value::from(value));
        self
    }

    /// Adds this VMI; a name in the line itself stays.
    #[must_use]
    pub(super) fn about(mut self, vmi: &super::LoggedVmi) -> Self {
        let fields = [
            ("kind", ""),
            ("name", vmi.name.as_str()),
            ("namespace", &vmi.namespace),
            ("uid", &vmi.uid),
        ];
        for (key, value) in fields {
            self.0
                .entry(key.to_owned())
                .or_insert_with(|| Value::from(value));
        }
        self
    }

    pub(super) fn is_error(&self) -> bool {
        self.0.get("level").is_some_and(|level| level == "error")
    }

    /// The fields of a `tracing` event.
    pub(super) fn of(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let level = match *metadata.level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            _ => "info",
        };
        let mut line = Self::now(level);
        if let (Some(file), Some(number)) = (metadata.file(), metadata.line()) {
            let file = Path::new(file)
                .file_name()
                .unwrap_or_default()
                .to_string_lossy();
            line = line.with("pos", &format!("{file}:{number}"));
        }
        event.record(&mut line);
        line
    }

    /// A panic: its message and place, with `RUST_BACKTRACE` also the backtrace.
    pub(super) fn of_panic(panic: &PanicHookInfo<'_>) -> Self {
        let mut line = Self::now("error").with("msg", "panicked").with(
            "reason",
            panic.payload_as_str().unwrap_or("for an unknown reason"),
        );
        if let Some(place) = panic.location() {
            line = line.with("pos", &place.to_string());
        }
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            line.with("stacktrace", &backtrace.to_string())
        } else {
            line
        }
    }

    /// The JSON text, with the component and a newline.
    pub(super) fn render(&self, component: &str) -> String {
        let mut line = self.clone().with("component", component);
        line.0
            .entry("msg".to_owned())
            .or_insert_with(|| Value::from(""));
        // Strings and numbers under string keys can always be written.
        let mut text = serde_json::to_string(&line.0).unwrap_or_default();
        text.push('\n');
        text
    }

    fn put(&mut self, field: &Field, value: Value) {
        let key = if field.name() == "message" {
            "msg"
        } else {
            field.name()
        };
        let value = match value {
            Value::String(text) if key == "reason" => Value::from(super::cut(text)),
            value => value,
        };
        self.0.insert(key.to_owned(), value);
    }
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, Value::from(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::from(value));
    }
}

/// KubeVirt's shape of a time.
fn stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_the_component_is_added() {
        let line = LogLine::at("info", "2026-01-02T03:04:05.000006Z")
            .with("pos", "start.rs:12")
            .with("msg", "Marked as ready");
        assert_eq!(
            line.render("virt-launcher"),
            "{\"component\":\"virt-launcher\",\"level\":\"info\",\"msg\":\"Marked as ready\",\
             \"pos\":\"start.rs:12\",\"timestamp\":\"2026-01-02T03:04:05.000006Z\"}\n"
        );
    }

    #[test]
    fn a_line_about_a_vmi_has_the_keys_of_the_reference() {
        let vmi = super::super::LoggedVmi {
            name: "vm1".to_owned(),
            namespace: "ns1".to_owned(),
            uid: "u-1".to_owned(),
        };
        let line = LogLine::at("info", "2026-01-02T03:04:05.000006Z").with("msg", "Synced vmi");
        assert_eq!(
            line.about(&vmi).render("virt-launcher"),
            "{\"component\":\"virt-launcher\",\"kind\":\"\",\"level\":\"info\",\"msg\":\"Synced vmi\",\
             \"name\":\"vm1\",\"namespace\":\"ns1\",\"timestamp\":\"2026-01-02T03:04:05.000006Z\",\"uid\":\"u-1\"}\n"
        );
    }

    #[test]
    fn a_line_stays_one_line() {
        let text = LogLine::now("error")
            .with("msg", "first\nsecond \"quoted\"")
            .render("x");
        assert_eq!(text.matches('\n').count(), 1);
        assert!(text.contains(r#"first\nsecond \"quoted\""#));
    }

    #[test]
    fn time_has_six_digits() {
        assert_eq!(
            stamp(Timestamp::from_microsecond(1).unwrap()),
            "1970-01-01T00:00:00.000001Z"
        );
        assert_eq!(
            stamp(Timestamp::from_second(0).unwrap()),
            "1970-01-01T00:00:00.000000Z"
        );
    }

    /// Collects what `LogLine::of` makes of real events.
    fn lines_of(work: impl FnOnce()) -> Vec<serde_json::Value> {
        use std::sync::{Arc, Mutex};
        use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
        struct Keep(Arc<Mutex<Vec<String>>>);
        impl<S: tracing::Subscriber> Layer<S> for Keep {
            fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
                self.0
                    .lock()
                    .unwrap()
                    .push(LogLine::of(event).render("test"));
            }
        }
        let kept = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::with_default(
            tracing_subscriber::registry().with(Keep(kept.clone())),
            work,
        );
        kept.lock()
            .unwrap()
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn an_event_has_its_fields_its_reason_and_its_place() {
        let error = std::io::Error::other("no luck");
        let lines = lines_of(|| tracing::warn!(reason = %error, name = "vm", pid = 7, "It failed"));
        let line = &lines[0];
        assert_eq!(line["level"], "warning");
        assert_eq!(line["msg"], "It failed");
        assert_eq!(line["reason"], "no luck");
        assert_eq!(line["name"], "vm");
        assert_eq!(line["pid"], 7);
        assert!(line["pos"].as_str().unwrap().starts_with("line.rs:"));
    }

    #[test]
    fn an_error_is_told_with_all_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("the outer")]
        struct Outer(#[source] std::io::Error);
        let error = Outer(std::io::Error::other("the inner"));
        let lines =
            lines_of(|| tracing::error!(reason = %crate::logging::chain(&error), "It failed"));
        assert_eq!(lines[0]["reason"], "the outer: the inner");
    }

    #[test]
    fn debug_and_trace_are_info_as_in_kubevirt() {
        let lines = lines_of(|| {
            tracing::debug!("a");
            tracing::trace!("b");
        });
        assert!(lines.iter().all(|line| line["level"] == "info"));
    }
}
