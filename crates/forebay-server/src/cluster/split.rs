//! Parses replies of other nodes.

use std::ops::Range;

/// The most nested replies that are parsed: more than any command's.
const MOST_ITEMS: u64 = 1 << 32;

/// Returns the length of the first reply in `bytes`. `None` if it is incomplete or malformed.
pub fn reply_len(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut missing) = (0, 1u64);
    while missing > 0 {
        missing -= 1;
        let (kind, line, next) = line(bytes, at)?;
        at = next;
        match kind {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            b'$' | b'=' | b'!' => {
                if let Some(len) = length(line)? {
                    at = at.checked_add(len)?.checked_add(2)?;
                    if bytes.get(at - 2..at)? != b"\r\n" {
                        return None;
                    }
                }
            }
            b'*' | b'~' | b'>' => missing += length(line)?.unwrap_or(0) as u64,
            b'%' => missing += 2 * length(line)?.unwrap_or(0) as u64,
            _ => return None,
        }
        if missing > MOST_ITEMS {
            return None;
        }
    }
    Some(at)
}

/// Returns the ranges of all concatenated replies. `None` if anything else is among them.
pub fn replies(bytes: &[u8]) -> Option<Vec<Range<usize>>> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let end = at + reply_len(&bytes[at..])?;
        all.push(at..end);
        at = end;
    }
    Some(all)
}

/// Returns the ranges of an array's items. `None` for other replies.
pub fn items(reply: &[u8]) -> Option<Vec<Range<usize>>> {
    let (kind, count, start) = line(reply, 0)?;
    let count = length(count)?.filter(|_| kind == b'*')?;
    let found = replies(&reply[start..])?;
    let moved = |range: Range<usize>| range.start + start..range.end + start;
    (found.len() == count).then(|| found.into_iter().map(moved).collect())
}

/// Returns the value of an integer reply.
pub fn integer(reply: &[u8]) -> Option<i64> {
    let (kind, text, _) = line(reply, 0)?;
    let text = std::str::from_utf8(text).ok().filter(|_| kind == b':')?;
    text.parse().ok()
}

/// Returns the content of a bulk string. `None` for a null and for other replies.
pub fn bulk(reply: &[u8]) -> Option<&[u8]> {
    let (kind, text, start) = line(reply, 0)?;
    let len = length(text)?.filter(|_| kind == b'$')?;
    reply.get(start..start.checked_add(len)?)
}

/// Returns the text of an error reply.
pub fn error(reply: &[u8]) -> Option<String> {
    let (kind, text, _) = line(reply, 0)?;
    (kind == b'-').then(|| String::from_utf8_lossy(text).into_owned())
}

/// Returns whether the reply is an error whose code is this word.
pub fn is_error(reply: &[u8], word: &str) -> bool {
    let after = reply.strip_prefix(b"-");
    let after = after.and_then(|rest| rest.strip_prefix(word.as_bytes()));
    after.is_some_and(|rest| rest.starts_with(b" "))
}

/// Returns the kind and the text of the line at `at`, and where the next line begins.
pub fn line(bytes: &[u8], at: usize) -> Option<(u8, &[u8], usize)> {
    let rest = bytes.get(at..)?;
    let kind = *rest.first()?;
    let end = rest.iter().position(|byte| *byte == b'\r');
    let len = end.filter(|len| *len > 0)?;
    (rest.get(len + 1) == Some(&b'\n')).then(|| (kind, &rest[1..len], at + len + 2))
}

/// Parses a length, or the null's -1.
fn length(text: &[u8]) -> Option<Option<usize>> {
    let text = std::str::from_utf8(text).ok()?;
    match text {
        "-1" => Some(None),
        _ => text.parse::<u32>().ok().map(|len| Some(len as usize)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn replies_of_every_kind_are_separated() {
        let kinds: [&[u8]; 14] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":5\r\n",
            b"$3\r\n\r\n1\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"_\r\n",
            b"#t\r\n",
            b",1.5\r\n",
            b"=5\r\ntxt:a\r\n",
            b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            b"%1\r\n+a\r\n$-1\r\n",
            b"~1\r\n:7\r\n",
            b"*0\r\n",
        ];
        let all = kinds.concat();
        let found = replies(&all).unwrap();
        let found: Vec<&[u8]> = found.into_iter().map(|range| &all[range]).collect();
        assert_eq!(found, kinds);
        for cut in 1..all.len() {
            let whole = replies(&all[..cut]);
            let ends = kinds.iter().scan(0, |at, kind| {
                *at += kind.len();
                Some(*at)
            });
            assert_eq!(
                whole.is_some(),
                ends.collect::<Vec<_>>().contains(&cut),
                "{cut}"
            );
        }
    }

    #[test]
    fn items_integers_and_errors_of_replies_are_read() {
        assert_eq!(items(b"*2\r\n:1\r\n$1\r\na\r\n"), Some(vec![4..8, 8..15]));
        assert_eq!(items(b"*3\r\n:1\r\n"), None);
        assert_eq!((integer(b":-5\r\n"), integer(b"+5\r\n")), (Some(-5), None));
        assert_eq!(error(b"-ERR x\r\n").as_deref(), Some("ERR x"));
        assert!(is_error(b"-NOTHERE 5\r\n", "NOTHERE") && !is_error(b"-NOTHEREX 5\r\n", "NOTHERE"));
    }

    proptest! {
        #[test]
        fn a_reply_found_in_garbage_is_within_its_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(reply_len(&bytes).is_none_or(|len| len <= bytes.len()));
        }

        #[test]
        fn garbage_of_protocol_characters_is_handled_too(text in "[*$%+:0-9\r\n-]{0,40}") {
            prop_assert!(reply_len(text.as_bytes()).is_none_or(|len| len <= text.len()));
        }
    }
}
