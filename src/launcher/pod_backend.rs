//! The pod and the conversion as the domain manager uses them. A trait, so that tests need neither
//! files nor images.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::error::LauncherError;
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use convert::context::{DiskModes, HostDeviceSpec};
use convert::{self, Context, ConvertError};
use domain::DomainSpec;
use os::lock::lock;
use pod::LauncherFlags;

/// Which guest a conversion is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ConvertFor {
    /// One that starts or runs in this pod.
    ThisPod,
    /// One that arrives from another pod.
    Arrival,
}

/// Reads the pod, converts, prepares. All calls block.
pub(super) trait PodBackend: Send + Sync + 'static {
    /// For what [`pod`] does without keeping anything.
    fn flags(&self) -> &LauncherFlags;

    /// The domain that the VMI wants, and the conversion's context. The domain of a migration target
    /// lacks hotplugged disks, which arrive with it; the context has them. An image of a container
    /// disk that was found once is remembered for later calls, whoever makes them: it cannot be
    /// found any more when a volume before it is unplugged.
    fn collect_and_convert(
        &self,
        vmi: &Vmi,
        options: &VirtualMachineOptions,
        guest: ConvertFor,
    ) -> Result<(DomainSpec, Context), LauncherError>;

    /// The SR-IOV devices that can be plugged in. They need no options, so no conversion.
    fn hotplug_devices(&self, vmi: &Vmi) -> Result<Vec<HostDeviceSpec>, LauncherError>;

    /// The VMI's cloud-init data, as JSON with Go's field names, for sidecars.
    fn cloud_init(&self, vmi: &Vmi) -> Result<Option<Value>, LauncherError>;

    /// The pod's open `/dev/iommu`, if any.
    fn iommufd(&self) -> Result<Option<Arc<OwnedFd>>, LauncherError>;

    /// Makes the files that the domain opens.
    fn prepare(
        &self,
        vmi: &Vmi,
        context: &Context,
        cloud_init: Option<Value>,
        guest: ConvertFor,
    ) -> Result<(), LauncherError>;

    /// Makes the directory of the migration's sockets, and checks that hotplugged volumes are
    /// there.
    fn open_for_migration(&self, vmi: &Vmi) -> Result<(), LauncherError>;

    /// Writes the cloud-init image again with the VMI's tagged devices, whose addresses are known
    /// once the domain is defined.
    fn write_device_metadata(
        &self,
        vmi: &Vmi,
        cloud_init: Value,
        defined: &DomainSpec,
    ) -> Result<(), LauncherError>;

    /// Resolves cache and I/O modes of the domain's disks by how their files can be opened. Returns
    /// the modes.
    fn resolve_disk_modes(&self, domain: &mut DomainSpec) -> Result<DiskModes, ConvertError>;
}

pub(super) struct PodFiles {
    flags: LauncherFlags,
    /// The device plugin hands it over once; a repeated start needs it again.
    iommufd: Mutex<Option<Arc<OwnedFd>>>,
    /// The pod's container disks; no other can be plugged in.
    container_disks: Mutex<pod::ContainerDisks>,
}

impl PodFiles {
    pub fn new(flags: LauncherFlags) -> Self {
        Self {
            flags,
            iommufd: Mutex::default(),
            container_disks: Mutex::default(),
        }
    }

    fn remember_container_disks(&self, context: &Context) {
        let mut known = lock(&self.container_disks);
        for (name, info) in &context.disks_info {
            known.entry(name.clone()).or_insert_with(|| info.clone());
        }
    }

    /// Parses cloud-init data. JSON loses bytes that are not UTF-8, so they are restored.
    fn cloud_init_data(&self, vmi: &Vmi, data: Value) -> Result<pod::CloudInitData, LauncherError> {
        let mut data: pod::CloudInitData =
            serde_json::from_value(data).map_err(LauncherError::CloudInit)?;
        if data.is_lossy()
            && let Some(given) = pod::cloud_init(&self.flags, vmi)?
        {
            data.restore(given);
        }
        Ok(data)
    }
}

