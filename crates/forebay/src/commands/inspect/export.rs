//! `forebay export`: writes a table to a file.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use forebay_engine::{STORE_FILE, Source, Ttl, ValueKind, show_key};
use forebay_io::Disk;
use forebay_load::export::{ExportFormat, ExportOptions, ExportValues, Exporter};
use forebay_load::progress::{Progress, Unit};
use forebay_load::type_name::type_name;
use forebay_load::types::arrow_type;
use forebay_run::Order;
use forebay_run::row::Column;
use forebay_run::scan::{Direction, ScanRange};
use serde_json::{Value, json};

use crate::choices::{DELTAS, ORDERS, WRITTEN_FORMATS};
use crate::context::Context;
use crate::error_kind::WrongLine;
use crate::exit::Outcome;
use crate::printing::human;
use crate::printing::result_file::{ResultFile, is_stdout};
use crate::target::Target;

/// Records between two reports of progress.
const REPORT_ROWS: u64 = 1024;

/// Write a version, or a live table, to a Parquet, CSV, JSON lines or Arrow file
///
/// The file gets its name when it is complete. It replaces a file of that name and keeps its mode;
/// a symbolic link stays one. A pipe or a character device is written to directly. If the format
/// has no type for a column, the command names the column before it writes anything. With --json
/// one object {table, version, rows, file, seconds, columns, push}: columns has the columns as
/// --column takes them, push the other options that a push of the file needs to create the same
/// table.
#[derive(Debug, Args)]
pub struct Export {
    /// The table: its serving version, or the version V
    #[arg(value_name = "TABLE[@V]")]
    pub target: Target,

    /// The file to write; its name ends in .parquet, .csv, .jsonl, .arrow, .feather or .arrows (a
    /// stream). - is standard output
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,

    /// The format, if the file's name does not show it
    #[arg(long, value_parser = WRITTEN_FORMATS.parser())]
    pub format: Option<ExportFormat>,

    /// In Parquet and Arrow, write keys and values of bytes as binary columns even if they are text
    #[arg(long)]
    pub binary: bool,
}

/// The result of an export.
struct ExportReport {
    rows: u64,
    columns: Vec<String>,
    /// The options that a push of the file needs.
    push: Vec<String>,
}

pub fn run(args: &Export, context: &Context) -> anyhow::Result<Outcome> {
    let started = context.clock.monotonic();
    let format = format_of(args)?;
    let opened = context.open_target(&args.target)?;
    let source = opened.source();
    let seconds = || (context.clock.monotonic() - started).as_secs_f64();
    if is_stdout(&args.to) {
        if context.output.json {
            wrong!("--json and --to - both write to standard output: leave one of them out");
        }
        let drawing = context.progress();
        let written = write(args, format, source, std::io::stdout(), &*drawing);
        let (written, _) = written.context("cannot write to standard output")?;
        drawing.message(&summary(source, "standard output", written.rows, seconds()));
        return Ok(Outcome::Done);
    }
    let file = args.to.display();
    let written = write_file(args, format, source, context);
    let written = written.with_context(|| format!("cannot write {file}"))?;
    let seconds = seconds();
    let object = object(args, source, &written, seconds);
    context.print_done(Outcome::Done, &object, || {
        summary(source, &file.to_string(), written.rows, seconds)
    })
}

fn object(args: &Export, source: Source<'_>, written: &ExportReport, seconds: f64) -> Value {
    json!({
        "table": source.table(),
        "version": version_of(source),
        "rows": written.rows,
        "file": args.to,
        "seconds": (seconds * 1000.0).round() / 1000.0,
        "columns": written.columns,
        "push": written.push,
    })
}

fn summary(source: Source<'_>, file: &str, rows: u64, seconds: f64) -> String {
    let (table, number) = (source.table(), version_of(source));
    let version = number.map(|number| format!(" version {number}"));
    let time = human::duration(Duration::from_secs_f64(seconds));
    let rows = human::counted(rows, "row");
    format!(
        "{table}{}: {rows} in {file}, in {time}",
        version.unwrap_or_default()
    )
}

fn format_of(args: &Export) -> anyhow::Result<ExportFormat> {
    let named = args.to.to_str().and_then(ExportFormat::of_name);
    let stream = is_stdout(&args.to) || named == Some(ExportFormat::ArrowStream);
    Ok(match args.format {
        Some(ExportFormat::Arrow) if stream => ExportFormat::ArrowStream,
        Some(format) => format,
        None => named.ok_or_else(|| {
            WrongLine(format!(
                "{}: the name has to end in .parquet, .csv, .jsonl, .arrow, .feather or .arrows, which says what to \
                 write; or say it by --format",
                args.to.display()
            ))
        })?,
    })
}

