//! Checks that call the sidecar.

use std::time::Duration;

use domain::xml::tree::Element;
use prost::bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

use super::failure::Failure;
use super::table::{Check, Effect};
use super::{CloudInit, inputs};
use crate::answer::{self, Answer};
use crate::client::{self, CloudInitForms};
use crate::cloud_init;
use crate::diff;
use crate::error::CallError;
use crate::sidecar::{HookPoint, Sidecar, Version};

/// The checks made for every version, in this order.
pub const CALLS: [Check; 10] = [
    Check::OnDefineDomain,
    Check::Idempotence,
    Check::UnknownElements,
    Check::LargeInput,
    Check::InvalidDomain,
    Check::InvalidVmi,
    Check::CancelledCall,
    Check::PreCloudInitIso,
    Check::ConfigDrive,
    Check::InvalidCloudInit,
];

/// Checks the answer of `Info`. Returns the versions to check, oldest first.
pub async fn info(sidecar: &Sidecar, limit: Duration) -> (Vec<Version>, Result<(), Failure>) {
    let info = match client::info(&sidecar.socket, os::time::deadline(limit)).await {
        Ok(info) => info,
        Err(error) => return (Vec::new(), Err(error.into())),
    };
    let mut versions: Vec<_> = info
        .versions
        .iter()
        .filter_map(|name| Version::from_name(name))
        .collect();
    versions.sort_unstable();
    versions.dedup();
    let version = sidecar.version;
    let is_unknown =
        |name: &str| HookPoint::from_name(name).is_none_or(|point| point.since() > version);
    let mut names = info.hook_points.into_iter().map(|point| point.name);
    let result = match names.len() {
        0 => Err(Failure::NoHookPoints),
        _ => match names.find(|name| is_unknown(name)) {
            Some(name) => Err(Failure::HookPoint { name, version }),
            None => Ok(()),
        },
    };
    (versions, result)
}

pub struct Call<'a> {
    pub sidecar: &'a Sidecar,
    pub vmi_json: &'a Bytes,
    pub domain_xml: &'a str,
    pub cloud_init: &'a CloudInit,
    pub timeout: Duration,
}

