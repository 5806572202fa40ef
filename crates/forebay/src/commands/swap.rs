//! `forebay swap`: makes a version the serving one.

use clap::Args;
use forebay_engine::{Swapped, TableName};
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;

/// Make a version the serving one
///
/// With --json one object {table, version, previous}.
#[derive(Debug, Args)]
pub struct Swap {
    pub table: TableName,

    /// The version to serve from now on
    #[arg(value_name = "V")]
    pub version: u64,
}

pub fn run(args: &Swap, context: &Context) -> anyhow::Result<Outcome> {
    let swapped = context.open_table(&args.table)?.swap(args.version)?;
    print(&args.table, swapped, context)
}

/// What a swap and a rollback say.
pub fn print(table: &TableName, swapped: Swapped, context: &Context) -> anyhow::Result<Outcome> {
    let Swapped { from, to } = swapped;
    let object = json!({"table": table, "version": to, "previous": from});
    context.print_done(Outcome::Done, &object, || match from {
        Some(from) if from == to => format!("{table} serves version {to}, as it did"),
        Some(from) => format!("{table} serves version {to}; before it served {from}"),
        None => format!("{table} serves version {to}"),
    })
}
