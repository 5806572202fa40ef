//! Tests of limits for the values of columns.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, Float64Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use forebay_engine::{ProfilePair, SchemaChange, Share};

use super::*;
use crate::column_profile::{BatchCounts, TableProfile};
use crate::types::row_schema;

fn pair(before: ArrayRef, after: ArrayRef) -> ProfilePair {
    let profile = |values: ArrayRef| {
        let batch = RecordBatch::try_from_iter([("c", values)]).unwrap();
        let mut profile = TableProfile::new(1);
        profile.add(&batch, &BatchCounts::of(&batch, 1), 0);
        let rows = batch.num_rows() as u64;
        let schema = row_schema(&batch.schema()).unwrap();
        profile
            .stats(&schema, &batch.schema(), rows)
            .remove(0)
            .values
    };
    ProfilePair {
        column: "c".to_owned(),
        is_key: false,
        before: profile(before),
        after: profile(after),
    }
}

fn compared(profiles: Vec<ProfilePair>) -> Comparison {
    Comparison {
        rows_before: 1,
        rows_after: 1,
        rows_are_exact: true,
        bytes_before: 1,
        bytes_after: 1,
        bytes_are_exact: true,
        lost: Share::default(),
        new: Share::default(),
        changed: Share::default(),
        nulls: Vec::new(),
        profiles,
        schema: SchemaChange::default(),
    }
}

/// Returns the limits that do not let it pass.
fn held(given: &[&str], before: ArrayRef, after: ArrayRef) -> Vec<String> {
    let given: Vec<Limit> = given.iter().map(|text| text.parse().unwrap()).collect();
    let found = check(&limits(&given), &compared(vec![pair(before, after)]));
    let held = found.into_iter().filter(|finding| !finding.passed);
    held.map(|finding| finding.limit).collect()
}

fn floats(value: impl Fn(usize) -> f64) -> ArrayRef {
    Arc::new((0..1000).map(value).collect::<Float64Array>())
}

/// From 10 to 109.9, every tenth.
fn price(at: usize) -> f64 {
    10.0 + at as f64 / 10.0
}

#[test]
fn default_limits_hold_scales_signs_constants_and_nan() {
    let every = |n: usize, value: f64| {
        move |at: usize| {
            if at.is_multiple_of(n) {
                value
            } else {
                price(at)
            }
        }
    };
    for (what, after, limits) in [
        (
            "a scale",
            floats(|at| price(at) * 1000.0),
            &["shift<20%", "std<200%"][..],
        ),
        (
            "a small scale",
            floats(|at| price(at) / 1000.0),
            &["shift<20%", "std>-60%"],
        ),
        (
            "a sign",
            floats(|at| -price(at)),
            &["negative<50%", "shift<20%"],
        ),
        (
            "zeros",
            floats(|_| 0.0),
            &[
                "zeros<20%",
                "common<30%",
                "shift<20%",
                "std>-60%",
                "distinct>-80%",
            ],
        ),
        (
            "a constant",
            floats(|_| 60.0),
            &["common<30%", "shift<20%", "std>-60%", "distinct>-80%"],
        ),
        (
            "infinities",
            floats(|_| f64::INFINITY),
            &["inf<0.1%", "common<30%", "distinct>-80%"],
        ),
        (
            "some infinities",
            floats(every(50, f64::NEG_INFINITY)),
            &["inf<0.1%"],
        ),
        ("no numbers", floats(every(50, f64::NAN)), &["nan<0.1%"]),
        (
            "a tail",
            floats(|at| price(at) * if at < 900 { 1.0 } else { 10.0 }),
            &["shift<20%", "std<200%"],
        ),
        ("the same", floats(price), &[]),
        ("a little more", floats(|at| price(at) * 1.05), &[]),
    ] {
        assert_eq!(held(&[], floats(price), after), limits, "{what}");
    }
}

#[test]
fn limits_for_all_columns_skip_few_values_constants_and_later_times() {
    let few = |scale: f64| -> ArrayRef {
        Arc::new(
            (0..50)
                .map(|at| scale * price(at))
                .collect::<Float64Array>(),
        )
    };
    assert_eq!(held(&[], few(1.0), few(1000.0)), [""; 0]);
    assert_eq!(held(&[], few(1.0), few(f64::INFINITY)), ["inf<0.1%"]);
    assert_eq!(held(&[], floats(|_| 1.0), floats(|_| 2.0)), [""; 0]);
    let mut key = pair(floats(price), floats(|at| price(at) * 1000.0));
    key.is_key = true;
    let found = check(&limits(&[]), &compared(vec![key]));
    assert!(found.iter().all(|finding| finding.passed), "{found:?}");
    let day = |day: i64| -> ArrayRef {
        let times =
            Int64Array::from_iter_values((0..1000).map(|at| day * 86_400_000 + at * 80_000));
        let kind = DataType::Timestamp(TimeUnit::Millisecond, None);
        arrow_cast::cast(&times, &kind).unwrap()
    };
    assert_eq!(held(&[], day(20_000), day(20_001)), [""; 0]);
    assert_eq!(
        held(&["shift(c)<20%"], day(20_000), day(20_001)),
        ["shift(c)<20%"]
    );
}

