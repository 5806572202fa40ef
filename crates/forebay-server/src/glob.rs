//! Matches the glob patterns of SCAN, KEYS, CONFIG GET and the users file.
//!
//! Patterns have `*`, `?`, `[a-z]`, `[^a]`, `\`.

/// Returns whether `text` matches `pattern`, by Redis's rules. The time is at most proportional to
/// the product of their lengths: a match backtracks only to the last star.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, t));
            p += 1;
            continue;
        }
        if let Some(next) = one(pattern, p, text[t]) {
            p = next;
            t += 1;
            continue;
        }
        match retry {
            Some((star, from)) => {
                retry = Some((star, from + 1));
                p = star;
                t = from + 1;
            }
            None => return false,
        }
    }
    pattern[p.min(pattern.len())..]
        .iter()
        .all(|&byte| byte == b'*')
}

/// Returns the bytes that every match begins with.
pub fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let special = pattern.iter().position(|byte| b"*?[\\".contains(byte));
    &pattern[..special.unwrap_or(pattern.len())]
}

/// Matches one byte with the pattern at `p`. Returns where the pattern continues.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match *pattern.get(p)? {
        b'?' => Some(p + 1),
        b'[' => class(pattern, p + 1, byte),
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        plain => (plain == byte).then_some(p + 1),
    }
}

/// Matches a class from after its bracket. An unclosed class ends with the pattern.
fn class(pattern: &[u8], mut p: usize, byte: u8) -> Option<usize> {
    let negated = pattern.get(p) == Some(&b'^');
    p += usize::from(negated);
    let mut found = false;
    loop {
        match pattern.get(p..).unwrap_or_default() {
            [] => break,
            [b']', ..] => {
                p += 1;
                break;
            }
            [b'\\', plain, ..] => {
                found |= *plain == byte;
                p += 2;
            }
            [low, b'-', high, ..] => {
                found |= (*low.min(high)..=*low.max(high)).contains(&byte);
                p += 3;
            }
            [plain, ..] => {
                found |= *plain == byte;
                p += 1;
            }
        }
    }
    (found != negated).then_some(p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_of_redis() {
        let yes = [
            ("*", ""),
            ("", ""),
            ("h?llo", "hello"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("a\\*b", "a*b"),
            ("*b*c", "abbc"),
            ("a**", "a"),
            ("[\\]]", "]"),
        ];
        for (pattern, text) in yes {
            assert!(
                matches(pattern.as_bytes(), text.as_bytes()),
                "{pattern} {text}"
            );
        }
        let no = [
            ("", "a"),
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("a\\*b", "axb"),
            ("a*b", "a"),
        ];
        for (pattern, text) in no {
            assert!(
                !matches(pattern.as_bytes(), text.as_bytes()),
                "{pattern} {text}"
            );
        }
        assert_eq!(literal_prefix(b"flights:A*"), b"flights:A");
        assert_eq!(literal_prefix(b"flights"), b"flights");
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = b"*a".repeat(200);
        assert!(!matches(&pattern, &b"a".repeat(199)));
        assert!(!matches(&[&pattern[..], b"b"].concat(), &b"a".repeat(2000)));
    }

    proptest! {
        #[test]
        fn any_pattern_is_answered(
            pattern in proptest::collection::vec(any::<u8>(), 0..20),
            text in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            matches(&pattern, &text);
            let quoted: Vec<u8> = text.iter().flat_map(|&byte| [b'\\', byte]).collect();
            prop_assert!(matches(&quoted, &text));
        }
    }
}
