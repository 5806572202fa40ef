//! Finds the ends of records in text.

use memchr::{memchr, memchr_iter, memchr2};

use super::csv::has_stray_return;

/// The rule by which the records of a file end, and the current state within a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sources) enum Splitter {
    /// One record a line.
    Lines,
    /// One record a line, except for line ends within quotes.
    Csv {
        delimiter: u8,
        quote: u8,
        /// `\n`, which may follow a `\r`; in files of old Macs `\r`.
        line_end: u8,
        state: Quotes,
        /// Whether text follows a closing quote in the record.
        glued: bool,
    },
    /// The elements of a JSON array, after its `[`. Each ends after the following comma or bracket.
    /// After the array a record is a line.
    Elements { depth: u32, state: ArrayState },
}

/// The state within a CSV field. A quote is special only at a field's start, as in the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sources) enum Quotes {
    Start,
    Plain,
    Quoted,
    /// After a quote within quotes: the end, or the first of a doubled quote.
    Closing,
}

/// The state within a JSON array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sources) enum ArrayState {
    Value,
    Text,
    /// After a backslash in a text.
    Escape,
    /// After the array.
    Ended,
}

impl Splitter {
    pub fn csv(delimiter: u8, quote: u8, line_end: u8) -> Splitter {
        Splitter::Csv {
            delimiter,
            quote,
            line_end,
            state: Quotes::Start,
            glued: false,
        }
    }

    pub fn elements() -> Splitter {
        Splitter::Elements {
            depth: 0,
            state: ArrayState::Value,
        }
    }

    /// Returns the number of bytes up to and including the one that ends the record. Returns `None`
    /// if the record does not end in them, and remembers the state.
    pub fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        match self {
            Splitter::Lines => memchr(b'\n', bytes).map(|at| at + 1),
            Splitter::Csv {
                delimiter,
                quote,
                line_end,
                state,
                glued,
            } => csv_end(bytes, (*delimiter, *quote, *line_end), state, glued),
            Splitter::Elements { depth, state } => element_end(bytes, depth, state),
        }
    }

    /// Scans bytes without returning ends; returns the number of lines, or elements, that end in
    /// them.
    pub fn skim(&mut self, mut bytes: &[u8]) -> u64 {
        let lines = self.count(bytes);
        match self {
            Splitter::Lines => lines,
            Splitter::Csv {
                delimiter,
                quote,
                line_end,
                state,
                ..
            } if *state != Quotes::Quoted && !bytes.contains(quote) => {
                match bytes.last() {
                    None => {}
                    Some(last) if *last == *line_end || *last == *delimiter => {
                        *state = Quotes::Start;
                    }
                    Some(_) => *state = Quotes::Plain,
                }
                lines
            }
            Splitter::Csv { .. } => {
                while let Some(end) = self.end(bytes) {
                    bytes = &bytes[end..];
                }
                lines
            }
            Splitter::Elements { .. } => {
                let mut elements = 0;
                while let Some(end) = self.end(bytes) {
                    bytes = &bytes[end..];
                    elements += 1;
                }
                elements
            }
        }
    }

    /// Returns the difference between the number of this whole record and that of the next.
    pub fn count(&self, record: &[u8]) -> u64 {
        let lines = |end: u8| memchr_iter(end, record).count() as u64;
        match self {
            Splitter::Lines => lines(b'\n'),
            Splitter::Csv { line_end, .. } => lines(*line_end),
            Splitter::Elements { .. } => 1,
        }
    }

    /// Returns whether the bytes so far end within quotes.
    pub fn open(&self) -> bool {
        matches!(
            self,
            Splitter::Csv {
                state: Quotes::Quoted,
                ..
            }
        )
    }

    /// Returns whether text followed a closing quote in the CSV record that has just ended.
    pub fn take_glued(&mut self) -> bool {
        match self {
            Splitter::Csv { glued, .. } => std::mem::take(glued),
            Splitter::Lines | Splitter::Elements { .. } => false,
        }
    }

    /// Returns whether a CSV record that has just ended has a carriage return that neither ends a
    /// line nor is within quotes.
    pub fn has_stray_return(&self, record: &[u8]) -> bool {
        match self {
            Splitter::Csv {
                delimiter,
                quote,
                line_end: b'\n',
                ..
            } => has_stray_return(record, *delimiter, *quote),
            _ => false,
        }
    }

    /// Returns whether the array, if there is one, has ended.
    pub fn closed(&self) -> bool {
        match self {
            Splitter::Elements { state, .. } => *state == ArrayState::Ended,
            Splitter::Lines | Splitter::Csv { .. } => true,
        }
    }

    /// Returns whether the next byte is after an array.
    pub fn is_behind(&self) -> bool {
        matches!(
            self,
            Splitter::Elements {
                state: ArrayState::Ended,
                ..
            }
        )
    }

    /// Removes the separator of an element from a record just found, so that only values follow one
    /// another. Returns whether the record is blank; decoders skip such records. `number` is its
    /// line or element.
    pub fn settle(&self, record: &mut [u8], number: u64) -> bool {
        match self {
            Splitter::Lines => record.trim_ascii().is_empty(),
            Splitter::Csv { line_end, .. } => is_blank(record, *line_end),
            Splitter::Elements { depth, state } => {
                let ends = record.last().copied();
                let within = *depth == 0 && matches!(state, ArrayState::Value | ArrayState::Ended);
                if let (true, Some(last @ (b',' | b']'))) = (within, record.last_mut()) {
                    *last = b' ';
                }
                // A comma has an element on both of its sides.
                let has_comma = match ends {
                    Some(b',') => true,
                    Some(b']') => number > 1,
                    _ => false,
                };
                record.trim_ascii().is_empty() && !has_comma
            }
        }
    }
}

