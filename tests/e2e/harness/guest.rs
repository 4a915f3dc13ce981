//! The test guest: its image, and its serial console with what it prints and a root shell.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::TEST_TIMEOUT;

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

/// A connection to the console.
pub struct Guest {
    stream: UnixStream,
    seen: String,
}

impl Guest {
    pub async fn connect(socket: &Path) -> Self {
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            match UnixStream::connect(socket).await {
                Ok(stream) => {
                    return Self {
                        stream,
                        seen: String::new(),
                    };
                }
                Err(error) => assert!(
                    Instant::now() < end,
                    "no console at {}: {error}",
                    socket.display()
                ),
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Reads until `text` appears; what came before it is returned.
    pub async fn until(&mut self, text: &str) -> String {
        let read = async {
            let mut buffer = [0; 4096];
            while !self.seen.contains(text) {
                let length = self.stream.read(&mut buffer).await.unwrap();
                assert!(
                    length > 0,
                    "the console is closed before {text:?}; it said:\n{}",
                    self.seen
                );
                self.seen
                    .push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        };
        let in_time = tokio::time::timeout(TEST_TIMEOUT, read).await.is_ok();
        assert!(
            in_time,
            "{text:?} does not appear on the console; it said:\n{}",
            self.seen
        );
        let at = self.seen.find(text).unwrap();
        let before = self.seen[..at].to_owned();
        self.seen.drain(..at + text.len());
        before
    }

    /// Types a line.
    pub async fn send(&mut self, line: &str) {
        self.stream
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// Runs a command in the guest's shell; its output.
    pub async fn run(&mut self, command: &str) -> String {
        // The markers are put together by the shell, so that the echo of the command does not match.
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
}
