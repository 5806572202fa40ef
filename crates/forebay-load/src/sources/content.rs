//! Detects the format of a file from its first bytes, to complement or check its name.

use super::blob::Blob;
use super::error::SourceError;
use super::format::{Format, Packing};

/// The number of bytes inspected.
const HEAD_BYTES: u64 = 512;

/// The kind of file that its first bytes indicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Readable(Format),
    Packed(Packing),
    /// Another kind, and advice for it.
    Other(&'static str, &'static str),
}

const UNPACK: &str = "unpack it first";
const CONVERT: &str = "convert it first";

/// The first bytes of binary formats. Among those with the same beginning, the longest comes first.
const MARKS: [(&[u8], Kind); 27] = [
    (b"PAR1", Kind::Readable(Format::Parquet)),
    (b"ARROW1", Kind::Readable(Format::Arrow)),
    (b"\xff\xff\xff\xff", Kind::Readable(Format::Arrow)),
    (b"\x0a\x0d\x0d\x0a", Kind::Readable(Format::Capture)),
    (b"\xa1\xb2\xc3\xd4", Kind::Readable(Format::Capture)),
    (b"\xd4\xc3\xb2\xa1", Kind::Readable(Format::Capture)),
    (b"\xa1\xb2\x3c\x4d", Kind::Readable(Format::Capture)),
    (b"\x4d\x3c\xb2\xa1", Kind::Readable(Format::Capture)),
    // The mark of a modified pcap, which is refused with advice.
    (b"\xa1\xb2\xcd\x34", Kind::Readable(Format::Capture)),
    (b"\x34\xcd\xb2\xa1", Kind::Readable(Format::Capture)),
    (b"\x1f\x8b", Kind::Packed(Packing::Gzip)),
    (b"\x28\xb5\x2f\xfd", Kind::Packed(Packing::Zstd)),
    (
        b"PARE",
        Kind::Other("Parquet with an encrypted footer", CONVERT),
    ),
    (b"FEA1", Kind::Other("Feather of version 1", CONVERT)),
    (
        b"PK\x03\x04",
        Kind::Other("a zip archive, as .xlsx is too", UNPACK),
    ),
    (b"BZh", Kind::Other("compressed with bzip2", UNPACK)),
    (b"\xfd7zXZ\x00", Kind::Other("compressed with xz", UNPACK)),
    (
        b"\x04\x22\x4d\x18",
        Kind::Other("compressed with lz4", UNPACK),
    ),
    (
        b"\xff\x06\x00\x00sNaPpY",
        Kind::Other("compressed with snappy", UNPACK),
    ),
    (b"7z\xbc\xaf\x27\x1c", Kind::Other("a 7z archive", UNPACK)),
    (b"ORC", Kind::Other("ORC", CONVERT)),
    (b"Obj\x01", Kind::Other("Avro", CONVERT)),
    (
        b"SQLite format 3\0",
        Kind::Other("an SQLite database", CONVERT),
    ),
    (b"\x89HDF\r\n", Kind::Other("HDF5", CONVERT)),
    (b"\x93NUMPY", Kind::Other("a NumPy array", CONVERT)),
    (
        b"\xd0\xcf\x11\xe0",
        Kind::Other("an old Office file", CONVERT),
    ),
    (b"%PDF-", Kind::Other("PDF", CONVERT)),
];

impl Kind {
    fn what(self) -> String {
        match self {
            Kind::Readable(Format::Parquet) => "Parquet".to_owned(),
            Kind::Readable(Format::Arrow) => "Arrow".to_owned(),
            Kind::Readable(_) => "a packet capture".to_owned(),
            Kind::Packed(packing) => format!("compressed with {packing}"),
            Kind::Other(what, _) => what.to_owned(),
        }
    }
}

/// Returns a description of a file with the mark of a binary format, and advice for it.
pub(super) fn of_bytes(head: &[u8]) -> Option<(String, &'static str)> {
    let kind = marked(head)?;
    let advice = match kind {
        Kind::Readable(_) => "say so by its name or by --format",
        Kind::Packed(_) => UNPACK,
        Kind::Other(_, advice) => advice,
    };
    Some((kind.what(), advice))
}

fn marked(head: &[u8]) -> Option<Kind> {
    let mark = MARKS.iter().find(|(mark, _)| head.starts_with(mark));
    mark.map(|(_, kind)| *kind)
}

