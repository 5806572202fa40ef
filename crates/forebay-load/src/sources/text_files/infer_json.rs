//! Determines the shape of JSON records with the parser that decodes them.
//!
//! Both steps therefore refuse the same invalid JSON, and numbers are known as written.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::{ArrayRef, NullArray};
use arrow_json::ReaderBuilder;
use arrow_json::reader::{
    ArrayDecoder, Decoder, DecoderContext, DecoderFactory, Tape, TapeElement,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};
use memchr::memchr2_iter;

use super::jsonl;
use super::records::Record;
use super::shape::{MAX_FIELDS, Numbers, Object, Shape, TooWide};
use crate::sources::BATCH_ROWS;
use crate::types::MAX_DEPTH;

/// The most nested brackets of a record: its own, and those that a column may have.
const MAX_BRACKETS: usize = 1 + MAX_DEPTH;

/// Returns whether records nest deeper than columns can. The parser would need more stack than
/// there is for its messages about them.
pub(in crate::sources) fn are_deep(bytes: &[u8], records: &[Record]) -> bool {
    let is_deep = |record: &Record| is_deep(&bytes[record.start..record.end]);
    records.iter().any(is_deep)
}

/// Returns the error of such a record.
pub(in crate::sources) fn too_deep() -> String {
    format!("its values nest deeper than {MAX_DEPTH}")
}

fn is_deep(record: &[u8]) -> bool {
    let mut opening = memchr2_iter(b'[', b'{', record);
    if opening.nth(MAX_BRACKETS).is_none() {
        return false;
    }
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    record.iter().any(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => depth += 1,
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > MAX_BRACKETS
    })
}

/// The error if the number of values differs from the number of records.
const WRONG_SPLIT: &str = "records are split wrongly";

/// A reader of the shapes of records.
pub(in crate::sources) struct JsonLook {
    /// `None` after an error, when the decoder's state is unknown.
    decoder: Option<Decoder>,
    seen: Arc<JsonSeen>,
    /// The error of the first record that could not be parsed.
    fault: Option<String>,
    /// The number of the first record with a duplicate name, and its error.
    twice: Option<(u64, String)>,
}

#[derive(Debug)]
struct JsonSeen {
    /// Columns whose types are not inferred.
    given: Arc<HashSet<String>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    shape: Object,
    /// The number of further fields allowed.
    room: usize,
    /// The number of records that the parser must find.
    count: usize,
    /// The number of records that were objects.
    objects: u64,
    /// The index among the records of the first with a duplicate name, and its error.
    twice: Option<(usize, String)>,
    too_wide: bool,
}

impl JsonLook {
    pub fn new(given: &Arc<HashSet<String>>) -> JsonLook {
        JsonLook {
            decoder: None,
            fault: None,
            twice: None,
            seen: Arc::new(JsonSeen {
                given: given.clone(),
                state: Mutex::new(State {
                    room: MAX_FIELDS,
                    ..State::default()
                }),
            }),
        }
    }

    /// Returns the shape of the records since the last call.
    pub fn take(&mut self) -> Shape {
        let mut state = self.seen.lock();
        state.room = MAX_FIELDS;
        state.too_wide = false;
        Shape::Object(std::mem::take(&mut state.shape))
    }

    /// Returns the number of objects.
    pub fn objects(&self) -> u64 {
        self.seen.lock().objects
    }

    /// Returns the error of the first record that could not be parsed.
    pub fn fault(&self) -> Option<String> {
        self.fault.clone()
    }

    /// Returns the number of the first record with a duplicate name, and its error.
    pub fn name_twice(&self) -> Option<(u64, String)> {
        self.twice.clone()
    }

    /// Adds the shapes of records; records that are not objects are skipped.
    pub fn look(&mut self, bytes: &[u8], records: &[Record]) -> Result<(), TooWide> {
        for records in records.chunks(BATCH_ROWS) {
            self.look_at(bytes, records)?;
        }
        Ok(())
    }

