//! What a sync would do, without doing it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::decide::Step;
use super::libvirt_domain::{CHANGE_TIMEOUT, blocking, within};
use super::live_targets::with_live_targets;
use super::network_setup::with_taps;
use super::sync::read_spec;
use super::{Launcher, LauncherError, resize};
use api::vmi::Vmi;
use convert::Context;
use convert::plan::{self, DiskPlan, InterfacePlan};
use libvirt::XmlKind;

impl Launcher {
    /// The plan of a sync of this VMI, for programs: what [`plan::to_json`] writes, and what would become of the domain
    /// as its first step. Takes no lock: a change that is in progress is seen as far as it is.
    ///
    /// # Errors
    /// Those that the sync would have before it changes anything.
    pub async fn dry_run(
        self: &Arc<Self>,
        vmi_json: prost::bytes::Bytes,
    ) -> Result<Value, LauncherError> {
        let vmi = Arc::new(self.our_vmi(&vmi_json)?);
        within("the plan", CHANGE_TIMEOUT, self.plan_of(vmi)).await
    }

    async fn plan_of(self: &Arc<Self>, vmi: Arc<Vmi>) -> Result<Value, LauncherError> {
        let (step, domain) = self.next_step(&vmi).await?;
        let (launcher, of_disks) = (self.clone(), vmi.clone());
        let plan = move |domain: &libvirt::Domain| launcher.planned(domain, &of_disks);
        match (step, domain) {
            (Step::Resume | Step::Apply, Some(domain)) => {
                let planned = blocking("planning", move || plan(&domain)).await?;
                let (disks, interfaces, context) = planned;
                let interfaces = with_taps(&vmi, &context, interfaces).await;
                let resume = (step == Step::Resume).then_some((
                    "resume",
                    "the guest is paused, and nobody has asked for that",
                ));
                Ok(with_domain(&disks, &interfaces, resume))
            }
            (Step::Create | Step::Recreate, _) => Ok(with_domain(
                &DiskPlan::default(),
                &InterfacePlan::default(),
                Some(("start", "the virtual machine has no running domain yet")),
            )),
            (Step::Nothing, _) => Ok(with_domain(
                &DiskPlan::default(),
                &InterfacePlan::default(),
                None,
            )),
            (Step::Lost | Step::Resume | Step::Apply, _) => Err(LauncherError::Lost),
        }
    }

    /// What would change on the running domain, with the options of the last sync.
    fn planned(
        &self,
        domain: &libvirt::Domain,
        vmi: &Vmi,
    ) -> Result<(DiskPlan, InterfacePlan, Context), LauncherError> {
        let pod = &*self.pod;
        let live = read_spec(domain, XmlKind::Live)?;
        let (wanted, context) =
            pod.wanted(&with_live_targets(vmi, &live), &self.syncs.last_options())?;
        let hotplug_dir = context.paths().hotplug_disk_dir;
        let mut disks =
            plan::disks(&live, &wanted, hotplug_dir).defer_unready(|disk| pod.is_ready(disk));
        disks.resize = plan::resizes(
            &live,
            &wanted,
            &resize::sizes(domain, pod, vmi, &live, &wanted),
        );
        let interfaces = plan::interfaces(&live, &wanted, vmi);
        Ok((disks, interfaces, context))
    }
}

/// The plan with a step for the domain itself before all others.
fn with_domain(disks: &DiskPlan, interfaces: &InterfacePlan, step: Option<(&str, &str)>) -> Value {
    let mut json = plan::to_json(disks, interfaces);
    if let (Some((verb, why)), Some(steps)) =
        (step, json.get_mut("steps").and_then(Value::as_array_mut))
    {
        steps.insert(0, json!({"verb": verb, "why": why}));
    }
    json
}
