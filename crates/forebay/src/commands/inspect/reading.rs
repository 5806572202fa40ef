//! The arguments of commands that read rows from files: `push` and `load`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail};
use clap::Args;
use forebay_load::convert::GivenType;
use forebay_load::push::BadRows;
use forebay_load::sources::{CsvOptions, Format, SourceOptions, parse_column};
use forebay_load::types::arrow_schema;
use serde::Deserialize;

use crate::choices::FORMATS;
use crate::context::Context;
use crate::memory;
use crate::printing::human;
use crate::target::Target;

/// How the sources are read.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// Format of the sources, if neither their names nor their first bytes show it
    #[arg(long, value_parser = FORMATS.parser(), help_heading = "Sources")]
    pub format: Option<Format>,

    /// The type of a column, if it should not be guessed: 'price:decimal(12,2)'; may be repeated
    #[arg(long, value_name = "NAME:TYPE", help_heading = "Sources")]
    pub column: Vec<String>,

    /// Types of columns as a table has them, or as export --json wrote them to a file; --column
    /// takes precedence
    #[arg(long, value_name = "TABLE[@V]|FILE", help_heading = "Sources")]
    pub columns_from: Option<String>,

    /// The character between two fields, \t for a tab [default: a comma, a tab for .tsv]
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter, help_heading = "Sources")]
    pub csv_delimiter: Option<u8>,

    /// The character around fields that contain a delimiter or a line end; within them it is
    /// doubled
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter, default_value = "\"", help_heading = "Sources")]
    pub csv_quote: u8,

    /// A text that means an absent value, beside the empty field; may be repeated
    #[arg(long, value_name = "TEXT", help_heading = "Sources")]
    pub csv_null: Vec<String>,

    /// The first line has data: the columns are named column_1, column_2 and so on
    #[arg(long, help_heading = "Sources")]
    pub csv_no_header: bool,

    /// For packet captures, also read the packets' bytes, as the column data
    #[arg(long, help_heading = "Sources")]
    pub packet_data: bool,
}

/// The options for bad rows and for the resources of the work.
#[derive(Debug, Args)]
pub struct WorkArgs {
    /// What to do with rows that cannot be stored (a null key, a line that does not parse): fail,
    /// skip them, or skip them and write them to FILE with their line and the reason
    #[arg(
        long,
        value_name = "fail|skip|FILE",
        default_value = "fail",
        help_heading = "Rows"
    )]
    pub bad_rows: String,

    /// Memory for sorting; what does not fit is spilled to the store [default: a quarter of RAM]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes, help_heading = "Work")]
    pub memory: Option<u64>,

    /// Threads that read, sort and write [default: one per core]
    #[arg(long, value_name = "N", value_parser = human::parse_threads, help_heading = "Work")]
    pub threads: Option<usize>,

    /// Read and write at most this many bytes of records a second, to spare other work on the
    /// machine [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_rate, help_heading = "Work")]
    pub rate: Option<u64>,

    /// The nice value of the command, by which it yields to others when processors are short: 0 as
    /// others, 19 only what others leave
    #[arg(
        long,
        value_name = "N",
        default_value_t = LOWEST_PRIORITY,
        value_parser = clap::value_parser!(u8).range(0..=19),
        help_heading = "Work"
    )]
    pub nice: u8,
}

/// The nice value of commands whose duration matters less than a reader's latency.
pub const LOWEST_PRIORITY: u8 = 19;

/// [`WorkArgs`] with the defaults resolved.
#[derive(Debug)]
pub struct Work {
    pub bad_rows: BadRows,
    pub memory_bytes: u64,
    pub threads: usize,
    pub rate_bytes: Option<u64>,
}

