//! The capability that the monitor's file has and the launcher needs, because passt listens below
//! port 1024.

use rustix::thread::{
    CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities,
};

const BIND: CapabilitySet = CapabilitySet::NET_BIND_SERVICE;

/// Gives children CAP_NET_BIND_SERVICE without file capabilities: capabilities(7), ambient set. If
/// this process lacks it, that is logged and not an error: only passt with such a port needs it.
pub fn raise_ambient() {
    if let Err(error) = raise() {
        tracing::warn!(reason = %error, "The launcher does not get CAP_NET_BIND_SERVICE");
    }
}

fn raise() -> rustix::io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.inheritable |= BIND;
    set_capabilities(None, sets)?;
    configure_capability_in_ambient_set(BIND, true)
}
