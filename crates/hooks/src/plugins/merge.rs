//! Laying what an expression made over the domain: fields that it set are set, structs are merged
//! field by field, lists are replaced as a whole, `null` removes; all else stays as it is, also
//! what no table knows.

use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelNull, CelString, CelStruct, CelUInt,
};
use cel::common::value::Val;

use super::native::{Native, Source, told};
use super::schema::{Field, Holds, Place, Teller, Type};
use domain::xml::tree::{Element, Node};

/// The attributes of the element around the one that is merged into.
enum Around<'a> {
    Other(&'a mut Vec<(String, String)>),
    /// The same element: a struct that is flat in another.
    Same,
}

/// The namespaces that libvirt knows, by the prefix that they have in the table.
const NAMESPACES: [&str; 5] = ["qemu", "lxc", "bhyve", "vmware", "xen"];

/// Lays `given` over the document.
///
/// # Errors
/// The field that cannot be set, and why.
pub fn merge(
    of: &'static Type,
    document: &mut Element,
    given: &CelStruct<'_>,
) -> Result<(), String> {
    let mut nothing = Vec::new();
    set_fields(of, document, &mut Around::Other(&mut nothing), given)?;
    for prefix in NAMESPACES {
        let (name, used) = (format!("xmlns:{prefix}"), format!("{prefix}:"));
        if document.attribute(&name).is_none()
            && document
                .children()
                .any(|child| child.name.starts_with(&used))
        {
            document.attributes.push((
                name,
                format!("http://libvirt.org/schemas/domain/{prefix}/1.0"),
            ));
        }
    }
    Ok(())
}

fn set_fields(
    of: &'static Type,
    element: &mut Element,
    around: &mut Around<'_>,
    given: &CelStruct<'_>,
) -> Result<(), String> {
    for (name, value) in given.field_values() {
        let (way, field) = of
            .find(&name)
            .ok_or_else(|| format!("{} has no field {name}", of.name))?;
        let holder = way
            .last()
            .and_then(|outer| of.sibling(outer.of()?))
            .unwrap_or(of);
        let mut setting = Setting {
            of: holder,
            field,
            element,
            around,
            given,
        };
        setting
            .set(value.as_ref())
            .map_err(|reason| format!("{}.{name}: {reason}", of.name))?;
    }
    Ok(())
}

/// One field on its way into its element.
struct Setting<'a, 'p, 'g> {
    of: &'static Type,
    field: &'static Field,
    element: &'a mut Element,
    around: &'a mut Around<'p>,
    given: &'a CelStruct<'g>,
}

