//! The test guests: their images, what they print on their serial consoles, and Linux's root shell.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::TEST_TIMEOUT;

/// The image of the guest that counts on its console and does nothing else, built if it is not
/// there. See docs/test-guest.md.
pub fn counter_image() -> PathBuf {
    guest_image().with_file_name("counter.img")
}

/// The image of the test guest, built if it is not there.
pub fn guest_image() -> &'static Path {
    static IMAGE: OnceLock<PathBuf> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let home = Path::new(env!("CARGO_MANIFEST_DIR"));
        let image = home.join("target/test-guest/guest.img");
        let made = Command::new(home.join("scripts/test-guest"))
            .arg(&image)
            .status()
            .unwrap();
        assert!(
            made.success(),
            "scripts/test-guest failed: run scripts/setup"
        );
        image
    })
}

/// Waits until fewer guests boot than there are processors: Linux needs one of its own meanwhile.
pub async fn turn_to_boot() -> SemaphorePermit<'static> {
    static TURNS: OnceLock<Semaphore> = OnceLock::new();
    let turns = TURNS.get_or_init(|| {
        let processors = std::thread::available_parallelism().unwrap();
        Semaphore::new(processors.get())
    });
    turns.acquire().await.unwrap()
}

/// What the guest's counter prints before each number.
const TICK: &str = "tick ";
const LINE_END: &str = "\r\n";

/// A connection to the console. A thread reads all the time: QEMU's end holds little, and a guest's
/// console would stop.
pub struct Guest {
    stream: UnixStream,
    console: Arc<Console>,
}

#[derive(Default)]
struct Console {
    printed: Mutex<Printed>,
    changed: Notify,
}

#[derive(Default)]
struct Printed {
    /// What no test has taken yet.
    text: String,
    ticks: Vec<u64>,
    is_closed: bool,
}

impl Printed {
    /// Takes complete lines of the counter out of the text, so that tests read what they have asked
    /// for alone.
    fn take_ticks(&mut self) {
        let mut from = 0;
        while let Some(at) = self.text[from..].find(TICK).map(|at| from + at) {
            let number = at + TICK.len();
            let Some(end) = self.text[number..].find(LINE_END).map(|end| number + end) else {
                return;
            };
            match self.text[number..end].parse() {
                Ok(tick) => {
                    self.ticks.push(tick);
                    self.text.replace_range(at..end + LINE_END.len(), "");
                    from = at;
                }
                // The command that begins to count.
                Err(_) => from = number,
            }
        }
    }
}

impl Console {
    fn read(&self, mut stream: UnixStream) {
        let mut buffer = [0; 4096];
        loop {
            let length = stream.read(&mut buffer).unwrap_or(0);
            let mut printed = self.printed.lock().unwrap();
            printed.is_closed = length == 0;
            let text = String::from_utf8_lossy(&buffer[..length]);
            printed.text.push_str(&text);
            printed.take_ticks();
            drop(printed);
            self.changed.notify_waiters();
            if length == 0 {
                return;
            }
        }
    }
}

impl Guest {
    pub async fn connect(socket: &Path) -> Self {
        let connected = Self::try_connect(socket).await;
        connected.unwrap_or_else(|error| panic!("no console at {}: {error}", socket.display()))
    }

    /// The last error, if the guest has no console within the time of a test.
    pub async fn try_connect(socket: &Path) -> std::io::Result<Self> {
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => return Ok(Self::new(stream)),
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    }

    fn new(stream: UnixStream) -> Self {
        let console = Arc::<Console>::default();
        let (reader, reads) = (console.clone(), stream.try_clone().unwrap());
        std::thread::spawn(move || reader.read(reads));
        Self { stream, console }
    }

    /// Waits until `wanted` returns something of what the guest has printed.
    async fn printed<T>(&self, what: &str, mut wanted: impl FnMut(&mut Printed) -> Option<T>) -> T {
        let search = async {
            loop {
                let changed = self.console.changed.notified();
                {
                    let mut printed = self.console.printed.lock().unwrap();
                    if let Some(found) = wanted(&mut printed) {
                        return found;
                    }
                    if printed.is_closed {
                        let text = printed.text.clone();
                        drop(printed);
                        panic!("the console is closed before {what:?}; it said:\n{text}");
                    }
                }
                changed.await;
            }
        };
        match tokio::time::timeout(TEST_TIMEOUT, search).await {
            Ok(found) => found,
            Err(_) => {
                let text = self.console.printed.lock().unwrap().text.clone();
                panic!("{what:?} does not appear on the console; it said:\n{text}")
            }
        }
    }

    /// Reads until `text` appears; what came before it is returned.
    pub async fn until(&mut self, text: &str) -> String {
        let take = |printed: &mut Printed| {
            let at = printed.text.find(text)?;
            let before = printed.text[..at].to_owned();
            printed.text.drain(..at + text.len());
            Some(before)
        };
        self.printed(text, take).await
    }

    /// Types a line.
    pub async fn send(&mut self, line: &str) {
        self.stream
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    /// Runs a command in the guest's shell; its output.
    pub async fn run(&mut self, command: &str) -> String {
        // The markers are put together by the shell, so that the echo of the command does not
        // match.
        self.send(&format!("echo '<''<'; {command}; echo '>''>'"))
            .await;
        self.until("<<").await;
        self.until(">>").await.replace('\r', "").trim().to_owned()
    }

    /// Runs a command again and again until `wanted` holds of its output.
    pub async fn run_until(&mut self, command: &str, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            let output = self.run(command).await;
            if wanted(&output) {
                return output;
            }
            assert!(
                Instant::now() < end,
                "{command}: not as wanted, but\n{output}"
            );
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    /// Lets the guest count aloud on its console, until it ends.
    pub async fn start_ticks(&mut self) {
        let count = format!("n=0; while sleep 0.2; do n=$((n+1)); echo {TICK}$n; done");
        self.run(&format!("({count}) & :")).await;
    }

    /// The numbers that it has printed here so far.
    pub fn ticks(&self) -> Vec<u64> {
        self.console.printed.lock().unwrap().ticks.clone()
    }

    /// Waits until the guest has counted on: it runs here.
    pub async fn ticks_on(&self) {
        let before = self.ticks().len();
        let has_more = |printed: &mut Printed| (printed.ticks.len() >= before + 2).then_some(());
        self.printed("two ticks more", has_more).await;
    }

    /// Waits as [`Self::ticks_on`] does. Fails if the guest has been reset and counts from 1 again.
    pub async fn ticks_on_without_reset(&self) {
        self.ticks_on().await;
        let ticks = self.ticks();
        assert!(ticks.is_sorted_by(|a, b| a < b), "{ticks:?}");
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Ends the reader too, and lets the next one connect.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
