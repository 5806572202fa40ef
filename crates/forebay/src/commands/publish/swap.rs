//! `forebay swap`: makes a version the serving one.

use std::collections::BTreeMap;

use clap::Args;
use forebay_cluster::client::RolloutDraft;
use forebay_cluster::model::{Rollout, RolloutRole};
use forebay_engine::{HistoryAction, SwapReport, TableName};
use serde_json::{Value, json};

use crate::cluster_handle::Drawing;
use crate::context::Context;
use crate::exit::Outcome;
use crate::rollout_result::RolloutResult;
use crate::target::Target;

/// Make a version the serving one; in a cluster versions of several tables, all at one moment
///
///   forebay swap flights 7
///   forebay swap flights@7 carriers@3
///
/// With --json one object {table, version, previous}, for several tables a list of them; in a
/// cluster each has rollout, {verified, excluded}.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Swap {
    /// TABLE V, or TABLE@V for each table
    #[arg(required = true, value_name = "TABLE@V")]
    pub targets: Vec<String>,

    /// In a cluster, also swap to a version that was rolled back
    #[arg(long)]
    pub force: bool,
}

pub fn run(args: &Swap, context: &Context) -> anyhow::Result<Outcome> {
    let targets = targets(&args.targets)?;
    let draft = RolloutDraft {
        force: args.force,
        keep: usize::MAX,
        ..RolloutDraft::default()
    };
    let drawing: Drawing = Drawing::new(context.progress());
    if let Some(cluster) = context.cluster_if_any(draft, &drawing)? {
        let rollout = cluster.swap(&targets)?;
        context.stop_drawing(drawing);
        return print_rollout(&rollout, &cluster, context);
    }
    match targets.first_key_value() {
        Some((table, version)) if targets.len() == 1 => {
            let swapped = context.open_table(table)?.swap(*version)?;
            print(table, swapped, context)
        }
        _ => wrong!(
            "several tables swap at one moment in a cluster only (forebay cluster create): swap them one by one"
        ),
    }
}

fn targets(words: &[String]) -> anyhow::Result<BTreeMap<TableName, u64>> {
    if let [table, version] = words
        && !table.contains('@')
        && !version.contains('@')
    {
        let target: Target = parse(&format!("{table}@{version}"))?;
        return Ok(target
            .version
            .map(|version| (target.table, version))
            .into_iter()
            .collect());
    }
    let mut targets = BTreeMap::new();
    for word in words {
        let target = parse(word)?;
        let Some(version) = target.version else {
            wrong!("'{word}' names no version: write TABLE@VERSION, or one TABLE and its VERSION");
        };
        if targets.insert(target.table, version).is_some() {
            wrong!("'{word}' names a table a second time");
        }
    }
    Ok(targets)
}

fn parse(word: &str) -> anyhow::Result<Target> {
    match word.parse() {
        Ok(target) => Ok(target),
        Err(problem) => wrong!("{problem}"),
    }
}

/// Prints the result of a swap or a rollback.
pub fn print(table: &TableName, swapped: SwapReport, context: &Context) -> anyhow::Result<Outcome> {
    let SwapReport { from, to } = swapped;
    let object = json!({"table": table, "version": to, "previous": from});
    context.print_done(Outcome::Done, &object, || line(table, from, to))
}

fn line(table: &TableName, from: Option<u64>, to: u64) -> String {
    match from {
        Some(from) if from == to => format!("{table} serves version {to}, as it did"),
        Some(from) => format!("{table} serves version {to}; before it served {from}"),
        None => format!("{table} serves version {to}"),
    }
}

/// Adds the result of a rollout to the history of the store.
fn note(rollout: &Rollout, context: &Context) {
    match context.open_store() {
        Ok(store) => {
            for (table, part) in &rollout.tables {
                let action = match part.role {
                    RolloutRole::Rollback => HistoryAction::Rollback,
                    RolloutRole::Swap | RolloutRole::Replace => HistoryAction::Swap,
                };
                let (from, to) = (part.from, part.to);
                if from != Some(to) {
                    store.note(table, action, SwapReport { from, to });
                }
            }
        }
        Err(error) => {
            let reported = format!("the history of the store lacks an entry: {error:#}");
            context.output.announce(&reported);
        }
    }
}

/// Prints the result of a swap or a rollback in a cluster.
pub fn print_rollout(
    rollout: &Rollout,
    cluster: &forebay_cluster::client::ClusterPointers,
    context: &Context,
) -> anyhow::Result<Outcome> {
    note(rollout, context);
    let (_, model) = cluster.client().model()?;
    let rolled_out = RolloutResult::of(rollout, &model);
    let outcome = match rolled_out.left_some_out() {
        true => Outcome::LeftOut,
        false => Outcome::Done,
    };
    let objects = rollout.tables.iter().map(|(table, part)| {
        json!({"table": table, "version": part.to, "previous": part.from, "rollout": rolled_out})
    });
    let objects: Vec<Value> = objects.collect();
    let object = match &objects[..] {
        [one] => one.clone(),
        _ => Value::Array(objects),
    };
    context.announce_though_quiet(rolled_out.left_out_text());
    context.print_done(outcome, &object, || {
        let lines = rollout.tables.iter();
        let lines = lines.map(|(table, part)| line(table, part.from, part.to) + "\n");
        lines.collect::<String>() + &rolled_out.text()
    })
}
