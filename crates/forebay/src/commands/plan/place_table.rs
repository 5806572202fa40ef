//! `forebay plan place TABLE --from-load`: plans the placement of a table of a cluster as it is
//! now.

use forebay_cluster::NodeId;
use forebay_cluster::model::Model;
use forebay_cluster::planning::{
    BATCH_BYTES, KnownLoad, PlaceByLoad, PlaceProposal, PlacedPartition, SPARE, Summaries,
    propose_place, propose_place_reads,
};
use forebay_cluster::traffic::TrafficWindow;
use forebay_engine::{Bound, TableName};
use forebay_plan::draw::{Picture, Stage, svg, text};
use forebay_plan::placement::load_plan::LoadLimits;
use serde_json::{Value, json};

use super::from_load::{MeasuredCluster, measured, shown_window};
use super::place_args::Place;
use crate::commands::cluster::paces;
use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;

/// The most replicas that are copied by default.
pub const MOST_COPIES: usize = 20;

pub fn run(
    table: &TableName,
    window: TrafficWindow,
    args: &Place,
    context: &Context,
) -> anyhow::Result<Outcome> {
    if args.scheme.is_some() || args.objective.is_some() {
        wrong!(
            "--scheme and --objective go with --input: a table of a cluster is placed with as few copies as do"
        );
    }
    let beside = args.output.clone().unwrap_or_default();
    super::check_drawing(&beside, args.draw.as_deref())?;
    let MeasuredCluster {
        model,
        survey,
        reads,
        batch,
    } = measured(table, context)?;
    let by = PlaceByLoad {
        table,
        window,
        limits: LoadLimits {
            most_copies: args.copies.unwrap_or(MOST_COPIES),
            share: args.share,
        },
    };
    let most_bytes = args.batch.unwrap_or(BATCH_BYTES);
    let known = KnownLoad {
        summaries: &Summaries::new(),
        reads: &reads,
        survey: &survey,
    };
    let mut made = match &batch {
        None if args.spare.is_some() => {
            wrong!(
                "--spare is about batch tables: a live table has as many replicas of each partition"
            )
        }
        None => propose_place(&model, known, &by, most_bytes)?,
        Some(summaries) => {
            let known = KnownLoad { summaries, ..known };
            let spare = args.spare.map_or(SPARE, |share| 1.0 + share);
            propose_place_reads(&model, known, &by, spare, most_bytes)?
        }
    };
    made.proposal
        .estimate(&model, &paces(&model, &context.node_pages()?));
    if let Some(path) = &args.output {
        let plan = serde_json::to_string_pretty(&made.proposal.plan)?;
        super::write_files(&[(path.clone(), plan)])?;
    }
    let shown = ShownPlacement {
        model: &model,
        by,
        made: &made,
        is_live: batch.is_none(),
    };
    if let Some(path) = &args.draw {
        super::write(&beside, &[(path.clone(), svg(&shown.picture()))])?;
    }
    context.print(&shown.object(), || shown.text())?;
    Ok(Outcome::Done)
}

/// A plan in its printed form.
struct ShownPlacement<'a> {
    model: &'a Model,
    by: PlaceByLoad<'a>,
    made: &'a PlaceProposal,
    is_live: bool,
}