/// Returns the format and the compression of a file: as given, or from its name, or from its
/// content.
pub(super) fn settle(blob: &Blob, given: Option<Format>) -> Result<(Format, Packing), SourceError> {
    let file = || blob.name.to_string();
    let (packing, bare) = Packing::of_name(&blob.name);
    let named = given.or_else(|| Format::of_name(bare));
    match named {
        Some(Format::Parquet | Format::Arrow | Format::Capture) if packing != Packing::Plain => {
            return Err(SourceError::Compressed { file: file() });
        }
        _ if blob.size_bytes == 0 => return Err(SourceError::EmptyFile { file: file() }),
        Some(format @ (Format::Parquet | Format::Arrow | Format::Capture)) => {
            return Ok((format, packing));
        }
        Some(Format::Csv | Format::JsonLines) | None => {}
    }
    let head = blob.head(HEAD_BYTES)?;
    let kind = marked(&head);
    match (named, kind) {
        (Some(format), Some(Kind::Packed(found))) if packing == Packing::Plain => {
            Ok((format, found))
        }
        (Some(format), Some(Kind::Packed(found))) if found == packing => Ok((format, packing)),
        (Some(format), None) if packing == Packing::Plain => {
            match is_html(&head) && given.is_none() {
                true => Err(mistaken(blob, &format.to_string(), &head)),
                false => Ok((format, packing)),
            }
        }
        // Frames that decoders skip may come first.
        (Some(format), None) if packing == Packing::Zstd => Ok((format, packing)),
        (Some(_), _) if packing != Packing::Plain => {
            Err(mistaken(blob, &format!("compressed with {packing}"), &head))
        }
        (Some(format), _) => Err(mistaken(blob, &format.to_string(), &head)),
        (None, Some(Kind::Readable(format))) => Ok((format, Packing::Plain)),
        (None, _) => Err(SourceError::UnknownFormat {
            file: file(),
            what: what(&head),
        }),
    }
}

/// Returns an error if a file's first bytes show that it does not have its format.
pub(super) fn expect(blob: &Blob, format: Format) -> Result<(), SourceError> {
    let head = blob.head(HEAD_BYTES)?;
    match marked(&head) == Some(Kind::Readable(format)) {
        true => Ok(()),
        false => Err(mistaken(blob, &format.to_string(), &head)),
    }
}

fn mistaken(blob: &Blob, expected: &str, head: &[u8]) -> SourceError {
    SourceError::Mistaken {
        file: blob.name.to_string(),
        expected: expected.to_owned(),
        what: what(head),
        advice: match marked(head) {
            Some(Kind::Readable(format)) => format!("; give --format {format}, or name it so"),
            Some(Kind::Packed(_)) => format!("; {UNPACK}"),
            Some(Kind::Other(_, advice)) => format!("; {advice}"),
            None => String::new(),
        },
    }
}

/// Describes the content in words.
fn what(head: &[u8]) -> String {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let first = text.trim_ascii_start().first().copied();
    match (marked(head), first) {
        (Some(kind), _) => format!("it is {}", kind.what()),
        (None, _) if is_html(head) => {
            "it is an HTML page, as servers send with an error".to_owned()
        }
        (None, Some(b'{')) => "its content looks like JSON".to_owned(),
        (None, Some(b'[')) => "its content looks like a JSON array".to_owned(),
        (None, Some(b'<')) => "its content looks like XML".to_owned(),
        (None, _) if is_text(text) => format!("its content looks like text: {}", line(text)),
        (None, _) if head.iter().all(|byte| *byte == 0) => "it begins with zeros".to_owned(),
        (None, _) => "its content is of no format known here".to_owned(),
    }
}

fn is_html(head: &[u8]) -> bool {
    let text = head
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(head)
        .trim_ascii_start();
    let begins = |mark: &[u8]| {
        let begin = text.get(..mark.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(mark))
    };
    begins(b"<!doctype html") || begins(b"<html")
}

/// Returns whether it is UTF-8 without control characters; the last character may be cut off.
fn is_text(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let control = |c: char| c.is_control() && !matches!(c, '\t' | '\r' | '\n');
    !text.is_empty() && !text.contains(control)
}

/// Returns the first line, truncated for a message.
fn line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().find(|line| !line.trim().is_empty());
    let short: String = line.unwrap_or_default().chars().take(40).collect();
    format!("'{short}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_identify_the_kind_of_a_file() {
        for (head, expected) in [
            (&b"PAR1\x15\x04"[..], "it is Parquet"),
            (b"\xff\xff\xff\xff\x10\0\0\0", "it is Arrow"),
            (b"\xd4\xc3\xb2\xa1\x02\0", "it is a packet capture"),
            (b"\x1f\x8b\x08\0", "it is compressed with gzip"),
            (b"PK\x03\x04rest", "it is a zip archive"),
            (b"Obj\x01\x04", "it is Avro"),
            (b"\n <!DOCTYPE HTML><p>", "it is an HTML page"),
            (b"<a/>", "its content looks like XML"),
            (b"\xef\xbb\xbf{\"a\":1}", "its content looks like JSON"),
            (b" [1,2]", "its content looks like a JSON array"),
            (b"id,name\n1,a\n", "its content looks like text: 'id,name'"),
            (
                "a,b\n1,\u{e9}".as_bytes().split_last().unwrap().1,
                "its content looks like text: 'a,b'",
            ),
            (b"\0\0\0\0\0\0", "it begins with zeros"),
            (b"\x01\x02\x03\x80", "its content is of no format"),
        ] {
            assert!(
                what(head).starts_with(expected),
                "{} {expected}",
                what(head)
            );
        }
    }
}
