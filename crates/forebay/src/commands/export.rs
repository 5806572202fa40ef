//! `forebay export`: a table as a file again.

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use forebay_engine::{Source, show_key};
use forebay_load::export::{ExportFormat, ExportOptions, ExportValues, Exporter};
use forebay_load::progress::{Progress, Unit};
use forebay_run::io::WriteFile;
use forebay_run::scan::{Direction, ScanRange};
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;
use crate::human;
use crate::target::Target;

/// Records between two reports of progress.
const REPORT_ROWS: u64 = 1024;

/// Write a version, or a live table, to a Parquet, CSV or JSON lines file
///
/// The file appears, or replaces the one of its name, when it is complete. With --json one object
/// {table, version, rows, file, seconds}.
#[derive(Debug, Args)]
pub struct Export {
    /// The table, as it serves or at a version
    #[arg(value_name = "TABLE[@V]")]
    pub target: Target,

    /// The file to write; its name ends in .parquet, .csv or .jsonl
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,

    /// In Parquet, keys and values of bytes as binary columns instead of text
    #[arg(long)]
    pub binary: bool,
}

pub fn run(args: &Export, context: &Context) -> anyhow::Result<Outcome> {
    let started = context.clock.monotonic();
    let file = args.to.display();
    let format = args
        .to
        .to_str()
        .and_then(ExportFormat::of_name)
        .ok_or_else(|| {
            anyhow!(
                "{file}: the name has to end in .parquet, .csv or .jsonl, which says what to write"
            )
        })?;
    let opened = context.open_target(&args.target)?;
    let source = opened.source();
    let part = part_of(&args.to)?;
    let disk = &*context.disk;
    if disk.exists(&part)? {
        disk.remove(&part)
            .with_context(|| format!("cannot remove {}", part.display()))?;
    }
    let drawing = context.progress();
    let output = disk
        .create(&part)
        .with_context(|| format!("cannot create {}", part.display()))?;
    let written = write(args, format, source, output, &*drawing).and_then(|rows| {
        disk.rename(&part, &args.to)?;
        Ok(rows)
    });
    drop(drawing);
    let rows = match written {
        Ok(rows) => rows,
        Err(error) => {
            // What stopped the export matters, not that its beginning could not be removed.
            _ = disk.remove(&part);
            return Err(error.context(format!("cannot write {file}")));
        }
    };
    let seconds = (context.clock.monotonic() - started).as_secs_f64();
    let (table, number) = (source.table(), version_of(source));
    let object = json!({
        "table": table,
        "version": number,
        "rows": rows,
        "file": args.to,
        "seconds": (seconds * 1000.0).round() / 1000.0,
    });
    context.print(&object, || {
        let time = human::duration(Duration::from_secs_f64(seconds));
        format!(
            "{table}{}: {} in {file}, in {time}",
            number
                .map(|number| format!(" version {number}"))
                .unwrap_or_default(),
            human::counted(rows, "row")
        )
    })?;
    Ok(Outcome::Done)
}

/// The name under which the file grows: `.NAME.part`, beside it.
fn part_of(file: &Path) -> anyhow::Result<PathBuf> {
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| anyhow!("{} is not the name of a file", file.display()))?;
    Ok(file.with_file_name(format!(".{name}.part")))
}

/// Writes all records, and makes the file durable.
fn write(
    args: &Export,
    format: ExportFormat,
    source: Source<'_>,
    output: Box<dyn WriteFile>,
    drawing: &dyn Progress,
) -> anyhow::Result<u64> {
    let binary = args.binary;
    let options = ExportOptions {
        values: ExportValues::new(source.kind(), source.schema(), source.number()),
        key: match source {
            Source::Batch(version) => &version.manifest().key,
            Source::Live(_) => "{key}",
        },
        format,
        binary,
    };
    let mut exporter = Exporter::new(&options, BufWriter::with_capacity(1 << 20, output))?;
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
    let mut file = output.into_inner().map_err(|error| error.into_error())?;
    file.sync()?;
    Ok(rows)
}

/// The number of a batch table's version.
fn version_of(source: Source<'_>) -> Option<u64> {
    match source {
        Source::Batch(version) => Some(version.version()),
        Source::Live(_) => None,
    }
}
