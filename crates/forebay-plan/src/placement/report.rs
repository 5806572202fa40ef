//! The result of `forebay plan place`: a placement, its measures beside the current ones, and the
//! plan.

use std::str::FromStr;

use serde::Serialize;

use super::cluster::PlacementProblem;
use super::layout::Placement;
use super::measure::{self, Measures, measure};
use super::migrate::{self, ExceededLimit, Transfer, TransferOrder, migrate};
use super::replicas::Objective;
use super::schemes::{self, Scheme};
use crate::InputError;
use crate::draw::{Picture, PictureRows, Stage, short, timeline_of_copies};
use crate::plan::Plan;

/// The way a placement is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// From nothing.
    Scheme(Scheme),
    /// From the current placement, with the least data shipped.
    Migrate,
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "migrate" {
            return Ok(Self::Migrate);
        }
        text.parse().map(Self::Scheme)
    }
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Scheme(scheme) => scheme.name(),
            Self::Migrate => "migrate",
        }
    }
}

/// A placement, its measures, and what has to be shipped for it.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub scheme: &'static str,
    pub placement: Placement,
    /// The slots of each partition.
    #[serde(rename = "R")]
    pub replicas: Vec<usize>,
    pub capacity: f64,
    /// The copies that are not in the current placement; all, if none was given.
    pub copies_to_ship: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_to_ship: Option<u64>,
    pub measures: Measures,
    /// The capacity under the present load, if the placement is made for a predicted one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_now: Option<f64>,
    /// The measures of the current placement under the same load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<Measures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<Goal>,
    /// The numbers of steps that unavoidably exceed limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exceeded: Option<ExceededLimit>,
    /// The partitions that no node has any more, and the nodes that have to restore them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restore: Vec<RestoredPartition>,
    /// The plan from the current placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    #[serde(skip)]
    picture: Picture,
    #[serde(skip)]
    replica_picture: Picture,
}

/// The goal of a migration.
#[derive(Debug, Clone, Serialize)]
pub struct Goal {
    /// The wanted share of the best capacity.
    pub share: f64,
    /// The best capacity: a bound for all placements. If slots do not allow that share of it, the
    /// best that was found.
    pub best_capacity: f64,
    /// Whether the share is one of the bound.
    pub reached: bool,
    /// No migration that reaches as much ships less: bytes if sizes were given, otherwise copies.
    pub least_to_ship: u128,
}

/// A partition that no live node has.
#[derive(Debug, Clone, Serialize)]
pub struct RestoredPartition {
    pub partition: u32,
    pub to: u32,
}

/// Plans a placement. `share` is the share of the best capacity that a migration has to reach.
pub fn report(
    cluster: &PlacementProblem,
    method: Method,
    objective: Objective,
    share: f64,
) -> Result<Report, InputError> {
    let (placement, order, goal) = match method {
        Method::Scheme(scheme) => placed_by_scheme(cluster, scheme, objective)?,
        Method::Migrate => migrated(cluster, share, objective)?,
    };
    let (bytes, copies) = match &cluster.current {
        Some(_) => (order.shipped(cluster), order.copied().count()),
        None => migrate::shipped(cluster, &placement),
    };
    let transfers = &order.transfers;
    let measures = measure(cluster, &placement, &cluster.loads);
    let now = cluster.now.as_ref();
    let now = now.map(|loads| measure::capacity(cluster, &placement, loads));
    let before = cluster.current.as_ref();
    let before = before.map(|current| measure(cluster, current, &cluster.loads));
    let plan = before.as_ref().map(|_| {
        let least = goal.as_ref().map_or(0, |goal| goal.least_to_ship);
        migrate::plan(cluster, transfers, &placement, least)
    });
    let mut report = Report {
        name: cluster.name.clone(),
        scheme: method.name(),
        replicas: placement.replicas(cluster.partitions()),
        capacity: measures.capacity,
        copies_to_ship: copies,
        bytes_to_ship: cluster
            .sizes
            .as_ref()
            .map(|_| u64::try_from(bytes).unwrap_or(u64::MAX)),
        measures,
        capacity_now: now,
        current: before,
        migration: goal,
        exceeded: Some(order.exceeded).filter(|exceeded| *exceeded != ExceededLimit::default()),
        restore: restored(transfers),
        plan,
        picture: Picture::default(),
        replica_picture: replica_picture(cluster, &placement),
        placement,
    };
    report.picture = node_picture(cluster, &report, transfers);
    Ok(report)
}

type Planned = (Placement, TransferOrder, Option<Goal>);

fn placed_by_scheme(
    cluster: &PlacementProblem,
    scheme: Scheme,
    objective: Objective,
) -> Result<Planned, InputError> {
    let placement = schemes::place(cluster, scheme, objective)?;
    let Some(current) = &cluster.current else {
        return Ok((placement, TransferOrder::default(), None));
    };
    let placement = migrate::relabel(cluster, current, placement);
    let order = migrate::in_order(cluster, &placement)?;
    Ok((placement, order, None))
}

fn migrated(
    cluster: &PlacementProblem,
    share: f64,
    objective: Objective,
) -> Result<Planned, InputError> {
    let migration = migrate(cluster, share, objective)?;
    let goal = Goal {
        share,
        best_capacity: migration.best,
        reached: migration.reached,
        least_to_ship: migration.least_shipped,
    };
    Ok((migration.placement, migration.order, Some(goal)))
}

