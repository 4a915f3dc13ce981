//! Calls a sidecar or plugin without a launcher and a cluster, by the launcher's own code and with
//! its checks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use api::pod_paths::PLUGIN_DIR;
use api::proto::hooks::plugins::{GuestDefinitionResponse, MigrationSettings};
use domain::xml::tree::Element;
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::failure::CheckFailure;
use crate::answer::{self, Answer};
use crate::client::{self, MAX_ANSWER_BYTES};
use crate::cloud_init;
use crate::diff::{self, Changes};
use crate::error::HookCallError;
use crate::plugins::{
    BootFile, BootFileKind, InvocationContext, LauncherHookPoint, Pipeline, PluginError,
    definition, settings_changes,
};
use crate::sidecar::{HookPoint, Sidecar};

/// The plugin's name.
const NAME: &str = "under-test";

/// What a program is called with, and where it serves.
#[derive(Debug)]
pub struct Subject {
    /// The directory in which the program makes its socket. Must be empty.
    pub socket_dir: PathBuf,
    /// The VMI's JSON as virt-handler sends it.
    pub vmi_json: Bytes,
    /// The domain XML made from the VMI.
    pub domain_xml: String,
    /// Not for a plugin.
    pub cloud_init: CloudInit,
    /// The program is a plugin's sidecar, and this stands for its pod. Its files get changed.
    pub plugin: Option<TrialPod>,
}

/// What `PreCloudInitIso` is called with.
#[derive(Debug)]
pub enum CloudInit {
    /// Data of a NoCloud and of a ConfigDrive volume.
    Examples,
    /// The VMI's data, with the field names of KubeVirt's Go struct.
    Data(Value),
    /// The VMI's data need a Secret that is not there.
    NeedsSecret,
}

/// A directory that stands for the root of a plugin's pod, and the files of its guest.
#[derive(Debug, Clone)]
pub struct TrialPod {
    root: PathBuf,
    /// Copies, which the plugin may change.
    files: Vec<(BootFileKind, PathBuf)>,
}

impl TrialPod {
    /// Fills the empty directory `root`. The NVRAM is a firmware's template, if this machine has
    /// one.
    ///
    /// # Errors
    /// A directory or file cannot be made.
    pub fn new(root: &Path, cloud_init_image: Option<PathBuf>) -> io::Result<Self> {
        let image = cloud_init_image.map(|path| (BootFileKind::CloudInitIso, path));
        let nvram = BootFileKind::example_nvram().map(|path| (BootFileKind::Nvram, path));
        let mut pod = Self {
            root: root.to_owned(),
            files: Vec::new(),
        };
        fs::create_dir_all(pod.socket_dir())?;
        for (kind, original) in image.into_iter().chain(nvram) {
            let copy = root.join(kind.file_name());
            fs::copy(original, &copy)?;
            pod.files.push((kind, copy));
        }
        Ok(pod)
    }

    /// Directory in which the plugin's program makes its socket.
    #[must_use]
    pub fn socket_dir(&self) -> PathBuf {
        let plugins = self.root.join(PLUGIN_DIR.trim_start_matches('/'));
        plugins.join(NAME)
    }
}

/// The input of a hook point, or its accepted answer.
#[derive(Debug, Clone)]
pub enum Document {
    Domain(String),
    CloudInit(Value),
    /// The files of the plugin's pod.
    BootFiles,
    Settings(MigrationSettings),
}

pub struct Answered {
    pub document: Document,
    pub changes: Vec<String>,
    /// A sentence for each part of the answer that has no effect.
    pub ignored: Vec<String>,
}

/// A sidecar or plugin that serves.
pub struct Called<'a> {
    pub subject: &'a Subject,
    pub sidecar: Sidecar,
    pub vmi_json: Bytes,
    /// Limit of each call.
    pub limit: Duration,
}

