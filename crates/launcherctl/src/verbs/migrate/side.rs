//! Source and target of a migration, as this program sees them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use crate::error::{CtlError, TextError, fail};
use crate::host::registry::VmDir;
use crate::verbs::target::{Target, TargetError, last_vmi};
use api::pod_paths::VIRTQEMUD_SOCKET;
use api::proto::inspect::v1::SetupResponse;
use client::Client;
use domain::Domain;
use domain::status::LifeCycle;

/// A pod's root, as its launcher sees it.
const POD_ROOT: &str = "/";

#[derive(Debug)]
pub struct Side {
    /// Its root, as this program sees it.
    pub dir: VmDir,
    pub client: Client,
    /// Its root, as the launcher sees it, and the name of its pod.
    pub setup: SetupResponse,
}

impl Side {
    /// The VM's launcher, and its VMI.
    ///
    /// # Errors
    /// There is no launcher, or its VMI is unknown.
    pub async fn source(target: &Target) -> Result<(Self, Value), CtlError> {
        let (dir, client) = target.connect().await?;
        let sent = last_vmi(&dir, &client).await?;
        let vmi = sent.ok_or(TargetError::NeedsVmi)?;
        let Some(setup) = client.setup().await? else {
            fail!(
                "the source's launcher does not say what a migration does (KubeVirt's does not): it can only be a target"
            );
        };
        Ok((Self { dir, client, setup }, vmi))
    }

    /// The launcher that should receive it. `path` is its root.
    ///
    /// # Errors
    /// There is no launcher, or it cannot receive a VM.
    pub async fn target(path: &Path) -> Result<Self, CtlError> {
        // The canonical path does not work: that of /proc/PID/root is another root.
        let absolute = std::path::absolute(path).unwrap_or_default();
        if !absolute.is_dir() {
            let path = path.display();
            fail!(
                "--to {path}: not a launcher's root directory; for a pod, give /proc/PID/root of its launcher"
            );
        }
        let dir = VmDir::at(absolute);
        let client = Client::connect(&dir.cmd_socket()).await?;
        let in_pod = || SetupResponse {
            root: POD_ROOT.to_owned(),
            ..SetupResponse::default()
        };
        let setup = client.setup().await?.unwrap_or_else(in_pod);
        let side = Self { dir, client, setup };
        let libvirt = side.dir.path(VIRTQEMUD_SOCKET);
        if !libvirt.exists() {
            fail!(
                "the target's launcher runs libvirt without a daemon, and cannot receive a VM: {} is missing; install it (Debian: libvirt-daemon), and start the launcher with --libvirt auto",
                libvirt.display()
            );
        }
        if side.client.domain().await?.is_some() {
            let root = side.dir.root().display();
            fail!("the target's launcher in {root} has a guest already");
        }
        Ok(side)
    }

    /// The domain of the guest that should leave.
    ///
    /// # Errors
    /// No guest runs.
    pub async fn guest(&self) -> Result<Domain, CtlError> {
        let runs = |it: &Domain| matches!(it.status.status, LifeCycle::Running | LifeCycle::Paused);
        match self.client.domain().await? {
            Some(domain) if runs(&domain) => Ok(domain),
            _ => fail!("the source's launcher has no running guest"),
        }
    }

    /// The place of a launcher's path for this program.
    pub fn path(&self, path: &str) -> PathBuf {
        if self.is_pod() {
            self.dir.path(path)
        } else {
            path.into()
        }
    }

    /// Whether its paths are those of a pod. All pods have the same ones.
    pub fn is_pod(&self) -> bool {
        self.setup.root == POD_ROOT
    }

    /// Its domain, if it answers and has one.
    pub async fn domain(&self) -> Option<Domain> {
        self.client.domain().await.ok().flatten()
    }

    /// Waits until its launcher reports a domain like this, at most for `limit`. Returns whether it
    /// has.
    pub async fn reports(&self, limit: Duration, is_wanted: impl Fn(&Domain) -> bool) -> bool {
        let reported = async {
            let mut changes = self.client.domain_changes().await.ok()?;
            while let Ok(Some(domain)) = changes.next().await {
                if domain.as_ref().is_some_and(&is_wanted) {
                    return Some(());
                }
            }
            None
        };
        matches!(timeout(limit, reported).await, Ok(Some(())))
    }
}

/// Checks that source and target are two pods, or two launchers with roots of their own.
///
/// # Errors
/// One is in a pod and the other is not.
pub fn check_match(source: &Side, target: &Side) -> Result<(), TextError> {
    if source.is_pod() == target.is_pod() {
        return Ok(());
    }
    fail!(
        "the files of source and target are at different places ({} and {}): both have to be in pods (root /), or both below a --root of their own",
        source.setup.root,
        target.setup.root
    );
}
