//! From stored values back to Arrow arrays.

use std::sync::Arc;

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, FixedSizeListArray, ListArray,
    MapArray, NullArray, PrimitiveArray, StringArray, StructArray, downcast_primitive,
};
use arrow_buffer::{
    BooleanBufferBuilder, Buffer, MutableBuffer, NullBuffer, NullBufferBuilder, OffsetBuffer,
    ScalarBuffer,
};
use arrow_schema::{ArrowError, DataType, Field};
use forebay_run::row::{Datum, Kind, RowError};

use crate::types::{arrow_field, arrow_fields, arrow_type};

/// The most bytes or items that an array's 32-bit offsets reach.
const MAX_OFFSET: usize = i32::MAX as usize;

/// Builds arrays of one kind, one after another.
pub(super) struct Builder {
    data_type: DataType,
    nulls: NullBufferBuilder,
    store: Store,
}

enum Store {
    Null,
    Bool(BooleanBufferBuilder),
    /// Values of `width` bytes, little-endian.
    Fixed {
        width: usize,
        bytes: MutableBuffer,
    },
    /// Text or binary.
    Bytes {
        ends: Vec<i32>,
        bytes: Vec<u8>,
    },
    /// Lists, with the length that all have if there is one; a map's items are its entries.
    List {
        ends: Vec<i32>,
        length: Option<usize>,
        item: Box<Builder>,
    },
    Struct(Vec<Builder>),
}

impl Builder {
    pub fn new(kind: &Kind) -> Builder {
        let fields = |schema: &forebay_run::row::Schema| {
            Store::Struct(
                schema
                    .columns()
                    .iter()
                    .map(|column| Builder::new(&column.kind))
                    .collect(),
            )
        };
        let store = match kind {
            Kind::Null => Store::Null,
            Kind::Bool => Store::Bool(BooleanBufferBuilder::new(0)),
            Kind::Text | Kind::Binary => Store::Bytes {
                ends: vec![0],
                bytes: Vec::new(),
            },
            Kind::FixedBinary { width } => fixed(*width as usize),
            Kind::List { item, length } => Store::List {
                ends: vec![0],
                length: length.map(|length| length as usize),
                item: Box::new(Builder::new(&item.kind)),
            },
            Kind::Struct { fields: schema } => fields(schema),
            Kind::Map { entries, .. } => Store::List {
                ends: vec![0],
                length: None,
                item: Box::new(Builder {
                    data_type: DataType::Struct(arrow_fields(entries)),
                    nulls: NullBufferBuilder::new(0),
                    store: fields(entries),
                }),
            },
            kind => fixed(arrow_type(kind).primitive_width().unwrap_or_default()),
        };
        Builder {
            data_type: arrow_type(kind),
            nulls: NullBufferBuilder::new(0),
            store,
        }
    }

    /// Appends a value of the kind.
    pub fn push(&mut self, value: &Datum<'_>) -> Result<(), RowError> {
        let mut valid = !value.is_null();
        match (&mut self.store, value) {
            (Store::Null, _) => valid = false,
            (Store::Bool(bits), value) => bits.append(matches!(value, Datum::Bool(true))),
            (Store::Fixed { width, bytes }, value) => push_fixed(bytes, *width, value)?,
            (Store::Bytes { ends, bytes }, value) => {
                match value {
                    Datum::Text(text) => bytes.extend_from_slice(text.as_bytes()),
                    Datum::Bytes(binary) => bytes.extend_from_slice(binary),
                    Datum::Null => {}
                    _ => return Err(RowError::Type { column: 0 }),
                }
                ends.push(offset(bytes.len())?);
            }
            (Store::List { ends, length, item }, value) => push_list(ends, *length, item, value)?,
            (Store::Struct(fields), Datum::Row(row)) => {
                for (index, field) in fields.iter_mut().enumerate() {
                    field.push(&row.datum(index)?)?;
                }
            }
            (Store::Struct(fields), Datum::Null) => {
                for field in fields {
                    field.push(&Datum::Null)?;
                }
            }
            _ => return Err(RowError::Type { column: 0 }),
        }
        self.nulls.append(valid);
        Ok(())
    }

