//! `spec.domain.launchSecurity`: confidential computing.

use super::Text;
use crate::api;

api! {
/// `launchSecurity` of `DomainSpec`.
LaunchSecurity {
    "sev" sev: Option<Sev>,
    "snp" snp: Option<SevSnp>,
    "tdx" tdx: Option<Tdx>,
}
/// `sev` of `LaunchSecurity`.
Sev {
    "policy" policy: Option<SevPolicy>,
    "attestation" attestation: Option<SevAttestation>,
    "session" session: Text,
    "dhCert" dh_cert: Text,
}
/// `snp` of `LaunchSecurity`.
SevSnp {
}
/// `tdx` of `LaunchSecurity`.
Tdx {
}
/// `policy` of `Sev`.
SevPolicy {
    "encryptedState" encrypted_state: Option<bool>,
}
/// `attestation` of `Sev`.
SevAttestation {
}
}
