//! The checks that call the program.

use std::time::Duration;

use domain::xml::tree::Element;
use prost::bytes::Bytes;

use super::called::{Called, CloudInit, Document, example_settings};
use super::failure::CheckFailure;
use super::inputs;
use super::table::Check;
use crate::client;
use crate::cloud_init::CloudInitForms;
use crate::error::HookCallError;
use crate::sidecar::{HookPoint, Sidecar, Version};

/// The checks of each hook point of a sidecar, in this order.
pub const SIDECAR: [&[Check]; 2] = [
    &[
        Check::OnDefineDomain,
        Check::Idempotence,
        Check::UnknownElements,
        Check::LargeInput,
        Check::InvalidDomain,
        Check::InvalidVmi,
        Check::CancelledCall,
    ],
    &[
        Check::PreCloudInitIso,
        Check::ConfigDrive,
        Check::InvalidCloudInit,
    ],
];

/// The checks of each hook point of a plugin, in this order.
pub const PLUGIN: [&[Check]; 3] = [
    &[
        Check::GuestDefinition,
        Check::Idempotence,
        Check::UnknownElements,
        Check::LargeInput,
        Check::InvalidDomain,
        Check::InvalidVmi,
        Check::CancelledCall,
    ],
    &[
        Check::PreBoot,
        Check::PreBootIdempotence,
        Check::PreBootWithoutFiles,
    ],
    &[
        Check::PreMigrationSource,
        Check::PreMigrationSourceIdempotence,
    ],
];

/// Checks the answer of `Info`. Returns the versions to check, oldest first.
pub async fn info(sidecar: &Sidecar, limit: Duration) -> (Vec<Version>, Result<(), CheckFailure>) {
    let info = match client::info(&sidecar.socket, os::time::deadline(limit)).await {
        Ok(info) => info,
        Err(error) => return (Vec::new(), Err(error.into())),
    };
    let offered = info.versions.iter();
    let mut versions: Vec<_> = offered
        .filter_map(|name| Version::from_name(name))
        .collect();
    versions.sort_unstable();
    versions.dedup();
    let version = sidecar.version;
    let is_unknown =
        |name: &str| HookPoint::from_name(name).is_none_or(|point| point.since() > version);
    let mut names = info.hook_points.into_iter().map(|point| point.name);
    let result = match names.len() {
        0 => Err(CheckFailure::NoHookPoints),
        _ => match names.find(|name| is_unknown(name)) {
            Some(name) => Err(CheckFailure::HookPoint { name, version }),
            None => Ok(()),
        },
    };
    (versions, result)
}

impl Called<'_> {
    /// Makes one check. Returns whether the program changed its input; `None` if the check sends
    /// invalid input or none.
    pub async fn check(&self, check: Check) -> Result<Option<bool>, CheckFailure> {
        match check {
            Check::OnDefineDomain | Check::GuestDefinition => self.once(self.domain()).await,
            Check::Idempotence => self.twice(self.domain()).await,
            Check::PreCloudInitIso => match &self.subject.cloud_init {
                CloudInit::Examples => self.once(Document::CloudInit(inputs::no_cloud())).await,
                CloudInit::Data(data) => self.once(Document::CloudInit(data.clone())).await,
                CloudInit::NeedsSecret => {
                    self.subscribes(HookPoint::PreCloudInitIso)?;
                    Err(CheckFailure::NeedsSecret)
                }
            },
            Check::ConfigDrive => self.once(Document::CloudInit(inputs::config_drive())).await,
            Check::PreBoot => self.once(Document::BootFiles).await,
            Check::PreBootIdempotence => self.twice(Document::BootFiles).await,
            Check::PreMigrationSource => self.once(Document::Settings(example_settings())).await,
            Check::PreMigrationSourceIdempotence => {
                self.twice(Document::Settings(example_settings())).await
            }
            _ => self.other(check).await.map(|()| None),
        }
    }

    fn domain(&self) -> Document {
        Document::Domain(self.subject.domain_xml.clone())
    }

    async fn once(&self, given: Document) -> Result<Option<bool>, CheckFailure> {
        let answered = self.call(given).await?;
        match answered.ignored.is_empty() {
            true => Ok(Some(!answered.changes.is_empty())),
            false => Err(CheckFailure::Ignored(answered.ignored.join("; "))),
        }
    }

    async fn twice(&self, given: Document) -> Result<Option<bool>, CheckFailure> {
        let first = self.call(given).await?;
        let second = self.call(first.document).await?;
        match second.changes.is_empty() {
            true => Ok(Some(!first.changes.is_empty())),
            false => Err(CheckFailure::NotIdempotent(second.changes.join("; "))),
        }
    }

    async fn other(&self, check: Check) -> Result<(), CheckFailure> {
        let (vmi, xml) = (&self.vmi_json, &self.subject.domain_xml);
        let domain = || Bytes::from(xml.clone());
        match check {
            Check::UnknownElements => {
                let given = Document::Domain(inputs::with_unknown_elements(xml)?);
                if let Document::Domain(left) = self.call(given).await?.document {
                    let left = inputs::marked_elements(&Element::parse(&left)?);
                    let missing = inputs::MARKED_ELEMENTS.saturating_sub(left);
                    return match missing {
                        0 => Ok(()),
                        missing => Err(CheckFailure::LostElements { missing }),
                    };
                }
                Ok(())
            }
            Check::LargeInput => {
                let large = Called {
                    vmi_json: inputs::large_vmi(vmi),
                    sidecar: self.sidecar.clone(),
                    ..*self
                };
                let given = Document::Domain(inputs::large_domain(xml)?);
                large.call(given).await.map(drop)
            }
            Check::InvalidDomain => {
                let domain = Bytes::from_static(b"<domain><name>");
                let sent = self.send(domain, vmi.clone(), self.limit).await;
                self.survives(sent).await
            }
            Check::InvalidVmi => {
                let vmi = Bytes::from_static(b"{\"metadata\":");
                let sent = self.send(domain(), vmi, self.limit).await;
                self.survives(sent).await
            }
            Check::CancelledCall => {
                let soon = Duration::from_millis(1);
                // The call may have been answered before it was cancelled.
                let _ = self.send(domain(), vmi.clone(), soon).await;
                self.survives(Ok(())).await
            }
            Check::InvalidCloudInit => {
                let invalid = Bytes::from_static(b"{\"UserData\":");
                let data = CloudInitForms {
                    cloud_init_data: invalid.clone(),
                    cloud_init_no_cloud_source: invalid,
                };
                let call =
                    client::pre_cloud_init_iso(&self.sidecar, data, vmi.clone(), self.deadline());
                self.survives(call.await.map(drop)).await
            }
            Check::PreBootWithoutFiles => match &self.subject.plugin {
                Some(pod) => Ok(self.pre_boot(pod, Vec::new()).await.map(drop)?),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// After invalid input any answer passes; an error is best. The program must keep serving.
    async fn survives(&self, answer: Result<(), HookCallError>) -> Result<(), CheckFailure> {
        match answer {
            Ok(()) | Err(HookCallError::Failed { .. }) => {
                self.serves().await.map_err(CheckFailure::NotServing)
            }
            Err(error) => Err(error.into()),
        }
    }
}
