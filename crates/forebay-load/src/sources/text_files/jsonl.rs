//! Decodes JSON lines.
//!
//! Numbers and booleans of inferred types are decoded as such, exactly. Values of all other types
//! are decoded as text, and converted by the one rule of conversion. Names that the schema does not
//! have are errors, so that nothing is lost silently.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, MapArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow_json::ReaderBuilder;
use arrow_json::reader::{
    ArrayDecoder, Decoder, DecoderContext, DecoderFactory, Tape, TapeElement,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use forebay_run::error::without_controls;
use forebay_run::row::{Datum, read_base64};
use serde::de::IgnoredAny;

use super::excerpt::{excerpt, not_utf8};
use crate::convert::{Changes, ConvertError, Converter, Rules, exact_float64, shown};
use crate::type_name::type_name;

const UNENDED: &str = "the line ends within its JSON value: write each object on one line, or all as the elements \
     of one array";

const MORE: &str = "more than one JSON value in place of one: a comma separates the elements of an array, a line feed \
     objects outside of one";

const RETURNS: &str = "more than one JSON value in place of one: a carriage return alone ends no line of JSON; end lines \
     by line feeds";

/// A decoder of records of a schema.
pub(in crate::sources) struct JsonDecoder {
    /// The columns as decoded, before conversion.
    decoded: SchemaRef,
    schema: SchemaRef,
    converters: Vec<Converter>,
    /// Columns whose types were inferred.
    guessed: Fields,
    rules: Arc<Rules>,
    /// `None` after an error, when the decoder's state is unknown.
    decoder: Option<Decoder>,
}

impl JsonDecoder {
    /// Creates a decoder. `guessed` are columns whose types were inferred; the types of all others
    /// were given.
    pub fn new(
        guessed: &Fields,
        schema: &SchemaRef,
        rules: &Arc<Rules>,
    ) -> Result<JsonDecoder, ConvertError> {
        let decoded = Schema::new(decoded_fields(schema.fields(), Some(guessed)));
        let columns = decoded.fields().iter().zip(schema.fields());
        let converters = columns.map(|(from, to)| {
            Converter::of_json(to.name(), from.data_type(), to.data_type(), rules)
        });
        Ok(JsonDecoder {
            converters: converters.collect::<Result<_, _>>()?,
            decoded: Arc::new(decoded),
            guessed: guessed.clone(),
            schema: Arc::clone(schema),
            rules: Arc::clone(rules),
            decoder: None,
        })
    }

    /// Decodes whole lines. An error says what is wrong with the first bad one; the decoder remains
    /// usable.
    pub fn decode(&mut self, bytes: &[u8], count: usize) -> Result<RecordBatch, String> {
        if count == 1 && !bytes.trim_ascii_start().starts_with(b"{") {
            return Err("this is no JSON object".to_owned());
        }
        // The decoder used below accepts missing or extra commas, and other invalid JSON.
        if let Some(fault) = fault(bytes, count) {
            return Err(fault);
        }
        let mut decoder = match self.decoder.take() {
            Some(decoder) => decoder,
            None => build(&self.decoded).map_err(|error| error.to_string())?,
        };
        let batch = decode(&mut decoder, bytes, count, &self.guessed)?;
        self.decoder = Some(decoder);
        self.values(&batch)
    }

    /// Decodes texts, each as the only value of an object; a null is also one.
    pub fn decode_values(&mut self, texts: &StringArray) -> Result<ArrayRef, String> {
        let name = serde_json::Value::from(self.schema.field(0).name().as_str());
        let mut objects = String::new();
        for text in texts {
            let object =
                text.map_or_else(|| "{}\n".to_owned(), |text| format!("{{{name}:{text}}}\n"));
            objects.push_str(&object);
        }
        let whole = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
        if let Some(text) = texts.iter().flatten().find(|text| !whole(text)) {
            let field = self.schema.field(0);
            let (column, data_type) = (field.name(), type_name(field.data_type()));
            let value = shown(&Datum::Text(text));
            return Err(format!(
                "the column '{column}' holds {value}, which is no JSON of {data_type}"
            ));
        }
        let batch = self.decode(objects.as_bytes(), texts.len())?;
        Ok(Arc::clone(batch.column(0)))
    }

    fn values(&self, batch: &RecordBatch) -> Result<RecordBatch, String> {
        let mut changes = Changes::default();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.converters.len());
        for (converter, column) in self.converters.iter().zip(batch.columns()) {
            match converter.convert(column, &mut changes) {
                Ok(column) => columns.push(column),
                Err(trouble) => return Err(trouble.reason()),
            }
        }
        self.rules.count(&changes);
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &rows)
            .map_err(|error| error.to_string())
    }
}

