//! `forebay push`: builds a version from files, checks it, swaps it in.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use forebay_engine::TableName;
use forebay_load::encode::ValueChoice;
use forebay_load::gate::Limit;
use forebay_load::key::KeyTemplate;
use forebay_load::push::{BadRows, PushReport, PushRequest, push};
use forebay_load::sort;
use forebay_load::sources::{self, CsvOptions, SourceOptions, parse_column};
use serde::Serialize;

use crate::context::Context;
use crate::exit::Outcome;
use crate::{human, memory, progress};

/// Build a version of a table from files, check it and swap it in
///
/// The version is built beside the one that serves and becomes visible all at once. Before the swap
/// every record is read back and compared with the source by count and checksum, and the gate
/// compares the version with the one that serves. A push that fails or is killed leaves nothing
/// visible; the next one removes its debris.
///
/// With --json one object {table, version, rows, bytes, rejected, duplicates, seconds, swapped}.
#[derive(Debug, Args)]
pub struct Push {
    /// The table; made when there is none of this name
    pub table: TableName,

    /// Files or globs ('days/*.parquet', quoted), or file:// URLs of them
    #[arg(required = true, value_name = "SOURCE")]
    pub sources: Vec<String>,

    /// The key, as a template over columns: '{carrier}/{flight:05}' pads flight with zeros to five
    #[arg(long, value_name = "TEMPLATE", help_heading = "Rows")]
    pub key: KeyTemplate,

    /// What is stored for a key: the whole row, or one column as it is
    #[arg(
        long,
        value_name = "row|COLUMN",
        default_value = "row",
        help_heading = "Rows"
    )]
    pub value: String,

    /// What to do with rows of the same key; first and last are in the order of the sources
    #[arg(long, value_enum, default_value = "fail", help_heading = "Rows")]
    pub duplicates: Duplicates,

    /// What to do with rows that cannot be stored (a null key, a line that does not parse): give up,
    /// leave them out, or leave them out and write them to FILE with their line and the reason
    #[arg(
        long,
        value_name = "fail|skip|FILE",
        default_value = "fail",
        help_heading = "Rows"
    )]
    pub bad_rows: String,

    /// Format of the sources, where their names do not tell
    #[arg(long, value_enum, help_heading = "Sources")]
    pub format: Option<Format>,

    /// The type of a column, where it is not to be guessed: 'price:decimal(12,2)'; may be repeated
    #[arg(long, value_name = "NAME:TYPE", help_heading = "Sources")]
    pub column: Vec<String>,

    /// The character between two fields, \t for a tab [default: a comma, a tab for .tsv]
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter, help_heading = "Sources")]
    pub csv_delimiter: Option<u8>,

    /// The text of an absent value, beside the empty field
    #[arg(long, value_name = "TEXT", help_heading = "Sources")]
    pub csv_null: Option<String>,

    /// The first line holds data: the columns are called column_1, column_2 and so on
    #[arg(long, help_heading = "Sources")]
    pub csv_no_header: bool,

    /// hashed for look-ups by key, ordered for ranges too
    #[arg(long, value_enum, default_value = "hashed", help_heading = "Version")]
    pub order: Order,

    /// Number of parts that are built, stored and later served on their own [default: by size]
    #[arg(long, value_name = "N", help_heading = "Version")]
    pub partitions: Option<u32>,

    /// Number of the version, greater than all before [default: one more than the last]
    #[arg(long, value_name = "V", help_heading = "Version")]
    pub version: Option<u64>,

    /// Compression of the pages
    #[arg(long, value_enum, default_value = "none", help_heading = "Version")]
    pub compression: Compression,

    /// Size of a page, the unit of one read: a power of two from 4k to 32k [default: 4k, 16k when
    /// compressed]
    #[arg(long, value_name = "SIZE", value_parser = parse_page_size, help_heading = "Version")]
    pub page_size: Option<u32>,

    /// Memory for sorting; what does not fit is spilled to the store [default: a quarter of RAM]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes, help_heading = "Work")]
    pub memory: Option<u64>,

    /// Threads that read, sort and write [default: one a core]
    #[arg(long, value_name = "N", help_heading = "Work")]
    pub threads: Option<usize>,

    /// Read and write at most so many bytes of records a second, to spare what else runs here
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes, help_heading = "Work")]
    pub rate: Option<u64>,

    /// Build and keep the version, but leave the serving one in place
    #[arg(long, help_heading = "Swap")]
    pub no_swap: bool,

    /// A limit for the change against the serving version, such as 'rows>-20%'; may be repeated
    #[arg(long, value_name = "LIMIT", help_heading = "Swap")]
    pub gate: Vec<Limit>,

    /// Swap even when a limit is passed
    #[arg(long, help_heading = "Swap")]
    pub force: bool,

    /// Number of versions to keep; the serving and the previous one always are
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Swap")]
    pub keep: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Duplicates {
    Fail,
    First,
    Last,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Parquet,
    Csv,
    /// JSON lines: one object a line
    Jsonl,
    /// Arrow IPC, file or stream
    Arrow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    Hashed,
    Ordered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Compression {
    None,
    Lz4,
    Zstd,
}

/// The object that --json ends with.
#[derive(Debug, Serialize)]
struct Pushed<'a> {
    table: &'a TableName,
    version: u64,
    rows: u64,
    bytes: u64,
    rejected: u64,
    duplicates: u64,
    seconds: f64,
    swapped: bool,
}