#[test]
fn texts_and_lists_are_held_by_their_lengths_and_their_most_frequent_value() {
    let texts = |text: fn(usize) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values((0..1000).map(text)))
    };
    let copy_fetcher = |at: usize| format!("carrier {:02}", at % 16);
    assert_eq!(
        held(&[], texts(copy_fetcher), texts(|_| "carrier 07".to_owned())),
        ["common<30%"]
    );
    let name = |at: usize| format!("person {at}");
    let longer = |at: usize| format!("person {}", 100 + at % 900);
    assert_eq!(held(&[], texts(name), texts(longer)), [""; 0]);
    let empty = held(&[], texts(copy_fetcher), texts(|_| String::new()));
    assert!(empty.contains(&"zeros<20%".to_owned()), "{empty:?}");
    let lists = |length: usize| -> ArrayRef {
        let list = |at: usize| Some(vec![Some(1); length * (1 + at % 3)]);
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(
            (0..1000).map(list),
        ))
    };
    assert_eq!(held(&[], lists(2), lists(3)), [""; 0]);
    let limits = ["shift(c)<20%", "length(c)<20%"];
    assert_eq!(held(&limits, lists(2), lists(3)), limits);
}

#[test]
fn a_limit_for_a_column_bounds_its_figure_either_way_and_replaces_the_one_for_all() {
    let scaled = |scale: f64| floats(move |at| price(at) * scale);
    for limit in [
        "mean(c)<20%",
        "median(c)<20%",
        "p95(c)<20%",
        "min(c)<20%",
        "max(c)<20%",
        "std(c)<20%",
    ] {
        for (scale, holds) in [
            (1.1, false),
            (1.3, true),
            (0.7, true),
            (-1.0, limit != "std(c)<20%"),
        ] {
            let found = held(
                &[limit, "shift(c)<1000%", "negative(c)<101%"],
                scaled(1.0),
                scaled(scale),
            );
            assert_eq!(found == [limit], holds, "{limit}: {scale}: {found:?}");
        }
    }
    assert_eq!(held(&["mean(c)>-20%"], scaled(1.0), scaled(1.1)), [""; 0]);
    assert_eq!(
        held(&["mean(c)>-5%"], scaled(1.0), scaled(0.9)),
        ["mean(c)>-5%"]
    );
    assert_eq!(
        held(&["negative(c)<1%"], scaled(-1.0), scaled(-1.0)),
        ["negative(c)<1%"]
    );
    assert_eq!(held(&["distinct(c)<1%"], scaled(1.0), scaled(1.0)), [""; 0]);
}

#[test]
fn a_limit_without_a_column_is_for_the_columns_that_have_the_figure() {
    let texts = |length: usize| -> ArrayRef {
        let text = |at: usize| "x".repeat(length + at % 5);
        Arc::new(StringArray::from_iter_values((0..1000).map(text)))
    };
    let more = || floats(|at| price(at) * 1.15);
    assert_eq!(held(&["length<10%"], floats(price), more()), [""; 0]);
    assert_eq!(held(&["mean<10%"], floats(price), more()), ["mean<10%"]);
    assert_eq!(held(&["mean<10%"], texts(10), texts(12)), [""; 0]);
    assert_eq!(held(&["length<10%"], texts(10), texts(12)), ["length<10%"]);
}

#[test]
fn the_last_of_several_limits_for_one_figure_applies() {
    let held = |given: &[&str]| held(given, floats(price), floats(|at| price(at) * 1.15));
    assert_eq!(held(&["std(c)<10%", "std(c)<900%"]), [""; 0]);
    assert_eq!(held(&["std(c)<900%", "std(c)<10%"]), ["std(c)<10%"]);
    assert_eq!(held(&["mean<10%", "mean<900%"]), [""; 0]);
    assert_eq!(held(&["mean(c)<900%", "mean<10%"]), [""; 0]);
}

