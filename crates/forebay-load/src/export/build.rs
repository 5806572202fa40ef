//! Builds Arrow arrays from stored values.

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
use arrow_schema::{ArrowError, DataType};
use forebay_run::row::{Datum, Kind, RowError};

use super::fixed::{CellError, Change, parquet_kind, push_changed};
use crate::types::{arrow_fields, arrow_type};

/// The most bytes or items that an array's 32-bit offsets can address.
const MAX_OFFSET: usize = i32::MAX as usize;

/// A builder of arrays of one kind, one after another.
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
        change: Change,
        bytes: MutableBuffer,
    },
    /// Text or binary.
    Bytes {
        ends: Vec<i32>,
        bytes: Vec<u8>,
    },
    /// Lists, with their common length if they have one; a map's items are its entries.
    List {
        ends: Vec<i32>,
        length: Option<usize>,
        item: Box<Builder>,
    },
    Struct(Vec<Builder>),
}

impl Builder {
    /// Creates a builder with the plain Arrow type of a kind, or the type that Parquet supports.
    pub fn new(kind: &Kind, for_parquet: bool) -> Builder {
        let of = |kind: &Kind| Builder::new(kind, for_parquet);
        let fields = |schema: &forebay_run::row::Schema| {
            Store::Struct(
                schema
                    .columns()
                    .iter()
                    .map(|column| of(&column.kind))
                    .collect(),
            )
        };
        let (shown, change) = match for_parquet {
            true => (parquet_kind(kind), Change::of(kind)),
            false => (kind.clone(), Change::None),
        };
        let store = match kind {
            Kind::Null => Store::Null,
            Kind::Bool => Store::Bool(BooleanBufferBuilder::new(0)),
            Kind::Text | Kind::Binary => Store::Bytes {
                ends: vec![0],
                bytes: Vec::new(),
            },
            Kind::FixedBinary { width } => fixed(*width as usize, change),
            Kind::List { item, length } => Store::List {
                ends: vec![0],
                length: length.map(|length| length as usize),
                item: Box::new(of(&item.kind)),
            },
            Kind::Struct { fields: schema } => fields(schema),
            Kind::Map { entries, .. } => Store::List {
                ends: vec![0],
                length: None,
                item: Box::new(Builder {
                    data_type: entries_type(&shown),
                    nulls: NullBufferBuilder::new(0),
                    store: fields(entries),
                }),
            },
            _ => {
                let width = arrow_type(&shown).primitive_width();
                fixed(width.unwrap_or_default(), change)
            }
        };
        Builder {
            data_type: arrow_type(&shown),
            nulls: NullBufferBuilder::new(0),
            store,
        }
    }

    /// Appends a value of the kind.
    pub fn push(&mut self, value: &Datum<'_>) -> Result<(), CellError> {
        let mut valid = !value.is_null();
        match (&mut self.store, value) {
            (Store::Null, _) => valid = false,
            (Store::Bool(bits), value) => bits.append(matches!(value, Datum::Bool(true))),
            (
                Store::Fixed {
                    width,
                    change,
                    bytes,
                },
                value,
            ) => push_changed(bytes, *width, *change, value)?,
            (Store::Bytes { ends, bytes }, value) => {
                match value {
                    Datum::Text(text) => bytes.extend_from_slice(text.as_bytes()),
                    Datum::Bytes(binary) => bytes.extend_from_slice(binary),
                    Datum::Null => {}
                    _ => return Err(RowError::Type { column: 0 }.into()),
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
            _ => return Err(RowError::Type { column: 0 }.into()),
        }
        self.nulls.append(valid);
        Ok(())
    }

    /// Returns the values since the last array, as an array.
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

/// Returns the type of a map's entries.
fn entries_type(map: &Kind) -> DataType {
    match map {
        Kind::Map { entries, .. } => DataType::Struct(arrow_fields(entries)),
        other => arrow_type(other),
    }
}

fn fixed(width: usize, change: Change) -> Store {
    Store::Fixed {
        width,
        change,
        bytes: MutableBuffer::new(0),
    }
}

fn offset(length: usize) -> Result<i32, RowError> {
    i32::try_from(length).map_err(|_| RowError::TooLarge { bytes: length })
}

/// Takes the offsets, leaving those of an empty array.
fn take_offsets(ends: &mut Vec<i32>) -> OffsetBuffer<i32> {
    // They begin at 0 and never decrease, as the type requires.
    OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(ends, vec![0])))
}

fn push_list(
    ends: &mut Vec<i32>,
    length: Option<usize>,
    item: &mut Builder,
    value: &Datum<'_>,
) -> Result<(), CellError> {
    match value {
        Datum::List(list) | Datum::Map(list) => {
            if list.len() > MAX_OFFSET || length.is_some_and(|length| length != list.len()) {
                let bytes = list.bytes().len();
                return Err(RowError::List { bytes }.into());
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
        _ => return Err(RowError::Type { column: 0 }.into()),
    }
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
