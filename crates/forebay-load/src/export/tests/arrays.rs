//! Random types and random arrays of them, made by Arrow's own constructors.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int32Type};
use arrow_array::*;
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields, IntervalUnit, TimeUnit};

/// Random numbers (xorshift).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    fn text(&mut self) -> String {
        let length = self.below(12);
        (0..length)
            .map(|_| ['a', 'é', '"', '\n', '界', '😀'][self.below(6)])
            .collect()
    }

    fn nulls(&mut self, rows: usize, nullable: bool) -> Option<NullBuffer> {
        let some = nullable && self.below(4) > 0;
        some.then(|| {
            (0..rows)
                .map(|_| self.below(3) > 0)
                .collect::<Vec<bool>>()
                .into()
        })
    }

    /// Rising offsets of lists and the number of their items.
    fn offsets(&mut self, rows: usize) -> (Vec<usize>, usize) {
        let mut ends = vec![0];
        for _ in 0..rows {
            ends.push(ends[ends.len() - 1] + self.below(4));
        }
        let items = ends[rows];
        (ends, items)
    }
}

pub fn scalar_types() -> Vec<DataType> {
    use DataType::*;
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let mut types = vec![
        Null,
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Date32,
        Date64,
        Utf8,
        LargeUtf8,
        Utf8View,
        Binary,
        LargeBinary,
        BinaryView,
        Decimal32(9, 2),
        Decimal64(18, -3),
        Decimal128(38, 10),
        Decimal128(5, 0),
        Decimal256(76, -8),
        FixedSizeBinary(5),
        Time32(Second),
        Time32(Millisecond),
        Time64(Microsecond),
        Time64(Nanosecond),
        Interval(IntervalUnit::YearMonth),
        Interval(IntervalUnit::DayTime),
        Interval(IntervalUnit::MonthDayNano),
    ];
    for unit in [Second, Millisecond, Microsecond, Nanosecond] {
        types.push(Duration(unit));
        types.push(Timestamp(unit, None));
        types.push(Timestamp(unit, Some(Arc::from("+05:30"))));
        types.push(Timestamp(unit, Some(Arc::from("America/New_York"))));
    }
    types
}

/// A random type, nested at most `depth` times.
pub fn data_type(rng: &mut Rng, depth: usize) -> DataType {
    let scalars = scalar_types();
    if depth == 0 || rng.below(2) == 0 {
        return scalars[rng.below(scalars.len())].clone();
    }
    let item = Arc::new(field(rng, "item", depth - 1));
    match rng.below(9) {
        0 => DataType::List(item),
        1 => DataType::LargeList(item),
        2 => DataType::FixedSizeList(item, rng.below(4) as i32),
        3 => DataType::ListView(item),
        4 => DataType::LargeListView(item),
        5 => {
            let count = rng.below(4);
            let fields = (0..count).map(|at| field(rng, &format!("f{at}"), depth - 1));
            DataType::Struct(fields.collect())
        }
        6 => {
            let key = Field::new("key", DataType::Utf8, false);
            let entries = Fields::from(vec![key, field(rng, "value", depth - 1)]);
            let entries = Field::new("entries", DataType::Struct(entries), false);
            DataType::Map(Arc::new(entries), false)
        }
        7 => DataType::Dictionary(Box::new(DataType::Int32), Box::new(value_type(rng))),
        _ => DataType::RunEndEncoded(
            Arc::new(Field::new("run_ends", DataType::Int32, false)),
            Arc::new(Field::new("values", value_type(rng), true)),
        ),
    }
}

/// Types of the values of dictionaries and runs.
fn value_type(rng: &mut Rng) -> DataType {
    let types = [
        DataType::Utf8,
        DataType::Int64,
        DataType::Binary,
        DataType::Date32,
        DataType::Float64,
    ];
    types[rng.below(types.len())].clone()
}

