//! Compares and copies keys and values of a few bytes without a function call.

/// Returns the length of the common prefix of `a` and `b`.
#[inline]
pub(crate) fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    if let (Some(a), Some(b)) = (a.first_chunk(), b.first_chunk()) {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return differing.trailing_zeros() as usize / 8;
        }
    }
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The most bytes that are copied without a call.
pub(crate) const SHORT_BYTES: usize = 16;

/// Appends `bytes`; eight to sixteen of them without a call.
#[inline]
pub fn append_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = bytes.len();
    match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(head), Some(tail)) if len <= SHORT_BYTES => {
            let at = out.len();
            out.extend_from_slice(&[0; SHORT_BYTES]);
            out[at..at + 8].copy_from_slice(head);
            out[at + len - 8..at + len].copy_from_slice(tail);
            out.truncate(at + len);
        }
        _ => out.extend_from_slice(bytes),
    }
}

/// Appends `bytes[from..end]`; up to sixteen bytes without a call, if `bytes` is long enough.
#[inline]
pub(crate) fn append_part(out: &mut Vec<u8>, bytes: &[u8], from: usize, end: usize) {
    match bytes[from..].first_chunk::<SHORT_BYTES>() {
        Some(more) if end - from <= SHORT_BYTES => {
            let len = out.len() + end - from;
            out.extend_from_slice(more);
            out.truncate(len);
        }
        _ => out.extend_from_slice(&bytes[from..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_copied_at_any_length() {
        let bytes: Vec<u8> = (0..64).collect();
        for from in 0..bytes.len() {
            for end in from..bytes.len() {
                let mut whole = vec![1, 2];
                append_bytes(&mut whole, &bytes[from..end]);
                let mut part = vec![1, 2];
                append_part(&mut part, &bytes, from, end);
                assert_eq!(whole, [&[1, 2], &bytes[from..end]].concat());
                assert_eq!(part, whole);
            }
        }
    }

    #[test]
    fn shared_bytes_are_counted() {
        for (a, b, shared) in [
            ("", "", 0),
            ("a", "b", 0),
            ("abc", "abd", 2),
            ("ab", "abcdefghi", 2),
            ("abcdefgh", "abcdefgh", 8),
            ("abcdefghij", "abcdefghik", 9),
            ("abcdxfgh", "abcdyfgh", 4),
        ] {
            assert_eq!(shared_bytes(a.as_bytes(), b.as_bytes()), shared, "{a} {b}");
        }
    }
}
