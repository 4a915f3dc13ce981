//! Problems of a VirtualMachine's fields outside its template.

use serde_json::Value;

use super::type_error::TypeError;
use crate::json::copy_at;

/// Those that admission accepts without a feature gate.
const RUN_STRATEGIES: [&str; 5] = ["Always", "RerunOnFailure", "Manual", "Halted", "Once"];

/// Each invalid field with its problem.
#[must_use]
pub fn violations(vm: &Value) -> Vec<(&'static str, String)> {
    let running = copy_at(vm, "/spec/running");
    let strategy = copy_at(vm, "/spec/runStrategy");
    let mut found = Vec::new();
    if !running.is_null()
        && let Err(error) = serde_json::from_value::<bool>(running.clone())
    {
        found.push(("spec.running", TypeError::new(&error, &running).to_string()));
    }
    if !running.is_null() && !strategy.is_null() {
        let message = "both running and runStrategy are there; keep runStrategy";
        found.push(("spec.running", message.to_owned()));
    }
    if running.is_null() && strategy.is_null() {
        let message = format!(
            "missing; a cluster refuses a VirtualMachine without it: Always starts the VM, Halted leaves it stopped; expected {}",
            RUN_STRATEGIES.join(", ")
        );
        found.push(("spec.runStrategy", message));
    }
    if !strategy.is_null() {
        let message = match serde_json::from_value::<String>(strategy.clone()) {
            Err(error) => Some(TypeError::new(&error, &strategy).to_string()),
            Ok(name) if RUN_STRATEGIES.contains(&&*name) => None,
            Ok(name) => Some(format!(
                "{name:?} is not supported; expected {}",
                RUN_STRATEGIES.join(", ")
            )),
        };
        found.extend(message.map(|message| ("spec.runStrategy", message)));
    }
    let volumes = copy_at(vm, "/spec/dataVolumeTemplates");
    if !volumes.is_null()
        && let Err(error) = serde_json::from_value::<Vec<Value>>(volumes.clone())
    {
        let message = TypeError::new(&error, &volumes).to_string();
        found.push(("spec.dataVolumeTemplates", message));
    }
    found
}