impl SourceArgs {
    pub fn options(&self, context: &Context) -> anyhow::Result<SourceOptions> {
        let columns = self.column.iter().map(|text| parse_column(text));
        let columns = columns.collect::<Result<Vec<_>, _>>();
        let mut columns = match columns {
            Ok(columns) => columns,
            Err(problem) => wrong!("--column: {problem}"),
        };
        if self.csv_delimiter.unwrap_or(b',') == self.csv_quote {
            wrong!("--csv-delimiter and --csv-quote are one character: give two");
        }
        if let Some(from) = &self.columns_from {
            let others = columns_from(from, context)
                .context("--columns-from")?
                .into_iter();
            let others =
                others.filter(|other| columns.iter().all(|given| given.path != other.path));
            columns.extend(others.collect::<Vec<_>>());
        }
        Ok(SourceOptions {
            format: self.format,
            csv: CsvOptions {
                delimiter: self.csv_delimiter.unwrap_or(b','),
                quote: self.csv_quote,
                header: !self.csv_no_header,
                null: self.csv_null.clone(),
            },
            delimiter_given: self.csv_delimiter.is_some(),
            columns,
            packet_data: self.packet_data,
            spool: context.spool(),
            ..SourceOptions::default()
        })
    }
}

impl WorkArgs {
    pub fn settle(self, context: &Context) -> anyhow::Result<Work> {
        let bad_rows = match self.bad_rows.as_str() {
            "fail" => BadRows::Fail,
            "skip" => BadRows::Skip,
            path => BadRows::File(PathBuf::from(path)),
        };
        if let BadRows::File(path) = &bad_rows
            && (context.disk.exists(path))
                .with_context(|| format!("--bad-rows: cannot look for {}", path.display()))?
        {
            bail!(
                "--bad-rows {}: the file exists already; remove it, or name another one",
                path.display()
            );
        }
        Ok(Work {
            bad_rows,
            memory_bytes: self
                .memory
                .unwrap_or_else(|| memory::quarter(&*context.disk)),
            threads: self.threads.unwrap_or_else(memory::cores),
            rate_bytes: self.rate,
        })
    }
}

/// Returns the columns of a table, or those that `export --json` wrote to a file.
fn columns_from(from: &str, context: &Context) -> anyhow::Result<Vec<GivenType>> {
    let path = Path::new(from);
    let there = context.disk.exists(path);
    if !there.with_context(|| format!("cannot look for {from}"))? {
        let target = Target::from_str(from).map_err(anyhow::Error::msg);
        let target = target.with_context(|| format!("{from} is neither a file nor a table"))?;
        let opened = context.open_target(&target)?;
        let schema = arrow_schema(opened.source().schema());
        let fields = schema.fields().iter();
        return Ok(fields
            .map(|field| GivenType::exact(field.name(), field.data_type().clone()))
            .collect());
    }
    let bytes = context.disk.read(path);
    let bytes = bytes.with_context(|| format!("cannot read {from}"))?;
    let reported: Exported = serde_json::from_slice(&bytes)
        .with_context(|| format!("{from} is not the output of export --json"))?;
    let columns = reported.columns.iter().map(|text| parse_column(text));
    Ok(columns.collect::<Result<_, _>>()?)
}

/// The used part of the output of `export --json`.
#[derive(Debug, Deserialize)]
struct Exported {
    columns: Vec<String>,
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        b"\n" | b"\r" => Err("a line end ends a row: give a character that ends none".to_owned()),
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err(format!(
            "'{text}' is not one ASCII character, or \\t for a tab"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_delimiter;

    #[test]
    fn a_delimiter_is_one_character_that_ends_no_row() {
        assert_eq!(parse_delimiter(";"), Ok(b';'));
        assert_eq!(parse_delimiter("\\t"), Ok(b'\t'));
        for text in ["\n", "\r"] {
            let error = parse_delimiter(text).unwrap_err();
            assert!(error.contains("line end"), "{error}");
        }
        for text in ["", "ab", "\r\n", "é"] {
            assert!(parse_delimiter(text).is_err(), "{text:?}");
        }
    }
}