impl Setting<'_, '_, '_> {
    fn set(&mut self, value: &dyn Val) -> Result<(), String> {
        match &self.field.place {
            Place::Attribute(name) => {
                let text = self.text(value)?;
                attribute(&mut self.element.attributes, name, text);
                Ok(())
            }
            Place::Text => {
                let text = self.text(value)?;
                self.element.nodes = text
                    .filter(|text| !text.is_empty())
                    .map(Node::Text)
                    .into_iter()
                    .collect();
                Ok(())
            }
            Place::Inner => {
                let text = self.text(value)?.unwrap_or_default();
                self.element.nodes = Element::parse(&format!("<all>{text}</all>"))
                    .map_err(|error| error.to_string())?
                    .nodes;
                Ok(())
            }
            Place::Flat(_) => self.flat(value),
            Place::Kind(kind) => self.kind(kind, value),
            Place::Element(path) => {
                if self.field.list {
                    self.list(path, value)
                } else {
                    self.child(path, value)
                }?;
                self.makes_kind(value);
                Ok(())
            }
        }
    }

    /// Of two kinds the one that comes first in the table counts.
    fn makes_kind(&mut self, value: &dyn Val) {
        let empty = value.downcast_ref::<CelNull>().is_some()
            || value
                .downcast_ref::<CelList<'_>>()
                .is_some_and(|list| list.inner().is_empty());
        let Some(kind) = self.field.makes.filter(|_| !empty) else {
            return;
        };
        let now = self.now();
        let first = self
            .of
            .fields
            .iter()
            .filter_map(Field::kind)
            .find(|&other| other == kind || Some(other) == now.as_deref());
        if first == Some(kind) {
            self.tell(kind);
        }
    }

    /// Of which kind the struct is so far.
    fn now(&self) -> Option<String> {
        let parent = match &*self.around {
            Around::Other(attributes) => attributes.as_slice(),
            Around::Same => self.element.attributes.as_slice(),
        };
        told(self.of, self.element, parent)
    }

    /// The text of a scalar; nothing where it is to be left out.
    fn text(&self, value: &dyn Val) -> Result<Option<String>, String> {
        if value.downcast_ref::<CelNull>().is_some() {
            return Ok(None);
        }
        let (text, zero) = scalar(self.field.holds, value)?;
        Ok((self.field.pointer || !self.field.omit_zero || !zero).then_some(text))
    }

    fn flat(&mut self, value: &dyn Val) -> Result<(), String> {
        let of = self.struct_type()?;
        match value.downcast_ref::<CelStruct<'_>>() {
            Some(given) => set_fields(of, self.element, &mut Around::Same, given),
            None if value.downcast_ref::<CelNull>().is_some() => {
                clear(of, self.element);
                Ok(())
            }
            None => Err(format!("a {} is needed", of.name)),
        }
    }

    fn child(&mut self, path: &[&'static str], value: &dyn Val) -> Result<(), String> {
        let Some((name, way)) = path.split_last() else {
            return Ok(());
        };
        if value.downcast_ref::<CelNull>().is_some() {
            remove(self.element, way, name);
            return Ok(());
        }
        let Some(of) = self.field.of() else {
            match self.text(value)? {
                None => remove(self.element, way, name),
                Some(text) => {
                    let container = descend(self.element, way);
                    let at = position(container, name);
                    let mut child = at.map_or_else(|| named(name), |at| take(container, at));
                    child.nodes = Some(text)
                        .filter(|text| !text.is_empty())
                        .map(Node::Text)
                        .into_iter()
                        .collect();
                    put(container, at, child);
                }
            }
            return Ok(());
        };
        let of = self.of.sibling(of).ok_or("its type is not known")?;
        let container = descend(self.element, way);
        let at = position(container, name);
        let mut child = at.map_or_else(|| named(name), |at| take(container, at));
        let result = into_struct(of, &mut child, &mut container.attributes, value);
        // A source of which the parent tells the kind may have nothing to say of its own.
        let superfluous = matches!(of.kind, Some(Teller::Parent(_)))
            && child.attributes.is_empty()
            && child.nodes.is_empty();
        match at {
            Some(at) if superfluous => drop(container.nodes.remove(at)),
            None if superfluous => {}
            at => put(container, at, child),
        }
        result
    }

    fn list(&mut self, path: &[&'static str], value: &dyn Val) -> Result<(), String> {
        let Some((name, way)) = path.split_last() else {
            return Ok(());
        };
        let empty = CelList::from(Vec::new());
        let list = match value.downcast_ref::<CelList<'_>>() {
            Some(list) => list,
            None if value.downcast_ref::<CelNull>().is_some() => &empty,
            None => return Err("a list is needed".to_owned()),
        };
        let mut items = Vec::new();
        for item in list.inner() {
            let mut child = named(name);
            match self.field.of() {
                Some(of) => {
                    let of = self.of.sibling(of).ok_or("its type is not known")?;
                    into_struct(of, &mut child, &mut Vec::new(), item.as_ref())?;
                }
                None => child
                    .nodes
                    .push(Node::Text(scalar(self.field.holds, item.as_ref())?.0)),
            }
            items.push(Node::Element(child));
        }
        let container = descend(self.element, way);
        let at = position(container, name).unwrap_or(container.nodes.len());
        remove(container, &[], name);
        container.nodes.splice(at..at, items);
        Ok(())
    }

    /// A struct in the same element, which makes it one of this kind. Of two kinds the one that
    /// comes first in the table counts; to change the kind, the other one is set to `null`.
    fn kind(&mut self, kind: &'static str, value: &dyn Val) -> Result<(), String> {
        let of = self.struct_type()?;
        let now = self.now();
        let other = self
            .of
            .fields
            .iter()
            .position(|field| field.kind().is_some() && field.kind() == now.as_deref());
        let this = self
            .of
            .fields
            .iter()
            .position(|field| std::ptr::eq(field, self.field));
        if value.downcast_ref::<CelNull>().is_some() {
            if other == this {
                clear(of, self.element);
                self.tell("");
            }
            return Ok(());
        }
        if let Some((at, field)) = other
            .and_then(|at| Some((at, self.of.fields.get(at)?)))
            .filter(|_| other != this)
        {
            let dropped = self
                .given
                .field_value(field.name)
                .is_some_and(|value| value.downcast_ref::<CelNull>().is_some());
            if !dropped && this.is_some_and(|this| at < this) {
                return Ok(());
            }
            if let Some(of) = field.of().and_then(|name| self.of.sibling(name)) {
                clear(of, self.element);
            }
        }
        if let Some(native) = value.downcast_ref::<Native>() {
            if let Source::Xml(from, _) = &native.source {
                self.element.attributes.clone_from(&from.attributes);
                self.element.nodes.clone_from(&from.nodes);
            }
        } else {
            let given = value
                .downcast_ref::<CelStruct<'_>>()
                .ok_or_else(|| format!("a {} is needed", of.name))?;
            set_fields(of, self.element, &mut Around::Same, given)?;
        }
        self.tell(kind);
        Ok(())
    }

    /// Writes of which kind the struct is.
    fn tell(&mut self, kind: &str) {
        let value = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        match &self.of.kind {
            Some(Teller::Own(names)) => {
                let mut parts = kind.split('/');
                for name in names {
                    attribute(
                        &mut self.element.attributes,
                        name,
                        value(parts.next().unwrap_or_default()),
                    );
                }
            }
            Some(Teller::Parent(name)) => match self.around {
                Around::Other(attributes) => attribute(attributes, name, value(kind)),
                Around::Same => attribute(&mut self.element.attributes, name, value(kind)),
            },
            Some(Teller::Child(child, name)) => {
                let child = descend(self.element, &[*child]);
                attribute(&mut child.attributes, name, value(kind));
            }
            None => {}
        }
    }

    fn struct_type(&self) -> Result<&'static Type, String> {
        self.field
            .of()
            .and_then(|name| self.of.sibling(name))
            .ok_or_else(|| "its type is not known".to_owned())
    }
}

