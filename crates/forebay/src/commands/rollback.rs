//! `forebay rollback`: back to the version that served before.

use clap::Args;
use forebay_engine::TableName;

use super::swap;
use crate::context::Context;
use crate::exit::Outcome;

/// Go back to the version that served before
///
/// The version that is left stays in the store, but a second rollback goes further back, never to
/// it. With --json one object {table, version, previous}.
#[derive(Debug, Args)]
pub struct Rollback {
    pub table: TableName,
}

pub fn run(args: &Rollback, context: &Context) -> anyhow::Result<Outcome> {
    let swapped = context.open_table(&args.table)?.rollback()?;
    swap::print(&args.table, swapped, context)
}
