//! Detects from a text file's first bytes how its records end, and whether it is text.

use memchr::{memchr, memchr_iter};

use super::TextFormat;
use super::excerpt::excerpt;
use super::splitter::Splitter;
use crate::sources::{CsvOptions, content};

/// The description of an unknown file with many zero bytes.
const BINARY: &str = "binary";
/// The bytes of a file that are inspected.
pub(in crate::sources) const SNIFF_BYTES: usize = 64 << 10;

/// Returns how the records of a file with this beginning end, and the number of bytes before the
/// first.
pub(in crate::sources) fn splitter(head: &[u8], format: &TextFormat) -> (Splitter, usize) {
    match format {
        TextFormat::Csv(options) => {
            let line_end = line_end(head, options);
            let splitter = Splitter::csv(options.delimiter, options.quote, line_end);
            (splitter, 0)
        }
        TextFormat::Json => {
            let blank = head.len() - head.trim_ascii_start().len();
            match head.get(blank) {
                Some(b'[') => (Splitter::elements(), blank + 1),
                _ => (Splitter::Lines, 0),
            }
        }
    }
}

/// Returns a carriage return if these end lines, outside of quotes, and no line feed does.
fn line_end(head: &[u8], options: &CsvOptions) -> u8 {
    let fold = |byte: &u8| if *byte == b'\r' { b'\n' } else { *byte };
    let folded: Vec<u8> = head.iter().map(fold).collect();
    let mut splitter = Splitter::csv(options.delimiter, options.quote, b'\n');
    let (mut at, mut found) = (0, b'\n');
    while let Some(end) = splitter.end(&folded[at..]) {
        at += end;
        found = head[at - 1];
        if found == b'\n' {
            break;
        }
    }
    found
}

/// Returns a description of a file with this beginning if it is not text of the format, and advice
/// for it.
pub(in crate::sources) fn stranger(
    head: &[u8],
    format: &TextFormat,
    is_format_given: bool,
) -> Option<(String, &'static str)> {
    const ICONV: &str = "convert it to UTF-8 first, as by iconv -f UTF-16 -t UTF-8";
    const ICONV_32: &str = "convert it to UTF-8 first, as by iconv -f UTF-32 -t UTF-8";
    let zeros = |at: usize| head.iter().skip(at).step_by(2).take(16).all(|b| *b == 0);
    const REMADE: &str = "an interrupted write or copy leaves such files: make it again";
    let zero_bytes = head.iter().filter(|byte| **byte == 0).count();
    let many_zeros = zero_bytes * 4 > head.len();
    if let Some(found) = content::of_bytes(head) {
        return Some(found);
    }
    let (what, advice) = match head {
        [_, ..] if head.iter().all(|byte| *byte == 0) => ("nothing but zeros", REMADE),
        // Must precede UTF-16, whose mark has the same beginning.
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => ("UTF-32", ICONV_32),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => ("UTF-16", ICONV),
        [_, 0, _, 0, ..] | [0, _, 0, _, ..] if zeros(0) || zeros(1) => ("UTF-16", ICONV),
        _ if many_zeros && is_format_given => (BINARY, "it is of another format, or damaged"),
        _ if many_zeros => (BINARY, "name its format by --format"),
        _ => markup(head, format)?,
    };
    Some((what.to_owned(), advice))
}

/// Returns the line of a file that shows what it is.
pub(in crate::sources) fn strange_line(head: &[u8], what: &str) -> usize {
    let zero = memchr(0, head).filter(|_| what == BINARY);
    1 + memchr_iter(b'\n', &head[..zero.unwrap_or_default()]).count()
}

fn markup(head: &[u8], format: &TextFormat) -> Option<(&'static str, &'static str)> {
    const EXPORT: &str = "export its rows as CSV or JSON lines first";
    let text = head.trim_ascii_start();
    let begins = |tag: &str| {
        let head = text.get(..tag.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(tag.as_bytes()))
    };
    if begins("<!doctype html") || begins("<html") {
        return Some(("HTML", "was an error's page saved in place of the data?"));
    }
    let json = matches!(format, TextFormat::Json);
    (begins("<?xml") || (json && begins("<"))).then_some(("XML", EXPORT))
}

