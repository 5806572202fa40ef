//! Tests Arrow to rows to Arrow: every type returns in its plain form with the same values.

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};
use forebay_run::row::RowView;
use proptest::prelude::*;

use super::arrays::{Rng, array, data_type, scalar_types};
use crate::convert::conform;
use crate::encode::{EncodeError, RowEncoder, ValueChoice};
use crate::export::batch::BatchBuilder;

/// A batch with an `id` and columns of the types.
fn batch(rng: &mut Rng, types: &[DataType], rows: usize) -> RecordBatch {
    let mut fields = vec![Field::new("id", DataType::Int64, false)];
    let mut columns: Vec<arrow_array::ArrayRef> =
        vec![Arc::new(Int64Array::from_iter_values(0..rows as i64))];
    for (index, data_type) in types.iter().enumerate() {
        fields.push(Field::new(format!("c{index}"), data_type.clone(), true));
        columns.push(array(rng, data_type, rows, true));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn check(batch: &RecordBatch) {
    let mut encoder =
        RowEncoder::new(&batch.schema(), &"{id}".parse().unwrap(), &ValueChoice::Row).unwrap();
    let schema = encoder.schema().clone();
    let mut builder = BatchBuilder::new(schema.columns(), false);
    let mut json = Vec::new();
    let batch = &conform(batch, encoder.batch_schema()).unwrap();
    encoder
        .encode::<EncodeError>(
            batch,
            |_, _, operation| {
                let (value, _) = operation.value().unwrap();
                let view = RowView::new(&schema, value).unwrap();
                for column in 0..view.len() {
                    builder.push(column, &view.datum(column).unwrap()).unwrap();
                }
                builder.end_row(value.len());
                json.clear();
                view.json(&mut json).unwrap();
                let shown: Result<serde_json::Value, _> = serde_json::from_slice(&json);
                assert!(shown.is_ok(), "{}", String::from_utf8_lossy(&json));
                Ok(())
            },
            |_, bad| panic!("{bad}"),
        )
        .unwrap();
    let back = builder.finish().unwrap();
    assert_eq!(back.num_rows(), batch.num_rows());
    for (before, after) in batch.columns().iter().zip(back.columns()) {
        let plain = cast(before, after.data_type()).unwrap();
        assert_eq!(&plain, after, "{}", before.data_type());
    }
}

#[test]
fn every_scalar_type_is_read_back() {
    let mut rng = Rng(7);
    let batch = batch(&mut rng, &scalar_types(), 500);
    check(&batch);
    check(&batch.slice(13, 57));
    check(&batch.slice(0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nested_types_are_read_back(seed in 1_u64.., columns in 1_usize..5, rows in 0_usize..40) {
        let mut rng = Rng(seed);
        let types: Vec<DataType> = (0..columns).map(|_| data_type(&mut rng, 3)).collect();
        let batch = batch(&mut rng, &types, rows);
        check(&batch);
        let start = rng.below(rows + 1);
        check(&batch.slice(start, rng.below(rows - start + 1)));
    }
}
