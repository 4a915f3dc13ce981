//! The plugins of the last sync, for hooks that no sync calls: `MigrateVirtualMachine` comes
//! without plugins.
//!
//! They are kept in a file too: a launcher that takes over may have to call them before
//! virt-handler syncs again, and a migration must not begin without the plugin that would refuse
//! it. Only a list with such a hook is written, so there is no file with a virt-handler of v1.9.

use std::io::ErrorKind;
use std::path::PathBuf;

use tokio::sync::Mutex;

use super::error::LauncherError;
use super::libvirt_domain::blocking;
use super::migration_source::error::MigrationError;
use hooks::plugins::Pipeline;
use os::small_file;

/// Limit of the file, in bytes: that of a request, in which the list came.
const MAX_BYTES: u64 = 4 << 20;

pub(super) struct KnownPlugins {
    file: PathBuf,
    /// `None` before the first sync.
    last: Mutex<Option<Pipeline>>,
}

impl KnownPlugins {
    pub fn new(file: PathBuf) -> Self {
        Self {
            file,
            last: Mutex::default(),
        }
    }

    /// Takes the plugins of a sync.
    pub async fn remember(&self, plugins: &Pipeline) {
        let mut last = self.last.lock().await;
        let is_same = last.as_ref().is_some_and(|it| it.json() == plugins.json());
        *last = Some(plugins.clone());
        if is_same {
            return;
        }
        let (file, json) = (self.file.clone(), plugins.json().clone());
        let save = move || {
            let saved = match json.is_empty() {
                true => small_file::remove(&file),
                false => small_file::replace(&file, &json),
            };
            if let Err(error) = saved {
                tracing::warn!(file = %file.display(), reason = %error, "The plugins cannot be kept: a restarted launcher does not know them before the next sync");
            }
            Ok(())
        };
        // A panic is logged.
        let _ = blocking("keeping the plugins", save).await;
    }

    /// The plugins of the last sync, which an earlier launcher may have received.
    ///
    /// # Errors
    /// [`MigrationError::Plugins`], or those of [`Pipeline::from_json`].
    pub async fn last(&self) -> Result<Pipeline, LauncherError> {
        if let Some(last) = &*self.last.lock().await {
            return Ok(last.clone());
        }
        let file = self.file.clone();
        let read = move || match small_file::read(&file, MAX_BYTES) {
            Ok(json) => Ok(Pipeline::from_json(&json)?),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Pipeline::default()),
            Err(error) => Err(MigrationError::Plugins(error).into()),
        };
        blocking("reading the plugins of the last sync", read).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hooks::plugins::LauncherHookPoint;

    const LIST: &str = r#"[{"metadata": {"name": "p"}, "spec": {"launcherHooks": [
        {"sidecar": {"socketPath": "/s", "permittedHooks": ["PreMigrationSource"]}}]}}]"#;

    #[tokio::test]
    async fn a_later_launcher_knows_the_plugins_that_a_migration_has_to_ask() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plugins.json");
        let known = || KnownPlugins::new(file.clone());
        let point = LauncherHookPoint::PreMigrationSource;
        assert!(!known().last().await.unwrap().has(point));
        let plugins = Pipeline::from_json(LIST.as_bytes()).unwrap();
        known().remember(&plugins).await;
        assert!(known().last().await.unwrap().has(point));
        // One list without the hook, as a v1.9 virt-handler sends it, leaves no file.
        known().remember(&Pipeline::default()).await;
        assert!(!known().last().await.unwrap().has(point) && !file.exists());
        std::fs::write(&file, "[{").unwrap();
        assert!(known().last().await.is_err());
    }
}
