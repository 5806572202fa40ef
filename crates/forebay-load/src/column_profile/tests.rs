//! Tests of the figures against straightforward calculations.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, ListArray, RecordBatch,
    StringArray, StringViewArray,
};
use forebay_engine::ColumnProfile;

use super::*;
use crate::types::row_schema;

/// Returns the profile of a batch, counted in slices of these lengths by several profiles that are
/// merged.
fn profiled(batch: &RecordBatch, stretch: usize, backwards: bool) -> TableProfile {
    let columns = batch.num_columns();
    let mut parts = Vec::new();
    for from in (0..batch.num_rows()).step_by(stretch) {
        let rows = batch.slice(from, stretch.min(batch.num_rows() - from));
        let mut part = TableProfile::new(columns);
        part.add(&rows, &BatchCounts::of(&rows, columns), from as u64);
        parts.push(part);
    }
    if backwards {
        parts.reverse();
    }
    let mut whole = TableProfile::new(columns);
    for part in &parts {
        whole.merge(part).unwrap();
    }
    whole
}

fn stats(batch: &RecordBatch, profile: &TableProfile) -> Vec<ColumnStats> {
    let schema = row_schema(&batch.schema()).unwrap();
    profile.stats(&schema, &batch.schema(), batch.num_rows() as u64)
}

fn only(name: &str, values: ArrayRef) -> ColumnProfile {
    let batch = RecordBatch::try_from_iter([(name, values)]).unwrap();
    let profile = profiled(&batch, 3, false);
    stats(&batch, &profile).remove(0).values.unwrap()
}

#[test]
fn numbers_are_counted_one_by_one() {
    let values = [
        Some(0.0),
        Some(-2.5),
        None,
        Some(f64::NAN),
        Some(f64::NEG_INFINITY),
        Some(7.5),
        Some(7.5),
    ];
    let seen = only("x", Arc::new(Float64Array::from(values.to_vec())));
    assert_eq!(
        (
            seen.values,
            seen.zeros,
            seen.negative,
            seen.nan,
            seen.infinite
        ),
        (6, 1, 2, 1, 1)
    );
    let range = seen.range.unwrap();
    assert_eq!((range.min, range.max, range.mean), (-2.5, 7.5, Some(3.125)));
    // The root of (3.125² + 5.625² + 2 · 4.375²) / 4.
    let std = range.std.unwrap();
    assert!((std - 4.4634).abs() < 1e-4, "{std}");
    assert_eq!(
        (range.quantile(50), range.quantile(1), range.quantile(99)),
        (Some(7.5), Some(-2.5), Some(7.5))
    );
    assert_eq!((seen.looked_at, seen.distinct), (6, Some(5)));
    assert!((seen.common.unwrap() - 2.0 / 6.0).abs() < 1e-9);
}

#[test]
fn each_type_is_measured_by_its_number_or_its_length() {
    let mean = |values: ArrayRef| {
        let seen = only("x", values);
        (seen.of, seen.range.unwrap().mean.unwrap())
    };
    let decimals = Decimal128Array::from(vec![Some(1050), None, Some(150)]);
    let decimals = decimals.with_precision_and_scale(10, 2).unwrap();
    assert_eq!(mean(Arc::new(decimals)), (MeasuredColumn::Number, 6.0));
    assert_eq!(
        mean(Arc::new(Int64Array::from(vec![1, 2, 6]))),
        (MeasuredColumn::Number, 3.0)
    );
    let truths = BooleanArray::from(vec![Some(true), Some(false), None, Some(false), Some(true)]);
    assert_eq!(mean(Arc::new(truths)), (MeasuredColumn::Truth, 0.5));
    let texts = vec![
        Some("abc"),
        None,
        Some(""),
        Some("a text of more than 12 bytes"),
    ];
    let length = (MeasuredColumn::Length, 31.0 / 3.0);
    let near = |seen: (MeasuredColumn, f64)| seen.0 == length.0 && (seen.1 - length.1).abs() < 1e-9;
    assert!(near(mean(Arc::new(StringArray::from(texts.clone())))));
    assert!(near(mean(Arc::new(StringViewArray::from(texts)))));
    let lists = vec![Some(vec![Some(1), None]), None, Some(vec![])];
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
    assert_eq!(mean(Arc::new(lists.clone())), (MeasuredColumn::Length, 1.0));
    assert_eq!(only("x", Arc::new(lists)).distinct, None);
}

