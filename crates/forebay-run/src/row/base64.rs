//! Formats binary values as text: unchanged if UTF-8, else as `{"base64":"..."}`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const BEGIN: &[u8] = b"{\"base64\":\"";
const END: &[u8] = b"\"}";

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
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
}

/// Returns the bytes of base64 with padding; `None` if it is not in the form of [`write_base64`].
/// Each byte sequence has only one text.
pub fn read_base64(text: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
