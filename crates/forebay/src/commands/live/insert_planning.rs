//! Plans before a bulk insert into a live table of a cluster.
//!
//! `plan insert TABLE SOURCE` shows such a plan, and `load --plan` carries it out.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use forebay_cluster::client::{ClusterPointers, RequestEnd};
use forebay_cluster::model::{Model, MovePlan, MoveStage, PlanGoal};
use forebay_cluster::planning::{
    BulkInsert, BulkRows, InsertProposal, KnownCluster, Paces, Summaries, Verdict, propose_insert,
};
use forebay_cluster::request::Request;
use forebay_engine::{StoreError, TableName};
use forebay_load::load::LoadSample;
use forebay_plan::draw::Picture;
use forebay_plan::insert::Mode;

use crate::commands::cluster::paces;
use crate::context::Context;
use crate::printing::human;

/// The options of a plan.
#[derive(Debug, Clone, Args)]
pub struct PlanningArgs {
    /// The most bytes that a separately moved part may have: larger partitions are split where a
    /// move needs it [default: a size that gives four parts for each node, from 16M to 1G]
    #[arg(long, value_name = "SIZE", value_parser = parse_partition, help_heading = "Plan")]
    pub partition_bytes: Option<u64>,

    /// The cost of moving a record, relative to inserting one, which costs 1 [default: 1]
    #[arg(long, value_name = "PRICE", value_parser = parse_price, help_heading = "Plan")]
    pub move_price: Option<f64>,

    /// How many bytes to copy before the preference lists of the copied ranges change. If the plan
    /// is cancelled, a smaller value means that less is undone [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = parse_partition, help_heading = "Plan")]
    pub batch: Option<u64>,
}

impl PlanningArgs {
    /// Returns one of the given options.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.partition_bytes.is_some(), "--partition-bytes"),
            (self.move_price.is_some(), "--move-price"),
            (self.batch.is_some(), "--batch"),
        ];
        given
            .into_iter()
            .find_map(|(is_given, name)| is_given.then_some(name))
    }
}

fn parse_partition(text: &str) -> Result<u64, String> {
    match human::parse_bytes(text)? {
        0 => Err("give 1 byte at least: write for example 64M, 1G".to_owned()),
        bytes => Ok(bytes),
    }
}

fn parse_price(text: &str) -> Result<f64, String> {
    let price = text.parse::<f64>().ok();
    let price = price.filter(|price| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| format!("'{text}' is not a price of 0 or more"))
}

/// The planner's search settings.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    pub mode: Mode,
    /// How long to polish.
    pub time: Duration,
}

/// Returns how fast nodes copied recently, as they report it.
pub fn known_paces(cluster: &ClusterPointers, context: &Context) -> anyhow::Result<Paces> {
    let (_, model) = cluster.client().model()?;
    Ok(paces(&model, &context.node_pages()?))
}

/// Plans an insert from the samples of each table. The model is the one that the plan was made
/// from.
pub fn plan_insert(
    cluster: &ClusterPointers,
    sampled: &[(TableName, LoadSample)],
    (args, paces): (&PlanningArgs, &Paces),
    search: Search,
    context: &Context,
) -> anyhow::Result<(Model, InsertProposal)> {
    let tables: BTreeSet<TableName> = sampled.iter().map(|(table, _)| table.clone()).collect();
    let (model, survey) = cluster.client().survey_to_plan(&tables)?;
    let into = bulk_rows(sampled);
    let bulk = BulkInsert {
        into: &into,
        partition_bytes: args.partition_bytes,
        batch_bytes: args.batch,
        move_price: args.move_price.unwrap_or(1.0),
        mode: search.mode,
    };
    let started = context.clock.monotonic();
    let over = &mut || context.clock.monotonic().saturating_sub(started) >= search.time;
    let known = KnownCluster {
        model: &model,
        summaries: &Summaries::new(),
        survey: &survey,
        paces,
    };
    let made = propose_insert(&known, &bulk, over)?;
    Ok((model, made))
}

fn bulk_rows(sampled: &[(TableName, LoadSample)]) -> Vec<BulkRows<'_>> {
    let rows = sampled.iter().map(|(table, sample)| BulkRows {
        table,
        keys: &sample.keys,
        rows: sample.rows,
        bytes: sample.bytes,
    });
    rows.collect()
}

