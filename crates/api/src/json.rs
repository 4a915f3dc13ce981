//! JSON that others have written, read at a bounded cost.
//!
//! A few bytes of JSON can become a large value: `{}` in a list of volumes takes a hundred times
//! its size. So this module counts the entries before serde builds anything. The limits are far
//! above any API object and any list of plugins; a document beyond them costs one scan of its
//! bytes.

use serde::Deserialize;
use serde::de::Error as _;

/// Most entries of one list or object. A list of a node's CPUs is the longest legal one: Linux
/// supports at most 8,192.
pub const MAX_ENTRIES: usize = 8_192;
/// Most values of a document. An API object has some thousands.
pub const MAX_VALUES: usize = 65_536;
/// Deepest nesting, as in `serde_json`.
pub const MAX_DEPTH: usize = 128;

/// Parts of a path that an error names: the innermost ones.
const NAMED_PARTS: usize = 8;
/// Characters of a key in an error.
const NAMED_CHARS: usize = 40;

/// A limit that a document exceeds.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Excess {
    #[error("{0} has more than {MAX_ENTRIES} entries")]
    Entries(String),
    #[error("the document has more than {MAX_VALUES} values; {0} exceeds the limit")]
    Values(String),
    #[error("{0} is nested deeper than {MAX_DEPTH} levels")]
    Depth(String),
}

/// Decodes a document as [`serde_json::from_slice`] does, if it has no more values than the limits
/// of this module.
///
/// # Errors
/// It has more, and the error names where; or it is not JSON, or not what `T` is read from.
pub fn from_slice<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, serde_json::Error> {
    os::serving_thread::assert_may_decode(json.len());
    check(json).map_err(serde_json::Error::custom)?;
    serde_json::from_slice(json)
}

/// A list or an object that is not closed yet.
struct Open<'a> {
    is_object: bool,
    /// The key of the present entry, as it is written; empty in a list.
    key: &'a [u8],
    /// The number of entries before the present one.
    entries: usize,
}

// D-conv-8 (docs/differences.md).
/// Counts the values of a document. The decoder, and not this, reports invalid JSON.
fn check(json: &[u8]) -> Result<(), Excess> {
    let mut open: Vec<Open> = Vec::new();
    let mut values: usize = 1;
    let mut last_string: &[u8] = &[];
    let mut rest = json;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => (last_string, rest) = split_string(after),
            b':' => {
                if let Some(object) = open.last_mut() {
                    object.key = last_string;
                }
            }
            b'{' | b'[' => {
                if open.len() == MAX_DEPTH {
                    return Err(Excess::Depth(path(&open)));
                }
                // Its first entry; each other one follows a comma.
                let is_empty = matches!(after.trim_ascii_start().first(), Some(b'}' | b']'));
                values += usize::from(!is_empty);
                open.push(Open {
                    is_object: *byte == b'{',
                    key: &[],
                    entries: 0,
                });
            }
            b'}' | b']' => drop(open.pop()),
            b',' => {
                values += 1;
                if let Some(last) = open.last_mut() {
                    last.entries += 1;
                    if last.entries == MAX_ENTRIES {
                        open.pop();
                        return Err(Excess::Entries(path(&open)));
                    }
                }
            }
            _ => {}
        }
        if values > MAX_VALUES {
            return Err(Excess::Values(path(&open)));
        }
    }
    Ok(())
}

/// The text up to the quote that ends it, and what follows that quote.
fn split_string(text: &[u8]) -> (&[u8], &[u8]) {
    let mut is_escaped = false;
    let mut parts = text.splitn(2, |byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    });
    let mut next = || parts.next().unwrap_or_default();
    (next(), next())
}

/// Where the present entry is, such as `spec.volumes[3].name`.
fn path(open: &[Open]) -> String {
    let mut path = String::new();
    for part in open.iter().skip(open.len().saturating_sub(NAMED_PARTS)) {
        if part.is_object {
            let key = String::from_utf8_lossy(part.key);
            let name = key.chars().take(NAMED_CHARS).flat_map(char::escape_debug);
            path.extend((!path.is_empty()).then_some('.').into_iter().chain(name));
        } else {
            path.push_str(&format!("[{}]", part.entries));
        }
    }
    if path.is_empty() {
        "the document".clone_into(&mut path);
    }
    path
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::vmi::Vmi;

    fn list(of: &str, count: usize) -> String {
        format!("[{}]", vec![of; count].join(","))
    }

    fn error(json: &str) -> String {
        let error = from_slice::<Value>(json.as_bytes()).unwrap_err();
        error.to_string()
    }

    // D-conv-8 (docs/differences.md).
    #[test]
    fn a_list_of_more_entries_is_refused_with_its_field() {
        let vmi = |count| format!(r#"{{"spec":{{"volumes":{}}}}}"#, list("{}", count));
        let most: Vmi = from_slice(vmi(MAX_ENTRIES).as_bytes()).unwrap();
        assert_eq!(most.spec.volumes.len(), MAX_ENTRIES);
        assert_eq!(
            error(&vmi(MAX_ENTRIES + 1)),
            "spec.volumes has more than 8192 entries"
        );
        assert_eq!(
            error(&list("0", MAX_ENTRIES + 1)),
            "the document has more than 8192 entries"
        );
    }

    #[test]
    fn an_object_of_more_entries_is_refused_with_its_field() {
        let entries: Vec<String> = (0..=MAX_ENTRIES).map(|n| format!("\"{n}\":0")).collect();
        let json = format!(r#"{{"a":[1,{{"b":{{{}}}}}]}}"#, entries.join(","));
        assert_eq!(error(&json), "a[1].b has more than 8192 entries");
    }

    #[test]
    fn a_document_of_more_values_is_refused_where_the_limit_is() {
        let lists = vec![list("{}", MAX_ENTRIES); 8];
        assert_eq!(
            error(&format!(r#"{{"x":[{}]}}"#, lists.join(","))),
            "the document has more than 65536 values; x[7][8182] exceeds the limit"
        );
        assert!(from_slice::<Value>(list("0", MAX_ENTRIES).as_bytes()).is_ok());
    }

    #[test]
    fn deeper_nesting_is_refused_also_where_it_is_not_read() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(from_slice::<Vmi>(format!(r#"{{"x":{}}}"#, nested(127)).as_bytes()).is_ok());
        let error = error(&format!(r#"{{"x":{}}}"#, nested(128)));
        assert!(
            error.ends_with("[0] is nested deeper than 128 levels"),
            "{error}"
        );
    }

    #[test]
    fn what_is_in_a_string_is_not_counted() {
        let text = r#"[{,:\\\","#.repeat(MAX_VALUES);
        let json = format!(r#"{{"a":"{text}","b":1}}"#);
        let value: Value = from_slice(json.as_bytes()).unwrap();
        assert_eq!(value["b"], 1);
    }

    #[test]
    fn a_path_has_no_control_characters_and_an_end() {
        let key = format!("{}{}", "\u{1b}", "k".repeat(1000));
        let json = format!(r#"{{"{key}":{}}}"#, list("0", MAX_ENTRIES + 1));
        let error = error(&json);
        assert!(
            error.starts_with("\\u{1b}kkk") && error.len() < 100,
            "{error}"
        );
    }

    #[test]
    fn what_is_not_json_has_the_error_of_the_decoder() {
        for json in ["", "{", "\"", "\"\\", "]]", "{\"a\":}", "nul"] {
            let expected = serde_json::from_str::<Value>(json).unwrap_err();
            assert_eq!(error(json), expected.to_string());
        }
    }
}
