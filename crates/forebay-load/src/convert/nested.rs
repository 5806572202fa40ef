//! Converts lists, structs and maps: their items, fields and entries.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, LargeListArray, ListArray, MapArray,
    StructArray, UInt64Array, new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields};
use arrow_select::nullif::nullif;
use arrow_select::take::take;

use super::{Changes, ConvertError, Converter, Failure, Scope, Trouble};
use crate::type_name::type_name;
use crate::types::TypeError;

/// The origin of a field of a struct.
#[derive(Debug, Clone)]
pub(super) enum FieldStep {
    /// The struct lacks the field, which is null.
    Absent,
    Column(usize, Converter),
}

/// Returns how the fields of one struct become those of another, by name.
pub(super) fn field_steps(
    scope: Scope<'_>,
    path: &str,
    have: &Fields,
    want: &Fields,
) -> Result<Vec<FieldStep>, ConvertError> {
    for fields in [have, want] {
        let twice =
            |field: &&FieldRef| fields.iter().filter(|f| f.name() == field.name()).count() > 1;
        if let Some(field) = fields.iter().find(twice) {
            return Err(ConvertError::Type(TypeError::Twice {
                column: format!("{path}.{}", field.name()),
            }));
        }
    }
    if let Some(extra) = have.iter().find(|field| want.find(field.name()).is_none()) {
        return Err(ConvertError::ExtraField {
            column: path.to_owned(),
            field: extra.name().clone(),
            to: type_name(&DataType::Struct(want.clone())),
        });
    }
    let step = |field: &FieldRef| match have.find(field.name()) {
        Some((index, has)) => {
            let path = format!("{path}.{}", field.name());
            let converter = scope.converter(&path, has.data_type(), field.data_type())?;
            Ok(FieldStep::Column(index, converter))
        }
        None if field.is_nullable() => Ok(FieldStep::Absent),
        None => Err(ConvertError::MissingField {
            column: path.to_owned(),
            field: field.name().clone(),
        }),
    };
    want.iter().map(step).collect()
}

/// Returns the types of the key and the value of a map's entries.
pub(super) fn entry_types(entries: &FieldRef) -> Option<[FieldRef; 2]> {
    match entries.data_type() {
        DataType::Struct(fields) if fields.len() == 2 => {
            Some([Arc::clone(&fields[0]), Arc::clone(&fields[1])])
        }
        _ => None,
    }
}

/// Returns the item type of a list of any layout.
pub(crate) fn list_item(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => Some(item),
        _ => None,
    }
}

pub(super) fn convert_struct(
    whole: &Converter,
    steps: &[FieldStep],
    fields: &Fields,
    array: &ArrayRef,
    changes: &mut Changes,
) -> Result<ArrayRef, Trouble> {
    let array = array.as_struct();
    // Contents of a null struct are not values.
    let absent = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let absent = absent.map(|nulls| BooleanArray::new(!nulls.inner(), None));
    let mut columns = Vec::with_capacity(steps.len());
    let mut failures = Failures::default();
    for (step, field) in steps.iter().zip(fields) {
        let column = match step {
            FieldStep::Absent => new_null_array(field.data_type(), array.len()),
            FieldStep::Column(index, converter) => {
                let column = masked(array.column(*index), absent.as_ref(), converter)?;
                match converter.convert(&column, changes) {
                    Ok(column) => column,
                    Err(Trouble::Rows(rows)) => {
                        failures.add(rows);
                        continue;
                    }
                    Err(trouble) => return Err(trouble),
                }
            }
        };
        if !field.is_nullable() {
            let null = |row: usize| column.is_null(row) && array.is_valid(row);
            let rows = (0..array.len()).filter(|row| column.logical_null_count() > 0 && null(*row));
            let path = format!("{}.{}", whole.path, field.name());
            failures.add(rows.map(|row| null_failure(row, &path)).collect());
        }
        columns.push(column);
    }
    failures.settle()?;
    let nulls = array.nulls().cloned();
    if columns.is_empty() {
        return Ok(Arc::new(StructArray::new_empty_fields(array.len(), nulls)));
    }
    let made = StructArray::try_new(fields.clone(), columns, nulls);
    Ok(Arc::new(made.map_err(|error| together(whole, &error))?))
}

fn null_failure(row: usize, path: &str) -> Failure {
    Failure {
        row,
        reason: format!("'{path}' is null, which the table's fields of that name cannot be"),
    }
}

/// Returns the child of a struct, with nulls where the struct is null.
fn masked(
    column: &ArrayRef,
    absent: Option<&BooleanArray>,
    converter: &Converter,
) -> Result<ArrayRef, Trouble> {
    match absent {
        None => Ok(Arc::clone(column)),
        // Run ends have no null bitmap of their own. A null within a null is null.
        Some(_) if matches!(converter.from, DataType::RunEndEncoded(..) | DataType::Null) => {
            Ok(Arc::clone(column))
        }
        Some(absent) => nullif(column, absent).map_err(|error| together(converter, &error)),
    }
}

