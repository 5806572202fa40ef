//! Formats keys and other bytes for people.

/// Returns a key as messages show it: as text if it is text, else as hex.
pub fn show_key(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) => format!("{text:?}"),
        Err(_) => format!("0x{}", to_hex(key)),
    }
}

/// Returns the bytes of pairs of hex digits; `None` for any other text.
pub fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect();
    if rest.is_empty() { bytes } else { None }
}

/// Returns two lower-case hex digits per byte.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut digits = Vec::with_capacity(2 * bytes.len());
    write_hex(bytes, &mut digits);
    digits.into_iter().map(char::from).collect()
}

/// Appends two lower-case hex digits per byte.
pub fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
    out.extend(bytes.iter().flat_map(digits));
}
