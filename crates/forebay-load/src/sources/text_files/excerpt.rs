//! Shortens text files for messages.

use forebay_run::error::without_controls;

/// The most characters of a record or value in a message.
pub(in crate::sources) const SHOWN_CHARS: usize = 40;

/// Returns the beginning of a text, on one line.
pub(in crate::sources) fn excerpt(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text.trim_ascii());
    let start: String = text.chars().take(SHOWN_CHARS).collect();
    without_controls(&start)
}

/// Returns the error of a record that is not UTF-8 from a byte on.
pub(in crate::sources) fn not_utf8(record: &[u8], at: usize) -> String {
    let byte = record.get(at).copied().unwrap_or_default();
    let before = record.get(..at).unwrap_or_default();
    let before = String::from_utf8_lossy(before);
    let skipped = before.chars().count().saturating_sub(SHOWN_CHARS);
    let before: String = before.chars().skip(skipped).collect();
    let before = without_controls(&before);
    format!(
        "the byte 0x{byte:02x} after '{before}' is not UTF-8; convert the file first, as by iconv -f ENCODING -t UTF-8, \
         where ENCODING is that of the file, such as ISO-8859-1"
    )
}
