//! `forebay pull`: copies the serving versions from object storage to a directory.

use std::path::PathBuf;

use clap::Args;
use forebay_engine::TableName;
use forebay_objects::{PullOptions, PullRate};
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;

/// Copy the serving versions of tables from object storage to a store in a directory
///
/// The versions are verified, and serve there once all of them are complete. If one cannot be
/// copied, none serves. A pull that was killed continues where it stopped. With --json one object
/// for each table: {table, version, bytes}.
#[derive(Debug, Args)]
pub struct Pull {
    #[arg(value_name = "TABLE", required = true)]
    pub tables: Vec<TableName>,

    /// The directory; it may have only what was pulled from that store
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,

    /// Pull at most this many bytes a second [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_rate)]
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
    let mut before_bytes = 0;
    let mut prepared = Vec::with_capacity(args.tables.len());
    for table in &args.tables {
        let version = puller.prepare(table)?;
        let received_bytes = puller.state().received_bytes;
        prepared.push((version, received_bytes - before_bytes));
        before_bytes = received_bytes;
    }
    for (version, _) in &prepared {
        puller.activate(version)?;
    }
    for (prepared, bytes) in &prepared {
        let (table, version) = (prepared.table(), prepared.version());
        let object = json!({"table": table, "version": version, "bytes": bytes});
        context.print_done(Outcome::Done, &object, || {
            let (dir, came) = (args.to.display(), human::bytes(*bytes));
            format!("{table} version {version} serves in {dir}: {came} came, the rest was there")
        })?;
    }
    Ok(Outcome::Done)
}