impl Called<'_> {
    /// Calls the hook point of the document.
    ///
    /// # Errors
    /// [`CheckFailure::Unserved`], or why a launcher would not go on.
    pub async fn call(&self, given: Document) -> Result<Answered, CheckFailure> {
        let mut ignored = Vec::new();
        let (changes, document) = match (given, &self.subject.plugin) {
            (Document::Domain(xml), plugin) => {
                let before = Element::parse(&xml)?;
                let Answer { text, tree } = match plugin {
                    None => self.on_define_domain(&before).await?,
                    Some(pod) => self.guest_definition(pod, xml).await?,
                };
                let foreign = tree.foreign();
                ignored.extend(foreign.iter().map(|it| format!("libvirt ignores {it}")));
                (listed(diff::diff(&before, &tree)), Document::Domain(text))
            }
            (Document::CloudInit(given), None) => {
                self.subscribes(HookPoint::PreCloudInitIso)?;
                let (forms, vmi) = (cloud_init::encode(&given), self.vmi_json.clone());
                let answer = client::pre_cloud_init_iso(&self.sidecar, forms, vmi, self.deadline());
                let (data, unknown) =
                    cloud_init::decode(&given, &answer.await?).map_err(HookCallError::CloudInit)?;
                let sentence = |name: String| {
                    format!("KubeVirt ignores {name} of the cloud-init data: it has no such name")
                };
                ignored.extend(unknown.into_iter().map(sentence));
                let changes = cloud_init::changes(&given, &data);
                (listed(changes), Document::CloudInit(data))
            }
            (Document::BootFiles, Some(pod)) => {
                let files = pod.files.iter().cloned();
                let files = files
                    .filter_map(|(kind, path)| BootFile::claim(kind, path, None, Arc::new(())));
                let changed = self.pre_boot(pod, files.collect()).await?;
                let names = changed.into_iter().map(|name| format!("the {name}"));
                (names.collect(), Document::BootFiles)
            }
            (Document::Settings(given), Some(pod)) => {
                let pipeline = self.pipeline(pod, LauncherHookPoint::PreMigrationSource)?;
                let (before, xml) = (given.clone(), "<domain/>".to_owned());
                let vmi = &self.vmi_json;
                let settings = pipeline.pre_migration_source(given, xml, vmi, self.deadline());
                let settings = settings.await?;
                let changes = settings_changes(&before, &settings);
                (changes, Document::Settings(settings))
            }
            _ => return Err(CheckFailure::Unserved),
        };
        Ok(Answered {
            document,
            changes,
            ignored,
        })
    }

    /// Calls `PreBoot`. Returns the names of the changed files.
    pub async fn pre_boot(
        &self,
        pod: &TrialPod,
        files: Vec<BootFile>,
    ) -> Result<Vec<&'static str>, PluginError> {
        let pipeline = self.pipeline(pod, LauncherHookPoint::PreBoot)?;
        let xml = "<domain/>".to_owned();
        let modified_by = pipeline.pre_boot(files, xml, &self.vmi_json, self.deadline());
        let files = modified_by.await?.into_iter();
        Ok(files.flat_map(|(_, names)| names).collect())
    }

    /// Sends any text as the domain, and does not check the answer.
    pub async fn send(
        &self,
        domain: Bytes,
        vmi: Bytes,
        limit: Duration,
    ) -> Result<(), HookCallError> {
        let deadline = os::time::deadline(limit);
        if self.subject.plugin.is_none() {
            let answer = client::on_define_domain(&self.sidecar, domain, vmi, deadline);
            return answer.await.map(drop);
        }
        let method = "/kubevirt.hooks.plugins.v1alpha1.LauncherHookService/GuestDefinition";
        let request = definition(domain, vmi, InvocationContext::Boot);
        let (socket, limit) = (&self.sidecar.socket, MAX_ANSWER_BYTES);
        let answer = client::call(socket, method.to_owned(), request, limit, deadline);
        answer.await.map(|_: GuestDefinitionResponse| ())
    }

    async fn on_define_domain(&self, before: &Element) -> Result<Answer, CheckFailure> {
        self.subscribes(HookPoint::OnDefineDomain)?;
        // The launcher writes the domain in this format.
        let (xml, vmi) = (Bytes::from(before.to_xml()), self.vmi_json.clone());
        let answer = client::on_define_domain(&self.sidecar, xml, vmi, self.deadline());
        Ok(answer::check(before, &answer.await?).map_err(HookCallError::Answer)?)
    }

    async fn guest_definition(&self, pod: &TrialPod, xml: String) -> Result<Answer, CheckFailure> {
        let pipeline = self.pipeline(pod, LauncherHookPoint::GuestDefinition)?;
        let (vmi, context) = (&self.vmi_json, InvocationContext::Boot);
        let applied = pipeline.apply(xml, vmi, context, self.deadline()).await?;
        let tree = Element::parse(&applied.xml)?;
        let text = applied.xml;
        Ok(Answer { text, tree })
    }

    /// Checks that the program still serves after a call.
    pub async fn serves(&self) -> Result<(), HookCallError> {
        let socket = &self.sidecar.socket;
        match self.subject.plugin {
            None => client::info(socket, self.deadline()).await.map(drop),
            Some(_) => client::connect(socket).await.map(drop),
        }
    }

    /// # Errors
    /// [`CheckFailure::Unserved`].
    pub fn subscribes(&self, point: HookPoint) -> Result<(), CheckFailure> {
        let priority = self.sidecar.priority(point);
        priority.map(drop).ok_or(CheckFailure::Unserved)
    }

    fn pipeline(&self, pod: &TrialPod, point: LauncherHookPoint) -> Result<Pipeline, PluginError> {
        let socket = format!("{PLUGIN_DIR}/{NAME}/{}", self.sidecar.name);
        let sidecar = json!({"socketPath": socket, "permittedHooks": [point.name()]});
        let hooks = json!({"launcherHooks": [{"sidecar": sidecar}]});
        let list = json!([{"metadata": {"name": NAME}, "spec": hooks}]);
        let pipeline = Pipeline::from_json(list.to_string().as_bytes())?;
        Ok(pipeline.rooted(pod.root.clone()))
    }

    pub fn deadline(&self) -> Instant {
        os::time::deadline(self.limit)
    }
}

fn listed(Changes { list, more }: Changes) -> Vec<String> {
    let shown = list.iter().map(ToString::to_string);
    shown.chain(more.then(|| "and more".to_owned())).collect()
}

/// Settings of a migration, as a launcher sends them for a guest whose disk is copied.
pub fn example_settings() -> MigrationSettings {
    let flags = [
        "VIR_MIGRATE_LIVE",
        "VIR_MIGRATE_PEER2PEER",
        "VIR_MIGRATE_PERSIST_DEST",
        "VIR_MIGRATE_NON_SHARED_INC",
        "VIR_MIGRATE_AUTO_CONVERGE",
    ];
    MigrationSettings {
        flags: flags.map(str::to_owned).to_vec(),
        bandwidth: 64,
        migrate_disks: vec!["vda".to_owned()],
        ..MigrationSettings::default()
    }
}
