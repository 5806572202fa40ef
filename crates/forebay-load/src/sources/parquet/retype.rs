//! Replaces the types of some scalars, at any depth of columns.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields};

/// Replaces types: `of` returns the new type of a scalar, or `None` to keep it.
pub(super) fn retyped_fields(
    fields: &Fields,
    of: &dyn Fn(&DataType) -> Option<DataType>,
) -> Fields {
    fields
        .iter()
        .map(|field| retyped_field(field, of))
        .collect()
}

fn retyped_field(field: &FieldRef, of: &dyn Fn(&DataType) -> Option<DataType>) -> FieldRef {
    Arc::new(Field::clone(field).with_data_type(retyped(field.data_type(), of)))
}

/// Replaces a type as [`retyped_fields`] does.
pub(super) fn retyped(
    data_type: &DataType,
    of: &dyn Fn(&DataType) -> Option<DataType>,
) -> DataType {
    match data_type {
        DataType::Struct(fields) => DataType::Struct(retyped_fields(fields, of)),
        DataType::List(item) => DataType::List(retyped_field(item, of)),
        DataType::LargeList(item) => DataType::LargeList(retyped_field(item, of)),
        DataType::FixedSizeList(item, length) => {
            DataType::FixedSizeList(retyped_field(item, of), *length)
        }
        DataType::Map(entries, sorted) => DataType::Map(retyped_field(entries, of), *sorted),
        scalar => of(scalar).unwrap_or_else(|| scalar.clone()),
    }
}

/// Replaces dictionary types that the decoder does not support by those of their values. A file has
/// such a type if the Arrow schema that its writer stored in it says so. pandas does this for
/// categories.
pub(super) fn without_dictionaries(fields: &Fields) -> Fields {
    retyped_fields(fields, &|own| match own {
        DataType::Dictionary(_, value) if !has_dictionaries(value) => Some(value.as_ref().clone()),
        _ => None,
    })
}

fn has_dictionaries(value: &DataType) -> bool {
    !matches!(value, DataType::Boolean | DataType::Null) && !value.is_decimal()
}
