//! The results as JUnit XML.

use std::time::Duration;

use super::table::{Conformance, Outcome};
use domain::xml::tree::Element;

impl Conformance {
    /// A test suite with a case for each check.
    #[must_use]
    pub fn to_junit(&self) -> String {
        let mut suite = Element::new("testsuite")
            .with_attribute("name", "hook sidecar")
            .with_attribute("tests", self.results.len().to_string())
            .with_attribute("failures", self.failures().to_string());
        for result in &self.results {
            let seconds = Duration::from_millis(result.milliseconds).as_secs_f64();
            let mut case = Element::new("testcase")
                .with_attribute("classname", "sidecar")
                .with_attribute("name", result.name())
                .with_attribute("time", format!("{seconds:.3}"));
            let because = |element, why: &str| Element::new(element).with_attribute("message", why);
            match &result.outcome {
                Outcome::Passed => {}
                Outcome::Failed(why) => case.push(because("failure", why)),
                Outcome::Skipped(why) => case.push(because("skipped", why)),
            }
            suite.push(case);
        }
        let suite = suite.to_xml();
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{suite}")
    }
}
