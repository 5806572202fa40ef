//! The options that take one of a few names.
//!
//! Each name is defined once, with the library's value for it.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use forebay_cluster::model::OnFailure;
use forebay_load::encode::Verb;
use forebay_load::export::ExportFormat;
use forebay_load::load::Sampler;
use forebay_load::push::Extent;
use forebay_load::sort::Duplicates;
use forebay_load::sources::Format;
use forebay_plan::placement::workload::Distribution;
use forebay_run::operation::DeltaKind;
use forebay_run::{Compression, Order};

use crate::inserting::{InsertWay, RowOrder};

/// The values of an option.
#[derive(Debug)]
pub struct Choices<T: 'static>(&'static [Choice<T>]);

#[derive(Debug)]
struct Choice<T> {
    name: &'static str,
    value: T,
    /// The help text, if the name does not say enough.
    help: Option<&'static str>,
}

impl<T> Choice<T> {
    const fn of(name: &'static str, value: T) -> Self {
        let help = None;
        Self { name, value, help }
    }

    const fn reported(name: &'static str, value: T, help: &'static str) -> Self {
        let help = Some(help);
        Self { name, value, help }
    }
}

impl<T: Copy + PartialEq + Send + Sync> Choices<T> {
    /// Returns the parser of the option, which also gives the names to help, completions and
    /// errors.
    pub fn parser(&'static self) -> impl TypedValueParser<Value = T> {
        let names = self.0.iter();
        let names = names.map(|choice| PossibleValue::new(choice.name).help(choice.help));
        PossibleValuesParser::new(names).try_map(|name| {
            let found = self.0.iter().find(|choice| choice.name == name);
            found
                .map(|choice| choice.value)
                .ok_or("it is not one of these")
        })
    }

    /// Returns the name of a value, or an empty text if it has no name.
    pub fn name_of(&self, value: T) -> &'static str {
        let found = self.0.iter().find(|choice| choice.value == value);
        found.map_or("", |choice| choice.name)
    }
}

pub static ON_FAILURE: Choices<OnFailure> = Choices(&[
    Choice::reported(
        "revert",
        OnFailure::Revert,
        "all nodes go back to what served before",
    ),
    Choice::reported(
        "keep",
        OnFailure::Keep,
        "it serves on, where enough nodes have it",
    ),
]);

pub static INSERT_WAYS: Choices<InsertWay> = Choices(&[
    Choice::of("runs", InsertWay::Runs),
    Choice::of("rows", InsertWay::Rows),
]);

pub static ROW_ORDERS: Choices<RowOrder> = Choices(&[
    Choice::of("sorted", RowOrder::Sorted),
    Choice::of("random", RowOrder::Random),
    Choice::of("source", RowOrder::Source),
]);

pub static ORDERS: Choices<Order> = Choices(&[
    Choice::of("hashed", Order::Hashed),
    Choice::of("ordered", Order::Ordered),
]);

pub static COMPRESSIONS: Choices<Compression> = Choices(&[
    Choice::of("none", Compression::None),
    Choice::of("lz4", Compression::Lz4),
    Choice::of("zstd", Compression::Zstd),
]);

pub static DELTAS: Choices<DeltaKind> = Choices(&[
    Choice::reported(
        "i64",
        DeltaKind::AddI64,
        "Adds whole numbers; beyond 64 bits they wrap around",
    ),
    Choice::reported(
        "i64-saturating",
        DeltaKind::AddI64Saturating,
        "Adds whole numbers; they stop at the limits of 64 bits",
    ),
    Choice::reported("f64", DeltaKind::AddF64, "Adds floats"),
    Choice::reported(
        "append",
        DeltaKind::Append,
        "Appends bytes to those there are",
    ),
    Choice::reported("min", DeltaKind::Min, "Keeps the lesser whole number"),
    Choice::reported("max", DeltaKind::Max, "Keeps the greater whole number"),
]);

/// The choices for whole pushes and for updates of a load. Other records of one key are always
/// combined.
pub static DUPLICATES: Choices<Duplicates> = Choices(&[
    Choice::of("fail", Duplicates::Fail),
    Choice::of("first", Duplicates::First),
    Choice::of("last", Duplicates::Last),
]);

/// The operations that all rows of a load may have. Single rows may also delete, by a column with
/// their operation.
pub static VERBS: Choices<Verb> = Choices(&[
    Choice::of("update", Verb::Update),
    Choice::of("insert", Verb::Insert),
    Choice::of("delta", Verb::Delta),
]);

/// The choices of rows to sample.
pub static SAMPLERS: Choices<Sampler> = Choices(&[
    Choice::of("split", Sampler::Split),
    Choice::of("random", Sampler::Random),
    Choice::of("interval", Sampler::Interval),
]);

pub static FORMATS: Choices<Format> = Choices(&[
    Choice::of(Format::Parquet.name(), Format::Parquet),
    Choice::of(Format::Csv.name(), Format::Csv),
    Choice::reported(
        Format::JsonLines.name(),
        Format::JsonLines,
        "JSON lines: one object a line",
    ),
    Choice::reported(
        Format::Arrow.name(),
        Format::Arrow,
        "Arrow IPC, file or stream",
    ),
    Choice::reported(
        Format::Capture.name(),
        Format::Capture,
        "Packet captures, pcap or pcapng: a row a packet",
    ),
]);

pub static WRITTEN_FORMATS: Choices<ExportFormat> = Choices(&[
    Choice::of("parquet", ExportFormat::Parquet),
    Choice::of("csv", ExportFormat::Csv),
    Choice::reported(
        "jsonl",
        ExportFormat::JsonLines,
        "JSON lines: one object a line",
    ),
    Choice::reported(
        "arrow",
        ExportFormat::Arrow,
        "Arrow IPC: a stream to standard output and to .arrows, else a file",
    ),
]);

pub static EXTENTS: Choices<Extent> = Choices(&[
    Choice::reported(
        "sample",
        Extent::Sample,
        "100,000 rows from all over the sources, or what ten seconds give",
    ),
    Choice::reported("all", Extent::All, "Everything"),
]);

/// The distributions, with default parameters.
pub static DISTRIBUTIONS: Choices<Distribution> = Choices(&[
    Choice::of("uniform", Distribution::Uniform),
    Choice::of(
        "beta",
        Distribution::Beta {
            alpha: 2.0,
            beta: 2.0,
        },
    ),
    Choice::of(
        "normal",
        Distribution::Normal {
            mean: 0.0,
            deviation: 1.0,
        },
    ),
    Choice::of("powerlaw", Distribution::PowerLaw { shape: 3.0 }),
    Choice::of("gamma", Distribution::Gamma { shape: 5.0 }),
    Choice::of("zipf", Distribution::Zipf { exponent: 1.0 }),
]);
