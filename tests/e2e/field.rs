//! Manifests that people have brought, from `../shared/field`, run on this machine: each folder's
//! README has the right answer. Without the folder nothing is tried; with `CI` set that fails.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::harness::{Guest, UP, output_of};
use crate::launcherctl::{Laptop, done, launcherctl, refused, refuses, says};
use crate::local_vms::{StopAll, directory, laptop};

/// A folder, and a machine with a VM at a time.
struct Field {
    /// Dropped first: it needs the laptop's registry.
    _stop: StopAll,
    folder: PathBuf,
    laptop: Laptop,
    home: PathBuf,
}

impl Field {
    /// `None` if there are no folders.
    fn of(folder: &str) -> Option<Self> {
        let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/field");
        if !all.is_dir() && std::env::var_os("CI").is_none() {
            return None;
        }
        let (laptop, home, stop) = laptop();
        let field = Self {
            folder: all.join(folder),
            laptop,
            home,
            _stop: stop,
        };
        Some(field)
    }

    /// A folder, and a machine whose guest is Linux; `None` if there are no folders.
    fn with_linux(folder: &str) -> Option<Self> {
        let field = Self::of(folder)?;
        Some(Self {
            laptop: field.laptop.with_linux(),
            ..field
        })
    }

    fn file(&self, name: &str) -> String {
        let file = self.folder.join(name);
        assert!(file.exists(), "{} is missing", file.display());
        file.display().to_string()
    }

    /// A file of so many bytes.
    fn image(&self, name: &str, bytes: u64) -> String {
        let path = self.home.join(name);
        std::fs::File::create(&path)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        path.display().to_string()
    }

    async fn run(&self, name: &str, more: &[&str]) -> Output {
        let root = self.home.join("guest.img").display().to_string();
        let mut command = launcherctl(&self.home);
        command
            .args(["run", &self.file(name), "--emulate", "--detach"])
            .args(["--disk", &format!("root={root}")])
            .args(more)
            .env("TMPDIR", &self.home);
        output_of(command).await
    }

    async fn starts(&self, name: &str, more: &[&str]) -> String {
        let output = self.run(name, more).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{name}: {said}");
        said
    }

    async fn guest(&self) -> Guest {
        let root = directory(&self.laptop).await;
        let mut guest = Guest::connect(&root.join("console.sock")).await;
        guest.until(UP).await;
        guest
    }

    async fn stop(&self) {
        done(&self.home, &["stop", "--force"]).await;
    }
}

#[tokio::test]
async fn a_nic_without_an_alias_has_nothing_to_do_with_passt() {
    let Some(field) = Field::of("01-server-interface") else {
        return;
    };
    field.starts("vmi.yaml", &[]).await;
    let stats = done(&field.home, &["stats"]).await;
    assert!(
        !stats.trim().is_empty() && !stats.contains("passt"),
        "{stats}"
    );
}

#[tokio::test]
async fn an_old_machine_starts_with_disks_on_ide() {
    let Some(field) = Field::of("03-i440fx-ide") else {
        return;
    };
    field.starts("alone.yaml", &[]).await;
    field.stop().await;
    let (root, tools) = (field.laptop.root_disk(), field.image("tools", 1 << 20));
    let root = root.replace("rootdisk=", "root=");
    let tools = format!("tools={tools}");
    let mut command = launcherctl(&field.home);
    command.args(["run", &field.file("vm.yaml"), "--emulate", "--detach"]);
    command.args(["--disk", &root, "--disk", &tools]);
    let output = output_of(command).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    says(&field.home, &["launcher", "dumpxml"], "bus='ide'").await;
}

#[tokio::test]
async fn the_guest_has_the_acpi_table_of_a_secret() {
    let Some(field) = Field::with_linux("06-msdm-secret") else {
        return;
    };
    field.starts("vm.yaml", &[]).await;
    let mut guest = field.guest().await;
    let table = guest.run("ls /sys/firmware/acpi/tables/MSDM").await;
    assert_eq!(table, "/sys/firmware/acpi/tables/MSDM");
}

#[tokio::test]
async fn a_program_takes_the_place_of_a_sidecar_without_an_image() {
    let Some(field) = Field::of("13-command-only-sidecar") else {
        return;
    };
    let program = field.file("onDefineDomain");
    field.starts("vmi.yaml", &["--sidecar", &program]).await;
    says(&field.home, &["launcher", "dumpxml"], "Inline").await;
}

