//! Matches names against patterns.
//!
//! `*` and `?` match within a name, `[a-z]` one of a set, `**` any directories.

/// Returns whether a text is a pattern, not merely a name.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Returns whether a name is used only if written out: dot files, and files that jobs leave beside
/// their output (`_SUCCESS`, `_temporary`). A directory that gives a column is not hidden.
pub fn hidden(name: &str) -> bool {
    name.starts_with('.') || (name.starts_with('_') && !name.contains('='))
}

/// Returns whether the names of a path match a pattern's parts; `**` matches any number of
/// directories.
pub fn matches_parts(parts: &[&str], names: &[String]) -> bool {
    match (parts.split_first(), names.split_first()) {
        (None, None) => true,
        (Some((&"**", rest)), _) => {
            if matches_parts(rest, names) {
                return true;
            }
            names.split_first().is_some_and(|(name, below)| {
                !hidden(name)
                    && (matches_parts(parts, below) || (rest.is_empty() && below.is_empty()))
            })
        }
        (Some((part, rest)), Some((name, below))) => {
            matches_name(part, name) && matches_parts(rest, below)
        }
        _ => false,
    }
}

/// Returns whether a name matches a pattern of `*`, `?` and `[...]`.
pub fn matches_name(pattern: &str, name: &str) -> bool {
    if hidden(name) && pattern.starts_with(['*', '?', '[']) {
        return false;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    // The position after the last star, and the position in the name when it was reached.
    let mut retry: Option<(usize, usize)> = None;
    let (mut p, mut n) = (0, 0);
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            p += 1;
            retry = Some((p, n));
        } else if let Some(next) = match_one(&pattern, p, name[n]) {
            p = next;
            n += 1;
        } else if let Some((after_star, seen)) = retry {
            retry = Some((after_star, seen + 1));
            (p, n) = (after_star, seen + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|rest| *rest == '*')
}

/// Matches one character; returns the pattern's position after it.
fn match_one(pattern: &[char], at: usize, character: char) -> Option<usize> {
    match pattern.get(at)? {
        '?' => Some(at + 1),
        '[' => match_set(pattern, at, character),
        plain => (*plain == character).then_some(at + 1),
    }
}

fn match_set(pattern: &[char], at: usize, character: char) -> Option<usize> {
    let close = at + 2 + pattern.get(at + 2..)?.iter().position(|c| *c == ']')?;
    let set = &pattern[at + 1..close];
    let (negated, set) = match set.split_first() {
        Some(('!' | '^', rest)) if !rest.is_empty() => (true, rest),
        _ => (false, set),
    };
    let mut inside = false;
    let mut index = 0;
    while index < set.len() {
        if index + 2 < set.len() && set[index + 1] == '-' {
            inside |= (set[index]..=set[index + 2]).contains(&character);
            index += 3;
        } else {
            inside |= set[index] == character;
            index += 1;
        }
    }
    (inside != negated).then_some(close + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_patterns() {
        for (pattern, name, expected) in [
            ("*", "abc", true),
            ("a*c*", "abcd", true),
            ("a*d?", "abcde", true),
            ("a*d?", "abcd", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[abc", "a", false),
            ("*", ".hidden", false),
            ("*", "_SUCCESS", false),
            ("*", "_day=1", true),
            (".*", ".hidden", true),
            ("é?", "éü", true),
        ] {
            assert_eq!(matches_name(pattern, name), expected, "{pattern} {name}");
        }
    }
}