/// Returns the most that a plan could save, judged by where the rows go now. It does not need the
/// sizes of partitions. `bytes_per_s` is the rate of the slowest node.
pub fn best_verdict(
    cluster: &ClusterPointers,
    sampled: &[(TableName, LoadSample)],
    bytes_per_s: u64,
) -> anyhow::Result<Verdict> {
    let (_, model) = cluster.client().model()?;
    Ok(Verdict::at_best(&model, &bulk_rows(sampled), bytes_per_s))
}

/// Describes the figures of a plan in a few words.
pub fn insert_figures(made: &InsertProposal) -> String {
    let InsertProposal {
        insert, proposal, ..
    } = made;
    let own = &insert.own;
    let gain = match own.cost_no_moves > 0.0 {
        true => format!(
            ", cost {:.0}% of that without moves",
            100.0 * own.cost / own.cost_no_moves
        ),
        false => String::new(),
    };
    format!("{}{gain}", proposal.figures())
}

/// Returns the drawings of a plan, with the verdict above.
pub fn insert_pictures(made: &InsertProposal) -> Vec<Picture> {
    let mut pictures = made.insert.pictures();
    if let (Some(own), Some(words)) = (pictures.first_mut(), verdict_words(made, true)) {
        own.verdict = words;
    }
    pictures
}

/// Describes whether a plan is worth it and how it affects clients. With `if_worth`, a plan that is
/// not worth it is skipped. `None`: there is nothing to do.
pub fn verdict_words(made: &InsertProposal, if_worth: bool) -> Option<String> {
    let Verdict { saves, takes } = made.verdict;
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    let is_worth = match made.verdict.is_worth() {
        true => "worth it",
        false if if_worth => "not worth it: load --plan auto leaves it out",
        false => "carried out although it is not worth it (--plan always)",
    };
    let plan = &made.proposal.plan;
    let waits = match plan.splits() {
        0 => "",
        _ => ". Commands on a partition that is split wait for about 0.05 s",
    };
    let has_steps = !plan.batches.is_empty();
    has_steps.then(|| {
        format!(
            "the load takes about {} less, splitting and moving takes about {}: {is_worth}{waits}",
            seconds(saves),
            seconds(takes)
        )
    })
}

/// Has the cluster carry out a plan, and returns when all is split and moved. Rows can then be
/// loaded: the nodes that had the moved data only wait for some more seconds.
pub fn carry_out(cluster: &ClusterPointers, plan: MovePlan) -> anyhow::Result<()> {
    let client = cluster.client();
    client.model_to_plan()?;
    let plan = Box::new(plan);
    let asked = client.ask(&Request::Rebalance { plan });
    let moved = match asked.and_then(|id| client.wait_until_moved(&id)) {
        Ok(RequestEnd::Rebalance(moved)) => moved,
        Ok(_) => bail!("the plan was taken for another request"),
        Err(error) => return Err(error.into()),
    };
    if moved.stage != MoveStage::Stopped {
        return Ok(());
    }
    let problem = format!(
        "the plan ended after {} of {} batches, and nothing was loaded: {}. What is done of it stays; give the same \
         command again, which plans from here",
        moved.done,
        moved.batches,
        moved.reason.as_deref().unwrap_or("it was ended")
    );
    let is_busy = false;
    Err(StoreError::Refused { problem, is_busy }.into())
}

/// Refuses a plan that is not for inserting into a table and these indexes.
pub fn check_for(
    plan: &MovePlan,
    table: &TableName,
    indexes: &BTreeSet<&TableName>,
) -> Result<(), String> {
    let PlanGoal::Insert {
        table: planned,
        with,
    } = &plan.goal
    else {
        return Err("it is no plan of forebay plan insert".to_owned());
    };
    if planned != table {
        return Err(format!(
            "it is a plan for an insert into {planned}, not into {table}"
        ));
    }
    let planned: BTreeSet<&TableName> = with.iter().collect();
    match planned == *indexes {
        true => Ok(()),
        false => Err(format!(
            "it is a plan for an insert into {table} {}, and the load is {}: give plan insert and load the same --index",
            with_indexes(&planned),
            with_indexes(indexes)
        )),
    }
}

fn with_indexes(indexes: &BTreeSet<&TableName>) -> String {
    let names: Vec<&str> = indexes.iter().map(|index| index.as_str()).collect();
    match names.is_empty() {
        true => "without an index".to_owned(),
        false => format!("with index {}", names.join(", ")),
    }
}
