//! `forebay diff`: compares two versions.

use std::fmt::Write;

use clap::Args;
use forebay_engine::{
    Alteration, Altered, DiffReport, DiffSample, Difference, ProfilePair, SchemaChange, TableName,
    diff, profiles_of, show_key,
};
use forebay_load::progress::Unit;
use forebay_run::error::{named_column, without_controls};
use forebay_run::row::write_json_bytes;
use serde_json::{Map, Value, json};

use crate::commands::inspect::column_figures::{pair_lines, pair_objects};
use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;

/// Compare two versions of a table
///
/// Prints counts and the first differences of each kind. Rows are compared by the columns that both
/// versions have, as readers see them. A column that was added or removed is reported once and
/// changes no row. A column with another type changes the rows whose values read differently.
///
/// With --json one object {table, from, to, added, removed, changed, unchanged, columns, schema,
/// values, differences}. columns counts the changes of each column. values has the statistics of
/// each column in both versions as {column, before, after}. schema has the columns and fields that
/// were added, removed or got another type as {added, removed, retyped, changes}. changes is a list
/// of {change, column, before, after, text}. Each difference is {key, change, columns}.
#[derive(Debug, Args)]
pub struct Diff {
    pub table: TableName,

    /// The older version
    #[arg(value_name = "V1", value_parser = human::parse_number::<u64>)]
    pub from: u64,

    /// The newer version
    #[arg(value_name = "V2", value_parser = human::parse_number::<u64>)]
    pub to: u64,

    /// How many differences of each kind to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub limit: usize,
}

pub fn run(args: &Diff, context: &Context) -> anyhow::Result<Outcome> {
    let table = context.open_table(&args.table)?;
    let before = table.open_version(args.from)?;
    let after = table.open_version(args.to)?;
    let drawing = context.progress();
    let rows = before
        .manifest()
        .rows()
        .saturating_add(after.manifest().rows());
    drawing.stage("comparing", Some(rows), Unit::Rows);
    let report = diff(&before, &after, args.limit, &mut |rows| {
        drawing.advance(rows)
    })?;
    drop(drawing);
    let profiles = profiles_of(before.manifest(), after.manifest());
    context.print(&object(args, &report, &profiles), || {
        text(args, &report, &profiles)
    })?;
    Ok(Outcome::Done)
}

fn object(args: &Diff, report: &DiffReport, profiles: &[ProfilePair]) -> Value {
    let columns: Map<String, Value> = report
        .columns
        .iter()
        .map(|(name, changed)| (name.clone(), json!(changed)))
        .collect();
    json!({
        "table": args.table,
        "from": args.from,
        "to": args.to,
        "added": report.added,
        "removed": report.removed,
        "changed": report.changed,
        "unchanged": report.same,
        "columns": columns,
        "schema": schema_object(&report.schema),
        "values": pair_objects(profiles),
        "differences": report.samples.iter().map(sample_object).collect::<Vec<_>>(),
    })
}

fn schema_object(schema: &SchemaChange) -> Value {
    let change = |change: &Alteration| {
        json!({
            "change": change.what.word(),
            "column": change.column,
            "before": change.before,
            "after": change.after,
            "text": change.to_string(),
        })
    };
    json!({
        "added": schema.columns(&[Altered::ColumnNew]),
        "removed": schema.columns(&[Altered::ColumnGone]),
        "retyped": schema.columns(&[Altered::TypeChanged, Altered::TypeWidened]),
        "changes": schema.alterations.iter().map(change).collect::<Vec<_>>(),
    })
}

fn sample_object(sample: &DiffSample) -> Value {
    let columns: Vec<Value> = sample
        .columns
        .iter()
        .map(|change| {
            let before = change.before.as_deref().map(json_bytes);
            let after = change.after.as_deref().map(json_bytes);
            json!({"column": change.column, "before": before, "after": after})
        })
        .collect();
    let change = word(sample.difference);
    json!({"key": json_bytes(&sample.key), "change": change, "columns": columns})
}

fn json_bytes(bytes: &[u8]) -> Value {
    let mut text = Vec::new();
    write_json_bytes(bytes, &mut text);
    serde_json::from_slice(&text).unwrap_or(Value::Null)
}

fn word(difference: Difference) -> &'static str {
    match difference {
        Difference::Added => "added",
        Difference::Removed => "removed",
        Difference::Changed => "changed",
    }
}

fn text(args: &Diff, report: &DiffReport, profiles: &[ProfilePair]) -> String {
    let counts = [
        (report.added, "added"),
        (report.removed, "removed"),
        (report.changed, "changed"),
        (report.same, "unchanged"),
    ];
    let counts = counts
        .map(|(count, what)| format!("{} {what}", human::count(count)))
        .join(", ");
    let (gone, new) = (Altered::ColumnGone, Altered::ColumnNew);
    let compared = match report.schema.columns(&[gone, new])[..] {
        [] => "",
        _ => ", by what both versions have",
    };
    let mut out = format!(
        "{} version {} to {}: {counts}{compared}\n",
        args.table, args.from, args.to
    );
    for alteration in &report.schema.alterations {
        _ = writeln!(out, "{alteration}");
    }
    for (name, changed) in report.columns.iter().filter(|(_, changed)| *changed > 0) {
        _ = writeln!(
            out,
            "column {} changed in {}",
            named_column(name),
            human::counted(*changed, "row")
        );
    }
    out += &pair_lines(profiles);
    for sample in &report.samples {
        _ = writeln!(out, "{}", sample_text(sample));
    }
    out
}

/// Returns `~ "key": column 1 -> 2`, `+ "key"` or `- "key"`.
fn sample_text(sample: &DiffSample) -> String {
    let sign = match sample.difference {
        Difference::Added => '+',
        Difference::Removed => '-',
        Difference::Changed => '~',
    };
    let value = |value: &Option<Vec<u8>>| {
        let text = value
            .as_deref()
            .map_or("null".into(), String::from_utf8_lossy);
        without_controls(&text)
    };
    let change = |change: &forebay_engine::ColumnChange| {
        format!(
            "{} {} -> {}",
            named_column(&change.column),
            value(&change.before),
            value(&change.after)
        )
    };
    let changes: Vec<String> = sample.columns.iter().map(change).collect();
    let colon = if changes.is_empty() { "" } else { ": " };
    format!(
        "{sign} {}{colon}{}",
        show_key(&sample.key),
        changes.join(", ")
    )
}
