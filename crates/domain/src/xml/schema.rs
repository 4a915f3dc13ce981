//! `elements!`: one declaration of an element, from which come its type, its XML both ways, and its
//! JSON. Not touched by rustfmt: indent by hand.

/// Declares XML elements. A line a field, in the order in which the reference writes them. The
/// first text is libvirt's name; the second one is Go's field name in the Domain JSON, as
/// virt-handler decodes it: there is no serde rename.
///
/// ```text
/// attr    "xml" "Json" field: Type          attribute, always written
/// attr?   "xml" "Json" field: Type          attribute, left out when empty
/// leaf    "xml" "Json" field: Type          <xml>value</xml>, always written
/// leaf?   "xml" "Json" field: Type          the same, left out when empty
/// text          "Json" field: Type          the text between the tags
/// child   "xml" "Json" field: Type          element(s): T, Option<T>, Vec<T>
/// list "outer" "xml" "Json" field: Vec<T>   elements inside an <outer> of their own,
///                                           which is written even if there are none
/// ```
///
/// Two lines may come first: `namespace KubeVirt,` for an element that opens a namespace, and
/// `name "xml",` for one whose JSON has its own name (`XMLName`). `(always "Json" value)` in
/// place of the JSON name shows that value whatever the field holds; `(never)` leaves it out.
macro_rules! elements {
    ($($(#[$meta:meta])* $name:ident { $($lines:tt)* })*) => {$(
        $crate::xml::elements!(@munch {[$(#[$meta])*] $name [] []} [] $($lines)*);
    )*};

    (@munch {$meta:tt $name:ident [] $xmlname:tt} [] namespace $space:ident, $($rest:tt)*) => {
        $crate::xml::elements!(@munch {$meta $name [$space] $xmlname} [] $($rest)*); };
    (@munch {$meta:tt $name:ident $space:tt []} [] name $xmlname:literal, $($rest:tt)*) => {
        $crate::xml::elements!(@munch {$meta $name $space [$xmlname]} [] $($rest)*); };

    // One field after the other becomes {kind [outer] xml json field (type) docs}.
    (@munch $head:tt [$($done:tt)*] $(#[$m:meta])* attr? $x:literal $j:tt $f:ident: $t:ty, $($rest:tt)*) => {
        $crate::xml::elements!(@munch $head [$($done)* {attr_opt [] $x $j $f ($t) $(#[$m])*}] $($rest)*); };
    (@munch $head:tt [$($done:tt)*] $(#[$m:meta])* leaf? $x:literal $j:tt $f:ident: $t:ty, $($rest:tt)*) => {
        $crate::xml::elements!(@munch $head [$($done)* {leaf_opt [] $x $j $f ($t) $(#[$m])*}] $($rest)*); };
    (@munch $head:tt [$($done:tt)*] $(#[$m:meta])* text $j:tt $f:ident: $t:ty, $($rest:tt)*) => {
        $crate::xml::elements!(@munch $head [$($done)* {text [] "" $j $f ($t) $(#[$m])*}] $($rest)*); };
    (@munch $head:tt [$($done:tt)*] $(#[$m:meta])* list $o:literal $x:literal $j:tt $f:ident: $t:ty, $($rest:tt)*) => {
        $crate::xml::elements!(@munch $head [$($done)* {list [$o] $x $j $f ($t) $(#[$m])*}] $($rest)*); };
    (@munch $head:tt [$($done:tt)*] $(#[$m:meta])* $kind:ident $x:literal $j:tt $f:ident: $t:ty, $($rest:tt)*) => {
        $crate::xml::elements!(@munch $head [$($done)* {$kind [] $x $j $f ($t) $(#[$m])*}] $($rest)*); };

    (@munch {[$(#[$meta:meta])*] $name:ident [$($space:ident)?] [$($xmlname:literal)?]}
            [$({$kind:ident [$($o:literal)?] $x:literal $j:tt $f:ident ($t:ty) $(#[$m:meta])*})*]) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $name { $($(#[$m])* pub $f: $t,)* }

        #[allow(unused_variables, unused_mut, reason = "an element may have no attributes, no children, or neither")]
        impl $crate::xml::XmlElement for $name {
            const TEXT: bool = false $(|| $crate::xml::elements!(@is_text $kind))*;
            $(const NAMESPACE: Option<$crate::xml::Namespace> = Some($crate::xml::Namespace::$space);)?

            fn attributes(&self, out: &mut $crate::xml::Out) {
                $($crate::xml::elements!(@write_attr $kind $x self.$f, out);)*
            }
            fn content(&self, out: &mut $crate::xml::Out) -> bool {
                let mut children = false;
                $($crate::xml::elements!(@write_content $kind [$($o)?] $x self.$f, out, children);)*
                children
            }
            fn attribute(&mut self, name: &str, value: &str) -> Result<(), $crate::xml::ValueError> {
                $($crate::xml::elements!(@read_attr $kind $x self.$f, name, value);)*
                Ok(())
            }
            fn child(&mut self, tag: &$crate::xml::Tag<'_>, input: &mut $crate::xml::In<'_>) -> Result<bool, $crate::xml::ReadError> {
                $($crate::xml::elements!(@read_child $kind [$($o)?] $x self.$f, ($t), tag, input);)*
                Ok(false)
            }
            fn text(&mut self, value: &str) -> Result<(), $crate::xml::ValueError> {
                $($crate::xml::elements!(@read_text $kind self.$f, value);)*
                Ok(())
            }
        }

        #[allow(unused_mut, reason = "an element may have no fields")]
        impl $crate::xml::Json for $name {
            fn from_json(value: &serde_json::Value) -> Option<Self> {
                let mut read = Self::default();
                $($crate::xml::elements!(@from_json $j read.$f, value);)*
                value.is_object().then_some(read)
            }
            fn json<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;
                let mut out = s.serialize_struct(
                    stringify!($name),
                    0 $(+ $crate::xml::elements!(@one $f))* $(+ $crate::xml::elements!(@one $xmlname))?,
                )?;
                $(out.serialize_field("XMLName", &$crate::xml::XmlName($xmlname))?;)?
                $($crate::xml::elements!(@json $j self.$f, out);)*
                out.end()
            }
        }
    };

    (@one $any:tt) => { 1 };
    (@is_text text) => { true };
    (@is_text $kind:ident) => { false };

    (@write_attr attr $x:literal $s:ident.$f:ident, $out:ident) => { $out.attribute($x, &$s.$f) };
    (@write_attr attr_opt $x:literal $s:ident.$f:ident, $out:ident) => {
        if !$crate::xml::Value::is_absent(&$s.$f) {
            $out.attribute($x, &$s.$f)
        }
    };
    (@write_attr $kind:ident $x:literal $s:ident.$f:ident, $out:ident) => {};

    (@write_content text [] $x:literal $s:ident.$f:ident, $out:ident, $children:ident) => { $out.text(&$s.$f) };
    (@write_content leaf [] $x:literal $s:ident.$f:ident, $out:ident, $children:ident) => {
        $out.leaf($x, &$s.$f);
        $children |= true
    };
    (@write_content leaf_opt [] $x:literal $s:ident.$f:ident, $out:ident, $children:ident) => {
        if !$crate::xml::Value::is_absent(&$s.$f) {
            $out.leaf($x, &$s.$f);
            $children |= true
        }
    };
    (@write_content child [] $x:literal $s:ident.$f:ident, $out:ident, $children:ident) => {
        $children |= $crate::xml::Children::write(&$s.$f, $x, $out)
    };
    (@write_content list [$outer:literal] $x:literal $s:ident.$f:ident, $out:ident, $children:ident) => {
        $out.start($outer);
        let inner = $crate::xml::Children::write(&$s.$f, $x, $out);
        $out.end($outer, inner);
        $children |= true
    };
    (@write_content $kind:ident [] $x:literal $s:ident.$f:ident, $out:ident, $children:ident) => {};

    (@read_attr attr $($rest:tt)*) => { $crate::xml::elements!(@read_attr attr_opt $($rest)*) };
    (@read_attr attr_opt $x:literal $s:ident.$f:ident, $name:ident, $value:ident) => {
        if $name == $x {
            $s.$f = $crate::xml::Value::parse($value)?;
            return Ok(());
        }
    };
    (@read_attr $kind:ident $x:literal $s:ident.$f:ident, $name:ident, $value:ident) => {};

    (@read_child leaf $($rest:tt)*) => { $crate::xml::elements!(@read_child leaf_opt $($rest)*) };
    (@read_child leaf_opt [] $x:literal $s:ident.$f:ident, $t:tt, $tag:ident, $input:ident) => {
        if $tag.is($x, None) {
            $s.$f = $input.leaf($tag)?;
            return Ok(true);
        }
    };
    (@read_child child [] $x:literal $s:ident.$f:ident, ($t:ty), $tag:ident, $input:ident) => {
        if $tag.is(const { $crate::xml::local_name($x) }, <$t as $crate::xml::Children>::NAMESPACE) {
            $crate::xml::Children::read(&mut $s.$f, $tag, $input)?;
            return Ok(true);
        }
    };
    (@read_child list [$outer:literal] $x:literal $s:ident.$f:ident, $t:tt, $tag:ident, $input:ident) => {
        if $tag.is($outer, None) {
            $input.list($x, &mut $s.$f, $tag)?;
            return Ok(true);
        }
    };
    (@read_child $kind:ident [] $x:literal $s:ident.$f:ident, $t:tt, $tag:ident, $input:ident) => {};

    (@read_text text $s:ident.$f:ident, $value:ident) => { $s.$f = $crate::xml::Value::parse($value)? };
    (@read_text $kind:ident $s:ident.$f:ident, $value:ident) => {};

    (@from_json ($($apart:tt)*) $s:ident.$f:ident, $value:ident) => {};
    (@from_json $j:literal $s:ident.$f:ident, $value:ident) => { $s.$f = $crate::xml::member($value, $j)? };

    (@json (never) $s:ident.$f:ident, $out:ident) => {};
    (@json (always $j:literal $v:expr) $s:ident.$f:ident, $out:ident) => { $out.serialize_field($j, &$v)? };
    (@json $j:literal $s:ident.$f:ident, $out:ident) => { $out.serialize_field($j, &$crate::xml::Go(&$s.$f))? };
}
pub(crate) use elements;