#[test]
fn std_for_all_columns_skips_heavy_tails() {
    let tailed = |at: usize| 1000.0 / (1000 - at) as f64;
    let longer = || floats(move |at| tailed(at) * if at < 995 { 1.0 } else { 10.0 });
    assert_eq!(held(&[], floats(tailed), longer()), [""; 0]);
    assert_eq!(held(&[], longer(), floats(tailed)), [""; 0]);
    let own = ["std(c)<200%"];
    assert_eq!(held(&own, floats(tailed), longer()), own);
    let negative = |values: fn(usize) -> f64| floats(move |at| -values(at));
    let tail = negative(|at| 1000.0 / (1000 - at) as f64);
    assert_eq!(
        held(
            &[],
            tail,
            negative(|at| (at / 999 * 9000) as f64 + 1000.0 / (1000 - at) as f64)
        ),
        [""; 0]
    );
    // Outliers of other columns show in it alone.
    let outliers = floats(|at| price(at) * if at < 990 { 1.0 } else { 100.0 });
    assert_eq!(held(&[], floats(price), outliers), ["std<200%"]);
}

#[test]
fn a_limit_for_a_column_holds_a_version_that_lost_the_figure() {
    let nulls: ArrayRef = Arc::new(Float64Array::new_null(1000));
    let limits = ["mean(c)<5%", "max(c)<5%", "shift(c)<5%"];
    assert_eq!(held(&limits, floats(price), nulls.clone()), limits);
    assert_eq!(held(&limits, nulls.clone(), nulls.clone()), [""; 0]);
    assert_eq!(held(&limits, nulls, floats(price)), limits);
}

/// Returns a limit's finding for a column, and whether it passed.
fn seen(limit: &str, before: ArrayRef, after: ArrayRef) -> (String, bool) {
    let given: Vec<Limit> = vec![limit.parse().unwrap()];
    let found = check(&limits(&given), &compared(vec![pair(before, after)]));
    let own = found.into_iter().find(|finding| finding.limit == limit);
    own.map(|finding| (finding.seen, finding.passed)).unwrap()
}

#[test]
fn a_shift_from_equal_quantiles_is_none_or_without_bounds() {
    let texts = |length: usize| -> ArrayRef {
        let text = |_: usize| "x".repeat(length);
        Arc::new(StringArray::from_iter_values((0..1000).map(text)))
    };
    for (same, other) in [(floats(|_| 3.0), floats(|_| 3.1)), (texts(3), texts(4))] {
        let (text, passed) = seen("shift(c)<5%", same.clone(), same.clone());
        assert!(passed && text.contains("did not move"), "{text}");
        let (text, passed) = seen("shift(c)<5%", same, other);
        assert!(!passed && text.contains("quantiles are equal"), "{text}");
    }
    let nulls: ArrayRef = Arc::new(Float64Array::new_null(1000));
    let (text, passed) = seen("shift(c)<5%", nulls.clone(), nulls);
    assert!(passed && text.contains("none in both versions"), "{text}");
    let wide =
        |sign: f64| floats(move |at| sign * if at % 2 == 0 { 1e308 } else { -1e308 + 1e300 });
    let (text, passed) = seen("shift(c)<5%", wide(1.0), wide(-1.0));
    assert!(!passed && text.contains("too far apart"), "{text}");
    let (text, passed) = seen("shift(c)<5%", floats(price), texts(3));
    assert!(!passed && text.contains("another kind"), "{text}");
}

#[test]
fn the_two_zeros_are_one_value() {
    let zeros = |sign: fn(usize) -> f64| floats(move |at| if at % 2 == 0 { 0.0 } else { sign(at) });
    let (positive, mixed) = (zeros(|_| 0.0), zeros(|_| -0.0));
    assert_eq!(held(&[], mixed, positive.clone()), [""; 0]);
    let both = pair(zeros(|_| -0.0), positive);
    let (before, after) = (both.before.unwrap(), both.after.unwrap());
    assert_eq!((before.common, before.distinct), (Some(1.0), Some(1)));
    assert_eq!((after.common, after.distinct), (Some(1.0), Some(1)));
    assert_eq!(shown(-0.0), "0");
}

#[test]
fn limits_are_shown_as_they_are_given_and_huge_changes_with_an_exponent() {
    for limit in [
        "nan<0.0001%",
        "mean(c)<0.123456%",
        "rows>-7%",
        "shift<1e-7%",
    ] {
        let parsed: Limit = limit.parse().unwrap();
        let again: Limit = parsed.to_string().parse().unwrap();
        assert_eq!(again, parsed, "{limit}: {parsed}");
    }
    let limit: Limit = "nan<0.0001%".parse().unwrap();
    assert_eq!(limit.to_string(), "nan<0.0001%");
    let (text, _) = seen("mean(c)<5%", floats(price), floats(|at| price(at) * 1e12));
    assert!(text.contains("(+1.0e14%)"), "{text}");
    let (text, _) = seen("nan(c)<0.0001%", floats(price), floats(price));
    assert!(text.starts_with("0% of"), "{text}");
    assert_eq!(super::percent_text(0.000_001_234), "0.00012");
}

