//! Splits batches to a bounded size, because processing a batch takes as much memory again.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{ByteArrayType, ByteViewType, RunEndIndexType};
use arrow_array::{
    AnyDictionaryArray, Array, GenericByteArray, GenericByteViewArray, RecordBatch, RunArray,
    downcast_run_array,
};
use arrow_buffer::ArrowNativeType;
use arrow_schema::DataType;

/// The approximate bytes of a batch, unless one row has more.
pub(super) const BATCH_BYTES: usize = 4 << 20;

/// Passes on slices of a batch, in order, with their row ranges. Each has at most [`BATCH_BYTES`],
/// or one row.
pub(super) fn slices<E>(
    batch: &RecordBatch,
    take: &mut dyn FnMut(RecordBatch, Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    slices_of(batch, 0..batch.num_rows(), BATCH_BYTES, take)
}

fn slices_of<E>(
    batch: &RecordBatch,
    rows: Range<usize>,
    most_bytes: usize,
    take: &mut dyn FnMut(RecordBatch, Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let of_column = |column: &dyn Array| bytes(column, rows.clone());
    let total: usize = batch
        .columns()
        .iter()
        .map(|column| of_column(column.as_ref()))
        .sum();
    if rows.len() <= 1 || total <= most_bytes {
        let slice = batch.slice(rows.start, rows.len());
        return take(slice, rows);
    }
    let middle = rows.start + rows.len() / 2;
    slices_of(batch, rows.start..middle, most_bytes, take)?;
    slices_of(batch, middle..rows.end, most_bytes, take)
}

/// Returns the bytes of the values of some rows, each written out.
fn bytes(array: &dyn Array, rows: Range<usize>) -> usize {
    if rows.is_empty() {
        return 0;
    }
    match array.data_type() {
        DataType::Null => 0,
        DataType::Boolean => rows.len(),
        DataType::Utf8 => in_offsets(array.as_string::<i32>(), rows),
        DataType::LargeUtf8 => in_offsets(array.as_string::<i64>(), rows),
        DataType::Binary => in_offsets(array.as_binary::<i32>(), rows),
        DataType::LargeBinary => in_offsets(array.as_binary::<i64>(), rows),
        DataType::Utf8View => in_views(array.as_string_view(), rows),
        DataType::BinaryView => in_views(array.as_binary_view(), rows),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            in_lists(list.value_offsets(), list.values(), rows)
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            in_lists(list.value_offsets(), list.values(), rows)
        }
        DataType::Map(..) => {
            let map = array.as_map();
            in_lists(map.value_offsets(), map.entries(), rows)
        }
        DataType::FixedSizeList(_, length) => {
            let (list, length) = (array.as_fixed_size_list(), *length as usize);
            bytes(list.values(), rows.start * length..rows.end * length)
        }
        DataType::Struct(_) => {
            let columns = array.as_struct().columns().iter();
            columns
                .map(|column| bytes(column.as_ref(), rows.clone()))
                .sum()
        }
        DataType::Dictionary(..) => in_dictionary(array.as_any_dictionary(), rows),
        DataType::RunEndEncoded(..) => downcast_run_array!(
            array => in_runs(array, rows),
            _ => 0
        ),
        other => {
            other
                .primitive_width()
                .unwrap_or_else(|| fixed_width(other))
                * rows.len()
        }
    }
}

fn fixed_width(data_type: &DataType) -> usize {
    match data_type {
        DataType::FixedSizeBinary(length) => *length as usize,
        // Unions and lists of views, which no table stores.
        _ => size_of::<u64>(),
    }
}

/// Returns the bytes of some keys of a dictionary. If even its largest values are small, it uses
/// the average and does not look at each key.
fn in_dictionary(dictionary: &dyn AnyDictionaryArray, rows: Range<usize>) -> usize {
    let values = dictionary.values();
    if values.is_empty() {
        return 0;
    }
    let of_all = bytes(values, 0..values.len());
    if of_all.saturating_mul(rows.len()) <= BATCH_BYTES {
        return (of_all / values.len() + 1) * rows.len();
    }
    let keys = dictionary.normalized_keys();
    let of_keys = keys[rows].iter().map(|key| bytes(values, *key..*key + 1));
    of_keys.sum()
}

fn in_lists<O: ArrowNativeType>(ends: &[O], values: &dyn Array, rows: Range<usize>) -> usize {
    bytes(
        values,
        ends[rows.start].as_usize()..ends[rows.end].as_usize(),
    )
}

fn in_offsets<T: ByteArrayType>(array: &GenericByteArray<T>, rows: Range<usize>) -> usize {
    let ends = array.value_offsets();
    let head = rows.len() * size_of::<T::Offset>();
    ends[rows.end].as_usize() - ends[rows.start].as_usize() + head
}

fn in_views<T: ByteViewType + ?Sized>(
    array: &GenericByteViewArray<T>,
    rows: Range<usize>,
) -> usize {
    // The low half of a view is its length.
    let length = |view: &u128| *view as u32 as usize + size_of::<u128>();
    array.views()[rows].iter().map(length).sum()
}

fn in_runs<R: RunEndIndexType>(array: &RunArray<R>, rows: Range<usize>) -> usize {
    let of_row = |row: usize| {
        let run = array.get_physical_index(row);
        bytes(array.values().as_ref(), run..run + 1)
    };
    rows.map(of_row).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{
        ArrayRef, DictionaryArray, Int32Array, ListArray, RunArray, StringArray, StringViewArray,
    };

    use super::*;

    fn lengths(column: ArrayRef, most_bytes: usize) -> Vec<usize> {
        let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
        let mut lengths = Vec::new();
        let mut next = 0;
        let taken = slices_of::<()>(
            &batch,
            0..batch.num_rows(),
            most_bytes,
            &mut |slice, rows| {
                assert_eq!((rows.start, rows.len()), (next, slice.num_rows()));
                next = rows.end;
                lengths.push(slice.num_rows());
                Ok(())
            },
        );
        assert_eq!(taken, Ok(()));
        assert_eq!(next, batch.num_rows());
        lengths
    }

    #[test]
    fn slices_hold_as_many_rows_as_bytes_allow() {
        let large = "x".repeat(1000);
        let texts = [large.as_str(), "", "", "", &large, &large, "", ""];
        let column: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        assert_eq!(lengths(Arc::clone(&column), 1100), [4, 1, 1, 2]);
        assert_eq!(lengths(column, 10_000), [8]);
        let views: ArrayRef = Arc::new(StringViewArray::from(texts.to_vec()));
        assert_eq!(lengths(views, 1100), [4, 1, 1, 2]);
        let ends = Int32Array::from(vec![1, 4, 6, 8]);
        let values = StringArray::from(vec![large.as_str(), "", &large, ""]);
        let runs = RunArray::<Int32Type>::try_new(&ends, &values).unwrap();
        assert_eq!(lengths(Arc::new(runs), 1100), [4, 1, 1, 2]);
    }

    #[test]
    fn keys_of_dictionaries_count_their_values() {
        let large = "x".repeat(BATCH_BYTES);
        let texts = [large.as_str(), "", "", "", &large, &large, "", ""];
        let keys: DictionaryArray<Int32Type> = texts.into_iter().collect();
        assert_eq!(lengths(Arc::new(keys), BATCH_BYTES + 100), [4, 1, 1, 2]);
        let colours = ["red", "blue", "red", "red"].into_iter();
        let colours: DictionaryArray<Int32Type> = colours.collect();
        assert_eq!(lengths(Arc::new(colours.clone()), 1000), [4]);
        assert_eq!(lengths(Arc::new(colours), 20), [2, 2]);
        // A categorical column that contains only nulls.
        let nulls: DictionaryArray<Int32Type> = [None::<&str>; 3].into_iter().collect();
        assert!(nulls.values().is_empty());
        assert_eq!(lengths(Arc::new(nulls), 1), [3]);
    }

    #[test]
    fn lists_count_their_items() {
        let long = vec![Some(7); 300];
        let rows = [Some(long.clone()), None, Some(vec![]), Some(long)];
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(rows);
        assert_eq!(lengths(Arc::new(lists.clone()), 1300), [2, 2]);
        assert_eq!(lengths(Arc::new(lists.slice(1, 3)), 1300), [3]);
        assert_eq!(lengths(Arc::new(lists), 3000), [4]);
    }

    #[test]
    fn a_batch_without_rows_is_one_slice() {
        assert_eq!(lengths(Arc::new(Int32Array::from(vec![0; 0])), 1), [0]);
    }
}