/// Returns the error if this is not valid JSON with this many records.
pub(in crate::sources) fn fault(bytes: &[u8], count: usize) -> Option<String> {
    if let Err(error) = std::str::from_utf8(bytes) {
        return Some(not_utf8(bytes, error.valid_up_to()));
    }
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
    for _ in 0..count {
        match values.next() {
            Some(Ok(_)) => {}
            Some(Err(error)) if error.is_eof() => return Some(UNENDED.to_owned()),
            Some(Err(error)) => {
                let reason = error.to_string();
                let end = reason.find(" at line ").unwrap_or(reason.len());
                return Some(format!("this is no JSON: {}", &reason[..end]));
            }
            None => return None,
        }
    }
    follows(bytes.get(values.byte_offset()..).unwrap_or_default())
}

/// Returns the error of a record whose value is followed by this text.
fn follows(rest: &[u8]) -> Option<String> {
    let text = rest.trim_ascii();
    let blank = rest.len() - rest.trim_ascii_start().len();
    let has_return = rest[..blank].contains(&b'\r') && !rest[..blank].contains(&b'\n');
    match text.first()? {
        b'{' | b'[' if has_return => Some(RETURNS.to_owned()),
        b'{' | b'[' => Some(MORE.to_owned()),
        _ => Some(format!("'{}' follows the object", excerpt(text))),
    }
}

/// Returns the types in which fields are decoded: their own if it was inferred and is exact, else
/// text.
fn decoded_fields(fields: &Fields, guessed: Option<&Fields>) -> Fields {
    let decoded = |field: &FieldRef| {
        let guess = guessed.and_then(|guessed| guessed.find(field.name()));
        let guess = guess.map(|(_, guess)| guess.data_type());
        Field::new(field.name(), decoded_type(field.data_type(), guess), true)
    };
    fields.iter().map(decoded).collect()
}

fn decoded_type(data_type: &DataType, guess: Option<&DataType>) -> DataType {
    use DataType::{
        Binary, Boolean, FixedSizeBinary, FixedSizeList, Float64, Int64, LargeBinary, LargeList,
        List, Map, Null, Struct, UInt64, Utf8,
    };
    let item_of = |guess: Option<&DataType>| match guess {
        Some(List(item)) => Some(item.data_type().clone()),
        _ => None,
    };
    match data_type {
        Struct(fields) => {
            let guessed = match guess {
                Some(Struct(guessed)) => Some(guessed),
                _ => None,
            };
            Struct(decoded_fields(fields, guessed))
        }
        List(item) | LargeList(item) | FixedSizeList(item, _) => {
            let guess = item_of(guess);
            DataType::new_list(decoded_type(item.data_type(), guess.as_ref()), true)
        }
        Map(entries, sorted) => match entries.data_type() {
            Struct(fields) if fields.len() == 2 => {
                // Nested keys are not names of an object.
                let key = match fields[0].data_type() {
                    key if key.is_nested() => decoded_type(key, None),
                    _ => Utf8,
                };
                let key = Field::new("key", key, false);
                let value = decoded_type(fields[1].data_type(), None);
                let value = Field::new("value", value, true);
                let entries = Field::new(entries.name(), Struct(vec![key, value].into()), false);
                Map(Arc::new(entries), *sorted)
            }
            _ => Utf8,
        },
        // Inferred integers may be floats in other files.
        Int64 | UInt64 | Float64 if guess.is_some_and(DataType::is_numeric) => data_type.clone(),
        Boolean if guess == Some(&Boolean) => Boolean,
        Binary | LargeBinary | FixedSizeBinary(_) => Binary,
        Null => Null,
        _ => Utf8,
    }
}

fn decode(
    decoder: &mut Decoder,
    bytes: &[u8],
    count: usize,
    guessed: &Fields,
) -> Result<RecordBatch, String> {
    let reason = |error: ArrowError| reason_of(&error.to_string(), guessed);
    let taken = decoder.decode(bytes).map_err(reason)?;
    if taken < bytes.len() && !bytes[taken..].trim_ascii().is_empty() {
        return Err(MORE.to_owned());
    }
    if decoder.has_partial_record() {
        return Err(UNENDED.to_owned());
    }
    match decoder.flush().map_err(reason)? {
        Some(batch) if batch.num_rows() == count => Ok(batch),
        _ => Err(MORE.to_owned()),
    }
}

