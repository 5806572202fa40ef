//! Decoding of JSON lines.
//!
//! Stricter than the decoder below it: names that the sample did not have and numbers that an integer
//! column would cut are errors, so that nothing is lost silently.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt64Type};
use arrow_array::{ArrayRef, PrimitiveArray, RecordBatch};
use arrow_json::ReaderBuilder;
use arrow_json::reader::{
    ArrayDecoder, Decoder, DecoderContext, DecoderFactory, Tape, TapeElement,
};
use arrow_schema::{ArrowError, DataType, FieldRef, SchemaRef};

const UNENDED: &str = "the line ends within its JSON value: each object has to be on one line, or to be an \
     element of one array";

/// Decodes records of a schema.
pub(super) struct JsonDecoder {
    schema: SchemaRef,
    /// Absent after an error, when the decoder's state is unknown.
    decoder: Option<Decoder>,
}

impl JsonDecoder {
    pub fn new(schema: SchemaRef) -> JsonDecoder {
        JsonDecoder {
            schema,
            decoder: None,
        }
    }

    /// Decodes whole lines. An error says what is wrong with the first bad one; the decoder can be used further.
    pub fn decode(&mut self, bytes: &[u8], count: usize) -> Result<RecordBatch, String> {
        if count == 1 && !bytes.trim_ascii_start().starts_with(b"{") {
            return Err("this is no JSON object".to_owned());
        }
        let mut decoder = match self.decoder.take() {
            Some(decoder) => decoder,
            None => build(&self.schema).map_err(|error| error.to_string())?,
        };
        let batch = decode(&mut decoder, bytes, count)?;
        self.decoder = Some(decoder);
        Ok(batch)
    }
}

fn decode(decoder: &mut Decoder, bytes: &[u8], count: usize) -> Result<RecordBatch, String> {
    let reason = |error: ArrowError| {
        let message = error.to_string();
        message.trim_start_matches("Json error: ").to_owned()
    };
    let taken = decoder.decode(bytes).map_err(reason)?;
    if taken < bytes.len() && !bytes[taken..].trim_ascii().is_empty() {
        return Err("more than one JSON value in place of one".to_owned());
    }
    if decoder.has_partial_record() {
        return Err(UNENDED.to_owned());
    }
    match decoder.flush().map_err(reason)? {
        Some(batch) if batch.num_rows() == count => Ok(batch),
        _ => Err("more than one JSON value in place of one".to_owned()),
    }
}

fn build(schema: &SchemaRef) -> Result<Decoder, ArrowError> {
    ReaderBuilder::new(schema.clone())
        .with_batch_size(super::BATCH_ROWS)
        .with_coerce_primitive(true)
        .with_strict_mode(true)
        .with_decoder_factory(Arc::new(ExactIntegers))
        .build_decoder()
}

/// Decodes 64-bit integers exactly: `1.5` is no integer, and neither is the string `"007"`.
#[derive(Debug)]
struct ExactIntegers;

impl DecoderFactory for ExactIntegers {
    fn make_default_decoder(
        &self,
        _context: &DecoderContext,
        field: &FieldRef,
        _nullable: bool,
    ) -> Result<Option<Box<dyn ArrayDecoder>>, ArrowError> {
        Ok(match field.data_type() {
            DataType::Int64 => Some(Box::new(Exact::<Int64Type>(str_to_number))),
            DataType::UInt64 => Some(Box::new(Exact::<UInt64Type>(str_to_number))),
            _ => None,
        })
    }
}

struct Exact<T: ArrowPrimitiveType>(fn(&str) -> Option<T::Native>);

/// The number that a text is how one writes.
fn str_to_number<N: std::str::FromStr + ToString>(text: &str) -> Option<N> {
    text.parse().ok()
}

impl<T: ArrowPrimitiveType> ArrayDecoder for Exact<T>
where
    T::Native: ToString,
{
    fn decode(&mut self, tape: &Tape<'_>, at: &[u32]) -> Result<ArrayRef, ArrowError> {
        let number = |at: &u32| -> Result<Option<T::Native>, ArrowError> {
            let bad = |text: &str| {
                ArrowError::JsonError(format!(
                    "{text} does not fit a column of type {}",
                    T::DATA_TYPE
                ))
            };
            match tape.get(*at) {
                TapeElement::Null => Ok(None),
                TapeElement::Number(index) => {
                    let text = tape.get_string(index);
                    (self.0)(text).map(Some).ok_or_else(|| bad(text))
                }
                TapeElement::String(index) => {
                    let text = tape.get_string(index);
                    let number = (self.0)(text).filter(|number| number.to_string() == text);
                    number.map(Some).ok_or_else(|| bad(&format!("\"{text}\"")))
                }
                _ => Err(bad("a value that is no number")),
            }
        };
        let numbers: Result<Vec<Option<T::Native>>, ArrowError> = at.iter().map(number).collect();
        Ok(Arc::new(PrimitiveArray::<T>::from_iter(numbers?)))
    }
}
