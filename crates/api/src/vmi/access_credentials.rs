//! `spec.accessCredentials`: keys and passwords for the guest.
use crate::api;

api! {
/// `accessCredentials` of `VirtualMachineInstanceSpec`.
AccessCredential {
    "sshPublicKey" ssh_public_key: Option<SshPublicKeyAccessCredential>,
}
/// `sshPublicKey` of `AccessCredential`.
SshPublicKeyAccessCredential {
    "source" source: SshPublicKeyAccessCredentialSource,
    "propagationMethod" propagation_method: SshPublicKeyAccessCredentialPropagationMethod,
}
/// `source` of `SshPublicKeyAccessCredential`.
SshPublicKeyAccessCredentialSource {
    "secret" secret: Option<AccessCredentialSecretSource>,
}
/// `secret`, in several places.
AccessCredentialSecretSource {
    "secretName" secret_name: String,
}
/// `propagationMethod` of `SshPublicKeyAccessCredential`.
SshPublicKeyAccessCredentialPropagationMethod {
    "configDrive" config_drive: Option<ConfigDriveSshPublicKeyAccessCredentialPropagation>,
    "noCloud" no_cloud: Option<NoCloudSshPublicKeyAccessCredentialPropagation>,
}
/// `configDrive` of `SshPublicKeyAccessCredentialPropagationMethod`.
ConfigDriveSshPublicKeyAccessCredentialPropagation {
}
/// `noCloud` of `SshPublicKeyAccessCredentialPropagationMethod`.
NoCloudSshPublicKeyAccessCredentialPropagation {
}
}