    /// The values since the last array, as an array.
    pub fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let rows = self.nulls.len();
        let nulls = self.nulls.finish();
        let data_type = &self.data_type;
        Ok(match &mut self.store {
            Store::Null => Arc::new(NullArray::new(rows)),
            Store::Bool(bits) => Arc::new(BooleanArray::new(bits.finish(), nulls)),
            Store::Fixed { bytes, .. } => {
                let buffer = Buffer::from(std::mem::take(bytes));
                match data_type {
                    DataType::FixedSizeBinary(width) => Arc::new(
                        FixedSizeBinaryArray::try_new_with_len(*width, buffer, nulls, rows)?,
                    ),
                    _ => primitive(data_type, buffer, rows, nulls)?,
                }
            }
            Store::Bytes { ends, bytes } => {
                let offsets = take_offsets(ends);
                let buffer = Buffer::from_vec(std::mem::take(bytes));
                match data_type {
                    DataType::Utf8 => Arc::new(StringArray::try_new(offsets, buffer, nulls)?),
                    _ => Arc::new(BinaryArray::try_new(offsets, buffer, nulls)?),
                }
            }
            Store::List { ends, item, .. } => {
                let offsets = take_offsets(ends);
                list(data_type, offsets, item.finish()?, rows, nulls)?
            }
            Store::Struct(fields) => {
                let DataType::Struct(types) = data_type else {
                    return Err(mismatch(data_type));
                };
                let arrays: Result<Vec<ArrayRef>, ArrowError> =
                    fields.iter_mut().map(Builder::finish).collect();
                let array = StructArray::try_new_with_length(types.clone(), arrays?, nulls, rows);
                Arc::new(array?)
            }
        })
    }
}

fn fixed(width: usize) -> Store {
    Store::Fixed {
        width,
        bytes: MutableBuffer::new(0),
    }
}

fn offset(length: usize) -> Result<i32, RowError> {
    i32::try_from(length).map_err(|_| RowError::TooLarge { bytes: length })
}

/// Takes the offsets, leaving those of an empty array.
fn take_offsets(ends: &mut Vec<i32>) -> OffsetBuffer<i32> {
    // They begin at 0 and only rise, as the type wants.
    OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(ends, vec![0])))
}

fn push_fixed(bytes: &mut MutableBuffer, width: usize, value: &Datum<'_>) -> Result<(), RowError> {
    let number = |number: i128, bytes: &mut MutableBuffer| {
        bytes.extend_from_slice(&number.to_le_bytes()[..width.min(16)]);
    };
    match value {
        Datum::Null => bytes.extend_zeros(width),
        Datum::Bytes(binary) if binary.len() == width => bytes.extend_from_slice(binary),
        Datum::Decimal256 { value, .. } if width == 32 => bytes.extend_from_slice(value),
        Datum::Int(value) => number(i128::from(*value), bytes),
        Datum::UInt(value) => number(i128::from(*value), bytes),
        Datum::Float16(bits) => number(i128::from(*bits), bytes),
        Datum::Float32(value) => number(i128::from(value.to_bits()), bytes),
        Datum::Float64(value) => number(i128::from(value.to_bits()), bytes),
        Datum::Decimal { value, .. } => number(*value, bytes),
        Datum::Date(value) => number(i128::from(*value), bytes),
        Datum::Date64(value)
        | Datum::Time { value, .. }
        | Datum::Timestamp { value, .. }
        | Datum::Duration { value, .. } => number(i128::from(*value), bytes),
        Datum::Interval {
            months,
            days,
            nanoseconds,
        } => {
            let low = |value: i32| i128::from(value as u32);
            match width {
                4 => number(i128::from(*months), bytes),
                8 => number(
                    low(*days) | low((nanoseconds / 1_000_000) as i32) << 32,
                    bytes,
                ),
                _ => number(
                    low(*months) | low(*days) << 32 | i128::from(*nanoseconds) << 64,
                    bytes,
                ),
            }
        }
        _ => return Err(RowError::Type { column: 0 }),
    }
    Ok(())
}

