//! What a Rust source declares, imports and names: its text without comments, literals and tests.

use std::collections::BTreeSet;

/// `use path as name`.
#[derive(Debug)]
pub struct Import {
    pub name: String,
    pub path: Vec<String>,
}

#[derive(Debug, Default)]
pub struct Source {
    /// Names of modules that it declares with `mod name;`.
    pub modules: BTreeSet<String>,
    pub imports: Vec<Import>,
    /// Paths of more than one segment outside `use`.
    pub paths: Vec<Vec<String>>,
}

impl Source {
    pub fn new(text: &str) -> Self {
        let tokens = without_tests(tokens(text));
        let mut source = Self::default();
        let mut rest = tokens.as_slice();
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            match (first.as_str(), after) {
                // Not `impl Trait + use<'a>`.
                ("use", [next, ..]) if next != "<" => {
                    let end = after
                        .iter()
                        .position(|token| token == ";")
                        .unwrap_or(after.len());
                    import(&after[..end], &[], &mut source.imports);
                    rest = &after[end..];
                }
                ("mod", [name, end, ..]) if end == ";" => {
                    source.modules.insert(name.clone());
                }
                _ if is_name(first) => {
                    let mut path = vec![first.clone()];
                    while let [colons, name, after @ ..] = rest
                        && colons == "::"
                        && is_name(name)
                    {
                        path.push(name.clone());
                        rest = after;
                    }
                    if path.len() > 1 {
                        source.paths.push(path);
                    }
                }
                _ => {}
            }
        }
        source
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads the tree of a `use`, without its semicolon, below `prefix`.
fn import(tree: &[String], prefix: &[String], into: &mut Vec<Import>) {
    let open = tree.iter().position(|token| token == "{");
    let Some(open) = open else {
        let names = tree.iter().filter(|token| is_name(token));
        let mut path: Vec<String> = prefix.iter().chain(names).cloned().collect();
        let alias = path.iter().position(|name| name == "as");
        let renamed = alias
            .map(|at| path.split_off(at))
            .and_then(|mut it| it.pop());
        if path.last().is_some_and(|name| name == "self") && path.len() > 1 {
            path.pop();
        }
        // What a star brings has no name here.
        let star = tree.last().is_some_and(|token| token == "*");
        let name = if star {
            None
        } else {
            renamed.or_else(|| path.last().cloned())
        };
        if !path.is_empty() {
            into.push(Import {
                name: name.unwrap_or_default(),
                path,
            });
        }
        return;
    };
    let names = tree[..open].iter().filter(|token| is_name(token));
    let prefix: Vec<String> = prefix.iter().chain(names).cloned().collect();
    let inside = &tree[open + 1..tree.len().saturating_sub(1)];
    let (mut depth, mut start) = (0_usize, 0);
    for (at, token) in inside.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 0 => {
                import(&inside[start..at], &prefix, into);
                start = at + 1;
            }
            _ => {}
        }
    }
    import(&inside[start..], &prefix, into);
}

/// Leaves out each item that has `#[cfg(test)]`: up to its semicolon, or the end of its braces.
fn without_tests(tokens: Vec<String>) -> Vec<String> {
    const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut rest = tokens.as_slice();
    while let Some((first, after)) = rest.split_first() {
        let is_test =
            rest.len() >= CFG_TEST.len() && rest.iter().zip(CFG_TEST).all(|(a, b)| a == b);
        if !is_test {
            kept.push(first.clone());
            rest = after;
            continue;
        }
        rest = &rest[CFG_TEST.len()..];
        let mut depth = 0_usize;
        while let Some((token, after)) = rest.split_first() {
            rest = after;
            match token.as_str() {
                "{" => depth += 1,
                "}" if depth == 1 => break,
                "}" => depth -= 1,
                ";" if depth == 0 => break,
                _ => {}
            }
        }
    }
    kept
}

/// Names, `::`, and other characters one by one. Comments and literals are left out.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            Some(rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            Some(rest.find("*/").map_or(rest.len(), |end| end + 2))
        } else if c.is_whitespace() {
            Some(c.len_utf8())
        } else {
            literal(rest)
        };
        let length = skipped.unwrap_or_else(|| match c {
            _ if is_name(rest) => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                end.unwrap_or(rest.len())
            }
            _ if rest.starts_with("::") => 2,
            _ => c.len_utf8(),
        });
        if skipped.is_none() {
            tokens.push(rest[..length].to_owned());
        }
        rest = &rest[length..];
    }
    tokens
}

/// The length of the text or character that `rest` begins with.
fn literal(rest: &str) -> Option<usize> {
    let raw = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r');
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let start = rest.len() - raw.len() + hashes + 1;
            let end = format!("\"{}", "#".repeat(hashes));
            return Some(
                rest[start..]
                    .find(&end)
                    .map_or(rest.len(), |at| start + at + end.len()),
            );
        }
    }
    let quote = rest.chars().next().filter(|c| ['"', '\''].contains(c))?;
    let mut characters = rest.char_indices().skip(1);
    let mut count = 0;
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => drop(characters.next()),
            c if c == quote => return Some(at + 1),
            // A lifetime, not a character.
            _ if quote == '\'' && count > 0 => return None,
            _ => {}
        }
        count += 1;
    }
    None
}
