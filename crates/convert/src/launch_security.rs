//! `<launchSecurity>`: encrypted guests of AMD (SEV, SEV-ES, SEV-SNP) and Intel (TDX).
//! Secure Execution of IBM Z (`s390-pv`) needs no element: the devices' IOMMU marks do the same.

use super::{ConvertError, DomainSpec, Input};
use api::vmi::launch_security::{LaunchSecurity as Wanted, Sev};
use domain::launch_security::{LaunchSecurity, Qgs};

/// Socket of the service that signs TDX quotes (`<quoteGenerationService>`).
const QGS_SOCKET: &str = "kubevirt.io/qgs-socket-path";

/// The guest cannot be debugged (SEV API specification, guest policy).
const SEV_NO_DEBUG: u32 = 1 << 0;
/// CPU registers are encrypted as well: SEV-ES.
const SEV_ENCRYPTED_STATE: u32 = 1 << 2;
/// SMT is allowed, and a bit that must be set (SEV-SNP firmware ABI, guest policy).
const SNP_DEFAULT: u32 = 1 << 16 | 1 << 17;

/// The kind of encryption that is asked for; SEV before SNP before TDX.
pub(super) fn launch_security(
    input: &Input<'_>,
    domain: &mut DomainSpec,
) -> Result<(), ConvertError> {
    let Some(wanted) = &input.spec.launch_security else {
        return Ok(());
    };
    if input.arch.name == "amd64" {
        domain.launch_security = amd64(wanted, input.annotation(QGS_SOCKET));
    }
    Ok(())
}

/// SEV with its `policy`, `session` and `dhCert`, else SNP, else TDX. `cbitpos` and
/// `reducedPhysBits` are left out: libvirt knows the host's.
fn amd64(wanted: &Wanted, qgs_socket: &str) -> Option<LaunchSecurity> {
    if let Some(sev) = &wanted.sev {
        return Some(LaunchSecurity {
            r#type: String::from("sev"),
            policy: format!("{:#x}", sev_policy(sev)),
            dh_cert: sev.dh_cert.clone(),
            session: sev.session.clone(),
            ..LaunchSecurity::default()
        });
    }
    if wanted.snp.is_some() {
        let policy = format!("{SNP_DEFAULT:#x}");
        return Some(LaunchSecurity {
            r#type: String::from("sev-snp"),
            policy,
            ..LaunchSecurity::default()
        });
    }
    wanted.tdx.as_ref().map(|_| LaunchSecurity {
        r#type: String::from("tdx"),
        quote_generation_service: Some(Qgs {
            path: qgs_socket.into(),
        }),
        ..LaunchSecurity::default()
    })
}

fn sev_policy(sev: &Sev) -> u32 {
    let encrypted_state = sev
        .policy
        .as_ref()
        .and_then(|policy| policy.encrypted_state)
        == Some(true);
    SEV_NO_DEBUG
        | if encrypted_state {
            SEV_ENCRYPTED_STATE
        } else {
            0
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(json: &str) -> Option<String> {
        amd64(&serde_json::from_str(json).unwrap(), "")
            .map(|security| format!("{} {}", security.r#type, security.policy))
    }

    #[test]
    fn policies_are_hexadecimal() {
        assert_eq!(policy(r#"{"sev":{}}"#).unwrap(), "sev 0x1");
        assert_eq!(
            policy(r#"{"sev":{"policy":{"encryptedState":true}},"snp":{}}"#).unwrap(),
            "sev 0x5"
        );
        assert_eq!(policy(r#"{"snp":{},"tdx":{}}"#).unwrap(), "sev-snp 0x30000");
        assert_eq!(policy("{}"), None);
    }
}
