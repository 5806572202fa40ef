//! `forebay cluster upgrade`: raises the format of a cluster's catalog.

use clap::Args;
use forebay_cluster::model::NEWEST_FORMAT;
use forebay_cluster::request::Request;
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;

/// Raise the format of the cluster's catalog to the newest of this program, once all nodes support
/// it
///
/// Before the upgrade, features of the newer format are refused. Afterwards nodes and commands of
/// an older program are refused. There is no way back. Without --yes nothing is changed. With
/// --json one object {format, newest, upgraded}, where format is the format before the upgrade.
#[derive(Debug, Args)]
pub struct Upgrade {
    /// Raise the format
    #[arg(long)]
    yes: bool,
}

pub fn run(args: &Upgrade, context: &Context) -> anyhow::Result<Outcome> {
    let cluster = context.cluster()?;
    let client = cluster.client();
    let format = client.head()?.forebay_head;
    let is_old = format < NEWEST_FORMAT;
    let request = Request::Upgrade {
        format: NEWEST_FORMAT,
    };
    match args.yes {
        true if is_old => drop(client.carry_out(&request)?),
        _ => drop(client.check(&request)?),
    }
    let upgraded = args.yes && is_old;
    let object = json!({"format": format, "newest": NEWEST_FORMAT, "upgraded": upgraded});
    let text = || match (is_old, args.yes) {
        (false, _) => format!("the catalog is of format {format} already"),
        (true, true) => format!("the catalog was of format {format}: now it is {NEWEST_FORMAT}"),
        (true, false) => format!("the catalog is of format {format}: all speak {NEWEST_FORMAT}"),
    };
    let outcome = context.print_done(Outcome::Done, &object, text)?;
    if is_old && !args.yes {
        wrong!("nothing was changed: --yes raises the format, and there is no way back");
    }
    Ok(outcome)
}
