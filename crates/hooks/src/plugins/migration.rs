//! `PreMigrationSource`: plugins may change the settings of a migration, or refuse it.

use api::proto::hooks::plugins::{
    MigrationSettings, PreMigrationSourceRequest, PreMigrationSourceResponse,
};
use prost::bytes::Bytes;
use tokio::time::Instant;

use super::context::InvocationContext;
use super::error::{PluginError, PluginHookError};
use super::pipeline::Pipeline;
use super::point::LauncherHookPoint;
use super::selection::Selected;
use super::settings::{changes, check};

impl Pipeline {
    /// Calls the `PreMigrationSource` hooks, each with the settings of the one before. Returns the
    /// settings for libvirt.
    ///
    /// # Errors
    /// [`PluginError::Condition`]; [`PluginError::Hook`] unless the failure strategy is `Ignore`.
    /// The migration must not begin then.
    pub async fn pre_migration_source(
        &self,
        mut settings: MigrationSettings,
        xml: String,
        vmi_json: &Bytes,
        deadline: Instant,
    ) -> Result<MigrationSettings, PluginError> {
        let point = LauncherHookPoint::PreMigrationSource;
        for hook in self.select(point, xml, vmi_json, deadline).await? {
            let start = Instant::now();
            let called = self.settings_of(hook, &settings, vmi_json, deadline);
            match called.await {
                Ok(new) => {
                    let changes = changes(&settings, &new);
                    hook.log(start, changes.len(), &changes.join("; "));
                    settings = new;
                }
                Err(error) => hook.tolerate(error)?,
            }
        }
        Ok(settings)
    }

    async fn settings_of(
        &self,
        hook: Selected<'_>,
        before: &MigrationSettings,
        vmi_json: &Bytes,
        deadline: Instant,
    ) -> Result<MigrationSettings, PluginHookError> {
        let _waiting = self.begin(hook);
        let Some(socket) = self.socket(hook, deadline)? else {
            return Ok(before.clone());
        };
        let request = PreMigrationSourceRequest {
            vmi: vmi_json.clone(),
            sidecar_context: InvocationContext::MigrationSource.message(),
            settings: Some(before.clone()),
        };
        let answer: PreMigrationSourceResponse = socket.call(hook.point, request).await?;
        Ok(match answer.settings {
            Some(after) => check(before, after)?,
            None => before.clone(),
        })
    }
}
