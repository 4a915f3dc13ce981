//! The gRPC wire types, generated from `proto/` at build time: messages, clients and servers.
#![allow(clippy::all, clippy::pedantic)]

/// `kubevirt.cmd`: virt-handler calls the launcher.
pub mod cmd {
    pub mod v1 {
        tonic::include_proto!("kubevirt.cmd.v1");
    }
    impl v1::VmiRequest {
        /// The request with these options.
        #[must_use]
        pub fn with_options(self, options: &v1::VirtualMachineOptions) -> Self {
            let options = prost::Message::encode_to_vec(options).into();
            Self { options, ..self }
        }
    }
    pub mod info {
        tonic::include_proto!("kubevirt.cmd.info");
    }
}

/// `launcher.preview`: launcherctl asks what a sync would change.
pub mod preview {
    pub mod v1 {
        tonic::include_proto!("launcher.preview.v1");
    }
}

/// `launcher.inspect`: launcherctl asks a launcher about itself.
pub mod inspect {
    pub mod v1 {
        tonic::include_proto!("launcher.inspect.v1");
    }
}

/// `kubevirt.nbd`: the launcher serves the disks of a backup.
pub mod nbd {
    tonic::include_proto!("kubevirt.nbd");
}

/// `kubevirt.notify`: the launcher sends events to virt-handler.
pub mod notify {
    pub mod v1 {
        tonic::include_proto!("kubevirt.notify.v1");
    }
    pub mod info {
        tonic::include_proto!("kubevirt.notify.info");
    }
}

/// `kubevirt.hooks`: the launcher calls sidecars and plugins.
pub mod hooks {
    pub mod info {
        tonic::include_proto!("kubevirt.hooks.info");
    }
    pub mod v1alpha1 {
        tonic::include_proto!("kubevirt.hooks.v1alpha1");
    }
    pub mod v1alpha2 {
        tonic::include_proto!("kubevirt.hooks.v1alpha2");
    }
    pub mod v1alpha3 {
        tonic::include_proto!("kubevirt.hooks.v1alpha3");
    }
    pub mod plugins {
        tonic::include_proto!("kubevirt.hooks.plugins.v1alpha1");
    }
}
