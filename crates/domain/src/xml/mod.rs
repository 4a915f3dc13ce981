//! How an element of libvirt's domain becomes XML, comes back from XML, and is shown to
//! virt-handler as Go-named JSON. Every element is declared once, with `elements!` (see `schema`);
//! the three forms follow from the declaration and cannot drift apart.
//!
//! ```text
//!            write            read          serde
//!  Domain ─────────► XML text ─────► Domain ◄────► Domain JSON
//! ```
//!
//! Reading skips what the schema does not know, in any order, and is bounded: a document that is
//! longer than [`MAX_BYTES`], nested deeper than [`MAX_DEPTH`] or of more than [`MAX_ELEMENTS`]
//! elements is refused before it costs anything. No entity but XML's own five is expanded, and a
//! document type declaration is passed over unread.

mod children;
mod element;
mod error;
mod escape;
mod input;
mod json;
mod namespace;
mod read;
mod schema;
pub mod secrets;
mod source;
pub mod tree;
mod value;
mod write;

pub(crate) use children::documents;
pub use children::{Children, to_string};
pub use element::XmlElement;
pub(crate) use error::quoted;
pub use error::{ReadError, ValueError};
pub(crate) use escape::escape;
pub use input::{In, Tag};
pub use json::{Go, Json, XmlName};
pub(crate) use json::{go, member, or_default};
pub use namespace::Namespace;
pub use read::from_str;
pub(crate) use schema::elements;
pub use value::Value;
pub use write::Out;

/// Longest document that is read, in bytes: libvirt's RPC carries no longer string.
pub const MAX_BYTES: usize = 4 << 20;
/// Deepest nesting that is read; libxml2, and so libvirt, draws the line there too.
pub const MAX_DEPTH: usize = 256;
/// Most attributes of one element that are read; libvirt's largest has about twenty.
pub const MAX_ATTRIBUTES: usize = 128;
/// Most attributes of all elements that are read into a [`tree`]: two for each element.
pub const MAX_ALL_ATTRIBUTES: usize = 2 * MAX_ELEMENTS;
/// Most elements that are read. A small element in the text can be a large structure in memory; a
/// domain with a thousand vCPUs, each pinned, has about five thousand.
pub const MAX_ELEMENTS: usize = 1 << 16;

/// The name without its prefix; known when the schema is compiled.
pub(crate) const fn local_name(name: &str) -> &str {
    let mut bytes = name.as_bytes();
    while let [byte, rest @ ..] = bytes {
        if *byte == b':'
            && let Some((_, local)) = name.split_at_checked(name.len() - rest.len())
        {
            return local;
        }
        bytes = rest;
    }
    name
}

#[cfg(test)]
mod tests;