fn restored(transfers: &[Transfer]) -> Vec<RestoredPartition> {
    let nowhere = |transfer: &Transfer| match *transfer {
        Transfer::Copy {
            partition,
            from: None,
            to,
        } => Some(RestoredPartition { partition, to }),
        _ => None,
    };
    transfers.iter().filter_map(nowhere).collect()
}

impl Report {
    /// Draws for a file: the nodes' load before and after, the replicas of partitions, and the
    /// flows.
    pub fn picture(&self) -> Picture {
        let mut picture = self.picture.clone();
        picture.stages.extend(self.replica_picture.stages.clone());
        picture
    }

    /// Draws for a terminal: the nodes first, then the partitions, each with as many lines as it
    /// needs.
    pub fn pictures(&self) -> [Picture; 2] {
        [self.picture.clone(), self.replica_picture.clone()]
    }
}

fn node_picture(cluster: &PlacementProblem, report: &Report, transfers: &[Transfer]) -> Picture {
    let mut stages = Vec::new();
    let routed = |placement: &Placement| {
        let whole: f64 = cluster.loads.iter().sum();
        let loads = measure::routed_loads(cluster, placement, &cluster.loads);
        loads
            .into_iter()
            .map(|share| share * whole)
            .collect::<Vec<f64>>()
    };
    if let Some(current) = &cluster.current {
        stages.push(Stage::new("load before", 0, routed(current)));
    }
    stages.push(Stage::new("load after", 0, routed(&report.placement)));
    let even = measure::split_loads(&report.placement, &cluster.loads);
    stages.push(Stage::new("after, split evenly", 0, even));
    let distinct = |node| report.placement.distinct(node).count() as f64;
    let distinct = (0..cluster.nodes.len()).map(distinct).collect();
    stages.push(Stage::new("partitions after", 1, distinct));
    let sized = cluster.sizes.is_some();
    let flow = |transfer: &Transfer| match *transfer {
        Transfer::Copy {
            partition,
            from: Some(from),
            to,
        } => Some((from, to, cluster.size(partition) as f64)),
        _ => None,
    };
    let name = cluster
        .name
        .as_deref()
        .map_or(String::new(), |name| format!("{name}: "));
    Picture {
        title: format!("{name}placement by {}", report.scheme),
        lines: lines(cluster, report),
        stages,
        flows: Picture::sum_flows(transfers.iter().filter_map(flow)),
        unit: if sized { "bytes" } else { "copies" }.to_owned(),
        timeline: report.plan.as_ref().and_then(|plan| {
            let unit = if sized { "byte" } else { "copy" };
            timeline_of_copies(plan, cluster.nodes.len(), unit)
        }),
        ..Picture::default()
    }
}

fn lines(cluster: &PlacementProblem, report: &Report) -> Vec<String> {
    let measures = &report.measures;
    let mut lines = vec![format!(
        "{}: capacity {:.4} of the ideal; split evenly, the busiest node has {:.3} x the mean; \
         {:.1} different partitions a node",
        report.scheme,
        report.capacity,
        measures.even_split_max_to_mean,
        measures.footprint.mean_partitions
    )];
    if let Some(before) = &report.current {
        let bytes = report
            .bytes_to_ship
            .map(|bytes| format!(" ({} bytes)", short(bytes as f64)));
        lines.push(format!(
            "before: capacity {:.4}; to ship: {} copies{}",
            before.capacity,
            report.copies_to_ship,
            bytes.unwrap_or_default()
        ));
    }
    if let Some(goal) = &report.migration {
        let unit = if cluster.sizes.is_some() {
            "bytes"
        } else {
            "copies"
        };
        let bound = if goal.reached {
            ""
        } else {
            " (the best that was found)"
        };
        lines.push(format!(
            "wanted: {:.4} of the best capacity, {:.4}{bound}; no migration to there ships less than \
             {} {unit}",
            goal.share,
            goal.best_capacity,
            short(goal.least_to_ship as f64)
        ));
    }
    if let Some(now) = report.capacity_now {
        lines.push(format!("under the present load: capacity {now:.4}"));
    }
    let mut failures = vec![("node", &measures.node_failure)];
    failures.extend(
        measures
            .zone_failure
            .as_ref()
            .map(|failure| ("zone", failure)),
    );
    for (what, failure) in failures {
        lines.push(format!(
            "if a {what} fails: at worst {:.2} % of the load is held by nobody else ({}), the others' \
             capacity is {:.4} ({})",
            failure.lost_load * 100.0,
            failure.lost_load_of,
            failure.capacity,
            failure.capacity_of
        ));
    }
    if !report.restore.is_empty() {
        let count = report.restore.len();
        lines.push(format!(
            "{count} partitions are on no node that lives: restore them first"
        ));
    }
    lines
}

fn replica_picture(cluster: &PlacementProblem, placement: &Placement) -> Picture {
    let count = |placement: &Placement| {
        let replicas = placement.replicas(cluster.partitions());
        replicas
            .into_iter()
            .map(|count| count as f64)
            .collect::<Vec<f64>>()
    };
    let mut stages = vec![Stage::new(
        "load of each partition",
        2,
        cluster.loads.clone(),
    )];
    if let Some(current) = &cluster.current {
        stages.push(Stage::new("replicas before", 3, count(current)));
    }
    stages.push(Stage::new("replicas after", 3, count(placement)));
    Picture {
        stages,
        rows: PictureRows::Partitions,
        ..Picture::default()
    }
}
