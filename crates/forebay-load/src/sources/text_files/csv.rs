//! Splits CSV records into fields, and reads the names of a header.

use std::borrow::Cow;
use std::collections::HashSet;

use memchr::memchr;

use super::excerpt::not_utf8;
use crate::sources::{BATCH_ROWS, CsvOptions};

/// The most fields parsed at once, of all columns together: the decoder keeps eight bytes for each.
const BATCH_FIELDS: usize = 1 << 20;

/// Returns the number of rows that are decoded together, for this many columns.
pub(in crate::sources) fn batch_rows(columns: usize) -> usize {
    (BATCH_FIELDS / columns.max(1)).clamp(1, BATCH_ROWS)
}

/// A field of a record.
struct Piece<'r> {
    /// The text, unquoted.
    text: Cow<'r, [u8]>,
    /// Whether text follows between the closing quote and the delimiter.
    glued: bool,
    /// Whether there is a carriage return outside of the quotes.
    has_return: bool,
}

/// The error of a record that has a stray carriage return.
pub(in crate::sources) const STRAY_RETURN: &str =
    "a carriage return that ends no line: quote the field, or end all lines alike";

/// The error of a record that ends, with the file, within quotes.
pub(in crate::sources) const UNCLOSED: &str = "a quote is not closed before the file ends";

/// Returns the error of a header that ends within quotes.
pub(in crate::sources) fn unclosed_header(record: &[u8], options: &CsvOptions) -> String {
    let column = pieces(record, options).count();
    format!("its header: {UNCLOSED}: it is before the name of column {column}")
}

/// Returns the fields of one record, unquoted.
pub(in crate::sources) fn fields<'r>(record: &'r [u8], options: &CsvOptions) -> Vec<Cow<'r, [u8]>> {
    pieces(record, options).map(|piece| piece.text).collect()
}

/// Returns the index, from 0, of the field in which text follows the closing quote.
pub(in crate::sources) fn glued_field(record: &[u8], options: &CsvOptions) -> Option<usize> {
    pieces(record, options).position(|piece| piece.glued)
}

/// Returns whether a record whose line ends at a line feed has a carriage return outside of quotes,
/// other than that of its line end.
pub(in crate::sources) fn has_stray_return(record: &[u8], delimiter: u8, quote: u8) -> bool {
    let line = match record.strip_suffix(b"\n") {
        Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
        None => record,
    };
    memchr(b'\r', line).is_some()
        && pieces_of_line(line, delimiter, quote).any(|piece| piece.has_return)
}

fn pieces<'r>(record: &'r [u8], options: &CsvOptions) -> impl Iterator<Item = Piece<'r>> {
    let line = record.strip_suffix(b"\n").unwrap_or(record);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    pieces_of_line(line, options.delimiter, options.quote)
}

fn pieces_of_line(line: &[u8], delimiter: u8, quote: u8) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let (piece, after) = piece(rest?, delimiter, quote);
        rest = after;
        Some(piece)
    })
}

/// Returns the first field, and the rest after its delimiter.
fn piece(record: &[u8], delimiter: u8, quote: u8) -> (Piece<'_>, Option<&[u8]>) {
    let plain_end = |from: &[u8]| from.iter().position(|byte| *byte == delimiter);
    if record.first() != Some(&quote) {
        let end = plain_end(record).unwrap_or(record.len());
        let text = &record[..end];
        let piece = Piece {
            text: Cow::Borrowed(text),
            glued: false,
            has_return: text.contains(&b'\r'),
        };
        return (piece, record.get(end + 1..));
    }
    let mut text = Vec::new();
    let mut at = 1;
    while at < record.len() {
        if record[at] != quote {
            text.push(record[at]);
            at += 1;
        } else if record.get(at + 1) == Some(&quote) {
            text.push(quote);
            at += 2;
        } else {
            break;
        }
    }
    let rest = record.get(at + 1..).unwrap_or_default();
    let end = plain_end(rest).unwrap_or(rest.len());
    let piece = Piece {
        text: Cow::Owned(text),
        glued: end > 0,
        has_return: rest[..end].contains(&b'\r'),
    };
    (piece, rest.get(end + 1..))
}