    /// Splits records that cannot be parsed together in half, until the bad records are alone.
    fn look_at(&mut self, bytes: &[u8], records: &[Record]) -> Result<(), TooWide> {
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return Ok(());
        };
        let parsed = match are_deep(bytes, records) {
            true => Err(too_deep()),
            false => self.parse(&bytes[first.start..last.end], records.len()),
        };
        let (too_wide, twice) = {
            let mut state = self.seen.lock();
            (state.too_wide, state.twice.take())
        };
        if too_wide {
            return Err(TooWide);
        }
        if let (Ok(()), Some((at, reason))) = (&parsed, twice)
            && let Some(record) = records.get(at)
        {
            self.twice.get_or_insert((record.number, reason));
        }
        match parsed {
            Ok(()) => {}
            Err(fault) if records.len() == 1 => {
                self.fault.get_or_insert(fault);
            }
            Err(_) => {
                let (left, right) = records.split_at(records.len() / 2);
                self.look_at(bytes, left)?;
                self.look_at(bytes, right)?;
            }
        }
        Ok(())
    }

    /// Fails if the number of values differs. The decoder accepts some invalid JSON, whose fields
    /// are not those of any row.
    fn parse(&mut self, bytes: &[u8], count: usize) -> Result<(), String> {
        if let Some(fault) = jsonl::fault(bytes, count) {
            return Err(fault);
        }
        self.seen.lock().count = count;
        let reason = |error: ArrowError| jsonl::reason_of(&error.to_string(), &Fields::empty());
        let mut decoder = match self.decoder.take() {
            Some(decoder) => decoder,
            None => build(&self.seen).map_err(reason)?,
        };
        let taken = decoder.decode(bytes).map_err(reason)?;
        if !bytes[taken..].trim_ascii().is_empty() || decoder.has_partial_record() {
            return Err(WRONG_SPLIT.to_owned());
        }
        decoder.flush().map_err(reason)?;
        self.decoder = Some(decoder);
        Ok(())
    }
}

fn build(seen: &Arc<JsonSeen>) -> Result<Decoder, ArrowError> {
    ReaderBuilder::new_with_field(Field::new("record", DataType::Null, true))
        .with_batch_size(BATCH_ROWS)
        .with_decoder_factory(Arc::new(ShapeReaders(seen.clone())))
        .build_decoder()
}

#[derive(Debug)]
struct ShapeReaders(Arc<JsonSeen>);

impl DecoderFactory for ShapeReaders {
    fn make_default_decoder(
        &self,
        _context: &DecoderContext,
        _field: &FieldRef,
        _nullable: bool,
    ) -> Result<Option<Box<dyn ArrayDecoder>>, ArrowError> {
        Ok(Some(Box::new(ShapeReader(self.0.clone()))))
    }
}

/// An array decoder that records the shapes of records and produces no values.
struct ShapeReader(Arc<JsonSeen>);

impl ArrayDecoder for ShapeReader {
    fn decode(&mut self, tape: &Tape<'_>, at: &[u32]) -> Result<ArrayRef, ArrowError> {
        let mut state = self.0.lock();
        if at.len() != state.count {
            return Err(ArrowError::JsonError(WRONG_SPLIT.to_owned()));
        }
        let State {
            shape,
            room,
            objects,
            twice,
            ..
        } = &mut *state;
        for (number, at) in at.iter().enumerate() {
            if let TapeElement::StartObject(end) = tape.get(*at) {
                *objects += 1;
                if let Some(reason) = name_twice(tape, *at, end)? {
                    twice.get_or_insert((number, reason));
                    continue;
                }
                let seen = see_record(shape, tape, *at, end, &self.0.given, room);
                if let Err(error) = seen {
                    state.too_wide = matches!(error, ShapeTrouble::Wide);
                    return Err(ArrowError::JsonError("too many fields".to_owned()));
                }
            }
        }
        Ok(Arc::new(NullArray::new(at.len())))
    }
}

