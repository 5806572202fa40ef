//! Formats names for messages: suggestions for a mistyped name, and names in options to copy.

use forebay_run::error::{is_hidden, named_column, without_controls};

/// Returns the candidate most similar to `name`, if one is similar: letters left out, added,
/// changed or swapped in about a third of the name, or another case.
pub(crate) fn nearest<'c>(
    name: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    let name = name.to_lowercase();
    let limit = name.chars().count() / 3;
    let distance = |candidate: &str| strsim::damerau_levenshtein(&name, &candidate.to_lowercase());
    candidates
        .into_iter()
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the end of a message about an unknown name: `; did you mean 'price'?`, or nothing.
pub(crate) fn hint<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> String {
    match nearest(name, candidates) {
        Some(near) => format!("; did you mean '{}'?", without_controls(near)),
        None => String::new(),
    }
}

/// Returns whether an option can hold the name. No option takes an empty name, and nobody can copy
/// invisible characters.
pub(crate) fn is_word(name: &str) -> bool {
    !name.is_empty() && !name.contains(is_hidden)
}

/// Joins names on one line.
pub(crate) fn listed<'c>(names: impl IntoIterator<Item = &'c str>) -> String {
    let names: Vec<String> = names.into_iter().map(named_column).collect();
    names.join(", ")
}

/// Returns `--column 'NAME:TYPE'`, quoted for a shell; without the name if no option can hold it.
pub(crate) fn column_option(name: &str, data_type: &str) -> String {
    match is_word(name) {
        true => format!("--column '{}:{data_type}'", name.replace('\'', r"'\''")),
        false => format!("--column 'NAME:{data_type}' once the column has another name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_strange_ones_are_not() {
        let near = |name| nearest(name, ["id", "price", "carrier", "Flight"]);
        assert_eq!(near("pirce"), Some("price"));
        assert_eq!(near("carier"), Some("carrier"));
        assert_eq!(near("flight"), Some("Flight"));
        assert_eq!(near("ids"), Some("id"));
        assert_eq!(near("weather"), None);
        assert_eq!((near(""), near("i")), (None, None));
        assert_eq!(hint("pirce", ["price"]), "; did you mean 'price'?");
        assert_eq!(hint("x", ["price"]), "");
        let turned = hint("price", ["price\u{202e}"]);
        assert_eq!(turned, r"; did you mean 'price\u{202e}'?");
    }

    #[test]
    fn names_stay_on_their_line_and_options_hold_them() {
        assert_eq!(listed(["a", "", "b\nc"]), r"a, '', b\nc");
        assert_eq!(column_option("it's", "text"), r"--column 'it'\''s:text'");
        for name in ["", "b\nc", "\0", "a\u{202e}b", "a\u{200b}"] {
            let option = column_option(name, "text");
            assert!(option.starts_with("--column 'NAME:text' once"), "{option}");
        }
    }
}
