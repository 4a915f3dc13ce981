//! Access credentials that the guest's agent sets: keys and passwords in the pod's secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use api::pod_paths;
use api::vmi::Vmi;
use api::vmi::access_credentials::{AccessCredential, AccessCredentialSecretSource};

use super::safe_path::{Dir, checked_name};
use super::{LauncherFlags, PodError};

/// Kubernetes has no larger secrets.
const MAX_SECRET_BYTES: u64 = 1 << 20;

/// The credentials for the guest.
#[derive(Debug, Default)]
pub struct AccessCredentials {
    /// SSH keys: all lines of `authorized_keys` of each user in `qemuGuestAgent.users`.
    pub ssh_keys: BTreeMap<String, Vec<String>>,
    /// The password of each user.
    pub passwords: BTreeMap<String, String>,
    /// Why a secret cannot be read: the first one, if there are several.
    pub unreadable: Option<PodError>,
}

/// The directories of the secrets with such credentials; none if the guest's agent has nothing to
/// do.
///
/// # Errors
/// A secret with an invalid name.
pub fn access_credential_dirs(flags: &LauncherFlags, vmi: &Vmi) -> Result<Vec<PathBuf>, PodError> {
    let secrets = vmi.spec.access_credentials.iter().filter_map(secret_of);
    secrets
        .map(|secret| Ok(flags.root.path(&place(secret)?)))
        .collect()
}

/// Reads the credentials. Leaves out those in a secret that cannot be read, and all other SSH keys
/// of its users too: setting these alone would remove the missing ones from the guest.
#[must_use]
pub fn access_credentials(flags: &LauncherFlags, vmi: &Vmi) -> AccessCredentials {
    let mut all = AccessCredentials::default();
    let mut unknown_users = BTreeSet::new();
    for credential in &vmi.spec.access_credentials {
        let Some(secret) = secret_of(credential) else {
            continue;
        };
        let read = read_secret(flags, secret);
        let Some(key) = &credential.ssh_public_key else {
            match read {
                Ok(files) => all.add_passwords(files),
                Err(error) => drop(all.unreadable.get_or_insert(error)),
            }
            continue;
        };
        let agent = key.propagation_method.qemu_guest_agent.as_ref();
        let users = agent.map_or(&[][..], |agent| &agent.users);
        match read {
            Ok(files) => all.add_keys(users, &files),
            Err(error) => {
                unknown_users.extend(users);
                all.unreadable.get_or_insert(error);
            }
        }
    }
    all.ssh_keys.retain(|user, _| !unknown_users.contains(user));
    all
}

impl AccessCredentials {
    fn add_keys(&mut self, users: &[String], files: &BTreeMap<String, String>) {
        let keys = files.values().flat_map(|text| text.lines());
        let keys = keys.map(str::trim).filter(|key| !key.is_empty());
        let keys: Vec<String> = keys.map(str::to_owned).collect();
        for user in users {
            let of_user = self.ssh_keys.entry(user.clone()).or_default();
            of_user.extend_from_slice(&keys);
        }
    }

    fn add_passwords(&mut self, files: BTreeMap<String, String>) {
        for (user, text) in files {
            let password = text.trim();
            if !password.is_empty() {
                self.passwords.insert(user, password.to_owned());
            }
        }
    }
}

/// The secret of a credential, if the guest agent is to set it.
fn secret_of(credential: &AccessCredential) -> Option<&AccessCredentialSecretSource> {
    let secret = match (&credential.ssh_public_key, &credential.user_password) {
        (Some(key), _) => {
            key.propagation_method.qemu_guest_agent.as_ref()?;
            key.source.secret.as_ref()?
        }
        (None, Some(password)) => {
            password.propagation_method.qemu_guest_agent.as_ref()?;
            password.source.secret.as_ref()?
        }
        (None, None) => return None,
    };
    (!secret.secret_name.is_empty()).then_some(secret)
}

fn place(secret: &AccessCredentialSecretSource) -> Result<String, PodError> {
    let name = checked_name("secret", &secret.secret_name)?;
    Ok(format!("{}/{name}-access-cred", pod_paths::SECRET_DIR))
}

/// The files of a secret by name, as text.
pub(super) fn read_secret(
    flags: &LauncherFlags,
    secret: &AccessCredentialSecretSource,
) -> Result<BTreeMap<String, String>, PodError> {
    let dir = Dir::of_pod(&flags.root, &place(secret)?)?;
    let mut files = BTreeMap::new();
    for name in dir.entries()? {
        // The kubelet keeps versions of a secret in hidden directories.
        if name.starts_with("..") {
            continue;
        }
        match dir.find_within(&name) {
            Ok(file) => {
                let text = file.content(MAX_SECRET_BYTES)?;
                files.insert(name, String::from_utf8_lossy(&text).into_owned());
            }
            // A directory has neither keys nor a password.
            Err(PodError::Hostile { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Root;

    #[test]
    fn keys_and_passwords_are_those_for_the_agent() {
        let root = tempfile::tempdir().unwrap();
        let flags = LauncherFlags {
            root: Root::new(root.path()),
            ..LauncherFlags::default()
        };
        let write = |path: &str, text: &str| {
            let path = root
                .path()
                .join("var/run/kubevirt-private/secret")
                .join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("keys-access-cred/one", " ssh-rsa A \n\nssh-rsa B");
        write("keys-access-cred/..data/one", "hidden");
        write("more-access-cred/x", "ssh-rsa C\n");
        write("pass-access-cred/root", " secret\n");
        write("pass-access-cred/nobody", "\n");
        write("disk-access-cred/x", "of the config drive");
        let vmi: Vmi = serde_json::from_str(
            r#"{"spec": {"accessCredentials": [
            {"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": {"qemuGuestAgent": {"users": ["root", "guest"]}}}},
            {"sshPublicKey": {"source": {"secret": {"secretName": "more"}}, "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}}}},
            {"sshPublicKey": {"source": {"secret": {"secretName": "disk"}}, "propagationMethod": {"configDrive": {}}}},
            {"userPassword": {"source": {"secret": {"secretName": "pass"}}, "propagationMethod": {"qemuGuestAgent": {}}}}]}}"#,
        )
        .unwrap();
        assert_eq!(access_credential_dirs(&flags, &vmi).unwrap().len(), 3);
        let all = access_credentials(&flags, &vmi);
        assert!(all.unreadable.is_none());
        assert_eq!(
            all.ssh_keys["root"],
            ["ssh-rsa A", "ssh-rsa B", "ssh-rsa C"]
        );
        assert_eq!(all.ssh_keys["guest"], ["ssh-rsa A", "ssh-rsa B"]);
        assert_eq!(
            all.passwords,
            [("root".to_owned(), "secret".to_owned())].into()
        );
        let remove = |secret: &str| {
            let secrets = root.path().join("var/run/kubevirt-private/secret");
            std::fs::remove_dir_all(secrets.join(secret)).unwrap();
        };
        remove("more-access-cred");
        let all = access_credentials(&flags, &vmi);
        assert_eq!(all.ssh_keys.into_keys().collect::<Vec<_>>(), ["guest"]);
        assert_eq!(all.passwords.into_keys().collect::<Vec<_>>(), ["root"]);
        let error = all.unreadable.unwrap().to_string();
        assert!(error.contains("more-access-cred"), "{error}");
        remove("pass-access-cred");
        let all = access_credentials(&flags, &vmi);
        assert!(all.passwords.is_empty() && all.ssh_keys.contains_key("guest"));
        assert!(
            access_credential_dirs(&flags, &Vmi::default())
                .unwrap()
                .is_empty()
        );
    }
}