fn field(rng: &mut Rng, name: &str, depth: usize) -> Field {
    let data_type = data_type(rng, depth);
    let encoded = matches!(
        data_type,
        DataType::Null | DataType::Dictionary(..) | DataType::RunEndEncoded(..)
    );
    let nullable = encoded || rng.below(2) == 0;
    Field::new(name, data_type, nullable)
}

pub fn array(rng: &mut Rng, data_type: &DataType, rows: usize, nullable: bool) -> ArrayRef {
    let nulls = rng.nulls(rows, nullable);
    match data_type {
        DataType::Null => Arc::new(NullArray::new(rows)),
        DataType::Boolean => {
            let values: Vec<bool> = (0..rows).map(|_| rng.below(2) == 0).collect();
            Arc::new(BooleanArray::new(values.into(), nulls))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let values: Vec<Option<String>> = (0..rows)
                .map(|row| {
                    nulls
                        .as_ref()
                        .is_none_or(|nulls| nulls.is_valid(row))
                        .then(|| rng.text())
                })
                .collect();
            match data_type {
                DataType::Utf8 => Arc::new(StringArray::from_iter(values)),
                DataType::LargeUtf8 => Arc::new(LargeStringArray::from_iter(values)),
                _ => Arc::new(StringViewArray::from_iter(values)),
            }
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let values: Vec<Option<Vec<u8>>> = (0..rows)
                .map(|row| {
                    let length = rng.below(20);
                    nulls
                        .as_ref()
                        .is_none_or(|nulls| nulls.is_valid(row))
                        .then(|| rng.bytes(length))
                })
                .collect();
            match data_type {
                DataType::Binary => Arc::new(BinaryArray::from_iter(values)),
                DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter(values)),
                _ => Arc::new(BinaryViewArray::from_iter(values)),
            }
        }
        DataType::FixedSizeBinary(width) => {
            let bytes = Buffer::from_vec(rng.bytes(rows * *width as usize));
            Arc::new(FixedSizeBinaryArray::try_new_with_len(*width, bytes, nulls, rows).unwrap())
        }
        DataType::Dictionary(_, values) => {
            let values = array(rng, values, 5, true);
            let keys = (0..rows).map(|_| (rng.below(5) > 0).then(|| rng.below(5) as i32));
            let keys: Int32Array = keys.collect();
            Arc::new(DictionaryArray::<Int32Type>::try_new(keys, values).unwrap())
        }
        DataType::RunEndEncoded(_, values) => {
            let runs = rows.div_ceil(3);
            let ends = (1..=runs).map(|run| (run * 3).min(rows) as i32);
            let values = array(rng, values.data_type(), runs, true);
            let ends = Int32Array::from_iter_values(ends);
            Arc::new(RunArray::<Int32Type>::try_new(&ends, &values).unwrap())
        }
        nested if nested.is_nested() => nested_array(rng, nested, rows, nulls),
        _ => primitive(rng, data_type, rows, nulls),
    }
}

