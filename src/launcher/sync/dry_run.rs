//! Plans a sync without carrying it out.

use std::sync::Arc;

use serde_json::Value;

use super::Syncs;
use super::decide::NextStep;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::{CHANGE_TIMEOUT, blocking, within};
use crate::launcher::pod_network::with_taps;
use crate::launcher::sync_request::SyncRequest;
use convert::Context;
use convert::plan::{DomainStep, RestartField, SyncPlan, restart_fields};

impl Syncs {
    /// Plans a sync of this VMI and returns [`SyncPlan::to_json`]. Takes no lock, so it may see a
    /// change in progress.
    ///
    /// # Errors
    /// Those that the sync would have before it changes a running domain. A VMI that would be
    /// started is not converted, so what a start would refuse is not found.
    pub async fn plan(self: &Arc<Self>, request: SyncRequest) -> Result<String, LauncherError> {
        within("the plan", CHANGE_TIMEOUT, self.plan_of(request)).await
    }

    async fn plan_of(self: &Arc<Self>, request: SyncRequest) -> Result<String, LauncherError> {
        let mut plan = SyncPlan::default();
        match self.next_step(&request.vmi).await? {
            NextStep::Resume(domain) => return self.plan_changes(domain, true, request).await,
            NextStep::Apply(domain) => return self.plan_changes(domain, false, request).await,
            NextStep::Create | NextStep::Recreate(_) | NextStep::Wait => {
                plan.domain.push(DomainStep::Start)
            }
            NextStep::Nothing | NextStep::Ended => {}
            NextStep::Lost => return Err(LauncherError::Lost),
        }
        Ok(plan.to_json().to_string())
    }

    /// Plans the running domain's changes, with the options of the last sync. Asks for no
    /// admission: a sync may be refused now. The work grows with the VMI: it has a blocking thread.
    async fn plan_changes(
        self: &Arc<Self>,
        domain: libvirt::DomainHandle,
        resume: bool,
        request: SyncRequest,
    ) -> Result<String, LauncherError> {
        let (this, vmi) = (self.clone(), request.vmi.clone());
        let plan = move || {
            let options = this.queue.last_options();
            this.apply.plan(&vmi, &options, &domain, resume)
        };
        // One of the reads: plans that hang must leave threads for Kill.
        let planned = self.libvirt.read("planning", move |_, _| plan()).await?;
        let (mut plan, context) = (planned.plan, planned.context);
        plan.interfaces = with_taps(&request.vmi, &context, plan.interfaces).await;
        let this = self.clone();
        let write = move || {
            let started = this.started_vmi.get().map(|json| &**json);
            plan.restart = Some(needs_restart(started, &request.vmi_json, &context));
            Ok(plan.to_json().to_string())
        };
        blocking("writing the plan", write).await
    }
}

/// The changed fields that take effect only at the next start. Empty if the started VMI is unknown.
fn needs_restart(started: Option<&[u8]>, vmi_json: &[u8], context: &Context) -> Vec<RestartField> {
    let parse = |json: &[u8]| api::json::from_slice::<Value>(json).ok();
    started
        .and_then(|started| Some((parse(started)?, parse(vmi_json)?)))
        .map(|(started, wanted)| restart_fields(&started, &wanted, context))
        .unwrap_or_default()
}
