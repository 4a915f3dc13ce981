//! The plugins of the last sync, for hooks that no sync calls: `MigrateVirtualMachine` comes
//! without plugins.
//!
//! They are kept in a file too: a launcher that takes over may have to call them before
//! virt-handler syncs again, and a migration must not begin without the plugin that would refuse
//! it. Only a list with such a hook is written, so there is no file with a virt-handler of v1.9.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::{spawn, spawn_blocking};

use super::{Pipeline, PluginError};
use os::small_file;

/// Limit of the file, in bytes: that of a request, in which the list came.
const MAX_BYTES: u64 = 4 << 20;

pub struct KnownPlugins {
    file: PathBuf,
    /// `None` before the first sync.
    last: Arc<Mutex<Option<Pipeline>>>,
}

impl KnownPlugins {
    #[must_use]
    pub fn new(file: PathBuf) -> Self {
        let last = Arc::default();
        Self { file, last }
    }

    /// Takes the plugins of a sync, also if the caller gives up. The calls keep their order on the
    /// launcher's runtime, which has one thread.
    pub async fn remember(&self, plugins: &Pipeline) {
        let (file, last, plugins) = (self.file.clone(), self.last.clone(), plugins.clone());
        let kept = spawn(async move {
            let mut last = last.lock().await;
            let is_same = last.as_ref().is_some_and(|it| it.json() == plugins.json());
            let json = plugins.json().clone();
            *last = Some(plugins);
            if is_same {
                return;
            }
            let save = move || {
                let saved = match json.is_empty() {
                    true => small_file::remove(&file),
                    false => small_file::replace(&file, &json),
                };
                if let Err(error) = saved {
                    tracing::warn!(file = %file.display(), reason = %error, "The plugins cannot be kept: a restarted launcher does not know them before the next sync");
                }
            };
            let _ = spawn_blocking(save).await;
        });
        // A panic is logged.
        let _ = kept.await;
    }

    /// The plugins of the last sync, which an earlier launcher may have received.
    ///
    /// # Errors
    /// [`PluginError::Known`], or those of [`Pipeline::from_json`].
    pub async fn last(&self) -> Result<Pipeline, PluginError> {
        if let Some(last) = &*self.last.lock().await {
            return Ok(last.clone());
        }
        let file = self.file.clone();
        let read = spawn_blocking(move || small_file::read(&file, MAX_BYTES));
        match read.await.map_err(io::Error::other).flatten() {
            Ok(json) => Pipeline::from_json(&json),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Pipeline::default()),
            Err(error) => Err(PluginError::Known(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::LauncherHookPoint;

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