/// Merges what an expression made, or takes over a part of the domain as it is.
fn into_struct(
    of: &'static Type,
    element: &mut Element,
    around: &mut Vec<(String, String)>,
    value: &dyn Val,
) -> Result<(), String> {
    if let Some(given) = value.downcast_ref::<CelStruct<'_>>() {
        let name = given.name().rsplit('.').next().unwrap_or_default();
        if name != of.name {
            return Err(format!("a {} is needed, not a {name}", of.name));
        }
        return set_fields(of, element, &mut Around::Other(around), given);
    }
    match value.downcast_ref::<Native>() {
        Some(Native {
            of: from,
            source: Source::Xml(document, beside),
        }) if from.name == of.name => {
            element.attributes.clone_from(&document.attributes);
            element.nodes.clone_from(&document.nodes);
            if let Some(Teller::Parent(name)) = of.kind {
                attribute(
                    around,
                    name,
                    beside
                        .iter()
                        .find(|(key, _)| key == name)
                        .map(|(_, value)| value.clone()),
                );
            }
            Ok(())
        }
        _ => Err(format!("a {} is needed", of.name)),
    }
}

/// Removes all that a struct has in an element.
fn clear(of: &'static Type, element: &mut Element) {
    for field in &of.fields {
        match &field.place {
            Place::Attribute(name) => attribute(&mut element.attributes, name, None),
            Place::Element(path) => {
                if let Some((name, way)) = path.split_last() {
                    remove(element, way, name);
                }
            }
            Place::Text | Place::Inner => element.nodes.clear(),
            Place::Flat(_) | Place::Kind(_) => {
                if let Some(inner) = field.of().and_then(|name| of.sibling(name)) {
                    clear(inner, element);
                }
            }
        }
    }
}

