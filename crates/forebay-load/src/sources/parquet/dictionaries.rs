//! Decodes dictionary types that the decoder does not support, as their values.
//!
//! A file has such a type if the Arrow schema that its writer stored in it says so. pandas does
//! this for categories.

use arrow_schema::{DataType, Fields};

use super::retype::retyped_fields;

/// Returns the types as which columns are decoded.
pub(super) fn decoded(fields: &Fields) -> Fields {
    retyped_fields(fields, &|own| match own {
        DataType::Dictionary(_, value) if !has_dictionaries(value) => Some(value.as_ref().clone()),
        _ => None,
    })
}

fn has_dictionaries(value: &DataType) -> bool {
    !matches!(value, DataType::Boolean | DataType::Null) && !value.is_decimal()
}
