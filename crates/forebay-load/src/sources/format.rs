//! Detects formats and compressions from the endings of names.

use std::fmt;

/// A file format of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Parquet,
    Csv,
    /// One JSON object a line.
    JsonLines,
    /// Arrow IPC, as a file or a stream.
    Arrow,
    /// A packet capture: pcap or pcapng.
    Capture,
}

impl Format {
    pub(super) const ENDINGS: &str = ".parquet, .csv, .tsv, .jsonl, .ndjson, .json, .arrow, .feather, .ipc, .arrows, .pcap, .pcapng or .cap";

    pub const fn name(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Csv => "csv",
            Format::JsonLines => "jsonl",
            Format::Arrow => "arrow",
            Format::Capture => "pcap",
        }
    }

    /// Returns the format for the ending of a name (without `.gz` or `.zst`).
    pub fn of_name(name: &str) -> Option<Format> {
        let ending = name.rsplit_once('.')?.1;
        match ending.to_ascii_lowercase().as_str() {
            "parquet" | "pq" | "parq" => Some(Format::Parquet),
            "csv" | "tsv" => Some(Format::Csv),
            "jsonl" | "ndjson" | "json" => Some(Format::JsonLines),
            "arrow" | "feather" | "ipc" | "arrows" => Some(Format::Arrow),
            "pcap" | "pcapng" | "cap" => Some(Format::Capture),
            _ => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The compression of a text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    /// Returns the compression for a name, and the name without its ending.
    pub fn of_name(name: &str) -> (Packing, &str) {
        let lower = name.to_ascii_lowercase();
        let cut = |bytes: usize| &name[..name.len() - bytes];
        if lower.ends_with(".gz") {
            (Packing::Gzip, cut(3))
        } else if lower.ends_with(".zst") {
            (Packing::Zstd, cut(4))
        } else {
            (Packing::Plain, name)
        }
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Packing::Plain => "nothing",
            Packing::Gzip => "gzip",
            Packing::Zstd => "zstd",
        })
    }
}
