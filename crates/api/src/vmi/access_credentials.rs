//! `spec.accessCredentials`: keys and passwords for the guest.
use crate::api;

api! {
/// `accessCredentials` of `VirtualMachineInstanceSpec`.
AccessCredential {
    "sshPublicKey" ssh_public_key: Option<SshPublicKeyAccessCredential>,
    "userPassword" user_password: Option<UserPasswordAccessCredential>,
}
/// `userPassword` of `AccessCredential`.
UserPasswordAccessCredential {
    "source" source: UserPasswordAccessCredentialSource,
    "propagationMethod" propagation_method: UserPasswordAccessCredentialPropagationMethod,
}
/// `source` of `UserPasswordAccessCredential`.
UserPasswordAccessCredentialSource {
    "secret" secret: Option<AccessCredentialSecretSource>,
}
/// `propagationMethod` of `UserPasswordAccessCredential`.
UserPasswordAccessCredentialPropagationMethod {
    "qemuGuestAgent" qemu_guest_agent: Option<QemuGuestAgentUserPasswordAccessCredentialPropagation>,
}
/// `qemuGuestAgent` of `UserPasswordAccessCredentialPropagationMethod`.
QemuGuestAgentUserPasswordAccessCredentialPropagation {
}
/// `qemuGuestAgent` of `SshPublicKeyAccessCredentialPropagationMethod`.
QemuGuestAgentSshPublicKeyAccessCredentialPropagation {
    "users" users: Vec<String>,
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
    "qemuGuestAgent" qemu_guest_agent: Option<QemuGuestAgentSshPublicKeyAccessCredentialPropagation>,
    "noCloud" no_cloud: Option<NoCloudSshPublicKeyAccessCredentialPropagation>,
}
/// `configDrive` of `SshPublicKeyAccessCredentialPropagationMethod`.
ConfigDriveSshPublicKeyAccessCredentialPropagation {
}
/// `noCloud` of `SshPublicKeyAccessCredentialPropagationMethod`.
NoCloudSshPublicKeyAccessCredentialPropagation {
}
}
