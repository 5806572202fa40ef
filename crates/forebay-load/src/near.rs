//! Names that a mistyped one may have been meant for.

/// The candidate that is most like `name`, where one is like it at all: letters left out, added,
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

/// The end of a message about an unknown name: `; did you mean 'price'?`, or nothing.
pub(crate) fn hint<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> String {
    match nearest(name, candidates) {
        Some(near) => format!("; did you mean '{near}'?"),
        None => String::new(),
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
    }
}
