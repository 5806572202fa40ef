//! Formats a version's column statistics, for people and programs.

use std::fmt::Write;

use forebay_engine::{ColumnProfile, ColumnStats, ProfilePair, QUANTILE_PERCENTS, ValueRange};
use forebay_run::error::named_column;
use serde_json::{Map, Value, json};

/// Returns a list of `{column, nulls, ...}`, with the statistics of each column's values.
pub fn objects(stats: &[ColumnStats]) -> Vec<Value> {
    let object = |stats: &ColumnStats| {
        let mut object = stats.values.as_ref().map_or_else(Map::new, figures);
        object.insert("column".to_owned(), json!(stats.column));
        object.insert("nulls".to_owned(), json!(stats.nulls));
        Value::Object(object)
    };
    stats.iter().map(object).collect()
}

/// Returns a list of `{column, before, after}`.
pub fn pair_objects(pairs: &[ProfilePair]) -> Vec<Value> {
    let side = |side: &Option<ColumnProfile>| side.as_ref().map(figures);
    let object = |pair: &ProfilePair| json!({"column": pair.column, "before": side(&pair.before), "after": side(&pair.after)});
    pairs.iter().map(object).collect()
}

fn figures(profile: &ColumnProfile) -> Map<String, Value> {
    let range = profile.range.as_ref();
    let figure = |of: fn(&ValueRange) -> f64| range.map(of);
    let quantiles = range.map(|range| {
        let named = QUANTILE_PERCENTS.iter().zip(range.quantiles);
        let named = named.map(|(percent, value)| (format!("p{percent}"), json!(value)));
        named.collect::<Map<String, Value>>()
    });
    let object = json!({
        "of": profile.of,
        "values": profile.values,
        "zeros": profile.zeros,
        "negative": profile.negative,
        "nan": profile.nan,
        "inf": profile.infinite,
        "min": figure(|range| range.min),
        "max": figure(|range| range.max),
        "mean": range.and_then(|range| range.mean),
        "std": range.and_then(|range| range.std),
        "quantiles": quantiles,
        "looked_at": profile.looked_at,
        "common": profile.common,
        "distinct": profile.distinct,
    });
    match object {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// Returns one line for each column.
pub fn lines(stats: &[ColumnStats]) -> String {
    let mut out = String::new();
    for ColumnStats { column, values, .. } in stats {
        if let Some(values) = values {
            let figures: Vec<String> = named(values)
                .into_iter()
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            _ = writeln!(out, "  {}: {}", named_column(column), figures.join(", "));
        }
    }
    out
}

/// Returns a line for each column whose statistics differ, with those that differ.
pub fn pair_lines(pairs: &[ProfilePair]) -> String {
    let mut out = String::new();
    for pair in pairs {
        let (Some(before), Some(after)) = (&pair.before, &pair.after) else {
            continue;
        };
        let both = named(before).into_iter().zip(named(after));
        let changed = both.filter(|((_, was), (_, is))| was != is);
        let changed: Vec<String> = changed
            .map(|((name, was), (_, is))| format!("{name} {was} -> {is}"))
            .collect();
        if !changed.is_empty() {
            let column = named_column(&pair.column);
            _ = writeln!(out, "values of {column}: {}", changed.join(", "));
        }
    }
    out
}

/// Returns the statistics that are shown to people.
fn named(profile: &ColumnProfile) -> [(&'static str, String); 11] {
    let range = profile.range.as_ref();
    let figure = |value: Option<f64>| value.map_or("none".to_owned(), shown);
    let quantile = |percent| figure(range.and_then(|range| range.quantile(percent)));
    let share = |count| format!("{}%", shown(100.0 * profile.share(count)));
    [
        ("mean", figure(range.and_then(|range| range.mean))),
        ("std", figure(range.and_then(|range| range.std))),
        ("min", figure(range.map(|range| range.min))),
        ("5%", quantile(5)),
        ("median", quantile(50)),
        ("95%", quantile(95)),
        ("max", figure(range.map(|range| range.max))),
        ("zeros", share(profile.zeros)),
        ("nan", share(profile.nan)),
        ("inf", share(profile.infinite)),
        (
            "distinct",
            profile
                .distinct
                .map_or("none".to_owned(), |n| n.to_string()),
        ),
    ]
}

fn shown(value: f64) -> String {
    forebay_load::gate::shown(value)
}