pub(super) fn convert_list(
    whole: &Converter,
    items: &Converter,
    field: &FieldRef,
    array: &ArrayRef,
    changes: &mut Changes,
) -> Result<ArrayRef, Trouble> {
    let lists = Lists::of(array).ok_or_else(|| not_as_announced(whole))?;
    let values = lists.live().map_err(|error| together(whole, &error))?;
    let values = match items.convert(&values, changes) {
        Ok(values) => values,
        Err(Trouble::Rows(rows)) => return Err(lists.trouble(rows)),
        Err(trouble) => return Err(trouble),
    };
    if !field.is_nullable() && values.logical_null_count() > 0 {
        let null = (0..values.len()).filter(|item| values.is_null(*item));
        let failures = null.map(|item| null_failure(item, &items.path)).collect();
        return Err(lists.trouble(failures));
    }
    let (field, nulls) = (Arc::clone(field), array.nulls().cloned());
    let made: Result<ArrayRef, ArrowError> = match &whole.to {
        DataType::FixedSizeList(_, width) => {
            return fixed_size(whole, field, *width, &lists, values, nulls);
        }
        DataType::LargeList(_) => {
            let offsets = OffsetBuffer::from_lengths(lists.lengths());
            LargeListArray::try_new(field, offsets, values, nulls)
                .map(|array| Arc::new(array) as ArrayRef)
        }
        _ if values.len() > i32::MAX as usize => Err(ArrowError::OffsetOverflowError(values.len())),
        _ => {
            let offsets = OffsetBuffer::from_lengths(lists.lengths());
            ListArray::try_new(field, offsets, values, nulls)
                .map(|array| Arc::new(array) as ArrayRef)
        }
    };
    made.map_err(|error| together(whole, &error))
}

