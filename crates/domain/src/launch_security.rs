//! `<launchSecurity>`: confidential computing.
//!
//! libvirt: [launch security](https://libvirt.org/formatdomain.html#launch-security)

use super::Text;
use super::xml::elements;

elements! {
/// `<launchSecurity>`: SEV, SEV-ES, SEV-SNP, TDX or Secure Execution.
LaunchSecurity {
    attr "type" "Type" r#type: Text,
    leaf? "dhCert" "DHCert" dh_cert: Text,
    leaf? "session" "Session" session: Text,
    leaf? "cbitpos" "Cbitpos" cbitpos: Text,
    leaf? "reducedPhysBits" "ReducedPhysBits" reduced_phys_bits: Text,
    leaf? "policy" "Policy" policy: Text,
    child "quoteGenerationService" "QuoteGenerationService" quote_generation_service: Option<Qgs>,
}
/// `<quoteGenerationService>`: the socket of TDX's attestation service.
Qgs {
    attr? "path" "Path" path: Text,
}
}