/// Writes the file, then renames it.
fn write_file(
    args: &Export,
    format: ExportFormat,
    source: Source<'_>,
    context: &Context,
) -> anyhow::Result<ExportReport> {
    if is_of_store(&*context.disk, &args.to)? {
        bail!("it is the place of a file of a store: name another one");
    }
    let output = ResultFile::create(&args.to)?;
    let drawing = context.progress();
    let (written, file) = write(args, format, source, output, &*drawing)?;
    file.finish()?;
    Ok(written)
}

/// Returns whether the path is one of a store's files: its own, a table's, or a cluster's.
fn is_of_store(disk: &dyn Disk, path: &Path) -> std::io::Result<bool> {
    let whole = std::path::absolute(path)?;
    for root in whole.ancestors().skip(1) {
        let store = root.join(STORE_FILE);
        if disk.exists(&store)? {
            let below = whole.strip_prefix(root).unwrap_or(&whole);
            let dirs = ["tables", "cluster"];
            return Ok(whole == store || dirs.iter().any(|dir| below.starts_with(dir)));
        }
    }
    Ok(false)
}

/// Writes all records, and returns the flushed output.
fn write<W: Write + Send>(
    args: &Export,
    format: ExportFormat,
    source: Source<'_>,
    output: W,
    drawing: &dyn Progress,
) -> anyhow::Result<(ExportReport, W)> {
    let (value, key) = match source {
        Source::Batch(version) => (source.kind(), Some(version.manifest().key.as_str())),
        Source::Live(_) => (source.kind(), None),
    };
    let options = ExportOptions {
        values: ExportValues::new(value, source.schema(), source.number()),
        schema: source.schema(),
        value: match value {
            ValueKind::Row => "",
            ValueKind::Bytes { column }
            | ValueKind::Number { column, .. }
            | ValueKind::List { column, .. } => column,
        },
        key,
        format,
        binary: args.binary,
    };
    let mut exporter = Exporter::new(&options, BufWriter::with_capacity(1 << 20, output))?;
    exporter
        .notes()
        .iter()
        .for_each(|note| drawing.message(note));
    if let Source::Batch(version) = source
        && let Some(Ttl::AfterMs(_) | Ttl::Column(_)) = version.manifest().ttl
    {
        drawing.message("rows of this table expire: when they do is not in the file");
    }
    let columns = exporter.columns().iter().map(flag).collect();
    let push = again(source, exporter.key_column());
    let total = version_of(source).map(|_| source.rows());
    drawing.stage("exporting", total, Unit::Rows);
    let mut scan = source.scan(ScanRange::all(), Direction::Forward);
    let mut rows = 0;
    while scan.advance()? {
        let pushed = exporter.push(scan.key(), scan.value());
        pushed.with_context(|| format!("at key {}", show_key(scan.key())))?;
        rows += 1;
        if rows % REPORT_ROWS == 0 {
            drawing.advance(REPORT_ROWS);
        }
    }
    drawing.advance(rows % REPORT_ROWS);
    let (rows, output) = exporter.finish()?;
    let output = output.into_inner().map_err(|error| error.into_error())?;
    let written = ExportReport {
        rows,
        columns,
        push,
    };
    Ok((written, output))
}

/// Returns a column as `--column` takes it.
fn flag(column: &Column) -> String {
    format!("{}:{}", column.name, type_name(&arrow_type(&column.kind)))
}

/// Returns the options, beside the types of columns, with which a push of the file creates the same
/// table.
fn again(source: Source<'_>, key_column: Option<&str>) -> Vec<String> {
    let key = match (key_column, source) {
        (Some(column), _) => format!("{{{column}}}"),
        (None, Source::Batch(version)) => version.manifest().key.clone(),
        (None, Source::Live(_)) => String::new(),
    };
    let mut flags = vec![("--key", key)];
    if *source.kind() != ValueKind::Row {
        flags.push(("--value", "value".to_owned()));
    }
    let delta = match source {
        Source::Batch(version) => version.manifest().delta,
        Source::Live(table) => table.options().delta,
    };
    flags.extend(delta.map(|delta| ("--delta", DELTAS.name_of(delta).to_owned())));
    if source.order() == Order::Ordered {
        flags.push(("--order", ORDERS.name_of(Order::Ordered).to_owned()));
    }
    let flags = flags.into_iter();
    flags
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
}

/// Returns the number of a batch table's version.
fn version_of(source: Source<'_>) -> Option<u64> {
    match source {
        Source::Batch(version) => Some(version.version()),
        Source::Live(_) => None,
    }
}
