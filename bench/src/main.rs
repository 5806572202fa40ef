//! One contender at a time, in a process of its own: `bench gen` makes the flat input that all of
//! them read, `bench build` turns it into a store, `bench read` measures that store. Each prints
//! one JSON object; `driver/` runs them in turn, takes medians and writes the report.

mod cold;
mod dataset;
mod live;
mod load;
mod machine;
mod measure;
mod peers;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use serde_json::json;

use dataset::{Dataset, GenOptions, KeyStyle};

#[derive(Parser)]
#[command(about = "Forebay beside its peers")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes a flat set of records, the order of queries and the expected answers.
    Gen {
        #[arg(long)]
        records: u64,
        #[arg(long)]
        value_bytes: usize,
        /// How keys look: `hex` is 16 random hex digits, `decimal` the record's number in 12
        /// digits.
        #[arg(long, value_enum, default_value = "hex")]
        keys: KeyStyle,
        /// Another salt gives the same keys other values.
        #[arg(long, default_value_t = 0)]
        salt: u64,
        #[arg(long)]
        out: PathBuf,
    },
    /// Writes the flat set again as CSV, tab-separated values or Redis commands.
    Export {
        #[arg(long)]
        data: PathBuf,
        #[arg(long, value_enum)]
        format: dataset::ExportFormat,
        /// At most this many records.
        #[arg(long)]
        records: Option<u64>,
        #[arg(long)]
        out: PathBuf,
    },
    /// Builds one contender's store from the flat set; prints the seconds and the memory taken.
    Build {
        #[arg(long)]
        peer: String,
        #[arg(long)]
        data: PathBuf,
        /// At most this many records.
        #[arg(long)]
        records: Option<u64>,
        #[arg(long)]
        store: PathBuf,
    },
    /// Measures warm reads of one contender's store.
    Read {
        #[arg(long)]
        peer: String,
        #[arg(long)]
        data: PathBuf,
        #[arg(long)]
        store: PathBuf,
        /// Gives the store's mappings the same chance of huge pages that Forebay gives its own.
        #[arg(long)]
        huge: bool,
    },
    /// Counts the device reads of gets whose pages are not in memory.
    Cold {
        #[arg(long)]
        peer: String,
        #[arg(long)]
        data: PathBuf,
        #[arg(long)]
        store: PathBuf,
        #[arg(long, default_value_t = 1000)]
        gets: usize,
    },
    /// Reads from a server and checks every answer; prints latencies by slices of time.
    Load {
        #[arg(long)]
        port: u16,
        #[arg(long)]
        table: String,
        #[arg(long)]
        records: u64,
        #[arg(long, default_value_t = 4)]
        connections: usize,
        #[arg(long)]
        seconds: f64,
        /// The salts of the versions that may answer.
        #[arg(long, value_delimiter = ',', default_value = "0")]
        salts: Vec<u64>,
    },
    /// Random upserts into an empty store, a scan, gets; prints what was seen meanwhile.
    Live(LiveOptions),
    /// Increments of Zipf-distributed keys of an empty store.
    Delta(LiveOptions),
    /// Lists the contenders that this program holds.
    Peers,
}

#[derive(Args)]
struct LiveOptions {
    #[arg(long)]
    peer: String,
    /// Upserts, or increments.
    #[arg(long)]
    records: u64,
    /// Seconds after which writing stops.
    #[arg(long, default_value_t = 900.0)]
    cap: f64,
    /// A directory that is not there yet.
    #[arg(long)]
    store: PathBuf,
}

impl LiveOptions {
    fn task(&self) -> live::Task {
        live::Task {
            store: self.store.clone(),
            records: self.records,
            cap: Duration::from_secs_f64(self.cap),
        }
    }
}

fn main() -> Result<()> {
    let result = match Cli::parse().command {
        Command::Gen {
            records,
            value_bytes,
            keys,
            salt,
            out,
        } => dataset::generate(
            &GenOptions {
                records,
                value_bytes,
                keys,
                salt,
            },
            &out,
        )?,
        Command::Export {
            data,
            format,
            records,
            out,
        } => dataset::export(&Dataset::open(&data)?.limited(records), format, &out)?,
        Command::Build {
            peer,
            data,
            records,
            store,
        } => peers::build(&peer, &Dataset::open(&data)?.limited(records), &store)?,
        Command::Read {
            peer,
            data,
            store,
            huge,
        } => peers::read(&peer, &data, &store, huge)?,
        Command::Cold {
            peer,
            data,
            store,
            gets,
        } => peers::cold(&peer, &data, &store, gets)?,
        Command::Load {
            port,
            table,
            records,
            connections,
            seconds,
            salts,
        } => {
            let options = load::LoadOptions {
                port,
                table,
                records,
                connections,
                seconds,
                salts,
            };
            load::run(&options)?
        }
        Command::Live(options) => live::live(&options.peer, &options.task())?,
        Command::Delta(options) => live::delta(&options.peer, &options.task())?,
        Command::Peers => json!({
            "read": peers::NAMES, "live": live::LIVE_NAMES, "delta": live::DELTA_NAMES,
        }),
    };
    println!("{result}");
    Ok(())
}
