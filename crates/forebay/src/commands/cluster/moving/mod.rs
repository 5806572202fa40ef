//! `forebay cluster add`, `drain`, `replace`, `replicas`, `rebalance`, `plan`, `apply`: placement.
//!
//! Each makes a plan from the catalog and the manifests, and shows it. With --yes the coordinator
//! carries out exactly that plan.

mod made_plan;
mod move_requests;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use forebay_cluster::client::{ClusterPointers, RequestEnd};
use forebay_cluster::model::{MovePlan, MoveStage, Rebalance};
use forebay_cluster::request::Request;
use serde_json::{Value, json};

use crate::cluster_handle::Drawing;
use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::result_file::ResultFile;
pub use made_plan::serving_summaries;
use made_plan::{MadePlan, ShownPlan};
pub use move_requests::{AddArgs, DrainArgs, RebalanceArgs, ReplaceArgs, TableReplicas};
use move_requests::{AnyWords, MoveRequest};

/// A placement command that runs with --yes and only shows its plan without.
#[derive(Debug, Args)]
pub struct WordsWithYes<W: Args> {
    #[command(flatten)]
    words: W,

    #[command(flatten)]
    shown: ShownPlan,

    /// Carry the plan out, and wait until it has ended
    #[arg(long)]
    yes: bool,
}

/// Make a plan, show it, and write it to a file for `cluster apply`; nothing is changed
///
///   forebay cluster plan drain node-3 --output plan.json
///
/// With --json the object plan of `cluster add`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct PlanMoves {
    #[command(subcommand)]
    words: AnyWords,

    #[command(flatten)]
    shown: ShownPlan,

    /// The file to write the plan to
    #[arg(long, value_name = "FILE", global = true)]
    output: Option<PathBuf>,
}

/// Carry out a plan that `cluster plan` made
///
/// Without --yes the plan is only shown. It is refused if its nodes or tables have changed since.
/// With --json {plan, ended, reason, seconds}.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// The file that `cluster plan --output` wrote
    file: PathBuf,

    /// Carry the plan out, and wait until it has ended
    #[arg(long)]
    yes: bool,
}

pub fn plan(args: &PlanMoves, context: &Context) -> anyhow::Result<Outcome> {
    let (_, model) = context.cluster()?.client().model()?;
    let goal = args.words.goal(&model)?;
    let made = MadePlan::new((model, goal), &args.shown, context)?;
    if let Some(path) = &args.output {
        let bytes = serde_json::to_vec_pretty(&made.proposal.plan)?;
        write_file(path, &bytes)?;
    }
    context.print(&made.object(), || made.text())?;
    Ok(Outcome::Done)
}

pub fn apply(args: &ApplyArgs, context: &Context) -> anyhow::Result<Outcome> {
    let plan = read_plan(&args.file, context)?;
    let drawing: Drawing = Drawing::new(context.progress());
    let cluster = context.cluster_drawn(&drawing)?;
    let (_, model) = cluster.client().model_to_plan()?;
    let made = MadePlan::again(model, plan, context)?;
    show_or_carry_out(made, args.yes, &cluster, drawing, context)
}

/// Reads a plan from a file.
pub fn read_plan(path: &Path, context: &Context) -> anyhow::Result<MovePlan> {
    let (bytes, path) = (context.disk.read(path), path.display());
    let bytes = bytes.with_context(|| format!("cannot read {path}"))?;
    // The parser's error does not help a user who gave the wrong file.
    serde_json::from_slice(&bytes).map_err(|_| {
        anyhow!(
            "{path} is no plan for the cluster: cluster plan, plan insert TABLE and plan place TABLE write one with \
             --output"
        )
    })
}

/// Shows a plan, and carries it out with --yes.
pub fn carry<W: MoveRequest>(args: &WordsWithYes<W>, context: &Context) -> anyhow::Result<Outcome> {
    let drawing: Drawing = Drawing::new(context.progress());
    let cluster = context.cluster_drawn(&drawing)?;
    let (_, model) = cluster.client().model_to_plan()?;
    let goal = args.words.goal(&model)?;
    let made = MadePlan::new((model, goal), &args.shown, context)?;
    show_or_carry_out(made, args.yes, &cluster, drawing, context)
}

fn show_or_carry_out(
    made: MadePlan,
    yes: bool,
    cluster: &ClusterPointers,
    drawing: Drawing,
    context: &Context,
) -> anyhow::Result<Outcome> {
    if !yes {
        context.stop_drawing(drawing);
        let object = json!({"plan": made.object(), "ended": Value::Null, "reason": Value::Null, "seconds": Value::Null});
        context.print(&object, || made.text())?;
        if made.has_nothing_to_do() {
            context.output.announce("there is nothing to do");
            return Ok(Outcome::Done);
        }
        wrong!("nothing was changed: --yes carries this plan out");
    }
    if let Some(note) = made.note() {
        context.output.announce(&note);
    }
    drawing.message(&made.figures());
    let started = context.clock.monotonic();
    let (shown, what) = (made.object(), made.what());
    let expected = made.proposal.expected;
    let plan = Box::new(made.proposal.plan);
    let ended = cluster.client().carry_out(&Request::Rebalance { plan })?;
    context.stop_drawing(drawing);
    let took = context.clock.monotonic() - started;
    announce_ended(ended, (&shown, &what), (took, expected), context)
}

/// Prints how a plan ended, and its duration beside the expected one.
fn announce_ended(
    ended: RequestEnd,
    (shown, what): (&Value, &str),
    (took, expected): (Duration, Option<Duration>),
    context: &Context,
) -> anyhow::Result<Outcome> {
    let RequestEnd::Rebalance(moved) = ended else {
        bail!("the request was taken for another one");
    };
    let Rebalance { stage, reason, .. } = *moved;
    let (outcome, word) = match stage {
        MoveStage::Done => (Outcome::Done, "done"),
        _ => (Outcome::Undone, "stopped"),
    };
    let seconds = took.as_secs_f64();
    let object = json!({"plan": shown, "ended": word, "reason": reason, "seconds": seconds});
    let stopped = format!(
        "{what}: ended after {} of {} batches: {}. Finished batches are kept, and nothing is half done; a new plan \
         continues from here",
        moved.done,
        moved.batches,
        reason.as_deref().unwrap_or("it was ended")
    );
    let text = match outcome {
        Outcome::Done => format!("{what}: done in {}", times(seconds, expected)),
        _ => stopped.clone(),
    };
    context.announce_though_quiet((outcome != Outcome::Done).then_some(stopped));
    context.print_done(outcome, &object, || text.clone())
}

fn times(seconds: f64, expected: Option<Duration>) -> String {
    match expected {
        None => format!("{seconds:.0} s"),
        Some(expected) => {
            let expected = expected.as_secs_f64();
            format!("{seconds:.0} s (about {expected:.0} s were expected)")
        }
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let named = || format!("cannot write {}", path.display());
    let mut file = ResultFile::create(path).with_context(named)?;
    file.write_all(bytes).with_context(named)?;
    file.finish().with_context(named)
}
