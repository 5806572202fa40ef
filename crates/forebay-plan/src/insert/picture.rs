//! Draws an insert plan as a picture.

use super::outcome::{InsertPlan, RegionPlan};
use super::request::Operation;
use crate::draw::{CostBar, Picture, PictureRows, SplitBar, Stage, TimeUnit, short};
use crate::{Action, NodePrice};

impl InsertPlan {
    /// Returns one picture for the request's own machines and one for each further region.
    pub fn pictures(&self) -> Vec<Picture> {
        let regions = std::iter::once(&self.own).chain(&self.regions);
        regions.map(|region| self.picture(region)).collect()
    }

    fn picture(&self, region: &RegionPlan) -> Picture {
        let name = self.name.as_deref().unwrap_or("Bulk insert");
        let title = match &region.name {
            Some(region) => format!("{name}, region {region}"),
            None => name.to_owned(),
        };
        let transfers = region
            .plan
            .steps
            .iter()
            .filter_map(|step| match step.action {
                Action::Move { from, to, .. } => Some((from, to, step.records)),
                _ => None,
            });
        Picture {
            verdict: verdict(region),
            lines: self.lines(region),
            steps: self.steps(region),
            title,
            costs: costs(region),
            timeline: region.timeline.clone(),
            splits: self.split_bars(region),
            stages: self.stages(region),
            flows: Picture::sum_flows(transfers),
            unit: "records".to_owned(),
            sizes: false,
            rows: PictureRows::Nodes,
            names: region
                .machine_names
                .iter()
                .map(|name| name.clone().unwrap_or_default())
                .collect(),
        }
    }

    fn stages(&self, region: &RegionPlan) -> Vec<Stage> {
        let nodes = &region.plan.price.nodes;
        let stage = |title: &str, group, of: fn(&NodePrice) -> f64| {
            Stage::new(title, group, nodes.iter().map(of).collect())
        };
        let mut stages = vec![
            stage("records before", 0, |node| node.before),
            stage("records after moves", 0, |node| node.after),
        ];
        if self.operation == Operation::Insert {
            let all = |node: &NodePrice| node.after + node.insert_after;
            stages.push(stage("records after inserts", 0, all));
        }
        let changed = match self.operation {
            Operation::Insert => ["inserts without plan", "inserts with plan"],
            Operation::Update => ["updates without plan", "updates with plan"],
            Operation::Delete => ["deletes without plan", "deletes with plan"],
        };
        stages.extend([
            stage(changed[0], 1, |node| node.insert_before),
            stage(changed[1], 1, |node| node.insert_after),
        ]);
        stages
    }

    /// Returns the split partitions, those with the most pieces first.
    fn split_bars(&self, region: &RegionPlan) -> Vec<SplitBar> {
        let mut pieces = std::collections::BTreeMap::<u32, SplitBar>::new();
        for (piece, to) in self.partitions.iter().zip(&region.dest) {
            let table = piece.table.as_ref().map(|table| format!("{table}: "));
            let bar = pieces.entry(piece.of).or_insert_with(|| SplitBar {
                title: format!("{}partition {}", table.unwrap_or_default(), piece.of),
                pieces: Vec::new(),
            });
            bar.pieces.push((piece.e + piece.n, to.machines().to_vec()));
        }
        let mut bars: Vec<SplitBar> = pieces.into_values().collect();
        bars.retain(|bar| bar.pieces.len() > 1);
        bars.sort_by_key(|bar| std::cmp::Reverse(bar.pieces.len()));
        bars
    }