/// Returns the error of a record with a field in which text follows the closing quote.
pub(in crate::sources) fn glued(field: &str) -> String {
    format!(
        "something follows the closing quote of {field}: a quote within quotes is written twice"
    )
}

/// Returns the names of a header, or what is wrong with it.
pub(in crate::sources) fn header(
    record: &[u8],
    options: &CsvOptions,
) -> Result<Vec<String>, String> {
    if record.is_empty() {
        return Err(
            "the file is empty: a CSV file begins with a header (or say that it has none)"
                .to_owned(),
        );
    }
    if let Some(index) = glued_field(record, options) {
        return Err(glued(&format!("the name of column {}", index + 1)));
    }
    let mut names: Vec<String> = Vec::new();
    let mut met = HashSet::new();
    for (index, field) in fields(record, options).into_iter().enumerate() {
        let name = String::from_utf8(field.into_owned()).map_err(|error| {
            let reason = not_utf8(error.as_bytes(), error.utf8_error().valid_up_to());
            format!("the name of column {}: {reason}", index + 1)
        })?;
        let name = match name.is_empty() {
            true => column_name(index + 1),
            false => name,
        };
        if !met.insert(name.clone()) {
            return Err(format!(
                "two columns are named '{name}': rename one in the header"
            ));
        }
        names.push(name);
    }
    Ok(names)
}

/// Returns the generated name of a column without one.
pub(in crate::sources) fn column_name(number: usize) -> String {
    format!("column_{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(record: &str) -> Vec<String> {
        let fields = fields(record.as_bytes(), &CsvOptions::default());
        fields
            .iter()
            .map(|field| String::from_utf8_lossy(field).into_owned())
            .collect()
    }

    #[test]
    fn fields_are_unquoted() {
        assert_eq!(texts("a,b,\r\n"), ["a", "b", ""]);
        assert_eq!(texts("\"a,\"\"b\"\"\nc\",d\"e"), ["a,\"b\"\nc", "d\"e"]);
        assert_eq!(texts("\"a\",\"open"), ["a", "open"]);
        assert_eq!(texts(""), [""]);
    }

    #[test]
    fn text_after_a_closing_quote_is_found() {
        let glued = |record: &str| glued_field(record.as_bytes(), &CsvOptions::default());
        assert_eq!(glued("a,\"b\"x,c\n"), Some(1));
        assert_eq!(glued("a,\"b\" ,c"), Some(1));
        assert_eq!(glued("a,b\"x\",\"c\"\"d\",\"\"\r\n"), None);
    }

    #[test]
    fn stray_returns_are_found() {
        let stray = |record: &str| has_stray_return(record.as_bytes(), b',', b'"');
        for record in [
            "1,a\r\r\n",
            "\r2,c\n",
            "1,a\rb\r\n",
            "1,\"a\"\r\r\n",
            "1,a\r",
        ] {
            assert!(stray(record), "{record:?}");
        }
        for record in ["1,a\r\n", "1,\"a\r\"\n", "1,\"\ra\rb\"\r\n", "1,\"a\""] {
            assert!(!stray(record), "{record:?}");
        }
    }

    #[test]
    fn headers_are_checked() {
        let header = |record: &[u8]| super::header(record, &CsvOptions::default());
        assert_eq!(header(b"a,,c\n").unwrap(), ["a", "column_2", "c"]);
        assert_eq!(header(b"a\0b,\0\n").unwrap(), ["a\0b", "\0"]);
        assert!(
            header(b"a,\"b\"c\n")
                .unwrap_err()
                .contains("name of column 2")
        );
        assert!(header(b"a,a\n").unwrap_err().contains("two columns"));
        assert!(header(b"").unwrap_err().contains("empty"));
        assert!(header(b"\xff\n").unwrap_err().contains("UTF-8"));
    }
}