/// Describes a JSON record that is not an object, by its beginning.
pub(in crate::sources) fn begins(record: &[u8], is_format_given: bool) -> String {
    if record.is_empty() {
        return "there is nothing before the comma".to_owned();
    }
    let start = excerpt(record);
    let start = match start.chars().any(|c| !c.is_whitespace()) {
        true => format!("'{start}'"),
        false => record
            .iter()
            .take(8)
            .map(|byte| format!("0x{byte:02x} "))
            .collect(),
    };
    let advice = match is_format_given {
        true => "jsonl is an object a line, or one array of objects",
        false => "say by --format what the file is",
    };
    format!("it begins with {}; {advice}", start.trim_end())
}

/// Returns the delimiter that a header of only one column seems to use.
pub(in crate::sources) fn other_delimiter(name: &str, delimiter: u8) -> Option<&'static str> {
    [(b';', ";"), (b'\t', "\\t"), (b'|', "|"), (b',', ",")]
        .into_iter()
        .find(|(other, _)| *other != delimiter && name.as_bytes().contains(other))
        .map(|(_, shown)| shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_are_carriage_returns_only_where_nothing_else_is() {
        let options = CsvOptions::default();
        for (text, end) in [
            ("a,b\r1,2\r", b'\r'),
            ("a,b\r\n1,2\r\n", b'\n'),
            ("a,b\n1,2\r\n", b'\n'),
            ("a,\"b\nc\"\r1,2\r", b'\r'),
            ("a\r\"b\nc\"\r", b'\r'),
            ("a,\"b\rc\"\n1,2\n", b'\n'),
            ("a,b", b'\n'),
        ] {
            assert_eq!(line_end(text.as_bytes(), &options), end, "{text:?}");
        }
    }

    #[test]
    fn files_of_other_formats_are_known() {
        let csv = TextFormat::Csv(CsvOptions::default());
        let json = TextFormat::Json;
        let stranger = |head: &[u8], format| stranger(head, format, false).map(|(what, _)| what);
        let gzip = Some("compressed with gzip".to_owned());
        assert_eq!(stranger(b"\x1f\x8b\x08", &json), gzip);
        let what = |head: &[u8], format| stranger(head, format).map(|what| what.leak() as &str);
        assert_eq!(what(b"\xff\xfe{\0", &json), Some("UTF-16"));
        for mark in [b"\xff\xfe\0\0", b"\0\0\xfe\xff"] {
            assert_eq!(what(mark, &json), Some("UTF-32"));
            let text = [mark, &b"i\0\0\0"[..]].concat();
            assert_eq!(what(&text, &csv), Some("UTF-32"));
        }
        assert_eq!(what(b"{\0\"\0a\0", &json), Some("UTF-16"));
        assert_eq!(
            what(b"PK\x03\x04", &csv),
            Some("a zip archive, as .xlsx is too")
        );
        assert_eq!(what(b"PAR1", &csv), Some("Parquet"));
        assert_eq!(what(b"\n<!DOCTYPE HTML>", &csv), Some("HTML"));
        assert_eq!(what(b"<a>", &json), Some("XML"));
        assert_eq!(what(b"<DATE>,<TIME>\n", &csv), None);
        assert_eq!(what(b"a\x01b\0\0\0", &csv), Some("binary"));
        assert_eq!(what(b"id,a\n1,x\0y\n", &csv), None);
        assert_eq!(what("é,b\n".as_bytes(), &csv), None);
        assert_eq!(what(b"", &csv), None);
        assert_eq!(what(&[0; 100], &json), Some("nothing but zeros"));
    }

    #[test]
    fn a_lone_column_may_have_another_delimiter() {
        assert_eq!(other_delimiter("id;name", b','), Some(";"));
        assert_eq!(other_delimiter("id\tname", b','), Some("\\t"));
        assert_eq!(other_delimiter("id,name", b';'), Some(","));
        assert_eq!(other_delimiter("id", b','), None);
    }
}