/// Rewrites the decoder's message for the author of the file. `guessed` are columns whose types
/// were inferred: if such a column is text and holds a list or object, its values are of several
/// kinds.
pub(in crate::sources) fn reason_of(message: &str, guessed: &Fields) -> String {
    const INNER: &str = "Json error: ";
    let mut path = Vec::new();
    let mut rest = message.trim_start_matches(INNER);
    while let Some(inner) = rest.strip_prefix("whilst decoding field '")
        && let Some((name, after)) = inner.split_once("': ")
    {
        path.push(name);
        rest = after.trim_start_matches(INNER);
    }
    let field = path.join(".");
    let got = rest.strip_prefix("expected string got ");
    let nested = match got.and_then(|got| got.bytes().next()) {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        _ if path.is_empty() => return rest.to_owned(),
        _ => return format!("the field '{field}': {rest}"),
    };
    let is_guessed = path
        .first()
        .is_some_and(|name| guessed.find(name).is_some());
    if is_guessed {
        return format!(
            "the field '{field}' holds {nested} of JSON, and values of other kinds, which no column holds together: leave the field out of the file, or write its values as texts"
        );
    }
    format!(
        "the field '{field}' holds {nested} of JSON, and takes a text, a number, true, false or null"
    )
}

fn build(schema: &SchemaRef) -> Result<Decoder, ArrowError> {
    ReaderBuilder::new(schema.clone())
        .with_batch_size(crate::sources::BATCH_ROWS)
        .with_coerce_primitive(true)
        .with_strict_mode(true)
        .with_decoder_factory(Arc::new(ExactValues))
        .build_decoder()
}

/// A factory of strict decoders. `1.5` is not an integer, and a string is not a number. Objects
/// have each name once. Maps are objects, or arrays of entries if their keys are nested.
#[derive(Debug)]
struct ExactValues;

impl DecoderFactory for ExactValues {
    fn make_default_decoder(
        &self,
        context: &DecoderContext,
        field: &FieldRef,
        nullable: bool,
    ) -> Result<Option<Box<dyn ArrayDecoder>>, ArrowError> {
        Ok(match field.data_type() {
            DataType::Map(entries, sorted) if has_nested_keys(entries) => {
                let list = DataType::List(Arc::clone(entries));
                let list = Arc::new(Field::new(field.name(), list, nullable));
                Some(Box::new(EntryLists {
                    inner: context.make_decoder(&list, nullable)?,
                    entries: Arc::clone(entries),
                    sorted: *sorted,
                }))
            }
            DataType::Struct(_) | DataType::Map(..) => {
                let inner = context.make_builtin_decoder(field, nullable)?;
                Some(Box::new(UniqueNames {
                    inner,
                    last: Vec::new(),
                }))
            }
            DataType::Int64 => Some(Box::new(Exact::<Int64Type>(|text| text.parse().ok()))),
            DataType::UInt64 => Some(Box::new(Exact::<UInt64Type>(|text| text.parse().ok()))),
            DataType::Binary => Some(Box::new(AnyBinary)),
            DataType::Float64 => Some(Box::new(Exact::<Float64Type>(|text| {
                exact_float64(&Datum::Text(text))
            }))),
            _ => None,
        })
    }
}

/// Puts the names of the object between two places into `names`.
pub(in crate::sources) fn names_of<'t>(
    tape: &'t Tape<'_>,
    start: u32,
    end: u32,
    names: &mut Vec<&'t str>,
) -> Result<(), ArrowError> {
    names.clear();
    let mut field = start + 1;
    while field < end {
        if let TapeElement::String(name) = tape.get(field) {
            names.push(tape.get_string(name));
        }
        field = tape.next(field + 1, "field value")?;
    }
    Ok(())
}

/// Returns the error of an object that has one of these sorted names twice.
pub(in crate::sources) fn name_twice(names: &[&str]) -> Option<String> {
    let twice = names.windows(2).find(|pair| pair[0] == pair[1])?;
    let name = without_controls(twice[0]);
    Some(format!("the name '{name}' occurs twice in one object"))
}

/// A decoder of objects that refuses duplicate names: of two values one would be lost.
struct UniqueNames {
    inner: Box<dyn ArrayDecoder>,
    /// The names of the last object, each once: most objects have the same names as the previous
    /// one.
    last: Vec<String>,
}

impl ArrayDecoder for UniqueNames {
    fn decode(&mut self, tape: &Tape<'_>, at: &[u32]) -> Result<ArrayRef, ArrowError> {
        let mut names: Vec<&str> = Vec::new();
        for at in at {
            let TapeElement::StartObject(end) = tape.get(*at) else {
                continue;
            };
            names_of(tape, *at, end, &mut names)?;
            if names == self.last {
                continue;
            }
            let in_order = names.iter().map(|name| (*name).to_owned()).collect();
            names.sort_unstable();
            if let Some(reason) = name_twice(&names) {
                return Err(ArrowError::JsonError(reason));
            }
            self.last = in_order;
        }
        self.inner.decode(tape, at)
    }
}

