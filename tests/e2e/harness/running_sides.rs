//! On which side of a migration the guest runs, all the time.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{Guest, Pod, Vmi};

/// Between two samples.
const INTERVAL: Duration = Duration::from_millis(100);
/// The longest wait for the last sample, where libvirt may hang.
const PATIENCE: Duration = Duration::from_secs(10);
/// What virsh prints between a command's output and its next prompt; the command's echo has more
/// before it.
const END: &str = "\nEND";

/// Asks both sides' libvirt again and again for the domain's state. It must never run on both.
pub struct RunningSides {
    shells: [Shell; 2],
    stop: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<[String; 2]>>>,
    thread: Option<JoinHandle<()>>,
}

/// libvirt's client, which connects again when the daemon has been restarted.
struct Shell(Child);

impl RunningSides {
    /// Begins to ask.
    pub fn of(source: &Pod, target: &Pod, vmi: &Vmi) -> Self {
        let mut shells = [source, target].map(Shell::of);
        let mut pipes = shells.each_mut().map(Shell::pipes);
        let (stop, samples) = (
            Arc::<AtomicBool>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
        );
        let (stopped, taken) = (stop.clone(), samples.clone());
        let name = format!("default_{}", vmi.name());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let [of_source, of_target] = &mut pipes;
                // The guest goes from the source to the target: where it runs on the target, it
                // does not on the source.
                let target = state(of_target, &name);
                let source = state(of_source, &name);
                taken.lock().unwrap().push([source, target]);
                std::thread::sleep(INTERVAL);
            }
        });
        Self {
            shells,
            stop,
            samples,
            thread: Some(thread),
        }
    }

    /// The states of source and target, each as often as it changed; the last one was asked for
    /// after this call.
    ///
    /// # Panics
    /// The guest ran on both sides.
    pub fn end(self) -> Vec<[String; 2]> {
        self.wait_for_another();
        let mut samples = self.samples.lock().unwrap().clone();
        samples.dedup();
        for both in &samples {
            let runs = both.each_ref().map(|state| state.starts_with("running"));
            assert_ne!(
                runs,
                [true, true],
                "the guest runs on both sides: {samples:#?}"
            );
        }
        samples
    }

    /// Waits for a sample that is asked for from now on, but not for a libvirt that does not
    /// answer.
    fn wait_for_another(&self) {
        let taken = || self.samples.lock().unwrap().len();
        // The next one may have been begun already.
        let (wanted, start) = (taken() + 2, Instant::now());
        while taken() < wanted && start.elapsed() < PATIENCE {
            std::thread::sleep(INTERVAL / 4);
        }
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for Shell(child) in &mut self.shells {
            // With nsenter goes the virsh that it has started: one that waits for its daemon would
            // hold the thread.
            let group = Pid::from_child(child);
            let _ = kill_process_group(group, Signal::KILL);
            let _ = child.wait();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for RunningSides {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shell {
    fn of(pod: &Pod) -> Self {
        let uri = "qemu+unix:///session?socket=/var/run/libvirt/virtqemud-sock";
        let mut virsh = pod.exec_command(&["virsh", "-q", "-c", uri]);
        let pipes = virsh.stdin(Stdio::piped()).stdout(Stdio::piped());
        let spawned = pipes.stderr(Stdio::null()).process_group(0).spawn();
        Self(spawned.unwrap())
    }

    fn pipes(&mut self) -> (ChildStdin, ChildStdout) {
        (self.0.stdin.take().unwrap(), self.0.stdout.take().unwrap())
    }
}

/// The domain's state in virsh's words; empty if there is none, or libvirt does not answer.
fn state((commands, answers): &mut (ChildStdin, ChildStdout), name: &str) -> String {
    let asked = commands.write_all(format!("domstate {name} --reason\necho END\n").as_bytes());
    let mut text = String::new();
    let mut buffer = [0; 1024];
    while asked.is_ok() && !text.contains(END) {
        match answers.read(&mut buffer) {
            Ok(length @ 1..) => text.push_str(&String::from_utf8_lossy(&buffer[..length])),
            Ok(0) | Err(_) => return String::new(),
        }
    }
    let mut lines = text.lines().map(str::trim);
    let state = lines.find(|line| line.ends_with(')') && !line.contains("domstate"));
    state.unwrap_or_default().to_owned()
}

/// The guest has gone on counting, and no number was printed on both sides.
pub async fn counts_on(source: &Guest, target: &Guest) {
    target.ticks_on().await;
    let (before, after) = (source.ticks(), target.ticks());
    let all: Vec<u64> = before.iter().chain(&after).copied().collect();
    assert!(all.is_sorted_by(|a, b| a < b), "{before:?}, then {after:?}");
}