fn fixed_size(
    whole: &Converter,
    field: FieldRef,
    width: i32,
    lists: &Lists,
    values: ArrayRef,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, Trouble> {
    let wanted = usize::try_from(width).unwrap_or_default();
    let wrong = |row: &usize| !lists.is_null(*row) && lists.length(*row) != wanted;
    let failures = (0..lists.rows).filter(wrong).map(|row| Failure {
        row,
        reason: format!(
            "the column '{}' holds a list of {} items, and {} has {width}",
            whole.path,
            lists.length(row),
            type_name(&whole.to)
        ),
    });
    let failures: Vec<Failure> = failures.collect();
    if !failures.is_empty() {
        return Err(Trouble::Rows(failures));
    }
    // A null list of fixed size still has items, all null.
    let mut next = 0;
    let mut indices: Vec<Option<u64>> = Vec::with_capacity(lists.rows * wanted);
    for row in 0..lists.rows {
        let length = lists.length(row) as u64;
        indices.extend((next..next + length).map(Some));
        indices.extend(std::iter::repeat_n(None, wanted - length as usize));
        next += length;
    }
    let values = take(&values, &UInt64Array::from(indices), None);
    let made = values.and_then(|values| {
        FixedSizeListArray::try_new_with_length(field, width, values, nulls, lists.rows)
    });
    Ok(Arc::new(made.map_err(|error| together(whole, &error))?))
}

pub(super) fn convert_map(
    whole: &Converter,
    parts: &[Box<Converter>; 2],
    array: &ArrayRef,
    changes: &mut Changes,
) -> Result<ArrayRef, Trouble> {
    let lists = Lists::of(array).ok_or_else(|| not_as_announced(whole))?;
    let live = lists.live().map_err(|error| together(whole, &error))?;
    let DataType::Map(field, sorted) = &whole.to else {
        return Err(not_as_announced(whole));
    };
    let DataType::Struct(fields) = field.data_type() else {
        return Err(not_as_announced(whole));
    };
    let mut columns = Vec::with_capacity(2);
    let mut failures = Failures::default();
    for ((part, column), field) in parts.iter().zip(live.as_struct().columns()).zip(fields) {
        match part.convert(column, changes) {
            Ok(column) => {
                if !field.is_nullable() && column.logical_null_count() > 0 {
                    let null = (0..column.len()).filter(|entry| column.is_null(*entry));
                    failures.add(null.map(|entry| null_failure(entry, &part.path)).collect());
                }
                columns.push(column);
            }
            Err(Trouble::Rows(rows)) => failures.add(rows),
            Err(trouble) => return Err(trouble),
        }
    }
    if let Err(Trouble::Rows(rows)) = failures.settle() {
        return Err(lists.trouble(rows));
    }
    let offsets = OffsetBuffer::from_lengths(lists.lengths());
    let made = StructArray::try_new(fields.clone(), columns, None).and_then(|entries| {
        let nulls = array.nulls().cloned();
        MapArray::try_new(Arc::clone(field), offsets, entries, nulls, *sorted)
    });
    Ok(Arc::new(made.map_err(|error| together(whole, &error))?))
}

/// The ranges of items of each row's list, or of the entries of its map.
struct Lists {
    rows: usize,
    items: ArrayRef,
    /// Start and length; empty if the list is null.
    spans: Vec<(usize, usize)>,
    nulls: Option<NullBuffer>,
}

impl Lists {
    fn of(array: &ArrayRef) -> Option<Lists> {
        let (rows, nulls) = (array.len(), array.nulls().cloned());
        let span = |row: usize, span: (usize, usize)| match &nulls {
            Some(nulls) if nulls.is_null(row) => (0, 0),
            _ => span,
        };
        let between = |row: usize, ends: (usize, usize)| span(row, (ends.0, ends.1 - ends.0));
        let each = 0..rows;
        let (items, spans) = match array.data_type() {
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let ends = list.value_offsets();
                let spans =
                    each.map(|row| between(row, (ends[row] as usize, ends[row + 1] as usize)));
                (Arc::clone(list.values()), spans.collect())
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let ends = list.value_offsets();
                let spans =
                    each.map(|row| between(row, (ends[row] as usize, ends[row + 1] as usize)));
                (Arc::clone(list.values()), spans.collect())
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let ends = map.value_offsets();
                let spans =
                    each.map(|row| between(row, (ends[row] as usize, ends[row + 1] as usize)));
                (Arc::new(map.entries().clone()) as ArrayRef, spans.collect())
            }
            DataType::ListView(_) => {
                let list = array.as_list_view::<i32>();
                let (starts, sizes) = (list.value_offsets(), list.value_sizes());
                let spans = each.map(|row| span(row, (starts[row] as usize, sizes[row] as usize)));
                (Arc::clone(list.values()), spans.collect())
            }
            DataType::LargeListView(_) => {
                let list = array.as_list_view::<i64>();
                let (starts, sizes) = (list.value_offsets(), list.value_sizes());
                let spans = each.map(|row| span(row, (starts[row] as usize, sizes[row] as usize)));
                (Arc::clone(list.values()), spans.collect())
            }
            DataType::FixedSizeList(_, width) => {
                let (list, width) = (array.as_fixed_size_list(), *width as usize);
                let spans = each.map(|row| span(row, (row * width, width)));
                (Arc::clone(list.values()), spans.collect())
            }
            _ => return None,
        };
        Some(Lists {
            rows,
            items,
            spans,
            nulls,
        })
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    fn length(&self, row: usize) -> usize {
        self.spans[row].1
    }

    fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        self.spans.iter().map(|span| span.1)
    }

    /// Returns the items of all lists in order, without unused ones.
    fn live(&self) -> Result<ArrayRef, ArrowError> {
        let mut filled = self.spans.iter().filter(|span| span.1 > 0);
        let Some(first) = filled.next() else {
            return Ok(self.items.slice(0, 0));
        };
        let mut end = first.0 + first.1;
        let in_line = filled.all(|(start, length)| {
            let follows = *start == end;
            end = start + length;
            follows
        });
        if in_line {
            return Ok(self.items.slice(first.0, end - first.0));
        }
        let spans = self.spans.iter();
        let indices = spans.flat_map(|(start, length)| *start as u64..(start + length) as u64);
        take(&self.items, &UInt64Array::from_iter_values(indices), None)
    }

    /// Turns failures of items into failures of their rows.
    fn trouble(&self, items: Vec<Failure>) -> Trouble {
        let mut failures: Vec<Failure> = Vec::new();
        let (mut row, mut end) = (0, self.spans.first().map_or(0, |span| span.1));
        for item in items {
            while item.row >= end && row + 1 < self.rows {
                row += 1;
                end += self.spans[row].1;
            }
            if failures.last().is_none_or(|last| last.row != row) {
                failures.push(Failure { row, ..item });
            }
        }
        Trouble::Rows(failures)
    }
}

/// The failures of several columns, one for each row.
#[derive(Debug, Default)]
pub(crate) struct Failures(Vec<Failure>);

impl Failures {
    pub fn add(&mut self, failures: Vec<Failure>) {
        self.0.extend(failures);
    }

    pub fn settle(mut self) -> Result<(), Trouble> {
        if self.0.is_empty() {
            return Ok(());
        }
        // Keeps the first failure of each row: the sort preserves the order of columns.
        self.0.sort_by_key(|failure| failure.row);
        self.0.dedup_by_key(|failure| failure.row);
        Err(Trouble::Rows(self.0))
    }
}

fn together(whole: &Converter, error: &ArrowError) -> Trouble {
    Trouble::Batch(format!(
        "the column '{}' cannot be read: {error}",
        whole.path
    ))
}

fn not_as_announced(whole: &Converter) -> Trouble {
    Trouble::Batch(format!(
        "the column '{}' is not {} as announced",
        whole.path,
        type_name(&whole.from)
    ))
}