impl PodBackend for PodFiles {
    fn flags(&self) -> &LauncherFlags {
        &self.flags
    }

    fn collect_and_convert(
        &self,
        vmi: &Vmi,
        options: &VirtualMachineOptions,
        guest: ConvertFor,
    ) -> Result<(DomainSpec, Context), LauncherError> {
        let known = lock(&self.container_disks).clone();
        let context = match guest {
            ConvertFor::ThisPod => pod::collect_context(&self.flags, vmi, options, &known)?,
            ConvertFor::Arrival => pod::collect_migration_target(&self.flags, vmi, options)?,
        };
        self.remember_container_disks(&context);
        if guest == ConvertFor::ThisPod {
            return Ok((convert::domain(vmi, &context)?, context));
        }
        let without_hotplugged = Context {
            hotplug_volumes: Default::default(),
            ..context.clone()
        };
        Ok((convert::domain(vmi, &without_hotplugged)?, context))
    }

    fn hotplug_devices(&self, vmi: &Vmi) -> Result<Vec<HostDeviceSpec>, LauncherError> {
        Ok(pod::hotplug_devices(&self.flags, vmi)?)
    }

    fn cloud_init(&self, vmi: &Vmi) -> Result<Option<Value>, LauncherError> {
        pod::cloud_init(&self.flags, vmi)?
            .map(serde_json::to_value)
            .transpose()
            .map_err(LauncherError::CloudInit)
    }

    fn iommufd(&self) -> Result<Option<Arc<OwnedFd>>, LauncherError> {
        let mut held = lock(&self.iommufd);
        if held.is_none() {
            *held = pod::receive_iommufd(&self.flags)?.map(Arc::new);
        }
        Ok(held.clone())
    }

    fn prepare(
        &self,
        vmi: &Vmi,
        context: &Context,
        cloud_init: Option<Value>,
        guest: ConvertFor,
    ) -> Result<(), LauncherError> {
        let data = cloud_init.map(|data| self.cloud_init_data(vmi, data));
        let data = data.transpose()?;
        if guest == ConvertFor::ThisPod {
            return Ok(pod::prepare(&self.flags, vmi, context, data.as_ref())?);
        }
        if !context.apply_cbt.is_empty() {
            // With the hotplugged disks.
            for disk in &convert::domain(vmi, context)?.devices.disks {
                pod::track_migrated(&self.flags, vmi, disk)?;
            }
        }
        let prepared = pod::prepare_migration_target(&self.flags, vmi, context, data.as_ref());
        Ok(prepared?)
    }

    fn open_for_migration(&self, vmi: &Vmi) -> Result<(), LauncherError> {
        pod::migration_socket_dir(&self.flags)?;
        if vmi.is_decentralized_migration() {
            pod::check_hotplugged_volumes(&self.flags, vmi)?;
        }
        Ok(())
    }

    fn write_device_metadata(
        &self,
        vmi: &Vmi,
        cloud_init: Value,
        defined: &DomainSpec,
    ) -> Result<(), LauncherError> {
        let mut data = self.cloud_init_data(vmi, cloud_init)?;
        let devices = pod::device_metadata(vmi, defined);
        // NoCloud has no place for them.
        if devices.is_empty() || data.data_source != pod::DataSource::ConfigDrive {
            return Ok(());
        }
        data.devices_data = Some(devices);
        pod::write_cloud_init(&self.flags, vmi, &data)?;
        Ok(())
    }

    fn resolve_disk_modes(&self, domain: &mut DomainSpec) -> Result<DiskModes, ConvertError> {
        let modes = pod::disk_modes(&self.flags, domain);
        convert::disk_modes::resolve_disk_modes(domain, &modes)?;
        Ok(modes)
    }
}