#[tokio::test]
async fn a_claim_that_can_be_unplugged_is_plugged_in_from_the_start() {
    let Some(field) = Field::with_linux("16-cdrom") else {
        return;
    };
    let home = &field.home;
    let extra = format!("extra={}", field.image("extra", 1 << 20));
    field
        .starts("hotpluggable-disk.yaml", &["--disk", &extra])
        .await;
    let mut guest = field.guest().await;
    guest
        .run_until("disks", |disks| disks.contains("EXTRA"))
        .await;
    let without = field.file("without-disk.yaml");
    let said = refused_or_said(home, &["sync", &without]).await;
    assert!(said.contains("spec.volumes[extra]"), "{said}");
    says(home, &["volumes"], "extra").await;
    assert_eq!(
        done(home, &["removevolume", "extra"]).await,
        "extra is detached"
    );
    guest
        .run_until("disks", |disks| !disks.contains("EXTRA"))
        .await;
    assert!(!done(home, &["volumes"]).await.contains("extra"));
    assert_eq!(done(home, &["plan"]).await, "nothing to do");
    field.stop().await;

    let (iso, tools) = (field.image("iso", 2 << 20), field.image("tools", 1 << 20));
    let disks = [format!("iso={iso}"), format!("tools={tools}")];
    field
        .starts("simple.yaml", &["--disk", &disks[0], "--disk", &disks[1]])
        .await;
    let mut guest = field.guest().await;
    let ejected = done(home, &["removevolume", "iso"]).await;
    assert_eq!(ejected, "iso is ejected; its CD-ROM drive stays, empty");
    let medium = "head -c 1 /dev/sr0 2>&1 | grep -o 'No medium found'";
    guest.run_until(medium, |it| it == "No medium found").await;
    refuses(home, &["removevolume", "tools"], "since its start").await;
}

/// What `sync` says of what it cannot do, whichever way it ends.
async fn refused_or_said(home: &Path, arguments: &[&str]) -> String {
    let output = crate::launcherctl::verb(home, arguments).await;
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn files_of_any_size_are_rounded_or_named() {
    let Some(field) = Field::of("18-odd-sizes") else {
        return;
    };
    field.starts("blank-1G.yaml", &[]).await;
    let volumes = done(&field.home, &["volumes", "-o", "json"]).await;
    let volumes: Value = serde_json::from_str(&volumes).unwrap();
    assert_eq!(volumes[1]["size"], 1_000_000_000_u64 >> 20 << 20);
    field.stop().await;

    let made = field.home.join("made");
    let host = format!("host={}", made.display());
    let big = format!("big={}", field.image("big", 8 << 20));
    let (odd, even) = (field.image("odd", 1_500_001), field.image("even", 1 << 20));
    let (odd, even) = (format!("claim={odd}"), format!("claim={even}"));
    let disks = ["--disk", &host, "--disk", &big, "--disk"];
    let refused = field.run("vm.yaml", &[&disks[..], &[&odd]].concat()).await;
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains(&format!("--disk {odd}: ")), "{said}");
    // Whole sectors, which QEMU refuses where the file system's direct I/O takes larger blocks.
    let bytes = (1 << 20) + 512;
    let odd = format!("claim={}", field.image("sectors", bytes));
    let sectors = field.run("vm.yaml", &[&disks[..], &[&odd]].concat()).await;
    let said = String::from_utf8(sectors.stderr).unwrap();
    let named = format!("volume claim has {bytes} bytes: truncate -s %4096 ");
    assert_eq!(
        said.contains("request alignment"),
        said.contains(&named),
        "{said}"
    );
    assert!(
        said.contains(&named) || said.contains("domain is running"),
        "{said}"
    );
    field.stop().await;
    field
        .starts("vm.yaml", &[&disks[..], &[&even]].concat())
        .await;
    assert_eq!(made.metadata().unwrap().len(), 1 << 20);
}

#[tokio::test]
async fn a_name_may_be_long_and_has_dots() {
    let Some(field) = Field::of("26-names-and-acpi") else {
        return;
    };
    field.starts("dotted.yaml", &[]).await;
    let root = directory(&field.laptop).await;
    let seeds = root.join("var/run/kubevirt-ephemeral-disks/cloud-init-data");
    let found = std::process::Command::new("grep")
        .args(["-raq", "local-hostname\":\"web\""])
        .arg(seeds)
        .status();
    assert!(found.unwrap().success());
    field.stop().await;
    field.starts("long.yaml", &[]).await;
    field.stop().await;
    let long = std::fs::read_to_string(field.file("noacpi.yaml")).unwrap();
    let file = field.home.join("longer.yaml");
    std::fs::write(
        &file,
        long.replace("name: noacpi", &format!("name: {}", "a".repeat(230))),
    )
    .unwrap();
    field.starts(&file.display().to_string(), &[]).await;
}

#[tokio::test]
async fn a_vm_without_a_serial_console_has_no_problem_with_it() {
    let Some(field) = Field::of("27-headless") else {
        return;
    };
    let file = field.file("noserial.yaml");
    let error = refused(&field.home, &["run", &file, "--until", "up"]).await;
    assert!(error.contains("the VMI has none"), "{error}");
    let said = field.starts("noserial.yaml", &[]).await;
    assert!(!said.contains("launcherctl console"), "{said}");
    // Of a blank console there would be a problem after 20 s.
    tokio::time::sleep(std::time::Duration::from_secs(22)).await;
    let status = done(&field.home, &["status"]).await;
    assert!(!status.contains("serial console"), "{status}");
}
