//! `forebay pull`: brings what serves in object storage into a directory.

use std::path::PathBuf;

use clap::Args;
use forebay_engine::TableName;
use forebay_objects::{PullOptions, PullRate};
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;
use crate::human;

/// Bring the serving version of a table from object storage into a store in a directory
///
/// It is verified, and serves there when all of it has come. A pull that was killed goes on where it stopped.
/// With --json one object {table, version, bytes}.
#[derive(Debug, Args)]
pub struct Pull {
    pub table: TableName,

    /// The directory; it holds what comes from that store, and nothing else
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,

    /// At most so many bytes a second
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    pub rate: Option<u64>,
}

pub fn run(args: &Pull, context: &Context) -> anyhow::Result<Outcome> {
    let options = PullOptions {
        rate: PullRate {
            ceiling_bytes: args.rate,
            adaptive: false,
        },
        ..PullOptions::default()
    };
    let (_, puller) = context.open_cache(&args.to, options)?;
    let version = puller.pull(&args.table)?;
    let bytes = puller.state().received_bytes;
    let object = json!({"table": args.table, "version": version, "bytes": bytes});
    context.print_done(Outcome::Done, &object, || {
        let (table, dir) = (&args.table, args.to.display());
        let came = human::bytes(bytes);
        format!("{table} version {version} serves in {dir}: {came} came, the rest was there")
    })
}
