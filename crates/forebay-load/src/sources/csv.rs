//! Fields of CSV records, and the names of a header.

use std::borrow::Cow;

use super::CsvOptions;

/// The fields of one record, unquoted.
pub(super) fn fields<'r>(record: &'r [u8], options: &CsvOptions) -> Vec<Cow<'r, [u8]>> {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    let record = record.strip_suffix(b"\r").unwrap_or(record);
    let mut fields = Vec::new();
    let mut rest = record;
    loop {
        let (field, after) = field(rest, options);
        fields.push(field);
        match after {
            Some(after) => rest = after,
            None => return fields,
        }
    }
}

/// The first field, and what follows its delimiter.
fn field<'r>(record: &'r [u8], options: &CsvOptions) -> (Cow<'r, [u8]>, Option<&'r [u8]>) {
    let (delimiter, quote) = (options.delimiter, options.quote);
    let plain_end = |from: &[u8]| from.iter().position(|byte| *byte == delimiter);
    let after = |end: usize| record.get(end + 1..);
    if record.first() != Some(&quote) {
        return match plain_end(record) {
            Some(end) => (Cow::Borrowed(&record[..end]), after(end)),
            None => (Cow::Borrowed(record), None),
        };
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
    // What stands between the closing quote and the delimiter belongs to the field, as in the decoder.
    let rest = record.get(at + 1..).unwrap_or_default();
    match plain_end(rest) {
        Some(end) => {
            text.extend_from_slice(&rest[..end]);
            (Cow::Owned(text), rest.get(end + 1..))
        }
        None => {
            text.extend_from_slice(rest);
            (Cow::Owned(text), None)
        }
    }
}

/// The names of a header, or what is wrong with it.
pub(super) fn header(record: &[u8], options: &CsvOptions) -> Result<Vec<String>, String> {
    if record.is_empty() {
        return Err(
            "the file is empty: a CSV file begins with a header (or say that it has none)"
                .to_owned(),
        );
    }
    let mut names: Vec<String> = Vec::new();
    for (index, field) in fields(record, options).into_iter().enumerate() {
        let name = String::from_utf8(field.into_owned())
            .map_err(|_| format!("the name of column {} is not UTF-8", index + 1))?;
        let name = match name.is_empty() {
            true => column_name(index + 1),
            false => name,
        };
        if names.contains(&name) {
            return Err(format!(
                "two columns are named '{name}': rename one in the header"
            ));
        }
        names.push(name);
    }
    Ok(names)
}

/// The name of a column that has none.
pub(super) fn column_name(number: usize) -> String {
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
        assert_eq!(texts("\"a\"x,\"open"), ["ax", "open"]);
        assert_eq!(texts(""), [""]);
    }

    #[test]
    fn headers_are_checked() {
        let header = |record: &[u8]| super::header(record, &CsvOptions::default());
        assert_eq!(header(b"a,,c\n").unwrap(), ["a", "column_2", "c"]);
        assert!(header(b"a,a\n").unwrap_err().contains("two columns"));
        assert!(header(b"").unwrap_err().contains("empty"));
        assert!(header(b"\xff\n").unwrap_err().contains("UTF-8"));
    }
}