#[test]
fn a_figure_whose_sums_leave_the_range_of_a_double_holds_and_proposes_nothing() {
    let outlier = floats(|at| if at == 7 { 1e200 } else { price(at) });
    assert_eq!(
        held(&["mean(c)<20%"], floats(price), outlier.clone()),
        ["std>-60%", "std<200%", "mean(c)<20%"]
    );
    assert_eq!(
        held(&["mean(c)<20%"], outlier.clone(), outlier.clone()),
        ["mean(c)<20%"]
    );
    let found = check(&limits(&[]), &compared(vec![pair(floats(price), outlier)]));
    let held = found.iter().find(|finding| !finding.passed).unwrap();
    assert_eq!(held.remedy, None);
    assert!(held.seen.contains("too large to be added up"), "{held:?}");
    let whole = |sign: f64| floats(move |at| sign * if at % 2 == 0 { 1e308 } else { -1e307 });
    let wide = check(
        &limits(&["shift(c)<5%".parse().unwrap()]),
        &compared(vec![pair(whole(1.0), whole(-1.0))]),
    );
    let seen = wide.iter().find(|f| f.limit == "shift(c)<5%").unwrap();
    assert!(!seen.seen.contains("NaN"), "{seen:?}");
}

#[test]
fn a_proposed_limit_lets_the_column_pass_and_hides_no_other_fault() {
    let (before, after) = (floats(price), floats(|at| price(at) * 1.4));
    let seen = compared(vec![pair(before, after)]);
    let found = check(&limits(&[]), &seen);
    let held: Vec<&Finding> = found.iter().filter(|finding| !finding.passed).collect();
    let [only] = held[..] else { panic!("{held:?}") };
    let remedy = only.remedy.clone().unwrap();
    assert!(remedy.starts_with("shift(c)<"), "{remedy}");
    let now = check(&limits(&[remedy.parse().unwrap()]), &seen);
    assert!(now.iter().all(|finding| finding.passed));
    let wild = check(
        &limits(&[]),
        &compared(vec![pair(floats(price), floats(|at| price(at) * 1e6))]),
    );
    assert!(
        wild.iter().any(|f| !f.passed) && wild.iter().all(|f| f.remedy.is_none()),
        "{wild:?}"
    );
}

#[test]
fn versions_without_statistics_are_reported_as_not_compared() {
    let mut unknown = pair(floats(price), floats(|_| 0.0));
    unknown.before = None;
    let given: Vec<Limit> = vec!["mean(c)<20%".parse().unwrap()];
    let found = check(&limits(&given), &compared(vec![unknown.clone()]));
    assert!(found.iter().all(|finding| finding.passed));
    assert!(
        found
            .iter()
            .any(|f| f.reported && f.limit == "values of columns"),
        "{found:?}"
    );
    (unknown.before, unknown.after) = (unknown.after, None);
    let found = check(&limits(&given), &compared(vec![unknown]));
    let held: Vec<&str> = found
        .iter()
        .filter(|f| !f.passed)
        .map(|f| &*f.limit)
        .collect();
    assert_eq!(held, ["mean(c)<20%"]);
}

#[test]
fn limits_for_columns_that_will_not_be_there_are_refused() {
    let fields = vec![
        Field::new("price", DataType::Float64, true),
        Field::new("name", DataType::Utf8, true),
        Field::new_struct("place", vec![Field::new("x", DataType::Int8, true)], true),
        Field::new_list("days", Field::new("item", DataType::Int8, true), true),
        Field::new("op", DataType::Utf8, true),
    ];
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let refused = |limit: &str| {
        let limits = [limit.parse::<Limit>().unwrap()];
        check_columns(&limits, &schema, 4)
            .err()
            .map(|error| error.to_string())
    };
    for fine in [
        "mean(price)<1%",
        "length(name)<1%",
        "nulls(place)<1%",
        "mean<5%",
        "column-gone(x)=report",
    ] {
        assert_eq!(refused(fine), None, "{fine}");
    }
    let unknown = refused("nulls(prise)<1%").unwrap();
    assert!(
        unknown.contains("'prise'") && unknown.contains("price, name, place"),
        "{unknown}"
    );
    assert!(refused("nulls(op)<1%").is_some());
    assert!(refused("mean(name)<1%").unwrap().contains("length(COLUMN)"));
    assert!(
        refused("length(price)<1%")
            .unwrap()
            .contains("mean(COLUMN)")
    );
    assert!(refused("std(place)<1%").unwrap().contains("nulls(COLUMN)"));
    assert!(refused("nan(name)<1%").unwrap().contains("always finite"));
    assert!(refused("inf(days)<1%").unwrap().contains("always finite"));
    let of_lists = refused("distinct(days)<1%").unwrap();
    assert!(of_lists.contains("length(COLUMN)"), "{of_lists}");
    assert_eq!(refused("inf(price)<1%"), None);
}
