//! `PreMigrationSource`: plugins may change the settings of a migration, or refuse it.

use api::proto::hooks::plugins::{MigrationSettings, PreMigrationSourceRequest, SidecarContext};
use prost::bytes::Bytes;
use tokio::time::Instant;

use super::context::InvocationContext;
use super::error::{PluginError, PluginHookError};
use super::pipeline::Pipeline;
use super::point::LauncherHookPoint;
use super::selection::Selected;
use super::settings::{changes, check};
use super::sidecar::SOCKET_TIMEOUT;
use crate::timeout::end_of_calls;

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
        let selected = self.select(point, xml, vmi_json, deadline).await?;
        let ready_by = os::time::deadline(SOCKET_TIMEOUT);
        for hook in selected {
            let start = Instant::now();
            let called = self.settings_of(hook, &settings, vmi_json, ready_by, deadline);
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
        ready_by: Instant,
        deadline: Instant,
    ) -> Result<MigrationSettings, PluginHookError> {
        let _waiting = self.begin(hook);
        let Some(socket) = self.socket(hook, ready_by, end_of_calls(deadline))? else {
            return Ok(before.clone());
        };
        let request = request(before, vmi_json);
        let answer = socket.pre_migration_source(request).await?;
        Ok(match answer.settings {
            Some(after) => check(before, after)?,
            None => before.clone(),
        })
    }
}

/// The request of a hook with these settings.
fn request(settings: &MigrationSettings, vmi_json: &Bytes) -> PreMigrationSourceRequest {
    PreMigrationSourceRequest {
        vmi: vmi_json.clone(),
        sidecar_context: Some(SidecarContext {
            invocation_context: InvocationContext::MigrationSource.name().to_owned(),
        }),
        settings: Some(settings.clone()),
    }
}
