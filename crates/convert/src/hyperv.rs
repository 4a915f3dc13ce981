//! `<hyperv>`: enlightenments for Windows guests.

use super::ConvertError;
use crate::error::refuse;
use api::vmi::features::{self, Features};
use domain::features::{
    FeatureHyperv, FeatureSpinlocks, FeatureState, FeatureVendorId, SynicTimer, TlbFlush,
};

/// Each enlightenment that is asked for, or all that the host has (`hypervPassthrough`); the list
/// wins over the latter. What one of them needs (evmcs: vapic, and vmx of the CPU) is not added
/// here: virt-api has added it to the VMI, and defaults, such as 4096 retries of spinlocks.
pub(super) fn enlightenments(wanted: &Features) -> Result<Option<FeatureHyperv>, ConvertError> {
    if let Some(hyperv) = &wanted.hyperv {
        return Ok(Some(chosen(hyperv)));
    }
    let Some(passthrough) = &wanted.hyperv_passthrough else {
        return Ok(None);
    };
    let Some(enabled) = passthrough.enabled else {
        refuse!(
            "spec.domain.features.hypervPassthrough.enabled",
            "is missing; it must be true or false"
        );
    };
    Ok(enabled.then(|| FeatureHyperv {
        mode: String::from("passthrough"),
        ..FeatureHyperv::default()
    }))
}

fn chosen(wanted: &features::FeatureHyperv) -> FeatureHyperv {
    FeatureHyperv {
        mode: String::default(),
        relaxed: feature(wanted.relaxed.as_ref()),
        vapic: feature(wanted.vapic.as_ref()),
        spinlocks: wanted.spinlocks.as_ref().map(|locks| FeatureSpinlocks {
            state: locks.enabled.unwrap_or(true).into(),
            retries: locks.spinlocks,
        }),
        vpindex: feature(wanted.vpindex.as_ref()),
        runtime: feature(wanted.runtime.as_ref()),
        synic: feature(wanted.synic.as_ref()),
        synic_timer: wanted.synictimer.as_ref().map(|timer| SynicTimer {
            direct: feature(timer.direct.as_ref()),
            state: timer.enabled.unwrap_or(true).into(),
        }),
        reset: feature(wanted.reset.as_ref()),
        vendor_id: wanted.vendorid.as_ref().map(|vendor| FeatureVendorId {
            state: vendor.enabled.unwrap_or(true).into(),
            value: vendor.vendorid.clone(),
        }),
        frequencies: feature(wanted.frequencies.as_ref()),
        reenlightenment: feature(wanted.reenlightenment.as_ref()),
        tlb_flush: wanted.tlbflush.as_ref().map(|flush| TlbFlush {
            direct: feature(flush.direct.as_ref()),
            extended: feature(flush.extended.as_ref()),
            state: flush.enabled.unwrap_or(true).into(),
        }),
        ipi: feature(wanted.ipi.as_ref()),
        evmcs: feature(wanted.evmcs.as_ref()),
    }
}

/// On if the VMI has it, unless `enabled` is false.
fn feature(wanted: Option<&features::FeatureState>) -> Option<FeatureState> {
    wanted.map(|wanted| wanted.enabled.unwrap_or(true).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(json: &str) -> Features {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_list_wins_over_passthrough() {
        let both = features(r#"{"hyperv":{"relaxed":{}},"hypervPassthrough":{"enabled":true}}"#);
        let hyperv = enlightenments(&both).unwrap().unwrap();
        assert_eq!(
            (hyperv.mode.as_str(), hyperv.relaxed),
            ("", Some(true.into()))
        );
    }

    #[test]
    fn passthrough_must_say_whether_it_is_on() {
        assert!(enlightenments(&features(r#"{"hypervPassthrough":{}}"#)).is_err());
        assert_eq!(
            enlightenments(&features(r#"{"hypervPassthrough":{"enabled":false}}"#)),
            Ok(None)
        );
    }
}
