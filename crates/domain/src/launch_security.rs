//! `<launchSecurity>`: confidential computing.
//!
//! libvirt: [launch security](https://libvirt.org/formatdomain.html#launch-security)
use super::xml::elements;

elements! {
/// `<launchSecurity>`: SEV, SEV-ES, SEV-SNP, TDX or Secure Execution.
LaunchSecurity {
    attr "type" "Type" r#type: String,
    leaf? "dhCert" "DHCert" dh_cert: String,
    leaf? "session" "Session" session: String,
    leaf? "cbitpos" "Cbitpos" cbitpos: String,
    leaf? "reducedPhysBits" "ReducedPhysBits" reduced_phys_bits: String,
    leaf? "policy" "Policy" policy: String,
    child "quoteGenerationService" "QuoteGenerationService" quote_generation_service: Option<Qgs>,
}
/// `<quoteGenerationService>`: the socket of TDX's attestation service.
Qgs {
    attr? "path" "Path" path: String,
}
}
