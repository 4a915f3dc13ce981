//! Plans a sync without carrying it out.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Syncs;
use super::decide::Step;
use crate::launcher::apply::disk_sizes;
use crate::launcher::apply::disks;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::{CHANGE_TIMEOUT, blocking, read_spec, within};
use crate::launcher::pod_backend::PodBackend;
use crate::launcher::pod_network::with_taps;
use crate::launcher::sync_request::SyncRequest;
use crate::launcher::vm::Vm;
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use convert::Context;
use convert::plan::{self, DiskPlan, InterfacePlan};
use libvirt::XmlKind;

pub struct DryRun {
    vm: Arc<Vm>,
    pod: Arc<dyn PodBackend>,
    syncs: Arc<Syncs>,
}

impl DryRun {
    pub(in crate::launcher) fn new(
        vm: Arc<Vm>,
        pod: Arc<dyn PodBackend>,
        syncs: Arc<Syncs>,
    ) -> Self {
        Self { vm, pod, syncs }
    }

    /// Plans a sync of this VMI and returns JSON: the changes of the domain itself, then the output
    /// of [`plan::to_json`]. Takes no lock, so it may see a change in progress.
    ///
    /// # Errors
    /// The errors that the sync would have before it changes anything.
    pub async fn plan(&self, request: SyncRequest) -> Result<String, LauncherError> {
        within("the plan", CHANGE_TIMEOUT, self.plan_of(request)).await
    }

    async fn plan_of(&self, request: SyncRequest) -> Result<String, LauncherError> {
        let without_devices = |steps: &[(&'static str, String)]| {
            let (disks, interfaces) = (DiskPlan::default(), InterfacePlan::default());
            with_domain(&disks, &interfaces, steps.iter().cloned()).to_string()
        };
        match self.syncs.next_step(&request.vmi).await? {
            (step @ (Step::Resume | Step::Apply), Some(domain)) => {
                self.plan_changes(step, domain, request).await
            }
            (Step::Create | Step::Recreate | Step::Wait, _) => Ok(without_devices(&[(
                "start",
                "the virtual machine has no running domain yet".to_owned(),
            )])),
            (Step::Nothing, _) => Ok(without_devices(&[])),
            (Step::Lost | Step::Resume | Step::Apply, _) => Err(LauncherError::Lost),
        }
    }

    /// Plans the running domain's changes. The work grows with the VMI: it has a blocking thread.
    async fn plan_changes(
        &self,
        step: Step,
        domain: libvirt::Domain,
        request: SyncRequest,
    ) -> Result<String, LauncherError> {
        let (pod, syncs, vmi) = (self.pod.clone(), self.syncs.clone(), request.vmi.clone());
        let planned = move || planned(&*pod, &domain, &vmi, &syncs.last_options());
        let (disks, interfaces, context) = blocking("planning", planned).await?;
        let interfaces = with_taps(&request.vmi, &context, interfaces).await;
        let (vm, syncs) = (self.vm.clone(), self.syncs.clone());
        let write = move || {
            let plan = with_domain(&disks, &interfaces, domain_steps(&vm, step, &request.vmi));
            let started = syncs.started_vmi().map(|json| &**json);
            let restart = restart_fields(started, &request.vmi_json, &context);
            Ok(with_member(plan, "restart", restart).to_string())
        };
        blocking("writing the plan", write).await
    }
}

/// The changes of the running domain itself, with their reasons.
fn domain_steps(
    vm: &Vm,
    step: Step,
    vmi: &Vmi,
) -> impl Iterator<Item = (&'static str, String)> + use<> {
    let resume = (step == Step::Resume).then_some((
        "resume",
        "the guest is paused, and nobody has asked for that".to_owned(),
    ));
    let grace_period = vm.metadata().changed_grace_period(vmi);
    let grace_period = grace_period.map(|(before, after)| {
        let why = format!("spec.terminationGracePeriodSeconds: {before} becomes {after}");
        ("update", why)
    });
    resume.into_iter().chain(grace_period)
}

/// The changed fields that take effect only at the next start. Empty if the started VMI is unknown.
fn restart_fields(started: Option<&[u8]>, vmi_json: &[u8], context: &Context) -> Value {
    let parse = |json: &[u8]| api::json::from_slice::<Value>(json).ok();
    let fields = started
        .and_then(|started| Some((parse(started)?, parse(vmi_json)?)))
        .map(|(started, wanted)| plan::restart_fields(&started, &wanted, context))
        .unwrap_or_default();
    let with_text = fields
        .iter()
        .map(|field| with_member(json!(field), "why", field.to_string().into()));
    with_text.collect()
}

/// The changes of the running domain.
fn planned(
    pod: &dyn PodBackend,
    domain: &libvirt::Domain,
    vmi: &Vmi,
    options: &VirtualMachineOptions,
) -> Result<(DiskPlan, InterfacePlan, Context), LauncherError> {
    let live = read_spec(domain, XmlKind::Live)?;
    let (mut disks, wanted, context) = disks::plan(pod, vmi, options, &live)?;
    disks.resize = plan::resizes(
        &live,
        &wanted,
        &disk_sizes::sizes(domain, pod, vmi, &live, &wanted),
    );
    let interfaces = plan::interfaces(&live, &wanted, vmi);
    Ok((disks, interfaces, context))
}

/// Adds a member to a JSON object.
fn with_member(mut object: Value, name: &str, member: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), member);
    }
    object
}

/// Puts the steps for the domain itself before all others.
fn with_domain(
    disks: &DiskPlan,
    interfaces: &InterfacePlan,
    steps: impl IntoIterator<Item = (&'static str, String)>,
) -> Value {
    let mut json = plan::to_json(disks, interfaces);
    if let Some(all) = json.get_mut("steps").and_then(Value::as_array_mut) {
        let steps = steps.into_iter();
        let steps = steps.map(|(verb, why)| json!({"verb": verb, "why": why}));
        all.splice(0..0, steps);
    }
    json
}
