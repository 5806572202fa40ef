//! Dictionary types that the decoder does not have: it gives their values instead. A file is of
//! such a type by the Arrow schema that its writer left in it, as pandas does for categories.

use arrow_schema::{DataType, Fields};

use super::retype::retyped_fields;

/// The types that columns are decoded as.
pub(super) fn decoded(fields: &Fields) -> Fields {
    retyped_fields(fields, &|own| match own {
        DataType::Dictionary(_, value) if !has_dictionaries(value) => Some(value.as_ref().clone()),
        _ => None,
    })
}

fn has_dictionaries(value: &DataType) -> bool {
    !matches!(value, DataType::Boolean | DataType::Null) && !value.is_decimal()
}