/// Returns whether a CSV record has only its line end. If lines end at line feeds, an additional
/// carriage return is not a line end: such a record is malformed.
pub(in crate::sources) fn is_blank(record: &[u8], line_end: u8) -> bool {
    match line_end {
        b'\n' => matches!(record, b"" | b"\n" | b"\r\n" | b"\r"),
        _ => record.iter().all(|byte| matches!(byte, b'\r' | b'\n')),
    }
}

fn csv_end(
    bytes: &[u8],
    (delimiter, quote, line_end): (u8, u8, u8),
    state: &mut Quotes,
    glued: &mut bool,
) -> Option<usize> {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        // Within a field only a few bytes are special.
        at += match *state {
            Quotes::Quoted => memchr(quote, rest)?,
            Quotes::Plain => memchr2(delimiter, line_end, rest)?,
            Quotes::Start | Quotes::Closing => 0,
        };
        *state = match (*state, bytes[at]) {
            (Quotes::Quoted, _) => Quotes::Closing,
            (_, byte) if byte == line_end => {
                *state = Quotes::Start;
                return Some(at + 1);
            }
            (Quotes::Start | Quotes::Closing, byte) if byte == quote => Quotes::Quoted,
            (_, byte) if byte == delimiter => Quotes::Start,
            (state, byte) => {
                // A carriage return that does not end a line is handled separately.
                *glued |= state == Quotes::Closing && byte != b'\r';
                Quotes::Plain
            }
        };
        at += 1;
    }
    None
}

fn element_end(bytes: &[u8], depth: &mut u32, state: &mut ArrayState) -> Option<usize> {
    for (at, byte) in bytes.iter().enumerate() {
        match (*state, *byte) {
            (ArrayState::Value, b'"') => *state = ArrayState::Text,
            (ArrayState::Value, b'{' | b'[') => *depth += 1,
            (ArrayState::Value, b',') if *depth == 0 => return Some(at + 1),
            (ArrayState::Value, b']') if *depth == 0 => {
                *state = ArrayState::Ended;
                return Some(at + 1);
            }
            (ArrayState::Value, b'}' | b']') => *depth = depth.saturating_sub(1),
            (ArrayState::Text, b'"') => *state = ArrayState::Value,
            (ArrayState::Text, b'\\') => *state = ArrayState::Escape,
            (ArrayState::Escape, _) => *state = ArrayState::Text,
            (ArrayState::Ended, b'\n') => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(text: &str) -> (Vec<String>, bool) {
        let mut splitter = Splitter::elements();
        let mut rest = text.as_bytes().to_vec();
        let mut found = Vec::new();
        let mut number = 0;
        while !rest.is_empty() {
            let end = splitter.end(&rest).unwrap_or(rest.len());
            let after = rest.split_off(end);
            number += 1;
            if !splitter.settle(&mut rest, number) {
                found.push(String::from_utf8_lossy(&rest).trim().to_owned());
            }
            rest = after;
        }
        (found, splitter.closed())
    }

    #[test]
    fn elements_end_at_commas_of_the_array_only() {
        let text = r#" {"a":[1,{"b":"],{\""}]} , {} ,[7,8], "x,]" ] "#;
        let (found, closed) = elements(text);
        assert_eq!(
            found,
            [r#"{"a":[1,{"b":"],{\""}]}"#, "{}", "[7,8]", r#""x,]""#]
        );
        assert!(closed);
        assert_eq!(elements("]"), (vec![], true));
        assert_eq!(elements(" {} ] \n\n"), (vec!["{}".into()], true));
        assert_eq!(elements("1,,2]").0, ["1", "", "2"]);
        assert_eq!(elements("1, ]\n").0, ["1", ""]);
        assert_eq!(elements(",]").0, ["", ""]);
        assert!(!elements(r#"{},{"a":1"#).1);
        assert_eq!(elements("{}]\n[1]\n").0, ["{}", "[1]"]);
    }

    #[test]
    fn skimming_ends_where_reading_ends() {
        let text = br#"{"a":"}"},{"b":[1,2]},{"c":1}]"#;
        for cut in 0..text.len() {
            let (mut skimmed, mut read) = (Splitter::elements(), Splitter::elements());
            skimmed.skim(&text[..cut]);
            let mut rest = &text[..cut];
            while let Some(end) = read.end(rest) {
                rest = &rest[end..];
            }
            assert_eq!(skimmed, read, "{cut}");
        }
    }

    #[test]
    fn lines_of_old_macs_end_at_carriage_returns() {
        let mut splitter = Splitter::csv(b',', b'"', b'\r');
        assert_eq!(splitter.end(b"a,\"b\rc\"\rd"), Some(8));
        assert_eq!(splitter.count(b"a,\"b\rc\"\r"), 2);
    }
}
