//! Formats binary values as text: unchanged if UTF-8, else as `{"base64":"..."}`.

use std::borrow::Cow;

const BEGIN: &[u8] = b"{\"base64\":\"";
const END: &[u8] = b"\"}";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends binary as a text that [`read_binary_text`] can read: its bytes if they are UTF-8, else
/// `{"base64":"..."}`. Bytes that begin like this form are written in it, too.
pub fn write_binary_text(bytes: &[u8], out: &mut Vec<u8>) {
    if is_plain(bytes) && std::str::from_utf8(bytes).is_ok() {
        out.extend_from_slice(bytes);
    } else {
        write_base64_object(bytes, out);
    }
}

/// Returns the binary of a text: decoded from `{"base64":"..."}`, else the text's bytes.
pub fn read_binary_text(text: &[u8]) -> Cow<'_, [u8]> {
    let inside = text.strip_prefix(BEGIN);
    let inside = inside.and_then(|rest| rest.strip_suffix(END));
    match inside.and_then(read_base64) {
        Some(bytes) => Cow::Owned(bytes),
        None => Cow::Borrowed(text),
    }
}

/// Returns whether bytes cannot be mistaken for the form with base64.
pub(super) fn is_plain(bytes: &[u8]) -> bool {
    !bytes.starts_with(BEGIN)
}

pub(super) fn write_base64_object(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(BEGIN);
    write_base64(bytes, out);
    out.extend_from_slice(END);
}

/// Appends base64 with padding.
pub fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .fold(0_u32, |all, byte| all << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for index in 0..4 {
            out.push(if index <= chunk.len() {
                ALPHABET[(group >> (18 - 6 * index) & 63) as usize]
            } else {
                b'='
            });
        }
    }
}

/// Returns the bytes of base64 with padding; `None` if it is not in the form of [`write_base64`].
pub fn read_base64(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digit = |byte: &u8| ALPHABET.iter().position(|have| have == byte);
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let groups = text.len() / 4;
    for (index, group) in text.chunks_exact(4).enumerate() {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || (padding > 0 && index + 1 < groups) {
            return None;
        }
        let mut bits = 0;
        for byte in &group[..4 - padding] {
            bits = bits << 6 | digit(byte)? as u32;
        }
        bits <<= 6 * padding;
        let bytes = bits.to_be_bytes();
        let (kept, cut) = bytes[1..].split_at(3 - padding);
        // Unused bits are zero, so that each byte sequence has only one text.
        if cut.iter().any(|byte| *byte != 0) {
            return None;
        }
        out.extend_from_slice(kept);
    }
    Some(out)
}
