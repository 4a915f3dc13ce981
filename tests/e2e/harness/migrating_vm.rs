//! A VM that migrates from pod to pod, while its guest counts.

use serde_json::json;

use super::{
    Guest, MigrationProxies, Moment, Network, Pod, RunningSides, SLOW, Vmi, begin, counts_on,
    failed, has_left, source_pod, target_pod,
};

/// The VM, and the pod in which it runs now.
pub struct MigratingVm {
    pub vmi: Vmi,
    pub pod: Pod,
    pub guest: Guest,
    targets: usize,
}

impl MigratingVm {
    pub async fn counting(name: &str) -> Self {
        let vmi = Vmi::new(name);
        let (pod, guest) = source_pod(&vmi, &[]).await;
        Self {
            vmi,
            pod,
            guest,
            targets: 0,
        }
    }

    /// The next target, which is ready for the guest, and the VMI as it then is.
    pub async fn target(&mut self) -> (Pod, Vmi) {
        self.targets += 1;
        let name = format!("target{}", self.targets);
        let vmi = self.vmi.clone().migrating_to(&name);
        let target = target_pod(&self.pod, &vmi, &name, &[]).await;
        target.sync_target_ok(&vmi).await;
        (target, vmi)
    }

    /// A migration over a network that fails. The guest stays, and the target ends.
    pub async fn stays_when(&mut self, when: Moment, how: Network) {
        println!("{how:?} at {when:?}");
        let (target, vmi) = self.target().await;
        let proxies = MigrationProxies::failing(&self.pod, &target, &vmi, when, how);
        let sides = RunningSides::of(&self.pod, &target, &vmi);
        let is_slow = matches!(when, Moment::Copied(_));
        let bandwidth = if is_slow { SLOW } else { "0" };
        begin(&self.pod, &vmi, json!({"Bandwidth": bandwidth})).await;
        proxies.have_failed().await;
        self.stays(target, &vmi, sides).await;
    }

    /// The migration has failed: the guest goes on where it was, and the target ends. The reason.
    pub async fn stays(&mut self, target: Pod, vmi: &Vmi, sides: RunningSides) -> String {
        let end = failed(&mut self.pod, vmi).await;
        self.guest.ticks_on().await;
        sides.end();
        target.give_up_arrival(vmi).await;
        end["FailureReason"].as_str().unwrap().to_owned()
    }

    /// A migration without a fault: the VM is in another pod.
    pub async fn moves(&mut self) {
        let (mut target, vmi) = self.target().await;
        let _proxies = MigrationProxies::new(&self.pod, &target, &vmi);
        let sides = RunningSides::of(&self.pod, &target, &vmi);
        begin(&self.pod, &vmi, json!({})).await;
        has_left(&mut self.pod, &vmi).await;
        target.arrival().await;
        let guest = target.guest(&vmi).await;
        counts_on(&self.guest, &guest).await;
        sides.end();
        (self.pod, self.guest) = (target, guest);
    }
}
