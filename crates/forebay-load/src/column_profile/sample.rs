//! Draws rows at random, each with a number and a hash of every value.
//!
//! A row is drawn if the hash of its place is below a bound. The bound is halved whenever the
//! sample has too many rows. The sample therefore depends only on the rows, not on which thread or
//! task saw them, or in which order. Partial samples of several threads or tasks add up to the same
//! sample.

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch, UInt64Array,
    downcast_primitive_array,
};
use arrow_schema::DataType;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::numbers::{Numeric, append_numbers};

/// The most rows in a sample; a table with at least this many rows has more than half of it.
const MOST_ROWS: usize = 8192;
/// The most values in a sample, except for tables with very many columns.
const MOST_VALUES: usize = 1 << 20;
/// The rows that a sample keeps regardless of the number of columns.
const LEAST_ROWS: usize = 1024;
/// The number of rows handled in one step.
const STRETCH: usize = 1024;

/// The rows drawn so far, with the values of each column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowSample {
    most: usize,
    /// How often the bound was halved.
    halved: u32,
    /// The hash of the place of each row.
    places: Vec<u64>,
    /// The values of these rows, by column.
    columns: Vec<Vec<DrawnValue>>,
}

/// A value of the sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrawnValue {
    /// The bits of the number or length, as a float.
    number: u64,
    /// The hash of the value: equal values have equal hashes; 0 for a null, 1 for a value without a
    /// hash.
    pub hash: u64,
}

const NULL: DrawnValue = DrawnValue { number: 0, hash: 0 };

impl DrawnValue {
    pub fn number(self) -> f64 {
        f64::from_bits(self.number)
    }

    pub fn is_null(self) -> bool {
        self.hash == 0
    }
}

impl RowSample {
    pub fn new(columns: usize) -> Self {
        Self {
            most: (MOST_VALUES / columns.max(1)).clamp(LEAST_ROWS, MOST_ROWS),
            halved: 0,
            places: Vec::new(),
            columns: vec![Vec::new(); columns],
        }
    }

    /// Returns whether the sample holds every row it was offered.
    pub fn is_all(&self) -> bool {
        self.halved == 0
    }

    pub fn column(&self, at: usize) -> &[DrawnValue] {
        &self.columns[at]
    }

    fn bound(&self) -> u64 {
        u64::MAX.checked_shr(self.halved).unwrap_or(0)
    }

    /// Offers the rows of a batch; `first` is the number of the first one.
    pub fn add(&mut self, batch: &RecordBatch, first: u64) {
        let rows = batch.num_rows();
        for from in (0..rows).step_by(STRETCH) {
            let bound = self.bound();
            let mut drawn = Vec::new();
            for row in from..rows.min(from + STRETCH) {
                let place = mixed(first.wrapping_add(row as u64));
                if place <= bound {
                    self.places.push(place);
                    drawn.push(row);
                }
            }
            if drawn.is_empty() {
                continue;
            }
            for (seen, column) in self.columns.iter_mut().zip(batch.columns()) {
                append_seen(column, &drawn, seen);
            }
            self.shrink(self.most);
        }
    }

    /// Adds the sample of other rows; `None` if it has another number of columns.
    pub fn merge(&mut self, other: &Self) -> Option<()> {
        let rows = other.places.len();
        if other.columns.len() != self.columns.len()
            || other.columns.iter().any(|column| column.len() != rows)
        {
            return None;
        }
        let halved = self.halved.max(other.halved);
        self.places.extend(&other.places);
        for (own, more) in self.columns.iter_mut().zip(&other.columns) {
            own.extend(more);
        }
        self.halved = halved;
        self.keep_below();
        self.shrink(self.most);
        Some(())
    }

    /// Halves the bound until at most `most` rows remain.
    pub fn shrink(&mut self, most: usize) {
        while self.places.len() > most {
            self.halved += 1;
            self.keep_below();
        }
    }

    fn keep_below(&mut self) {
        let bound = self.bound();
        let kept: Vec<bool> = self.places.iter().map(|place| *place <= bound).collect();
        let keep = |seen: &mut Vec<DrawnValue>| {
            let mut kept = kept.iter();
            seen.retain(|_| kept.next().is_some_and(|kept| *kept));
        };
        self.columns.iter_mut().for_each(keep);
        self.places.retain(|place| *place <= bound);
    }
}

/// The last step of SplitMix64: neighbouring inputs give unrelated results.
fn mixed(place: u64) -> u64 {
    let mut hash = place.wrapping_add(0x9E37_79B9_7F4A_7C15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}

/// Appends the values of these rows.
fn append_seen(column: &ArrayRef, rows: &[usize], out: &mut Vec<DrawnValue>) {
    let indices = UInt64Array::from_iter_values(rows.iter().map(|row| *row as u64));
    // The indices are those of rows of the batch.
    let Ok(drawn) = arrow_select::take::take(&**column, &indices, None) else {
        out.extend(rows.iter().map(|_| NULL));
        return;
    };
    let mut numbers = Vec::with_capacity(rows.len());
    append_numbers(&*drawn, &mut numbers);
    let mut numbers = numbers.into_iter();
    let nulls = drawn.logical_nulls();
    let hashes = hashes(&*drawn);
    out.extend((0..drawn.len()).map(|row| match &nulls {
        Some(nulls) if nulls.is_null(row) => NULL,
        _ => DrawnValue {
            number: numbers.next().unwrap_or(0.0).to_bits(),
            hash: hashes.get(row).map_or(1, |hash| (*hash).max(2)),
        },
    }));
}

/// Returns the hashes of an array's values. Null entries have arbitrary hashes. Lists, maps and
/// structs have none.
fn hashes(array: &dyn Array) -> Vec<u64> {
    fn of_bytes<'a>(values: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<u64> {
        values.map(|bytes| bytes.map_or(0, xxh3_64)).collect()
    }
    fn of_numbers<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>) -> Vec<u64>
    where
        T::Native: Numeric,
    {
        let bytes = array.values().inner().as_slice();
        let width = size_of::<T::Native>();
        let hashes = bytes.chunks_exact(width).map(xxh3_64);
        if !T::DATA_TYPE.is_floating() {
            return hashes.collect();
        }
        // Both zeros of a float are one value.
        let zero = xxh3_64(&[0; 8][..width]);
        let floats = hashes.zip(array.values());
        floats
            .map(|(hash, value)| if value.number() == 0.0 { zero } else { hash })
            .collect()
    }
    downcast_primitive_array! {
        array => of_numbers(array),
        kind => match kind {
            DataType::Boolean => array.as_boolean().values().iter().map(|value| 2 + u64::from(value)).collect(),
            DataType::Utf8 => of_bytes(array.as_string::<i32>().iter().map(|text| text.map(str::as_bytes))),
            DataType::LargeUtf8 => of_bytes(array.as_string::<i64>().iter().map(|text| text.map(str::as_bytes))),
            DataType::Utf8View => of_bytes(array.as_string_view().iter().map(|text| text.map(str::as_bytes))),
            DataType::Binary => of_bytes(array.as_binary::<i32>().iter()),
            DataType::LargeBinary => of_bytes(array.as_binary::<i64>().iter()),
            DataType::BinaryView => of_bytes(array.as_binary_view().iter()),
            DataType::FixedSizeBinary(_) => of_bytes(array.as_fixed_size_binary().iter()),
            _ => Vec::new(),
        }
    }
}
