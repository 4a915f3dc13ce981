//! Enumerations of libvirt's C API as Rust enums.

/// Members with libvirt's numbers, and `Other` for a number that a newer libvirt adds.
macro_rules! c_enum {
    ($(#[$doc:meta])* pub enum $name:ident: $raw:ty {
        $($(#[$member_doc:meta])* $member:ident = $value:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$member_doc])* $member,)*
            /// A newer libvirt's number.
            Other($raw),
        }

        impl $name {
            pub(crate) fn from_raw(raw: $raw) -> Self {
                match raw {
                    $($value => Self::$member,)*
                    other => Self::Other(other),
                }
            }
        }
    };
}

pub(crate) use c_enum;
