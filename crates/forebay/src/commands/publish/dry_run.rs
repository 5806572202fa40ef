//! `forebay push --dry-run`: shows what a push would do.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Context as _;
use forebay_engine::{Store, StoreError, TableName, ValueKind, show_key};
use forebay_load::convert::Lossy;
use forebay_load::gate::Finding;
use forebay_load::push::{
    ComposedRows, DryRunContext, ExpectedEnd, Extent, Forecast, NotedRow, PushRequest, dry_run,
};
use forebay_objects::{OpenError, Patience};
use forebay_run::Order;
use forebay_run::error::{lines_without_controls, named_column, without_controls};
use forebay_run::row::write_json_bytes;
use serde::Serialize;
use serde_json::Value;

use super::push_result::{changed, findings, remedies};
use crate::choices::ORDERS;
use crate::commands::inspect::column_figures::{lines, objects};
use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;
use crate::printing::render::Renderer;

/// The keys to look up in the serving version; fewer if each look-up is a request.
const LOOK_UPS: usize = 20_000;
const REMOTE_LOOK_UPS: usize = 512;

/// The object of --json, without the examples.
#[derive(Debug, Serialize)]
struct DryRunResult<'a> {
    table: &'a TableName,
    dry_run: bool,
    outlook: &'static str,
    /// Why the push would fail.
    problem: Option<&'a str>,
    version: u64,
    read: ReadForecast,
    columns: Vec<ColumnForecast<'a>>,
    /// The statistics of each column in the rows read.
    statistics: Vec<Value>,
    key: &'a str,
    /// `row`, or the column.
    value: &'a str,
    order: Order,
    partitions: usize,
    rows: Option<u64>,
    bytes: Option<u64>,
    exact: bool,
    #[serde(flatten)]
    changes: Option<ChangesForecast>,
    rejected: u64,
    bad_rows: &'a [NotedRow],
    lossy: &'a [Lossy],
    duplicates: u64,
    compared_with: Option<u64>,
    gate: &'a [Finding],
    disk: DiskForecast,
    push_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct ReadForecast {
    rows: u64,
    all: bool,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct ColumnForecast<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: String,
    nullable: bool,
}

/// The forecast of a push onto another version.
#[derive(Debug, Serialize)]
struct ChangesForecast {
    rows_least: Option<u64>,
    onto: u64,
    #[serde(flatten)]
    applied: Option<ComposedRows>,
}

#[derive(Debug, Serialize)]
struct DiskForecast {
    needed_bytes: Option<u64>,
    free_bytes: Option<u64>,
}

pub fn run(request: &PushRequest, extent: Extent, context: &Context) -> anyhow::Result<Outcome> {
    let store = context.look_at_store()?;
    let room_at = match context.is_remote() {
        true => None,
        false => Some(std::path::absolute(context.store_path()?).context("--store")?),
    };
    let ground = DryRunContext {
        store: store.as_ref(),
        disk: &*context.disk,
        clock: &context.clock,
        random: &*context.random,
        room_at: room_at.as_deref(),
        look_ups: if context.is_remote() {
            REMOTE_LOOK_UPS
        } else {
            LOOK_UPS
        },
    };
    let drawing = context.progress();
    let forecast = dry_run(request, ground, extent, &*drawing)?;
    drop(drawing);
    match context.output.json {
        true => context.print_raw(&object(&forecast)?)?,
        false => {
            let text = lines_without_controls(&text(&forecast)?);
            context.print_raw(text.as_bytes())?;
        }
    }
    Ok(match forecast.outlook {
        ExpectedEnd::Swap | ExpectedEnd::Keep => Outcome::Done,
        ExpectedEnd::Hold => Outcome::Held,
        ExpectedEnd::Fail(_) => Outcome::WouldFail,
    })
}