    /// Returns the splits, a line for each partition, and the moves in the plan's order.
    fn steps(&self, region: &RegionPlan) -> Vec<String> {
        let mut pieces = std::collections::BTreeMap::<u32, Vec<u32>>::new();
        for (piece, number) in self.partitions.iter().zip(0..) {
            pieces.entry(piece.of).or_default().push(number);
        }
        pieces.retain(|_, numbers| numbers.len() > 1);
        let splits = pieces.iter().map(|(of, numbers)| {
            let (pieces, numbers) = (numbers.len(), runs_of_numbers(numbers));
            format!("partition {of} is split into {pieces}: {numbers}")
        });
        let name = |machine: u32| {
            let name = region.machine_names.get(machine as usize);
            name.cloned()
                .flatten()
                .unwrap_or_else(|| machine.to_string())
        };
        let moves = region
            .plan
            .steps
            .iter()
            .filter_map(|step| match step.action {
                Action::Move {
                    partition,
                    from,
                    to,
                } => Some(format!(
                    "partition {partition} moves from {} to {}: {} records",
                    name(from),
                    name(to),
                    short(step.records)
                )),
                _ => None,
            });
        splits.chain(moves).collect()
    }

    fn lines(&self, region: &RegionPlan) -> Vec<String> {
        let RegionPlan {
            cost,
            cost_no_moves,
            lower_bound,
            ..
        } = region;
        let above = if *lower_bound > 0.0 {
            (cost / lower_bound - 1.0) * 100.0
        } else {
            0.0
        };
        let saved = match 1.0 - cost / cost_no_moves.max(f64::MIN_POSITIVE) {
            part if part < 0.0 => format!("{:.1}% above", -100.0 * part),
            part => format!("{:.1}% below", 100.0 * part),
        };
        let moved: f64 = region
            .plan
            .price
            .nodes
            .iter()
            .map(|node| node.moved_in)
            .sum();
        let partitions = region.dest.len();
        let replicas: usize = region.dest.iter().map(|to| to.machines().len()).sum();
        let replicas = match replicas == partitions {
            true => String::new(),
            false => format!(" ({replicas} replicas)"),
        };
        let mut lines = vec![
            format!(
                "{}{replicas} on {}, {}, {} ({} records)",
                counted(partitions, "partition"),
                counted(region.machines, "node"),
                counted(self.splits.len(), "split"),
                counted(region.moves.len(), "move"),
                short(moved)
            ),
            format!(
                "cost {} (moving {} + inserting {}), {saved} no moves at {}; no plan \
                 with these pieces comes below {}, so this one is at most {above:.2}% above the best",
                short(*cost),
                short(region.plan.price.moving),
                short(region.plan.price.insert),
                short(*cost_no_moves),
                short(*lower_bound)
            ),
        ];
        if !self.oversize.is_empty() {
            lines.push(format!(
                "{} will exceed the limit: there are too few distinct keys among the samples",
                counted(self.oversize.len(), "partition")
            ));
        }
        lines
    }
}

/// Says how long the insert takes with the plan and without it, if bandwidths are known.
fn verdict(region: &RegionPlan) -> String {
    let timeline = region.timeline.as_ref();
    let timed = timeline.filter(|timeline| timeline.unit == TimeUnit::Seconds);
    let Some((timeline, without)) = timed.and_then(|it| Some((it, it.without?))) else {
        return String::new();
    };
    let (steps, end) = (timeline.steps_end, timeline.end());
    format!(
        "about {} s at the bandwidths given (moves {} s, then inserts {} s); without the plan {} s",
        short(end),
        short(steps),
        short(end - steps),
        short(without)
    )
}

/// Formats ascending numbers, with consecutive ones as `10 to 18`.
fn runs_of_numbers(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let words = runs.map(|run| match run {
        [first, _, .., last] => format!("{first} to {last}"),
        run => run
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

fn costs(region: &RegionPlan) -> Vec<CostBar> {
    let price = &region.plan.price;
    let bar = |title: &str, parts: Vec<(&'static str, f64)>| CostBar {
        title: title.to_owned(),
        parts,
    };
    vec![
        bar("without plan", vec![("inserts", region.cost_no_moves)]),
        bar(
            "this plan",
            vec![("moves", price.moving), ("inserts", price.insert)],
        ),
        bar("no plan below", vec![("bound", region.lower_bound)]),
    ]
}