fn has_nested_keys(entries: &Field) -> bool {
    match entries.data_type() {
        DataType::Struct(fields) => fields
            .first()
            .is_some_and(|key| key.data_type().is_nested()),
        _ => false,
    }
}

/// A decoder of maps whose keys are nested, in the form of replies: `[{"key":...,"value":...}]`.
struct EntryLists {
    inner: Box<dyn ArrayDecoder>,
    entries: FieldRef,
    sorted: bool,
}

impl ArrayDecoder for EntryLists {
    fn decode(&mut self, tape: &Tape<'_>, at: &[u32]) -> Result<ArrayRef, ArrowError> {
        let lists = self.inner.decode(tape, at)?;
        let (_, offsets, entries, nulls) = lists.as_list::<i32>().clone().into_parts();
        let (item, entries) = (Arc::clone(&self.entries), entries.as_struct().clone());
        let maps = MapArray::try_new(item, offsets, entries, nulls, self.sorted)?;
        Ok(Arc::new(maps))
    }
}

/// A decoder of binary in the form of replies: a text if it is UTF-8, else `{"base64":"..."}`.
struct AnyBinary;

impl ArrayDecoder for AnyBinary {
    fn decode(&mut self, tape: &Tape<'_>, at: &[u32]) -> Result<ArrayRef, ArrowError> {
        let mut builder = BinaryBuilder::new();
        for at in at {
            match tape.get(*at) {
                TapeElement::Null => builder.append_null(),
                TapeElement::String(index) => builder.append_value(tape.get_string(index)),
                _ => match in_base64(tape, *at) {
                    Some(bytes) => builder.append_value(bytes),
                    None => {
                        let bad =
                            r#"a value that is neither a text nor {"base64":"..."} is no binary"#;
                        return Err(ArrowError::JsonError(bad.to_owned()));
                    }
                },
            }
        }
        Ok(Arc::new(builder.finish()))
    }
}

/// Returns the bytes of `{"base64":"..."}`.
fn in_base64(tape: &Tape<'_>, at: u32) -> Option<Vec<u8>> {
    let TapeElement::StartObject(end) = tape.get(at) else {
        return None;
    };
    let (TapeElement::String(name), TapeElement::String(text)) =
        (tape.get(at + 1), tape.get(at + 2))
    else {
        return None;
    };
    let only = end == at + 3 && tape.get_string(name) == "base64";
    only.then(|| read_base64(tape.get_string(text).as_bytes()))?
}

struct Exact<T: ArrowPrimitiveType>(fn(&str) -> Option<T::Native>);

impl<T: ArrowPrimitiveType> ArrayDecoder for Exact<T> {
    fn decode(&mut self, tape: &Tape<'_>, at: &[u32]) -> Result<ArrayRef, ArrowError> {
        let bad = |text: &str| {
            let data_type = type_name(&T::DATA_TYPE);
            ArrowError::JsonError(format!("{text} does not fit a column of type {data_type}"))
        };
        let number = |at: &u32| -> Result<Option<T::Native>, ArrowError> {
            match tape.get(*at) {
                TapeElement::Null => Ok(None),
                TapeElement::Number(index) => {
                    let text = tape.get_string(index);
                    (self.0)(text).map(Some).ok_or_else(|| bad(text))
                }
                TapeElement::String(index) => Err(bad(&format!("{:?}", tape.get_string(index)))),
                _ => Err(bad("a value that is no number")),
            }
        };
        let numbers: Result<Vec<Option<T::Native>>, ArrowError> = at.iter().map(number).collect();
        Ok(Arc::new(PrimitiveArray::<T>::from_iter(numbers?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_decoder_are_reported_by_field() {
        let nested = "Json error: whilst decoding field 'a': Json error: whilst decoding field 'b': expected string got [1\"x\"]";
        assert_eq!(
            reason_of(nested, &Fields::empty()),
            "the field 'a.b' holds a list of JSON, and takes a text, a number, true, false or null"
        );
        let guessed = Fields::from(vec![Field::new("a", DataType::Utf8, true)]);
        let mixed = reason_of(nested, &guessed);
        assert!(mixed.contains("values of other kinds"), "{mixed}");
        let other = "Json error: whilst decoding field 'a': expected { got 1";
        assert_eq!(
            reason_of(other, &Fields::empty()),
            "the field 'a': expected { got 1"
        );
        assert_eq!(
            reason_of("Json error: something else", &Fields::empty()),
            "something else"
        );
    }
}