fn push_list(
    ends: &mut Vec<i32>,
    length: Option<usize>,
    item: &mut Builder,
    value: &Datum<'_>,
) -> Result<(), RowError> {
    let before = item.nulls.len();
    match value {
        Datum::List(list) | Datum::Map(list) => {
            if list.len() > MAX_OFFSET || length.is_some_and(|length| length != list.len()) {
                return Err(RowError::List {
                    bytes: list.bytes().len(),
                });
            }
            for value in list.items() {
                item.push(&value?)?;
            }
        }
        Datum::Null => {
            for _ in 0..length.unwrap_or(0) {
                item.push(&Datum::Null)?;
            }
        }
        _ => return Err(RowError::Type { column: 0 }),
    }
    debug_assert!(item.nulls.len() >= before);
    ends.push(offset(item.nulls.len())?);
    Ok(())
}

fn mismatch(data_type: &DataType) -> ArrowError {
    ArrowError::SchemaError(format!("no array of the type {data_type} can be built"))
}

fn list(
    data_type: &DataType,
    offsets: OffsetBuffer<i32>,
    items: ArrayRef,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    Ok(match data_type {
        DataType::List(item) => Arc::new(ListArray::try_new(item.clone(), offsets, items, nulls)?),
        DataType::FixedSizeList(item, length) => Arc::new(FixedSizeListArray::try_new_with_length(
            item.clone(),
            *length,
            items,
            nulls,
            rows,
        )?),
        DataType::Map(entries, sorted) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return Err(mismatch(data_type));
            };
            let fields_of: &StructArray = items
                .as_any()
                .downcast_ref()
                .ok_or_else(|| mismatch(data_type))?;
            let columns = fields_of.columns().to_vec();
            let entry_rows = StructArray::try_new(fields.clone(), columns, None)?;
            Arc::new(MapArray::try_new(
                entries.clone(),
                offsets,
                entry_rows,
                nulls,
                *sorted,
            )?)
        }
        other => return Err(mismatch(other)),
    })
}

fn primitive(
    data_type: &DataType,
    buffer: Buffer,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    macro_rules! build {
        ($type:ty, $buffer:ident, $nulls:ident) => {
            typed::<$type>(data_type, $buffer, rows, $nulls)
        };
    }
    downcast_primitive! {
        data_type => (build, buffer, nulls),
        other => Err(mismatch(other))
    }
}

fn typed<T: ArrowPrimitiveType>(
    data_type: &DataType,
    buffer: Buffer,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let array = PrimitiveArray::<T>::try_new(ScalarBuffer::new(buffer, 0, rows), nulls)?;
    Ok(Arc::new(array.with_data_type(data_type.clone())))
}

/// Builds batches of several columns.
pub(super) struct BatchBuilder {
    schema: arrow_schema::SchemaRef,
    columns: Vec<Builder>,
    rows: usize,
    bytes: usize,
}

impl BatchBuilder {
    pub fn new(columns: &[forebay_run::row::Column]) -> BatchBuilder {
        let fields: Vec<Arc<Field>> = columns.iter().map(arrow_field).collect();
        BatchBuilder {
            schema: Arc::new(arrow_schema::Schema::new(fields)),
            columns: columns
                .iter()
                .map(|column| Builder::new(&column.kind))
                .collect(),
            rows: 0,
            bytes: 0,
        }
    }

    pub fn schema(&self) -> &arrow_schema::SchemaRef {
        &self.schema
    }

    pub fn push(&mut self, column: usize, value: &Datum<'_>) -> Result<(), RowError> {
        self.columns
            .get_mut(column)
            .map_or(Ok(()), |builder| builder.push(value))
    }

    /// Ends a row of about `bytes` bytes.
    pub fn end_row(&mut self, bytes: usize) {
        self.rows += 1;
        self.bytes += bytes;
    }

    /// Whether it is time to [`BatchBuilder::finish`].
    pub fn full(&self) -> bool {
        self.rows >= 8192 || self.bytes >= 8 << 20
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub fn finish(&mut self) -> Result<arrow_array::RecordBatch, ArrowError> {
        let columns: Result<Vec<ArrayRef>, ArrowError> =
            self.columns.iter_mut().map(Builder::finish).collect();
        let rows = arrow_array::RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        arrow_array::RecordBatch::try_new_with_options(self.schema.clone(), columns?, &rows)
    }
}