impl Call<'_> {
    /// Returns what its answer is to valid input, for the checks that have that.
    pub async fn check(&self, check: Check) -> Result<Option<Effect>, Failure> {
        match check {
            Check::OnDefineDomain => self.valid_domain().await.map(Some),
            Check::PreCloudInitIso => self.valid_cloud_init().await.map(Some),
            Check::ConfigDrive => {
                let data = inputs::config_drive();
                self.pre_cloud_init_iso(&data).await.map(Some)
            }
            _ => self.other(check).await.map(|()| None),
        }
    }

    async fn valid_domain(&self) -> Result<Effect, Failure> {
        let (before, after) = self.define(self.domain_xml, self.vmi_json).await?;
        if let Some(element) = after.tree.foreign().first() {
            return Err(Failure::Ignored(element.to_string()));
        }
        Ok(Effect::of(diff::diff(&before, &after.tree).is_empty()))
    }

    async fn valid_cloud_init(&self) -> Result<Effect, Failure> {
        let data = match self.cloud_init {
            CloudInit::Examples => &inputs::no_cloud(),
            CloudInit::Data(data) => data,
            CloudInit::NeedsSecret => return Err(Failure::NeedsSecret),
        };
        self.pre_cloud_init_iso(data).await
    }

    async fn other(&self, check: Check) -> Result<(), Failure> {
        match check {
            Check::Idempotence => self.idempotence().await,
            Check::UnknownElements => self.unknown_elements().await,
            Check::LargeInput => {
                let domain = inputs::large_domain(self.domain_xml)?;
                let vmi = inputs::large_vmi(self.vmi_json);
                self.define(&domain, &vmi).await.map(drop)
            }
            Check::InvalidDomain => {
                let call = self.on_define_domain("<domain><name>", self.vmi_json, self.deadline());
                self.survives(call.await).await
            }
            Check::InvalidVmi => {
                let vmi = Bytes::from_static(b"{\"metadata\":");
                let call = self.on_define_domain(self.domain_xml, &vmi, self.deadline());
                self.survives(call.await).await
            }
            Check::CancelledCall => {
                let soon = os::time::deadline(Duration::from_millis(1));
                // The call may have been answered before it was cancelled.
                let _ = self
                    .on_define_domain(self.domain_xml, self.vmi_json, soon)
                    .await;
                self.still_serves().await
            }
            Check::InvalidCloudInit => {
                let invalid = Bytes::from_static(b"{\"UserData\":");
                let data = CloudInitForms {
                    cloud_init_data: invalid.clone(),
                    cloud_init_no_cloud_source: invalid,
                };
                let vmi = self.vmi_json.clone();
                let call = client::pre_cloud_init_iso(self.sidecar, data, vmi, self.deadline());
                self.survives(call.await).await
            }
            _ => Ok(()),
        }
    }

    fn deadline(&self) -> Instant {
        os::time::deadline(self.timeout)
    }

    async fn on_define_domain(
        &self,
        domain_xml: &str,
        vmi_json: &Bytes,
        deadline: Instant,
    ) -> Result<Bytes, CallError> {
        let domain = Bytes::copy_from_slice(domain_xml.as_bytes());
        client::on_define_domain(self.sidecar, domain, vmi_json.clone(), deadline).await
    }

    /// Makes a call that has to succeed. Returns the domain before and after it.
    async fn define(
        &self,
        domain_xml: &str,
        vmi_json: &Bytes,
    ) -> Result<(Element, Answer), Failure> {
        let before = Element::parse(domain_xml)?;
        // The launcher writes the domain in this format.
        let xml = before.to_xml();
        let answer = self.on_define_domain(&xml, vmi_json, self.deadline());
        let after = answer::check(&before, &answer.await?).map_err(CallError::Answer)?;
        Ok((before, after))
    }

    async fn idempotence(&self) -> Result<(), Failure> {
        let (_, first) = self.define(self.domain_xml, self.vmi_json).await?;
        let (before, second) = self.define(&first.text, self.vmi_json).await?;
        let changes = diff::diff(&before, &second.tree);
        if changes.is_empty() {
            return Ok(());
        }
        Err(Failure::NotIdempotent {
            changes: diff::summary(&changes),
        })
    }

    async fn unknown_elements(&self) -> Result<(), Failure> {
        let domain = inputs::with_unknown_elements(self.domain_xml)?;
        let (_, after) = self.define(&domain, self.vmi_json).await?;
        match inputs::MARKED_ELEMENTS.saturating_sub(inputs::marked_elements(&after.tree)) {
            0 => Ok(()),
            missing => Err(Failure::LostElements { missing }),
        }
    }

    async fn pre_cloud_init_iso(&self, data: &Value) -> Result<Effect, Failure> {
        let vmi = self.vmi_json.clone();
        let forms = cloud_init::encode(data);
        let answer = client::pre_cloud_init_iso(self.sidecar, forms, vmi, self.deadline()).await?;
        let known = cloud_init::decode(data, &answer).map_err(CallError::CloudInit)?;
        match cloud_init::unknown_names(&answer, &known).as_slice() {
            [] => Ok(Effect::of(known == *data)),
            names => Err(Failure::IgnoredData {
                names: names.join(", "),
            }),
        }
    }

    /// After invalid input any answer passes; an error is best. The program must keep serving.
    async fn survives<T>(&self, answer: Result<T, CallError>) -> Result<(), Failure> {
        match answer {
            Ok(_) | Err(CallError::Failed { .. }) => self.still_serves().await,
            Err(error) => Err(error.into()),
        }
    }

    async fn still_serves(&self) -> Result<(), Failure> {
        match client::info(&self.sidecar.socket, self.deadline()).await {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::NotServing(error)),
        }
    }
}
