//! Guesses the name meant by an unknown one.

/// Most wrong, missing or extra letters.
const MAX_DISTANCE: usize = 2;

/// The name most similar to `wanted`, if similar enough. Case, `-` and `_` do not count.
pub fn similar<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let plain = |name: &str| name.replace(['_', '-'], "").to_lowercase();
    let wanted = plain(wanted);
    let length = wanted.chars().count();
    let distances = names.into_iter().filter_map(|name| {
        let plain = plain(name);
        // Comparing takes as long as both lengths multiplied.
        let is_near = plain.chars().count().abs_diff(length) <= MAX_DISTANCE;
        is_near.then(|| (strsim::damerau_levenshtein(&plain, &wanted), name))
    });
    let (distance, name) = distances.min()?;
    // For a short name, fewer than half of it.
    (distance <= MAX_DISTANCE.min(length / 3)).then_some(name)
}

/// Names for an error: all of them, after the one that was probably meant.
pub fn known_names<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let all = match names.as_slice() {
        [] => "none".to_owned(),
        all => all.join(", "),
    };
    match similar(wanted, names) {
        Some(meant) => format!("{all}; did you mean {meant}?"),
        None => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_typing_error_is_found() {
        let names = ["rootdisk", "data", "cloud-init"];
        for (wanted, meant) in [
            ("rootdsik", Some("rootdisk")),
            ("rotdisk", Some("rootdisk")),
            ("dta", Some("data")),
            ("cloudinit", Some("cloud-init")),
            ("DATA", Some("data")),
            ("disk", None),
            ("da", None),
            ("", None),
        ] {
            assert_eq!(similar(wanted, names), meant, "{wanted}");
        }
        assert_eq!(similar("data", []), None);
    }

    #[test]
    fn an_error_names_what_is_there() {
        assert_eq!(
            known_names("dat", ["root", "data"]),
            "root, data; did you mean data?"
        );
        assert_eq!(known_names("other", ["root", "data"]), "root, data");
        assert_eq!(known_names("other", []), "none");
    }
}
