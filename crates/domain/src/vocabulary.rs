//! Attributes with a fixed list of values in libvirt. Each type can also hold any other text, as
//! it stands in the document: a newer libvirt, or a sidecar, may know more words than this schema.

/// Declares a type for the values of an attribute. Besides the words listed it has `Unset` for an
/// attribute that is absent or empty, and `Other` for words that are not in the list.
macro_rules! vocabulary {
    ($($(#[$meta:meta])* $name:ident { $($(#[$m:meta])* $word:ident = $text:literal,)+ })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub enum $name {
            /// The attribute is absent or empty.
            #[default]
            Unset,
            $(#[doc = concat!("`", $text, "`")] $(#[doc = ""] #[$m])* $word,)+
            /// A word that is not in the list; made by `From` only, so that it is never a listed
            /// one.
            Other(String),
        }

        impl $name {
            /// The word as it stands in the document; empty if there is none.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    Self::Unset => "",
                    $(Self::$word => $text,)+
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    "" => Self::Unset,
                    $($text => Self::$word,)+
                    _ => Self::Other(text.into()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl $crate::xml::Value for $name {
            fn write(&self, out: &mut String) {
                $crate::xml::escape(self.as_str(), out);
            }
            fn parse(text: &str) -> Result<Self, $crate::xml::ValueError> {
                Ok(text.into())
            }
            fn is_absent(&self) -> bool {
                self.as_str().is_empty()
            }
        }

        impl $crate::xml::Json for $name {
            fn from_json(value: &serde_json::Value) -> Option<Self> {
                value.as_str().map(Self::from)
            }
            fn json<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.as_str())
            }
        }
    )*};
}
pub(crate) use vocabulary;

vocabulary! {
/// `yes` or `no`.
YesNo {
    Yes = "yes",
    No = "no",
}
/// `on` or `off`.
OnOff {
    On = "on",
    Off = "off",
}
}

impl From<bool> for YesNo {
    fn from(value: bool) -> Self {
        if value { Self::Yes } else { Self::No }
    }
}

impl From<bool> for OnOff {
    fn from(value: bool) -> Self {
        if value { Self::On } else { Self::Off }
    }
}

#[cfg(test)]
mod tests {
    use crate::DomainSpec;
    use crate::disks::DiskBus;
    use crate::xml::Go;

    #[test]
    fn every_text_is_kept_as_it_is() {
        for text in ["", "virtio", "VIRTIO", " virtio", "nvme-of", "<&"] {
            let bus = DiskBus::from(text);
            assert_eq!(bus.as_str(), text);
            assert_eq!(
                serde_json::to_value(Go(&bus)).unwrap(),
                serde_json::Value::from(text)
            );
        }
        assert_eq!(DiskBus::from("virtio"), DiskBus::Virtio);
        assert_eq!(DiskBus::from("VIRTIO"), DiskBus::Other("VIRTIO".into()));
    }

    #[test]
    fn an_unknown_word_comes_back_escaped() {
        let xml = "<domain><devices><disk device='a&lt;b'><target bus='&amp;'/></disk></devices></domain>";
        let domain = DomainSpec::from_xml(xml).unwrap();
        assert_eq!(domain.devices.disks[0].device.as_str(), "a<b");
        assert_eq!(DomainSpec::from_xml(&domain.to_xml()).unwrap(), domain);
    }

    #[test]
    fn an_enum_is_no_larger_than_its_text() {
        assert_eq!(size_of::<DiskBus>(), size_of::<String>());
    }
}
