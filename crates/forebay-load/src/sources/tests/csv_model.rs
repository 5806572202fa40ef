//! Compares random CSV with a simple model: each record is read exactly, or is one bad row.

use super::*;
use forebay_io::sim::{Rng, SeedCounts, all_hold};

/// A record by its line: its fields, of which an unquoted empty one is null, or `None` if it is
/// bad.
type ModelRecord = (usize, Option<Vec<Option<String>>>);

/// The content of a field of the record being read.
#[derive(Default)]
struct Reading {
    fields: Vec<Option<String>>,
    text: String,
    is_quoted: bool,
    is_bad: bool,
}

impl Reading {
    fn end_field(&mut self) {
        let text = std::mem::take(&mut self.text);
        let is_null = text.is_empty() && !self.is_quoted;
        self.fields.push((!is_null).then_some(text));
        self.is_quoted = false;
    }

    /// Reads the field that begins at `at`, and returns the place after it.
    fn field(&mut self, text: &[char], mut at: usize, is_end: impl Fn(usize) -> bool) -> usize {
        if text.get(at) == Some(&'"') {
            self.is_quoted = true;
            at += 1;
            loop {
                match (text.get(at), text.get(at + 1)) {
                    (None, _) => {
                        self.is_bad = true;
                        return at;
                    }
                    (Some('"'), Some('"')) => {
                        self.text.push('"');
                        at += 2;
                    }
                    (Some('"'), _) => break,
                    (Some(other), _) => {
                        self.text.push(*other);
                        at += 1;
                    }
                }
            }
            at += 1;
        }
        while at < text.len() && text[at] != ',' && !is_end(at) {
            self.is_bad |= self.is_quoted || matches!(text[at], '\r' | '\n');
            self.text.push(text[at]);
            at += 1;
        }
        self.end_field();
        at
    }
}

/// Returns the records of a text of two columns after its header.
fn modelled(text: &[char], line_end: char) -> Vec<ModelRecord> {
    let is_end = |at: usize| {
        text[at] == line_end
            || (line_end == '\n' && text[at] == '\r' && text.get(at + 1) == Some(&'\n'))
    };
    let (mut found, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let start = at;
        let mut reading = Reading::default();
        loop {
            at = reading.field(text, at, is_end);
            match text.get(at) {
                Some(',') => at += 1,
                _ => break,
            }
        }
        if at < text.len() {
            at += if text[at] == line_end { 1 } else { 2 };
        }
        let record: String = text[start..at].iter().collect();
        let line = 2 + text[..start].iter().filter(|c| **c == line_end).count();
        if !matches!(record.as_str(), "\n" | "\r\n" | "\r") {
            let is_good = !reading.is_bad && reading.fields.len() == 2;
            found.push((line, is_good.then_some(reading.fields)));
        }
    }
    found
}

/// Returns the rows that the sources read from the same text.
fn read_records(dir: &Dir, options: &SourceOptions) -> Result<Vec<ModelRecord>, String> {
    let set = dir.open_with("a.csv", options).map_err(|e| e.to_string())?;
    let line = |place: &str| {
        let number = place.trim_start_matches("line ").split(':').next().unwrap();
        number.parse::<usize>().unwrap()
    };
    let mut found = Vec::new();
    let rejected = std::cell::RefCell::new(Vec::new());
    for unit in &set.units {
        let emit = |batch: RecordBatch, origin: &Origin| {
            let columns: Vec<_> = (batch.columns().iter())
                .map(|column| arrow_array::cast::AsArray::as_string::<i32>(column).clone())
                .collect();
            for row in 0..batch.num_rows() {
                let fields = columns.iter().map(|column| {
                    use arrow_array::Array;
                    (!column.is_null(row)).then(|| column.value(row).to_owned())
                });
                found.push((line(&origin.place(row).to_string()), Some(fields.collect())));
            }
            Ok(())
        };
        let reject = |reject: Reject<'_>| {
            rejected
                .borrow_mut()
                .push((line(&reject.place.to_string()), None));
            Ok(())
        };
        unit.read::<SourceError>(emit, reject)
            .map_err(|e| e.to_string())?;
    }
    found.extend(rejected.into_inner());
    found.sort();
    Ok(found)
}

fn random_csv_is_as_modelled(seed: u64) -> Result<(), String> {
    let mut rng = Rng(seed);
    let is_mac = rng.below(4) == 0;
    let alphabet: &[char] = match is_mac {
        true => &['\r', '\r', ',', ',', '"', '1', '2'],
        false => &['\r', '\n', '\n', ',', ',', '"', '1', '2'],
    };
    let (line_end, head) = if is_mac {
        ('\r', "a,b\r")
    } else {
        ('\n', "a,b\n")
    };
    let mut options = SourceOptions {
        columns: ["a:text", "b:text"]
            .map(|text| parse_column(text).unwrap())
            .into(),
        ..SourceOptions::default()
    };
    options.delimiter_given = true;
    for _ in 0..40 {
        let length = 1 + rng.below(24) as usize;
        let text: Vec<char> = (0..length)
            .map(|_| alphabet[rng.below(alphabet.len() as u64) as usize])
            .collect();
        let content: String = head.chars().chain(text.iter().copied()).collect();
        let dir = Dir::new(&[("a.csv", content.as_bytes())]);
        let read = read_records(&dir, &options)?;
        let expected = modelled(&text, line_end);
        if read != expected {
            return Err(format!("{content:?}: {read:?} in place of {expected:?}"));
        }
    }
    Ok(())
}

#[test]
fn random_records_are_exact_or_bad_rows_once() {
    all_hold(25, |seed| {
        (random_csv_is_as_modelled(seed).err(), SeedCounts::new())
    });
}

#[test]
fn a_stray_return_before_a_blank_line_is_a_bad_row_of_its_own() {
    let dir = Dir::new(&[
        ("a.csv", b"a,b\n1,2\n\r\r\n3,4\n"),
        ("b.csv", b"a,b\n\r\r\n\r3,4\n5,6\n"),
    ]);
    for (name, rows, lines) in [
        ("a.csv", &["1|2", "3|4"][..], &["line 3"][..]),
        ("b.csv", &["5|6"], &["line 2", "line 3"]),
    ] {
        let content = read(&dir.open(name).unwrap()).unwrap();
        assert_eq!(content.rows, rows, "{name}");
        let places = content
            .rejects
            .iter()
            .map(|reject| reject.split_once(':').unwrap().0);
        assert_eq!(places.collect::<Vec<_>>(), lines, "{name}");
    }
}

#[test]
fn a_quoted_empty_text_is_kept_where_quotes_hold_other_line_ends() {
    let dir = Dir::new(&[("a.csv", b"a,b\r1,\"x\ny\"\r2,\"\"\r3,\r")]);
    let content = read(&dir.open("a.csv").unwrap()).unwrap();
    assert_eq!(content.rows, ["1|x\ny", "2|", "3|-"]);
}