pub fn run(args: Push, context: &Context) -> anyhow::Result<Outcome> {
    let request = args.request(context)?;
    if let BadRows::File(path) = &request.bad_rows
        && context.disk.exists(path)?
    {
        bail!(
            "--bad-rows {}: the file exists already; remove it, or name another one",
            path.display()
        );
    }
    let store = context.open_or_create_store()?;
    let drawing = progress::for_output(context.output);
    let report = push(&request, &store, &*drawing)?;
    match report.held() {
        // The reason of an exit code other than 0 is told even to those who want quiet.
        true if context.output.quiet => eprintln!("forebay: {}", held(&report)),
        true => drawing.message(&held(&report)),
        false => {}
    }
    drop(drawing);
    let object = Pushed {
        table: &report.table,
        version: report.version,
        rows: report.rows,
        bytes: report.bytes,
        rejected: report.rejected,
        duplicates: report.duplicates,
        seconds: report.seconds,
        swapped: report.swapped,
    };
    context.print(&object, || summary(&report))?;
    Ok(if report.held() {
        Outcome::Held
    } else {
        Outcome::Done
    })
}

impl Push {
    fn request(self, context: &Context) -> anyhow::Result<PushRequest> {
        let source_options = self.source_options()?;
        Ok(PushRequest {
            table: self.table,
            sources: self.sources,
            source_options,
            key: self.key,
            value: match self.value.as_str() {
                "row" => ValueChoice::Row,
                _ => ValueChoice::Column(self.value),
            },
            order: self.order.into(),
            partitions: self.partitions,
            compression: self.compression.into(),
            page_bytes: self.page_size,
            duplicates: self.duplicates.into(),
            bad_rows: match self.bad_rows.as_str() {
                "fail" => BadRows::Fail,
                "skip" => BadRows::Skip,
                path => BadRows::File(PathBuf::from(path)),
            },
            memory_bytes: self
                .memory
                .unwrap_or_else(|| memory::quarter(&*context.disk)),
            threads: self.threads.unwrap_or_else(memory::cores),
            rate_bytes: self.rate,
            version: self.version,
            limits: self.gate,
            force: self.force,
            swap: !self.no_swap,
            keep: self.keep,
        })
    }

    fn source_options(&self) -> anyhow::Result<SourceOptions> {
        let columns = self.column.iter().map(|text| parse_column(text));
        let columns = columns.collect::<Result<_, _>>().context("--column")?;
        Ok(SourceOptions {
            format: self.format.map(sources::Format::from),
            csv: CsvOptions {
                delimiter: self.csv_delimiter.unwrap_or(b','),
                header: !self.csv_no_header,
                null: self.csv_null.clone(),
            },
            delimiter_given: self.csv_delimiter.is_some(),
            columns,
            ..SourceOptions::default()
        })
    }
}

/// Why the gate held the version, and what can be done.
fn held(report: &PushReport) -> String {
    let PushReport { table, version, .. } = report;
    let mut text = format!("the gate holds version {version} of table {table}:\n");
    for finding in &report.gate {
        let verdict = if finding.passed { "ok  " } else { "HELD" };
        text += &format!("  {verdict} {}: {}\n", finding.limit, finding.seen);
    }
    text + &format!(
        "The version is kept. Look at it with forebay diff; let it serve with forebay swap {table} \
         {version}, or push with --force or another --gate"
    )
}

fn summary(report: &PushReport) -> String {
    let PushReport { table, version, .. } = report;
    let rows = human::counted(report.rows, "row");
    let bytes = human::bytes(report.bytes);
    let time = human::duration(Duration::from_secs_f64(report.seconds.max(0.0)));
    let state = if report.swapped {
        "serves"
    } else {
        "is built and does not serve"
    };
    let mut text = format!("{table} version {version} {state}: {rows}, {bytes}, in {time}");
    if report.rejected > 0 {
        text += &format!("; {} rejected", human::counted(report.rejected, "bad row"));
    }
    if report.duplicates > 0 {
        text += &format!(
            "; {} left out",
            human::counted(report.duplicates, "duplicate")
        );
    }
    text
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err(format!(
            "'{text}' is not one ASCII character, or \\t for a tab"
        )),
    }
}

fn parse_page_size(text: &str) -> Result<u32, String> {
    let size = human::parse_bytes(text)?;
    match u32::try_from(size) {
        Ok(size @ (4096 | 8192 | 16384 | 32768)) => Ok(size),
        _ => Err(format!("a page has 4k, 8k, 16k or 32k, not {text}")),
    }
}

impl From<Duplicates> for sort::Duplicates {
    fn from(value: Duplicates) -> Self {
        match value {
            Duplicates::Fail => Self::Fail,
            Duplicates::First => Self::First,
            Duplicates::Last => Self::Last,
        }
    }
}

impl From<Format> for sources::Format {
    fn from(value: Format) -> Self {
        match value {
            Format::Parquet => Self::Parquet,
            Format::Csv => Self::Csv,
            Format::Jsonl => Self::JsonLines,
            Format::Arrow => Self::Arrow,
        }
    }
}

impl From<Order> for forebay_run::Order {
    fn from(value: Order) -> Self {
        match value {
            Order::Hashed => Self::Hashed,
            Order::Ordered => Self::Ordered,
        }
    }
}

impl From<Compression> for forebay_run::Compression {
    fn from(value: Compression) -> Self {
        match value {
            Compression::None => Self::None,
            Compression::Lz4 => Self::Lz4,
            Compression::Zstd => Self::Zstd,
        }
    }
}
