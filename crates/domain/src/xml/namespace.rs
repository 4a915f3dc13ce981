//! XML namespaces.

/// The namespaces that occur in a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Namespace {
    /// None: libvirt's own elements.
    #[default]
    None,
    /// KubeVirt's part of `<metadata>`.
    KubeVirt,
    Qemu,
    /// Any other; the schema has no element there.
    Other,
}

impl Namespace {
    /// The address that names it in the document; empty where there is none.
    #[must_use]
    pub const fn uri(self) -> &'static str {
        match self {
            Self::KubeVirt => "http://kubevirt.io",
            Self::Qemu => "http://libvirt.org/schemas/domain/qemu/1.0",
            Self::None | Self::Other => "",
        }
    }

    pub(super) fn named(uri: &str) -> Self {
        match uri {
            "" => Self::None,
            uri if uri == Self::KubeVirt.uri() => Self::KubeVirt,
            uri if uri == Self::Qemu.uri() => Self::Qemu,
            _ => Self::Other,
        }
    }
}
