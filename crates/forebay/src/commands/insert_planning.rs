//! Plans before a bulk insert into a live table of a cluster: what `plan insert TABLE SOURCE`
//! shows, and what `load --plan` carries out.

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

use super::cluster::paces;
use crate::context::Context;
use crate::human;

/// What may be chosen about a plan.
#[derive(Debug, Clone, Args)]
pub struct PlanningArgs {
    /// What a piece that moves by itself is to hold at most: larger partitions are cut where a move
    /// needs it [default: as much as leaves four pieces for each node, from 16M to 1G]
    #[arg(long, value_name = "SIZE", value_parser = parse_partition, help_heading = "Plan")]
    pub partition_bytes: Option<u64>,

    /// What a record that is moved costs, where one that is inserted costs 1 [default: 1]
    #[arg(long, value_name = "PRICE", value_parser = parse_price, help_heading = "Plan")]
    pub move_price: Option<f64>,

    /// How much is copied before the lists of what was copied change: with less, less is undone
    /// when the plan is ended [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = parse_partition, help_heading = "Plan")]
    pub batch: Option<u64>,
}

impl PlanningArgs {
    /// One of the options that was given.
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

/// How the planner looks for a plan.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    pub mode: Mode,
    /// How long to polish.
    pub time: Duration,
}

/// How fast nodes copied lately, as they say.
pub fn known_paces(cluster: &ClusterPointers, context: &Context) -> anyhow::Result<Paces> {
    let (_, model) = cluster.client().model()?;
    Ok(paces(&model, &context.node_pages()?))
}

/// Plans an insert of what was sampled of each table; the model is that which the plan is of.
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

/// The most that a plan could save, by where the rows go now: known without asking what partitions
/// hold. `bytes_per_s` is what the slowest node takes.
pub fn best_verdict(
    cluster: &ClusterPointers,
    sampled: &[(TableName, LoadSample)],
    bytes_per_s: u64,
) -> anyhow::Result<Verdict> {
    let (_, model) = cluster.client().model()?;
    Ok(Verdict::at_best(&model, &bulk_rows(sampled), bytes_per_s))
}

/// What a plan comes to, in a few words.
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

/// The drawings of a plan, with the verdict above.
pub fn insert_pictures(made: &InsertProposal) -> Vec<Picture> {
    let mut pictures = made.insert.pictures();
    if let (Some(own), Some(words)) = (pictures.first_mut(), verdict_words(made, true)) {
        own.verdict = words;
    }
    pictures
}

/// Whether a plan is worth it, and what clients notice of it; `if_worth`: it is left out where it
/// is not. `None`: there is nothing to be done.
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

/// Has the cluster carry a plan out; returns when all is cut and moved. Then rows can come: who
/// held what was moved waits for some seconds more.
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

/// Refuses a plan that is about something else than inserting into a table and these indexes.
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