impl ShownPlacement<'_> {
    fn names(&self, nodes: &[NodeId]) -> Vec<String> {
        let names = nodes.iter().map(|node| self.model.node_name(*node));
        names.collect()
    }

    /// Returns a load as a share of the mean load of a node.
    fn share(&self, load: f64) -> f64 {
        match self.made.placed.mean > 0.0 {
            true => load / self.made.placed.mean,
            false => 0.0,
        }
    }

    fn object(&self) -> Value {
        let placed = &self.made.placed;
        let (hottest_before, hottest_after) = placed.hottest();
        let names = self.names(&self.made.nodes);
        let loads = names.iter().zip(placed.before.iter().zip(&placed.after));
        let nodes = loads
            .map(|(name, (before, after))| json!({"node": name, "before": before, "after": after}));
        let partitions = self.made.partitions.iter().map(|one| self.partition(one));
        json!({
            "table": self.by.table,
            "window": shown_window(self.by.window),
            "nodes": nodes.collect::<Vec<Value>>(),
            "mean": placed.mean,
            "bound": placed.bound,
            "hottest_before": hottest_before,
            "hottest_after": hottest_after,
            "handed_over": placed.handed_over,
            "copies": placed.copies,
            "copied_bytes": self.made.proposal.copied_bytes(),
            "drops": placed.drops,
            "batches": self.made.proposal.plan.batches.len(),
            "expected_s": self.made.proposal.expected.map(|time| time.as_secs_f64()),
            "partitions": partitions.collect::<Vec<Value>>(),
            "note": self.note(),
        })
    }

    fn partition(&self, one: &PlacedPartition) -> Value {
        json!({
            "partition": one.partition,
            "reads_per_minute": one.rate.reads,
            "writes_per_minute": one.rate.writes,
            "bytes": one.bytes,
            "before": self.names(&one.before),
            "after": self.names(&one.after),
            "cut_at": one.split_at.as_ref().map(flag),
        })
    }

    fn note(&self) -> Option<String> {
        let thinned = self.made.proposal.thinned.as_ref()?;
        Some(thinned.words(self.model))
    }

    fn figures(&self) -> String {
        let placed = &self.made.placed;
        let led = match (self.is_live, placed.handed_over, placed.drops) {
            (true, 1, _) => "1 partition gets another leader".to_owned(),
            (true, count, _) => format!("{count} partitions get another leader"),
            (false, _, 1) => "1 replica goes".to_owned(),
            (false, _, count) => format!("{count} replicas go"),
        };
        let copies = match placed.copies {
            1 => "1 replica is copied".to_owned(),
            count => format!("{count} replicas are copied"),
        };
        format!("{led}, {copies}; {}", self.made.proposal.figures())
    }

    fn balance(&self) -> String {
        let placed = &self.made.placed;
        let (before, after) = placed.hottest();
        format!(
            "the hottest node has {:.2} x the mean load, and is to have {:.2} x; with these partitions no placement \
             comes below {:.2} x",
            self.share(before),
            self.share(after),
            self.share(placed.bound)
        )
    }

    fn picture(&self) -> Picture {
        let placed = &self.made.placed;
        let number = |node: NodeId| {
            let place = self.made.nodes.iter().position(|known| *known == node);
            place.unwrap_or_default() as u32
        };
        let copies = self.made.proposal.copies.iter();
        let flows = copies
            .filter_map(|copy| Some((number(copy.from?), number(copy.to), copy.bytes as f64)));
        let (table, window) = (self.by.table, shown_window(self.by.window));
        Picture {
            title: format!("{table} by the load of {window}"),
            lines: vec![self.figures(), self.balance()],
            stages: vec![
                Stage::new("load before", 0, placed.before.clone()),
                Stage::new("load after", 0, placed.after.clone()),
            ],
            flows: Picture::sum_flows(flows),
            unit: "bytes".to_owned(),
            names: self.names(&self.made.nodes),
            ..Picture::default()
        }
    }

    fn text(&self) -> String {
        let mut shown = text(&self.picture(), super::WIDTH);
        for one in &self.made.partitions {
            let Some(at) = &one.split_at else { continue };
            shown += &format!(
                "note: partition {} alone is too much for any node, whichever leads it: forebay cluster split {} {} \
                 splits it in two\n",
                one.partition,
                self.by.table,
                flag(at)
            );
        }
        if let Some(note) = self.note() {
            shown += &format!("note: {note}\n");
        }
        if self.made.proposal.plan.batches.is_empty() {
            shown += "nothing is to be changed\n";
        }
        let reads = self.made.partitions.iter().map(|one| one.rate.reads).sum();
        let writes = self.made.partitions.iter().map(|one| one.rate.writes).sum();
        let (reads, writes) = (human::count(reads), human::count(writes));
        shown
            + &match self.is_live {
                true => format!("measured: {reads} reads and {writes} writes a minute\n"),
                false => format!("measured: {reads} reads a minute\n"),
            }
    }
}

/// Returns a split point as `cluster split` takes it.
fn flag(at: &Bound) -> String {
    match at {
        Bound::Slot(slot) => format!("--slot {slot}"),
        Bound::Key(key) => format!("--at '{}'", String::from_utf8_lossy(key)),
    }
}
