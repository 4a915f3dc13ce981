//! libvirt's two ways to say yes and no in an attribute.

use domain::Text;
use domain::features::FeatureState;

/// `yes` or `no`.
pub(super) fn yes_no(value: bool) -> Text {
    Text::const_new(if value { "yes" } else { "no" })
}

/// `on` or `off`.
pub(super) fn on_off(value: bool) -> Text {
    Text::const_new(if value { "on" } else { "off" })
}

/// An element whose only attribute is `state="on"` or `state="off"`.
pub(super) fn state(value: bool) -> FeatureState {
    FeatureState {
        state: on_off(value),
    }
}
