//! `forebay cluster add`, `drain`, `replace`, `replicas`, `rebalance`, `plan`, `apply`: who is to
//! hold what.
//!
//! Each makes a plan of what the catalog and the manifests say, and shows it; with --yes the
//! coordinator carries out just that plan.

mod made;
mod words;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use forebay_cluster::client::{ClusterPointers, Ended};
use forebay_cluster::model::{MovePlan, MoveStage, Rebalance};
use forebay_cluster::request::Request;
use serde_json::{Value, json};

use crate::cluster_handle::Drawing;
use crate::context::Context;
use crate::exit::Outcome;
use crate::result_file::ResultFile;
use made::{Made, Shown};
pub use words::{Add, Drain, Even, Replace, TableReplicas};
use words::{AnyWords, Words};

/// Words that are carried out with --yes.
#[derive(Debug, Args)]
pub struct Carried<W: Args> {
    #[command(flatten)]
    words: W,

    #[command(flatten)]
    shown: Shown,

    /// Carry the plan out, and wait until that is done
    #[arg(long)]
    yes: bool,
}

/// Make a plan, show it, and write it into a file for `cluster apply`; nothing is changed
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
    shown: Shown,

    /// Where the plan goes
    #[arg(long, value_name = "FILE", global = true)]
    output: Option<PathBuf>,
}

/// Carry out a plan that `cluster plan` made
///
/// Without --yes it is shown. It is refused where what it is about has changed since. With --json
/// {plan, ended, reason}.
#[derive(Debug, Args)]
pub struct Apply {
    /// The file of `cluster plan --output`
    file: PathBuf,

    /// Carry the plan out, and wait until that is done
    #[arg(long)]
    yes: bool,
}

pub fn plan(args: &PlanMoves, context: &Context) -> anyhow::Result<Outcome> {
    let (_, model) = context.cluster()?.client().model()?;
    let wish = args.words.wish(&model)?;
    let made = Made::new((model, wish), &args.shown, context)?;
    if let Some(path) = &args.output {
        let bytes = serde_json::to_vec_pretty(&made.proposal.plan)?;
        write_file(path, &bytes)?;
    }
    context.print(&made.object(), || made.text())?;
    Ok(Outcome::Done)
}

pub fn apply(args: &Apply, context: &Context) -> anyhow::Result<Outcome> {
    let path = args.file.display();
    let bytes = context.disk.read(&args.file);
    let bytes = bytes.with_context(|| format!("cannot read {path}"))?;
    let plan: MovePlan = serde_json::from_slice(&bytes).with_context(|| {
        format!("{path} is no plan of forebay cluster plan, plan insert or plan place")
    })?;
    let drawing: Drawing = Drawing::new(context.progress());
    let cluster = context.cluster_drawn(&drawing)?;
    let (_, model) = cluster.client().model_to_plan()?;
    let made = Made::again(model, plan, context)?;
    show_or_carry_out(made, args.yes, &cluster, drawing, context)
}

/// Shows a plan, and with --yes carries it out.
pub fn carry<W: Words>(args: &Carried<W>, context: &Context) -> anyhow::Result<Outcome> {
    let drawing: Drawing = Drawing::new(context.progress());
    let cluster = context.cluster_drawn(&drawing)?;
    let (_, model) = cluster.client().model_to_plan()?;
    let wish = args.words.wish(&model)?;
    let made = Made::new((model, wish), &args.shown, context)?;
    show_or_carry_out(made, args.yes, &cluster, drawing, context)
}

fn show_or_carry_out(
    made: Made,
    yes: bool,
    cluster: &ClusterPointers,
    drawing: Drawing,
    context: &Context,
) -> anyhow::Result<Outcome> {
    if !yes {
        context.stop_drawing(drawing);
        let object = json!({"plan": made.object(), "ended": Value::Null, "reason": Value::Null});
        context.print(&object, || made.text())?;
        wrong!("nothing was changed: --yes carries this plan out");
    }
    if let Some(note) = made.note() {
        tell!("forebay: {note}");
    }
    drawing.message(&made.figures());
    let (object, what) = (made.object(), made.what());
    let plan = made.proposal.plan;
    carry_out(plan, &object, &what, cluster, drawing, context)
}

fn carry_out(
    plan: MovePlan,
    shown: &Value,
    what: &str,
    cluster: &ClusterPointers,
    drawing: Drawing,
    context: &Context,
) -> anyhow::Result<Outcome> {
    let plan = Box::new(plan);
    let ended = cluster.client().carry_out(&Request::Rebalance { plan })?;
    context.stop_drawing(drawing);
    let Ended::Rebalance(moved) = ended else {
        bail!("the request was taken for another one");
    };
    let Rebalance { stage, reason, .. } = *moved;
    let (outcome, word) = match stage {
        MoveStage::Done => (Outcome::Done, "done"),
        _ => (Outcome::Undone, "stopped"),
    };
    let object = json!({"plan": shown, "ended": word, "reason": reason});
    let stopped = format!(
        "{what}: ended after {} of {} batches: {}. What is done stays, and nothing is half done; a new plan goes on \
         from here",
        moved.done,
        moved.batches,
        reason.as_deref().unwrap_or("it was ended")
    );
    let text = match outcome {
        Outcome::Done => format!("{what}: done"),
        _ => stopped.clone(),
    };
    context.tell_though_quiet((outcome != Outcome::Done).then_some(stopped));
    context.print_done(outcome, &object, || text.clone())
}

fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let named = || format!("cannot write {}", path.display());
    let mut file = ResultFile::create(path).with_context(named)?;
    file.write_all(bytes).with_context(named)?;
    file.finish().with_context(named)
}
