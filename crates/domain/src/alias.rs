//! `<alias>`: the name by which a device is known. Names given by the user carry the prefix `ua-`
//! in XML (a rule of libvirt's) and not in JSON, where a flag says it instead.

use super::xml::{Json, Out, ValueError, XmlElement, member};
use serde::Serializer;
use serde::ser::SerializeStruct;

/// What libvirt demands of every alias that is not its own.
pub const USER_PREFIX: &str = "ua-";

/// `<alias>` of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Alias {
    /// The name without `ua-`.
    pub name: String,
    /// Whether the XML carries `ua-`: the name is ours, not libvirt's.
    pub user_defined: bool,
}

impl Alias {
    /// An alias that we give; `name` is written without the prefix.
    #[must_use]
    pub fn user(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            user_defined: true,
        }
    }

    /// The name as it stands in XML and in libvirt's events: with `ua-` if the user gave it.
    #[must_use]
    pub fn qualified(&self) -> String {
        let prefix = if self.user_defined { USER_PREFIX } else { "" };
        format!("{prefix}{}", self.name)
    }

    /// The alias that XML and libvirt's events have under this name.
    #[must_use]
    pub fn from_qualified(name: &str) -> Self {
        match name.strip_prefix(USER_PREFIX) {
            Some(name) => Self::user(name),
            None => Self::libvirt(name),
        }
    }

    /// An alias taken as it is, such as those which libvirt generates.
    #[must_use]
    pub fn libvirt(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            user_defined: false,
        }
    }
}

impl XmlElement for Alias {
    fn attributes(&self, out: &mut Out) {
        out.attribute("name", &self.qualified());
    }

    fn attribute(&mut self, name: &str, value: &str) -> Result<(), ValueError> {
        if name == "name" {
            *self = Self::from_qualified(value);
        }
        Ok(())
    }
}

impl Json for Alias {
    fn from_json(value: &serde_json::Value) -> Option<Self> {
        Some(Self {
            name: member(value, "Name")?,
            user_defined: member(value, "UserDefined")?,
        })
    }
    fn json<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_struct("Alias", 2)?;
        out.serialize_field("Name", self.name.as_str())?;
        out.serialize_field("UserDefined", &self.user_defined)?;
        out.end()
    }
}
