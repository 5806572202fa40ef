//! Shows a plan: as text, as a drawing and as JSON.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use forebay_cluster::client::ClientError;
use forebay_cluster::model::{Model, MoveBatch, MovePlan, PlanGoal, Survey};
use forebay_cluster::planning::{BATCH_BYTES, Proposal, Summaries, propose, surveyed};
use forebay_cluster::status::shown_goal;
use forebay_cluster::version::VersionSummary;
use forebay_engine::TableName;
use forebay_plan::draw::{Picture, svg, text};
use serde_json::{Value, json};

use super::write_file;
use crate::commands::cluster::paces;
use crate::context::Context;
use crate::printing::human;

/// Columns of a drawing in the terminal.
const WIDTH: usize = 110;

// Global, so that the options may follow the subcommand of `cluster plan`.
#[derive(Debug, Args)]
pub struct ShownPlan {
    /// Draw the plan into an SVG file
    #[arg(long, value_name = "FILE.svg", global = true)]
    draw: Option<PathBuf>,

    /// How many bytes to copy before the preference lists of the copied ranges change. If the plan
    /// is cancelled, a smaller value means that less is undone
    #[arg(long, value_name = "BYTES", value_parser = parse_batch, default_value_t = BATCH_BYTES, global = true)]
    batch: u64,
}

fn parse_batch(text: &str) -> Result<u64, String> {
    match human::parse_bytes(text)? {
        0 => Err("a batch has 1 byte at least: write for example 64M, 1G".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A plan and the model that it was made from.
pub struct MadePlan {
    model: Model,
    pub proposal: Proposal,
}

impl MadePlan {
    pub fn new(
        (model, goal): (Model, PlanGoal),
        shown: &ShownPlan,
        context: &Context,
    ) -> anyhow::Result<Self> {
        let summaries = summaries(&model, &[], context)?;
        let mut proposal = propose(&model, &summaries, &goal, shown.batch)?;
        proposal.estimate(&model, &paces(&model, &context.node_pages()?));
        let made = Self { model, proposal };
        if let Some(path) = &shown.draw {
            check_svg(path)?;
            write_file(path, svg(&made.picture()).as_bytes())?;
        }
        Ok(made)
    }

    /// Returns a plan that was made earlier, with its summaries.
    pub fn again(model: Model, plan: MovePlan, context: &Context) -> anyhow::Result<Self> {
        let summaries = summaries(&model, &plan.batches, context)?;
        let proposal = Proposal::again(&model, &summaries, plan);
        let mut proposal = proposal.map_err(anyhow::Error::msg)?;
        proposal.estimate(&model, &paces(&model, &context.node_pages()?));
        Ok(Self { model, proposal })
    }

    /// Returns whether the assignment is already as desired. Draining or adding nodes still changes
    /// what later plans do with them.
    pub fn has_nothing_to_do(&self) -> bool {
        let plan = &self.proposal.plan;
        let is_of_nodes = matches!(plan.goal, PlanGoal::Drain(_) | PlanGoal::Add(_));
        plan.batches.is_empty() && !is_of_nodes
    }

    pub fn what(&self) -> String {
        shown_goal(&self.proposal.plan.goal, &self.model)
    }

    fn picture(&self) -> Picture {
        self.proposal.picture(&self.model, &self.what())
    }

    pub fn figures(&self) -> String {
        format!("{}: {}", self.what(), self.proposal.figures())
    }

    pub fn text(&self) -> String {
        let note = self
            .note()
            .map_or(String::new(), |note| format!("\nnote: {note}\n"));
        text(&self.picture(), WIDTH) + &note
    }

    /// Returns what an operator should know before the plan runs.
    pub fn note(&self) -> Option<String> {
        let moving = self.model.work.moving().map(|moving| {
            format!(
                "plan {} is carried out, and this one may be another once that has ended",
                moving.request
            )
        });
        let thinned = self.proposal.thinned.as_ref();
        let thinned = thinned.map(|thinned| thinned.words(&self.model));
        let notes: Vec<String> = moving.into_iter().chain(thinned).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    pub fn object(&self) -> Value {
        let nodes = self.proposal.nodes.iter().map(|(node, bytes)| {
            json!({
                "node": self.model.node_name(*node),
                "before_bytes": bytes.before,
                "after_bytes": bytes.after,
                "copied_bytes": bytes.copied,
            })
        });
        json!({
            "goal": self.what(),
            "splits": self.proposal.plan.splits(),
            "batches": self.proposal.plan.batches.len(),
            "copied_bytes": self.proposal.copied_bytes(),
            "expected_s": self.proposal.expected.map(|time| time.as_secs_f64()),
            "nodes": nodes.collect::<Vec<Value>>(),
            "note": self.note(),
        })
    }
}

fn check_svg(path: &Path) -> anyhow::Result<()> {
    let extension = path.extension();
    match extension.is_some_and(|extension| extension.eq_ignore_ascii_case("svg")) {
        true => Ok(()),
        false => wrong!(
            "--draw {}: a drawing is SVG: give a name that ends in .svg",
            path.display()
        ),
    }
}

/// Returns the summaries of serving versions, and of live tables as batches split their partitions.
fn summaries(model: &Model, batches: &[MoveBatch], context: &Context) -> anyhow::Result<Summaries> {
    let live: BTreeSet<TableName> = model.live_tables().map(|(name, _)| name.clone()).collect();
    let mut summaries = match live.is_empty() {
        true => Summaries::new(),
        false => surveyed(model, &survey(live, context)?, batches),
    };
    summaries.extend(serving_summaries(model, context)?);
    Ok(summaries)
}

/// Returns the summaries of the serving versions.
pub fn serving_summaries(model: &Model, context: &Context) -> anyhow::Result<Summaries> {
    let (store, mut summaries) = (context.open_store()?, Summaries::new());
    for (table, entry) in model.all_tables() {
        if let Some(version) = entry.serving {
            let manifest = store.table(table)?.manifest(version)?;
            summaries.insert(table.clone(), VersionSummary::of(&manifest));
        }
    }
    Ok(summaries)
}

/// Returns the content of live tables, if a running node knows it.
fn survey(live: BTreeSet<TableName>, context: &Context) -> anyhow::Result<Survey> {
    match context.cluster()?.client().survey(live) {
        Err(error @ ClientError::NobodyHome { .. }) => {
            context.output.announce(&format!(
                "how much live tables hold is not known, and counts as nothing: {error}"
            ));
            Ok(Survey::new())
        }
        reported => Ok(reported?),
    }
}