/// The text of a scalar of that type, and whether it is zero.
fn scalar(holds: Holds, value: &dyn Val) -> Result<(String, bool), String> {
    let wrong = || format!("{} is not what it holds", value.get_type().name());
    Ok(match holds {
        Holds::String => {
            let text = value
                .downcast_ref::<CelString<'_>>()
                .ok_or_else(wrong)?
                .inner()
                .to_owned();
            let zero = text.is_empty();
            (text, zero)
        }
        Holds::Int => {
            let number = *value.downcast_ref::<CelInt>().ok_or_else(wrong)?.inner();
            (number.to_string(), number == 0)
        }
        Holds::Uint => {
            let number = *value.downcast_ref::<CelUInt>().ok_or_else(wrong)?.inner();
            (number.to_string(), number == 0)
        }
        Holds::Bool => {
            let truth = *value.downcast_ref::<CelBool>().ok_or_else(wrong)?.inner();
            (truth.to_string(), !truth)
        }
        Holds::Double => {
            let number = *value.downcast_ref::<CelDouble>().ok_or_else(wrong)?.inner();
            (number.to_string(), number == 0.0)
        }
        Holds::Timestamp | Holds::Struct(_) | Holds::Any | Holds::Map => return Err(wrong()),
    })
}

// ---- the tree -----------------------------------------------------------------------------------

fn attribute(attributes: &mut Vec<(String, String)>, name: &str, value: Option<String>) {
    let Some(value) = value else {
        attributes.retain(|(key, _)| key != name);
        return;
    };
    match attributes.iter_mut().find(|(key, _)| key == name) {
        Some((_, old)) => *old = value,
        None => attributes.push((name.to_owned(), value)),
    }
}

fn named(name: &str) -> Element {
    Element {
        name: name.to_owned(),
        ..Element::default()
    }
}

fn position(container: &Element, name: &str) -> Option<usize> {
    container
        .nodes
        .iter()
        .position(|node| matches!(node, Node::Element(child) if child.name == name))
}

/// Takes a child out of its place; [`put`] gives it back.
fn take(container: &mut Element, at: usize) -> Element {
    match container.nodes.get_mut(at) {
        Some(Node::Element(child)) => std::mem::take(child),
        _ => Element::default(),
    }
}

fn put(container: &mut Element, at: Option<usize>, child: Element) {
    match at.and_then(|at| container.nodes.get_mut(at)) {
        Some(node) => *node = Node::Element(child),
        None => container.nodes.push(Node::Element(child)),
    }
}

/// The element at the end of a path, made where it is missing.
fn descend<'e>(mut element: &'e mut Element, way: &[&str]) -> &'e mut Element {
    for name in way {
        let at = position(element, name).unwrap_or(element.nodes.len());
        if at == element.nodes.len() {
            element.nodes.push(Node::Element(named(name)));
        }
        // It is there: found or made just now.
        let Some(Node::Element(child)) = element.nodes.get_mut(at) else {
            unreachable!()
        };
        element = child;
    }
    element
}

fn remove(element: &mut Element, way: &[&str], name: &str) {
    let Some((step, rest)) = way.split_first() else {
        element
            .nodes
            .retain(|node| !matches!(node, Node::Element(child) if child.name == name));
        return;
    };
    if let Some(Node::Element(child)) =
        position(element, step).and_then(|at| element.nodes.get_mut(at))
    {
        remove(child, rest, name);
    }
}