#[test]
fn large_numbers_close_together_keep_their_spread_and_huge_ones_stay_finite() {
    let at = 1_700_000_000_000_000i64;
    let values = Int64Array::from_iter_values((0..1000).map(|i| at + i % 1000));
    let range = only("t", Arc::new(values)).range.unwrap();
    let std = range.std.unwrap();
    assert!((std - 288.67).abs() < 0.1, "{std}");
}

#[test]
fn figures_whose_sums_leave_the_range_of_a_double_are_none() {
    let huge = |values: Vec<f64>, stretch: usize| {
        let values: ArrayRef = Arc::new(Float64Array::from(values));
        let batch = RecordBatch::try_from_iter([("t", values)]).unwrap();
        let profile = profiled(&batch, stretch, false);
        let text = serde_json::to_string(&profile).unwrap();
        assert_eq!(
            serde_json::from_str::<TableProfile>(&text).unwrap(),
            profile
        );
        let range = stats(&batch, &profile).remove(0).values.unwrap().range;
        let range = range.unwrap();
        (range.mean.is_some(), range.std.is_some(), range.max)
    };
    for stretch in [1, 2, 4] {
        let apart = vec![1e308, 1e308, -1e308, -1e308];
        assert_eq!(huge(apart, stretch), (false, false, 1e308), "{stretch}");
        let one_of_few = vec![1.0, 2.0, 1e200, 3.0];
        assert_eq!(
            huge(one_of_few, stretch),
            (false, false, 1e200),
            "{stretch}"
        );
        assert_eq!(huge(vec![1e200; 4], stretch), (true, true, 1e200));
    }
}

#[test]
fn parts_merged_in_any_order_give_the_same_and_quantiles_are_near() {
    let rows = 100_000;
    let mixed = |i: i64| (i * 7919) % rows;
    let batch = RecordBatch::try_from_iter([
        (
            "unique",
            Arc::new(Int64Array::from_iter_values((0..rows).map(mixed))) as ArrayRef,
        ),
        (
            "few",
            Arc::new(Int64Array::from_iter_values(
                (0..rows).map(|i| mixed(i) % 50),
            )),
        ),
        (
            "many",
            Arc::new(Int64Array::from_iter_values(
                (0..rows).map(|i| mixed(i) % 20_000),
            )),
        ),
    ])
    .unwrap();
    let once = stats(&batch, &profiled(&batch, 100_000, false));
    for (stretch, backwards) in [(10_000, false), (10_000, true), (3_333, true)] {
        assert_eq!(
            once,
            stats(&batch, &profiled(&batch, stretch, backwards)),
            "{stretch}"
        );
    }
    let of = |at: usize| once[at].values.clone().unwrap();
    assert!(
        (4096..=8192).contains(&of(0).looked_at),
        "{}",
        of(0).looked_at
    );
    for percent in [5u8, 50, 95] {
        let quantile = of(0).range.unwrap().quantile(percent).unwrap() / rows as f64;
        // Five times the standard error of 4096 rows drawn at random.
        assert!(
            (quantile - f64::from(percent) / 100.0).abs() < 0.04,
            "{percent}: {quantile}"
        );
    }
    let distinct = |at: usize| of(at).distinct.unwrap() as f64;
    assert!(distinct(0) > 0.5 * rows as f64, "{}", distinct(0));
    assert_eq!(distinct(1), 50.0);
    assert!(
        (distinct(2) / 20_000.0 - 1.0).abs() < 0.25,
        "{}",
        distinct(2)
    );
}

#[test]
fn a_profile_that_travels_is_the_same_and_one_of_other_columns_is_refused() {
    let batch = RecordBatch::try_from_iter([(
        "x",
        Arc::new(Float64Array::from_iter_values(
            (0..2000).map(|i| f64::from(i) / 3.0),
        )) as ArrayRef,
    )])
    .unwrap();
    let mut profile = profiled(&batch, 700, false);
    profile.shrink(512);
    let text = serde_json::to_string(&profile).unwrap();
    let arrived: TableProfile = serde_json::from_str(&text).unwrap();
    let (was, is) = (stats(&batch, &profile), stats(&batch, &arrived));
    let quantiles =
        |stats: &[ColumnStats]| stats[0].values.clone().unwrap().range.unwrap().quantiles;
    assert_eq!(quantiles(&was), quantiles(&is));
    assert!((257..=512).contains(&is[0].values.as_ref().unwrap().looked_at));
    assert_eq!(TableProfile::new(2).merge(&profile), None);
}
