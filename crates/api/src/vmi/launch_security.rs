//! `spec.domain.launchSecurity`: confidential computing.
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
    "session" session: String,
    "dhCert" dh_cert: String,
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
}
