//! `make torture`: one guest, whose launcher and daemon are killed at named points again and again
//! while disks come and go. No guest is lost, no event, no call hangs, no process is left.

use crate::faults::{Held, PLUG, UNPLUG, is_plugged, is_unplugged, kill, kill_daemon, launch};
use crate::harness::{Event, Pod, Vmi};

/// Kills without `KILLS` in the environment.
const DEFAULT_KILLS: usize = 500;

/// What is killed, in turns.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Launcher,
    Daemon,
    Both,
}

const VICTIMS: [Victim; 3] = [Victim::Launcher, Victim::Daemon, Victim::Both];

async fn strike(pod: &mut Pod, vmi: &Vmi, victim: Victim, held: Held) {
    match victim {
        Victim::Daemon => return kill_daemon(pod, held).await,
        Victim::Launcher => pod.kill_launcher().await,
        Victim::Both => {
            pod.kill_launcher().await;
            kill(&pod.libvirt_daemons());
        }
    }
    held.release().await;
    launch(pod, vmi, "--libvirt=auto").await;
}

/// virt-handler gets what happens after the kill.
async fn events_arrive(pod: &mut Pod, vmi: &Vmi) {
    pod.pause(vmi).await;
    pod.unpause(vmi).await;
    pod.handler.status("Running").await;
}

#[tokio::test]
#[ignore = "takes long: make torture"]
async fn kills_at_named_points_lose_nothing() {
    let kills = std::env::var("KILLS").map_or(DEFAULT_KILLS, |text| text.parse().unwrap());
    let mut pod = Pod::new();
    let vmi = Vmi::new("torture").with_image(&pod);
    let with = vmi.clone().hotplugged("data", "DATA", "scsi");
    pod.hotplug_image("data", 1 << 20);
    pod.handler.serve();
    launch(&mut pod, &vmi, "--libvirt=auto").await;
    let mut guest = pod.boot(&vmi).await;
    guest.run("echo the same > /run/mark").await;
    let qemu = pod.guests();
    for round in 0..kills {
        let victim = VICTIMS[round / 6 % VICTIMS.len()];
        let plugs = round % 2 == 0;
        let point = if plugs { PLUG } else { UNPLUG }[round / 2 % 3];
        println!("{}: {victim:?} at {point}", round + 1);
        let after = if plugs { &with } else { &vmi };
        let held = Held::at(&mut pod, point, after).await;
        pod.handler.forget();
        strike(&mut pod, &vmi, victim, held).await;
        pod.sync_ok(after).await;
        if plugs {
            is_plugged(&pod, &mut guest).await;
        } else {
            is_unplugged(&mut pod, &vmi, &mut guest).await;
        }
        events_arrive(&mut pod, &vmi).await;
        assert_eq!(pod.guests(), qemu, "the same QEMU all along");
    }
    assert_eq!(guest.run("cat /run/mark").await, "the same");
    pod.end(&vmi).await;
    pod.handler.event("final", Event::is_final).await;
    assert_eq!(pod.exit_code().await, 0);
    assert_eq!(pod.commands(), [""; 0], "nothing is left");
}