impl JsonSeen {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum ShapeTrouble {
    Wide,
    Tape,
}

impl From<TooWide> for ShapeTrouble {
    fn from(_: TooWide) -> ShapeTrouble {
        ShapeTrouble::Wide
    }
}

impl From<ArrowError> for ShapeTrouble {
    fn from(_: ArrowError) -> ShapeTrouble {
        ShapeTrouble::Tape
    }
}

/// Returns the error of a record in which any object has a duplicate name. The record is a bad row,
/// so its values do not affect any type.
fn name_twice(tape: &Tape<'_>, start: u32, end: u32) -> Result<Option<String>, ArrowError> {
    let mut names: Vec<&str> = Vec::new();
    for at in start..end {
        let TapeElement::StartObject(end) = tape.get(at) else {
            continue;
        };
        jsonl::names_of(tape, at, end, &mut names)?;
        names.sort_unstable();
        if let Some(reason) = jsonl::name_twice(&names) {
            return Ok(Some(reason));
        }
    }
    Ok(None)
}

fn see_record(
    object: &mut Object,
    tape: &Tape<'_>,
    start: u32,
    end: u32,
    given: &HashSet<String>,
    room: &mut usize,
) -> Result<(), ShapeTrouble> {
    fields(tape, start, end, |name, value, guess| {
        let (shape, at) = object.field(name, guess, room)?;
        if !given.contains(name) {
            see(shape, tape, value, room)?;
        }
        Ok(at)
    })
}

/// Calls `each` with the name and place of each field of an object, and its most likely index among
/// the known fields. `each` returns the actual index.
fn fields(
    tape: &Tape<'_>,
    start: u32,
    end: u32,
    mut each: impl FnMut(&str, u32, usize) -> Result<usize, ShapeTrouble>,
) -> Result<(), ShapeTrouble> {
    let (mut at, mut guess) = (start + 1, 0);
    while at < end {
        let TapeElement::String(name) = tape.get(at) else {
            return Err(ShapeTrouble::Tape);
        };
        guess = each(tape.get_string(name), at + 1, guess)? + 1;
        at = tape.next(at + 1, "a value")?;
    }
    Ok(())
}

fn see(shape: &mut Shape, tape: &Tape<'_>, at: u32, room: &mut usize) -> Result<(), ShapeTrouble> {
    if matches!(shape, Shape::Text) {
        return Ok(());
    }
    match tape.get(at) {
        TapeElement::True | TapeElement::False => shape.join(Shape::Bool, room)?,
        TapeElement::String(_) => *shape = Shape::Text,
        TapeElement::Number(text) => {
            if let Some(numbers) = Numbers::of(tape.get_string(text)) {
                shape.join(Shape::Number(numbers), room)?;
            }
        }
        TapeElement::StartList(end) => {
            if *shape == Shape::Null {
                *shape = Shape::List(Box::default());
            }
            let Shape::List(item) = shape else {
                *shape = Shape::Text;
                return Ok(());
            };
            let mut next = at + 1;
            while next < end {
                see(item, tape, next, room)?;
                next = tape.next(next, "an item")?;
            }
        }
        TapeElement::StartObject(end) => {
            if *shape == Shape::Null {
                *shape = Shape::Object(Object::default());
            }
            let Shape::Object(object) = shape else {
                *shape = Shape::Text;
                return Ok(());
            };
            fields(tape, at, end, |name, value, guess| {
                let (shape, at) = object.field(name, guess, room)?;
                see(shape, tape, value, room)?;
                Ok(at)
            })?;
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_that_of_brackets_outside_of_texts() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(!is_deep(nested(MAX_BRACKETS).as_bytes()));
        assert!(is_deep(nested(MAX_BRACKETS + 1).as_bytes()));
        assert!(!is_deep("[]".repeat(1000).as_bytes()));
        let text = format!("[\"\\\"{}\"]", "[".repeat(1000));
        assert!(!is_deep(text.as_bytes()));
    }
}
