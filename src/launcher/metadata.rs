//! What KubeVirt keeps with the domain. The truth is here, in memory; the domain's XML has the copy of its definition.

use std::sync::Mutex;

use super::lock;
use api::vmi::Vmi;
use domain::metadata::{GracePeriodMetadata, KubeVirtMetadata, Time};

/// Seconds that a guest gets to shut down when its VMI does not say.
const GRACE_PERIOD: i64 = 30;

/// The domain's metadata.
#[derive(Debug)]
pub(super) struct Metadata(Mutex<KubeVirtMetadata>);

impl Metadata {
    pub fn new(uid: &str) -> Self {
        Self(Mutex::new(KubeVirtMetadata {
            uid: uid.into(),
            ..KubeVirtMetadata::default()
        }))
    }

    pub fn load(&self) -> KubeVirtMetadata {
        lock(&self.0).clone()
    }

    /// Takes over what a domain that is there already has in its XML.
    pub fn adopt(&self, xml: &KubeVirtMetadata) {
        let mut known = lock(&self.0);
        let uid = if known.uid.is_empty() {
            xml.uid.clone()
        } else {
            known.uid.clone()
        };
        *known = KubeVirtMetadata { uid, ..xml.clone() };
    }

    /// A new domain of this VMI.
    pub fn begin(&self, vmi: &Vmi) {
        let mut known = lock(&self.0);
        // The pod may be on its way out before its domain has started.
        let marked_for_graceful_shutdown = known
            .grace_period
            .as_ref()
            .and_then(|grace| grace.marked_for_graceful_shutdown);
        let grace_period = GracePeriodMetadata {
            deletion_grace_period_seconds: grace_period(vmi),
            deletion_timestamp: None,
            marked_for_graceful_shutdown,
        };
        *known = KubeVirtMetadata {
            uid: vmi.metadata.uid.clone(),
            grace_period: Some(grace_period),
            ..KubeVirtMetadata::default()
        };
    }

    /// The VMI's grace period may have changed; tells whether it has.
    pub fn follow(&self, vmi: &Vmi) -> bool {
        self.change_grace_period(|grace| grace.deletion_grace_period_seconds = grace_period(vmi))
    }

    /// The guest has been asked to shut down: from now on virt-handler counts the grace period.
    pub fn shutdown_requested(&self) -> bool {
        self.change_grace_period(|grace| {
            grace.deletion_timestamp.get_or_insert_with(Time::now);
        })
    }

    pub fn mark_for_graceful_shutdown(&self) -> bool {
        self.change_grace_period(|grace| grace.marked_for_graceful_shutdown = Some(true))
    }

    fn change_grace_period(&self, change: impl FnOnce(&mut GracePeriodMetadata)) -> bool {
        let mut known = lock(&self.0);
        let before = known.grace_period.clone();
        change(known.grace_period.get_or_insert_default());
        known.grace_period != before
    }
}

/// Seconds that the VMI's guest gets to shut down.
fn grace_period(vmi: &Vmi) -> i64 {
    vmi.spec
        .termination_grace_period_seconds
        .unwrap_or(GRACE_PERIOD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_clock_is_started_once() {
        let metadata = Metadata::new("u-1");
        metadata.begin(&Vmi::default());
        let grace = || metadata.load().grace_period.unwrap_or_default();
        assert_eq!(
            (
                grace().deletion_grace_period_seconds,
                grace().deletion_timestamp
            ),
            (30, None)
        );
        assert!(metadata.shutdown_requested());
        let started = grace().deletion_timestamp;
        assert!(started.is_some());
        assert!(!metadata.shutdown_requested());
        assert_eq!(grace().deletion_timestamp, started);
        assert!(metadata.mark_for_graceful_shutdown());
        assert!(!metadata.mark_for_graceful_shutdown());
        assert_eq!(grace().deletion_timestamp, started);
    }

    #[test]
    fn the_grace_period_follows_the_vmi() {
        let metadata = Metadata::new("u-1");
        let mut vmi = Vmi::default();
        metadata.begin(&vmi);
        assert!(!metadata.follow(&vmi));
        vmi.spec.termination_grace_period_seconds = Some(0);
        assert!(metadata.follow(&vmi));
        assert_eq!(
            metadata
                .load()
                .grace_period
                .unwrap_or_default()
                .deletion_grace_period_seconds,
            0
        );
    }

    #[test]
    fn a_domain_that_was_there_brings_its_metadata() {
        let metadata = Metadata::new("u-1");
        let grace_period = GracePeriodMetadata {
            deletion_grace_period_seconds: 7,
            ..GracePeriodMetadata::default()
        };
        metadata.adopt(&KubeVirtMetadata {
            uid: "u-2".into(),
            grace_period: Some(grace_period.clone()),
            ..KubeVirtMetadata::default()
        });
        let known = metadata.load();
        assert_eq!(
            (known.uid.as_str(), known.grace_period),
            ("u-1", Some(grace_period))
        );
    }
}