fn nested_array(
    rng: &mut Rng,
    data_type: &DataType,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let small = |ends: &[usize]| ends.iter().map(|end| *end as i32).collect::<Vec<i32>>();
    let large = |ends: &[usize]| ends.iter().map(|end| *end as i64).collect::<Vec<i64>>();
    let (ends, count) = rng.offsets(rows);
    let sizes: Vec<usize> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut items =
        |field: &Field, count| array(rng, field.data_type(), count, field.is_nullable());
    match data_type {
        DataType::List(item) => {
            let offsets = OffsetBuffer::new(ScalarBuffer::from(small(&ends)));
            Arc::new(ListArray::new(
                item.clone(),
                offsets,
                items(item, count),
                nulls,
            ))
        }
        DataType::LargeList(item) => {
            let offsets = OffsetBuffer::new(ScalarBuffer::from(large(&ends)));
            Arc::new(LargeListArray::new(
                item.clone(),
                offsets,
                items(item, count),
                nulls,
            ))
        }
        DataType::ListView(item) => {
            let (starts, sizes) = (small(&ends[..rows]).into(), small(&sizes).into());
            Arc::new(ListViewArray::new(
                item.clone(),
                starts,
                sizes,
                items(item, count),
                nulls,
            ))
        }
        DataType::LargeListView(item) => {
            let (starts, sizes) = (large(&ends[..rows]).into(), large(&sizes).into());
            Arc::new(LargeListViewArray::new(
                item.clone(),
                starts,
                sizes,
                items(item, count),
                nulls,
            ))
        }
        DataType::FixedSizeList(item, length) => {
            let values = items(item, rows * *length as usize);
            let array =
                FixedSizeListArray::try_new_with_length(item.clone(), *length, values, nulls, rows);
            Arc::new(array.unwrap())
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().map(|field| items(field, rows)).collect();
            let array = StructArray::try_new_with_length(fields.clone(), columns, nulls, rows);
            Arc::new(array.unwrap())
        }
        DataType::Map(entries, sorted) => {
            let DataType::Struct(fields) = entries.data_type() else {
                panic!()
            };
            let columns = fields.iter().map(|field| items(field, count)).collect();
            let rows = StructArray::new(fields.clone(), columns, None);
            let offsets = OffsetBuffer::new(ScalarBuffer::from(small(&ends)));
            Arc::new(MapArray::new(
                entries.clone(),
                offsets,
                rows,
                nulls,
                *sorted,
            ))
        }
        other => panic!("{other}"),
    }
}

fn primitive(
    rng: &mut Rng,
    data_type: &DataType,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    // Small numbers as often as large ones.
    let width = data_type.primitive_width().unwrap();
    // Decimals keep to their precision, and seconds to what milliseconds of as many bits hold.
    let most = match data_type {
        DataType::Timestamp(TimeUnit::Second, _) => 6,
        DataType::Date64 => 3,
        DataType::Decimal32(digits, _)
        | DataType::Decimal64(digits, _)
        | DataType::Decimal128(digits, _)
        | DataType::Decimal256(digits, _) => (usize::from(*digits) * 33 / 10 - 1) / 8,
        _ => width,
    };
    let mut buffer = arrow_buffer::MutableBuffer::new(rows * width);
    for _ in 0..rows {
        let kept = rng.below(most + 1);
        let mut value = rng.bytes(width);
        let sign = if kept > 0 && value[kept - 1] & 0x80 != 0 {
            0xff
        } else {
            0
        };
        value[kept..].fill(sign);
        if *data_type == DataType::Date64 {
            // Whole days.
            let days = i32::from_le_bytes([value[0], value[1], value[2], value[3]]);
            value = (i64::from(days) * 86_400_000).to_le_bytes().to_vec();
        }
        match data_type {
            DataType::Time32(unit) => {
                let value = i32::from_le_bytes(value[..4].try_into().unwrap());
                let day = if *unit == TimeUnit::Second {
                    86_400
                } else {
                    86_400_000
                };
                buffer.extend_from_slice(&value.rem_euclid(day).to_le_bytes());
            }
            DataType::Time64(unit) => {
                let value = i64::from_le_bytes(value[..8].try_into().unwrap());
                let second = if *unit == TimeUnit::Microsecond {
                    1_000_000
                } else {
                    1_000_000_000
                };
                buffer.extend_from_slice(&value.rem_euclid(86_400 * second).to_le_bytes());
            }
            _ => buffer.extend_from_slice(&value),
        }
    }
    fn typed<T: ArrowPrimitiveType>(
        data_type: &DataType,
        buffer: Buffer,
        rows: usize,
        nulls: Option<NullBuffer>,
    ) -> ArrayRef {
        let array = PrimitiveArray::<T>::new(ScalarBuffer::new(buffer, 0, rows), nulls);
        Arc::new(array.with_data_type(data_type.clone()))
    }
    macro_rules! make {
        ($type:ty, $buffer:ident, $nulls:ident) => {
            typed::<$type>(data_type, $buffer, rows, $nulls)
        };
    }
    let buffer: Buffer = buffer.into();
    downcast_primitive! {
        data_type => (make, buffer, nulls),
        other => panic!("{other}")
    }
}