impl Context {
    /// Opens the store if it exists. Creates none.
    fn look_at_store(&self) -> anyhow::Result<Option<Store>> {
        if !self.is_remote() {
            return self.in_cluster_or_not(|pointers| {
                let (disk, clock, random) = (&self.disk, &self.clock, &self.random);
                let parts = (disk.clone(), clock.clone(), random.clone());
                match pointers {
                    None => Ok(Store::look(parts.0, parts.1, parts.2, &self.store_path()?)?),
                    given => self.open_directory(&self.store_path()?, given).map(Some),
                }
            });
        }
        let is_none = |error: &anyhow::Error| {
            matches!(
                error.downcast_ref(),
                Some(OpenError::Store(StoreError::NoStore { .. }))
            )
        };
        match self.open_remote(Patience::Short, false) {
            Ok((store, _)) => Ok(Some(store)),
            Err(error) if is_none(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn object(forecast: &Forecast) -> anyhow::Result<Vec<u8>> {
    let manifest = &forecast.manifest;
    let problem = match &forecast.outlook {
        ExpectedEnd::Fail(problem) => Some(&**problem),
        _ => None,
    };
    let reported = DryRunResult {
        table: &forecast.table,
        dry_run: true,
        outlook: match forecast.outlook {
            ExpectedEnd::Swap => "swap",
            ExpectedEnd::Keep => "keep",
            ExpectedEnd::Hold => "hold",
            ExpectedEnd::Fail(_) => "fail",
        },
        problem,
        version: manifest.version,
        read: ReadForecast {
            rows: forecast.rows_read,
            all: forecast.is_all,
            seconds: forecast.seconds,
        },
        columns: (manifest.schema.columns().iter())
            .map(|column| ColumnForecast {
                name: &column.name,
                kind: column.kind.to_string(),
                nullable: column.nullable,
            })
            .collect(),
        statistics: objects(&manifest.stats),
        key: &manifest.key,
        value: value_word(&manifest.value),
        order: manifest.order,
        partitions: forecast.partitions,
        rows: forecast.rows_between.map(|rows| rows.1),
        bytes: forecast.bytes,
        exact: forecast.is_exact,
        changes: manifest.onto.map(|onto| ChangesForecast {
            rows_least: forecast.rows_between.map(|rows| rows.0),
            onto,
            applied: forecast.applied,
        }),
        rejected: forecast.rejected,
        bad_rows: &forecast.bad_rows,
        lossy: &forecast.lossy,
        duplicates: forecast.duplicates,
        compared_with: forecast.compared_with,
        gate: &forecast.gate,
        disk: DiskForecast {
            needed_bytes: forecast.room.needed_bytes,
            free_bytes: forecast.room.free_bytes,
        },
        push_seconds: forecast.push_seconds,
    };
    let mut out = serde_json::to_vec(&reported).context("cannot print the result")?;
    out.pop();
    out.extend(b",\"examples\":[");
    write_examples(forecast, &mut out)?;
    out.extend(b"]}\n");
    Ok(out)
}

/// Writes values as every command prints them: a JSON parser would round their numbers.
fn write_examples(forecast: &Forecast, out: &mut Vec<u8>) -> anyhow::Result<()> {
    for (place, (key, value)) in forecast.examples.iter().enumerate() {
        out.extend(if place == 0 {
            &b"{\"key\":"[..]
        } else {
            b",{\"key\":"
        });
        write_json_bytes(key, out);
        out.extend(b",\"value\":");
        match value {
            Some(value) => Renderer::of_manifest(&forecast.manifest).json(value, out)?,
            None => out.extend(b"null"),
        }
        out.push(b'}');
    }
    Ok(())
}

/// Returns `row`, or the column, as `--value` takes it.
fn value_word(value: &ValueKind) -> &str {
    match value {
        ValueKind::Row => "row",
        ValueKind::Bytes { column }
        | ValueKind::Number { column, .. }
        | ValueKind::List { column, .. } => column,
    }
}

/// Returns the text for people. Writing to memory cannot fail.
fn text(forecast: &Forecast) -> anyhow::Result<String> {
    let mut out = String::new();
    _ = writeln!(out, "{}", outlook(forecast));
    _ = writeln!(out, "read: {}", read(forecast));
    schema(forecast, &mut out);
    examples(forecast, &mut out)?;
    _ = writeln!(out, "version: {}", version(forecast));
    values(forecast, &mut out);
    bad_rows(forecast, &mut out);
    gate(forecast, &mut out);
    _ = writeln!(out, "disk: {}", room(forecast));
    if let Some(seconds) = forecast.push_seconds {
        let time = human::duration(Duration::from_secs_f64(seconds.max(0.0)));
        _ = writeln!(out, "time: about {time}, and what the device takes");
    }
    Ok(out)
}

fn outlook(forecast: &Forecast) -> String {
    let (table, version) = (&forecast.table, forecast.manifest.version);
    let so_far = match forecast.is_all {
        true => "",
        false => ", by what was read",
    };
    match &forecast.outlook {
        ExpectedEnd::Swap => {
            format!("{table} version {version} would serve{so_far}; nothing was written")
        }
        ExpectedEnd::Keep => {
            format!(
                "{table} version {version} would be built and not serve{so_far}; nothing was written"
            )
        }
        ExpectedEnd::Hold => {
            format!("the gate would hold {table} version {version}{so_far}; nothing was written")
        }
        ExpectedEnd::Fail(problem) => {
            format!("the push would fail; nothing was written: {problem}")
        }
    }
}

fn read(forecast: &Forecast) -> String {
    let rows = human::counted(forecast.rows_read, "row");
    let time = human::duration(Duration::from_secs_f64(forecast.seconds.max(0.0)));
    match forecast.is_all {
        true => format!("all {rows} in {time}"),
        false => format!("{rows} of the sources in {time} (--dry-run=all reads all)"),
    }
}

fn schema(forecast: &Forecast, out: &mut String) {
    let manifest = &forecast.manifest;
    let order = ORDERS.name_of(manifest.order);
    let (key, value) = (
        without_controls(&manifest.key),
        named_column(value_word(&manifest.value)),
    );
    _ = writeln!(out, "key: {key} ({order}); value: {value}");
    _ = writeln!(out, "columns:");
    for column in manifest.schema.columns() {
        let never = if column.nullable { "" } else { ", never null" };
        let (name, kind) = (named_column(&column.name), column.kind.to_string());
        _ = writeln!(out, "  {name}:{}{never}", without_controls(&kind));
    }
}

fn values(forecast: &Forecast, out: &mut String) {
    let lines = lines(&forecast.manifest.stats);
    if !lines.is_empty() {
        _ = write!(out, "values, of those read:\n{lines}");
    }
}

fn examples(forecast: &Forecast, out: &mut String) -> anyhow::Result<()> {
    let renderer = Renderer::of_manifest(&forecast.manifest);
    if !forecast.examples.is_empty() {
        _ = writeln!(out, "examples:");
    }
    for (key, value) in &forecast.examples {
        let mut text = Vec::new();
        match value {
            Some(value) => renderer.text(value, &mut text)?,
            None => text.extend(b"(goes)"),
        }
        let value = without_controls(&String::from_utf8_lossy(&text));
        _ = writeln!(out, "  {}\t{value}", show_key(key));
    }
    Ok(())
}

fn version(forecast: &Forecast) -> String {
    let about = if forecast.is_exact { "" } else { "about " };
    let rows = match forecast.rows_between {
        None => "rows that nobody has counted".to_owned(),
        Some((least, most)) if least < most => {
            format!(
                "{about}{} to {} rows",
                human::count(least),
                human::count(most)
            )
        }
        Some((_, rows)) => format!("{about}{}", human::counted(rows, "row")),
    };
    let mut text = format!("{} of {rows}", forecast.manifest.version);
    if let Some(bytes) = forecast.bytes {
        text += &format!(", {about}{} of keys and values", human::bytes(bytes));
    }
    text += &format!(
        " in {}",
        human::counted(forecast.partitions as u64, "partition")
    );
    if let (Some(onto), Some(applied)) = (forecast.manifest.onto, forecast.applied) {
        text += &format!("; onto version {onto}: {applied}");
    }
    text
}

fn bad_rows(forecast: &Forecast, out: &mut String) {
    if forecast.duplicates > 0 {
        let count = human::counted(forecast.duplicates, "row");
        _ = writeln!(out, "duplicates: {count} read with the key of another");
    }
    if forecast.rejected > 0 {
        let count = human::count(forecast.rejected);
        _ = writeln!(out, "bad rows: {count} of those read");
    }
    for row in &forecast.bad_rows {
        let (file, reason) = (without_controls(&row.file), without_controls(&row.reason));
        _ = writeln!(out, "  {file}: {}: {reason}", row.place);
    }
    if let Some(changed) = changed(&forecast.lossy).strip_prefix("; ") {
        _ = writeln!(out, "changed, as was asked for: {changed} of those read");
    }
}

fn gate(forecast: &Forecast, out: &mut String) {
    let Some(before) = forecast.compared_with else {
        _ = writeln!(
            out,
            "gate: no version serves that it could be compared with"
        );
        return;
    };
    let findings = findings(&forecast.gate);
    if findings.is_empty() {
        _ = writeln!(out, "gate: passed, compared with version {before}");
        return;
    }
    _ = write!(out, "gate, compared with version {before}:\n{findings}");
    if let Some(limits) = remedies(&forecast.gate) {
        _ = writeln!(out, "  to let it pass: --force, or {limits}");
    }
}

fn room(forecast: &Forecast) -> String {
    let needed = match forecast.room.needed_bytes {
        Some(bytes) => format!("about {} needed", human::bytes(bytes)),
        None => "it is not known how much is needed".to_owned(),
    };
    match forecast.room.free_bytes {
        Some(bytes) => format!("{needed}, {} free", human::bytes(bytes)),
        None => format!("{needed}; it is not known how much is free"),
    }
}
