//! Plans that prepare a live table for a bulk insert.
//!
//! A plan splits and moves the table's partitions so that the nodes share the work equally
//! (docs/papers/planned-bulk-insertion.md). Every replica of a partition receives what is loaded.
//! So each replica counts as one that is inserted into, on its own node.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_engine::live::PartitionSize;
use forebay_engine::{Bound, Bounds, MAX_PARTITIONS, PartitionId, TableName};
use forebay_plan::Key;
use forebay_plan::insert::{
    Holders, InsertPlan, MachineList, MachineSpec, Mode, PieceReport, Request, TableSpec, plan,
};
use forebay_run::hash::KeyHasher;

use super::{
    BATCH_BYTES, Paces, PlanningError, Proposal, Summaries, price, refuse_while_moving, surveyed,
};
use crate::ids::NodeId;
use crate::model::{
    GroupEntry, LayoutName, ListChange, Model, MoveBatch, NodeEntry, PlanGoal, SplitChange, Survey,
};

/// The number of partitions for each node, if no partition size is given.
const PIECES_A_NODE: u64 = 4;
/// The limits of the partition size that is then chosen.
const LEAST_BYTES: u64 = 16 << 20;
const MOST_BYTES: u64 = 1 << 30;
/// The cost of moving a partition, whatever its size, as a share of what one node receives. Splits
/// and hand-overs take time, and writers wait meanwhile. Without this cost the planner would split
/// nearly empty partitions for the last percent.
const HANDOVER_SHARE: f64 = 0.02;
/// The number of nodes that one batch is meant for. Batches run one after the other.
const NODES_A_BATCH: usize = 10;
/// The share of the cost without moves that a plan with moves may have at most.
const WORTH: f64 = 0.98;
/// The factor by which the time saved must exceed the time spent. Both are estimates.
const MARGIN: f64 = 1.25;
/// The bytes that a node receives in a second, if no node has copied anything yet. The value is
/// rather low: an unneeded plan costs seconds, and a missing one may cost hours.
const UNKNOWN_PACE: u64 = 16 << 20;
/// The pace of a slow node, in bytes a second. A plan that saves nothing at this pace saves nothing
/// at any.
pub const SLOW_PACE: u64 = 1 << 20;

/// The rows to insert into one table.
#[derive(Debug, Clone, Copy)]
pub struct BulkRows<'a> {
    pub table: &'a TableName,
    /// A sample of the keys. Each sampled key represents the same number of rows.
    pub keys: &'a [Vec<u8>],
    pub rows: u64,
    /// The bytes of keys and values.
    pub bytes: u64,
}

/// A bulk insert, and the settings of its plan.
#[derive(Debug, Clone, Copy)]
pub struct BulkInsert<'a> {
    /// A table and its secondary indexes. Their partitions are one pool (the paper, 5.1).
    pub into: &'a [BulkRows<'a>],
    /// The most bytes of a partition. `None`: either as many bytes as give four partitions for each
    /// node, from 16 MiB to 1 GiB, or one partition for each node. The planner takes the size that
    /// saves more time.
    pub partition_bytes: Option<u64>,
    /// The most bytes that a batch copies, unless a single place has more. `None`: [`BATCH_BYTES`]
    /// for each ten nodes or part of ten.
    pub batch_bytes: Option<u64>,
    /// The cost of moving a record, where inserting one costs 1.
    pub move_price: f64,
    pub mode: Mode,
}

/// A plan in the planner's terms and in the cluster's.
#[derive(Debug)]
pub struct InsertProposal {
    pub insert: InsertPlan,
    pub proposal: Proposal,
    /// The most bytes of a piece that can move by itself, as far as its keys differ.
    pub partition_bytes: u64,
    /// The mean bytes of a record's key and value.
    pub record_bytes: f64,
    pub verdict: Verdict,
}

/// The time that a plan saves and the time that it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The time that the busiest node saves on the inserted rows.
    pub saves: Duration,
    /// The time for splits and moves.
    pub takes: Duration,
}

impl Verdict {
    /// Returns whether the plan clearly saves more time than it takes.
    pub fn is_worth(&self) -> bool {
        self.saves > self.takes.mul_f64(MARGIN)
    }

    fn gain_s(&self) -> f64 {
        self.saves.as_secs_f64() - self.takes.as_secs_f64()
    }
}

/// Returns the pace of the slowest node, in bytes a second.
pub fn slowest_pace(paces: &Paces) -> u64 {
    paces.values().min().copied().unwrap_or(UNKNOWN_PACE)
}

impl InsertProposal {
    /// Estimates the plan's duration by the nodes' last paces, and whether the plan is worthwhile.
    fn estimate(&mut self, model: &Model, paces: &Paces) {
        self.proposal.estimate(model, paces);
        let slowest = slowest_pace(paces);
        let own = &self.insert.own;
        let saved_bytes = (own.cost_no_moves - own.s_max).max(0.0) * self.record_bytes;
        self.verdict = Verdict {
            saves: Duration::from_secs_f64(saved_bytes / slowest.max(1) as f64),
            takes: self
                .proposal
                .time(model, paces, Some(slowest))
                .unwrap_or_default(),
        };
    }
}

/// The input of a plan: the cluster, its batch tables, the sizes of live partitions, and the nodes'
/// last paces.
#[derive(Debug, Clone, Copy)]
pub struct KnownCluster<'a> {
    pub model: &'a Model,
    pub summaries: &'a Summaries,
    pub survey: &'a Survey,
    pub paces: &'a Paces,
}

/// Makes a plan. `over` says when the search of `--mode polish` has to end.
///
/// REQUIRES: something is to be inserted into at least one table, and no table is listed twice.
pub fn propose_insert(
    known: &KnownCluster<'_>,
    bulk: &BulkInsert<'_>,
    over: &mut dyn FnMut() -> bool,
) -> Result<InsertProposal, PlanningError> {
    let pool = InsertPool::of(known.model, known.survey, bulk)?;
    let mut propose = |partition_bytes, mode| {
        let insert = pool.plan(partition_bytes, mode, over)?;
        pool.proposal(known, insert, partition_bytes)
    };
    let mut sizes = pool.sizes().into_iter();
    let first = sizes.next().unwrap_or(MOST_BYTES);
    let Some(other) = sizes.next() else {
        return propose(first, bulk.mode);
    };
    let best = match (propose(first, Mode::Fast), propose(other, Mode::Fast)) {
        (Ok(fine), Ok(coarse)) if coarse.verdict.gain_s() > fine.verdict.gain_s() => coarse,
        // Fine pieces may exceed the most partitions of a table.
        (Err(_), Ok(coarse)) => coarse,
        (fine, _) => fine?,
    };
    match bulk.mode {
        Mode::Fast => Ok(best),
        mode => propose(best.partition_bytes, mode),
    }
}

/// A partition after the splits, with its nodes and the desired nodes of its replicas, by the
/// planner's numbers.
struct PlacedPiece<'a> {
    table: &'a TableName,
    /// The partition that it is a piece of, by the planner's number.
    of: usize,
    bounds: Bounds,
    old: &'a [NodeId],
    new: &'a [u32],
}

/// The tables that receive rows, and the nodes that may hold them.
struct InsertPool<'m, 'b> {
    bulk: &'b BulkInsert<'b>,
    tables: Vec<KnownTable<'m, 'b>>,
    machines: Vec<&'m NodeEntry>,
    drained: Vec<NodeId>,
}

/// A live table with its groups and their known sizes.
struct KnownTable<'m, 'b> {
    rows: &'b BulkRows<'b>,
    groups: Vec<(&'m GroupEntry, &'m [NodeId])>,
    sizes: BTreeMap<PartitionId, PartitionSize>,
}

impl<'m, 'b> InsertPool<'m, 'b> {
    fn of(
        model: &'m Model,
        survey: &Survey,
        bulk: &'b BulkInsert<'b>,
    ) -> Result<Self, PlanningError> {
        refuse_while_moving(model)?;
        let tables = bulk.into.iter();
        let tables = tables.map(|rows| KnownTable::of(model, survey, rows));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        let groups = || tables.iter().flat_map(|table| &table.groups);
        let holds = |node: &NodeId| groups().any(|(_, list)| list.contains(node));
        let drained: Vec<NodeId> = model.work.drained.iter().copied().collect();
        let machines = model.all_nodes().filter(|node| {
            holds(&node.id) || (node.is_up() && !model.work.drained.contains(&node.id))
        });
        let mut machines: Vec<&NodeEntry> = machines.collect();
        machines.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self {
            bulk,
            tables,
            machines,
            drained,
        })
    }

    /// Returns the bytes and the records after the insert.
    fn after(&self) -> (u64, u64) {
        let each = self.tables.iter().map(KnownTable::after);
        each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// Returns the partition sizes to try: the given one, or both a fine one and one partition a
    /// node. One partition a node spreads the rows less evenly, and needs fewer splits.
    fn sizes(&self) -> Vec<u64> {
        if let Some(chosen) = self.bulk.partition_bytes {
            return vec![chosen];
        }
        let a_node = self.after().0 / self.machines.len().max(1) as u64;
        let fine = (a_node / PIECES_A_NODE).clamp(LEAST_BYTES, MOST_BYTES);
        match a_node.min(MOST_BYTES) > fine {
            true => vec![fine, a_node.min(MOST_BYTES)],
            false => vec![fine],
        }
    }

    fn proposal(
        &self,
        known: &KnownCluster<'_>,
        insert: InsertPlan,
        partition_bytes: u64,
    ) -> Result<InsertProposal, PlanningError> {
        let model = known.model;
        let batches = self.batches(model, &insert)?;
        let mut summaries = surveyed(model, known.survey, &batches);
        summaries.extend(known.summaries.clone());
        let most_bytes = self.bulk.batch_bytes.unwrap_or_else(|| {
            let tens = self.machines.len().div_ceil(NODES_A_BATCH).max(1);
            BATCH_BYTES * tens as u64
        });
        let priced = price(model, &summaries, batches, Some(most_bytes));
        let mut tables = self.bulk.into.iter().map(|rows| rows.table.clone());
        let table = tables.next().ok_or(PlanningError::NoTables)?;
        let goal = PlanGoal::Insert {
            table,
            with: tables.collect(),
        };
        let (bytes, records) = self.after();
        let mut made = InsertProposal {
            partition_bytes,
            record_bytes: mean_bytes(bytes, records),
            verdict: Verdict::default(),
            insert,
            proposal: Proposal::of(model, priced, goal),
        };
        made.estimate(model, known.paces);
        Ok(made)
    }

    /// Makes the planner's plan. If moves gain hardly anything, plans without moves.
    fn plan(
        &self,
        partition_bytes: u64,
        mode: Mode,
        over: &mut dyn FnMut() -> bool,
    ) -> Result<InsertPlan, PlanningError> {
        let plan = |request: &Request, over: &mut dyn FnMut() -> bool| {
            plan(request, mode, over).map_err(|error| match error.path.as_str() {
                "pi" => PlanningError::Planner(format!(
                    "{}: give --partition-bytes more",
                    error.problem
                )),
                _ => PlanningError::Planner(error.to_string()),
            })
        };
        let mut request = self.request(partition_bytes);
        let made = plan(&request, over)?;
        if made.own.moves.is_empty() || made.own.cost <= WORTH * made.own.cost_no_moves {
            return Ok(made);
        }
        if let MachineList::Each(machines) = &mut request.machines {
            machines
                .iter_mut()
                .for_each(|machine| machine.gives = false);
        }
        plan(&request, over)
    }

    fn request(&self, partition_bytes: u64) -> Request {
        let (bytes, records) = self.after();
        let machine = |node: &&NodeEntry| MachineSpec {
            name: Some(node.name.to_string()),
            zone: Some(node.zone.to_string()),
            takes: node.is_up() && !self.drained.contains(&node.id),
            gives: node.is_up(),
            ..MachineSpec::default()
        };
        let machines = self.machines.iter().map(machine).collect();
        let number = |node: &NodeId| {
            let place = self.machines.iter().position(|machine| machine.id == *node);
            place.unwrap_or_default() as u32
        };
        let names: Vec<&str> = self
            .tables
            .iter()
            .map(|table| table.rows.table.as_str())
            .collect();
        let rows: u64 = self.bulk.into.iter().map(|rows| rows.rows).sum();
        let specs = self.tables.iter().map(|table| table.spec(number));
        Request {
            name: Some(format!("bulk insert into {}", names.join(", "))),
            pi_bytes: Some(partition_bytes as f64),
            record_bytes: mean_bytes(bytes, records),
            move_price: self.bulk.move_price,
            handover_price: rows as f64 / self.machines.len().max(1) as f64 * HANDOVER_SHARE,
            joins: true,
            ..Request::of_tables(machines, specs.collect())
        }
    }

    /// Returns the batches: first the splits, then one batch for each part that moves.
    fn batches(&self, model: &Model, insert: &InsertPlan) -> Result<Vec<MoveBatch>, PlanningError> {
        let mut parts = self.pieces(insert);
        parts.sort_by(|a, b| (a.of, &a.bounds.lower).cmp(&(b.of, &b.bounds.lower)));
        let splits = self.splits(&parts)?;
        let changes = parts.into_iter().map(|part| self.change(model, part));
        let changes: Vec<ListChange> = changes.flatten().collect();
        let mut batches = Vec::new();
        if !splits.is_empty() {
            batches.push(MoveBatch {
                splits,
                ..MoveBatch::default()
            });
        }
        batches.extend(changes.into_iter().map(|change| MoveBatch {
            lists: vec![change],
            ..MoveBatch::default()
        }));
        Ok(batches)
    }

    /// Returns the splits that are needed so that parts of a partition can be on different nodes.
    fn splits(&self, parts: &[PlacedPiece<'_>]) -> Result<Vec<SplitChange>, PlanningError> {
        let mut splits: BTreeMap<&TableName, Vec<SplitChange>> = BTreeMap::new();
        for part in parts.windows(2).filter(|pair| pair[0].of == pair[1].of) {
            let (table, at) = (part[1].table, part[1].bounds.lower.clone());
            let split = SplitChange {
                table: table.clone(),
                at,
            };
            splits.entry(table).or_default().push(split);
        }
        for table in &self.tables {
            let name = table.rows.table;
            let count = table.groups.len() + splits.get(name).map_or(0, Vec::len);
            if count > MAX_PARTITIONS {
                return Err(PlanningError::Planner(format!(
                    "table {name} would have {count} partitions, and {MAX_PARTITIONS} is the limit: give \
                     --partition-bytes more"
                )));
            }
        }
        Ok(splits.into_values().flatten().collect())
    }

    /// Returns a partition by its number. The partitions of all tables are numbered table after
    /// table.
    fn partition(&self, number: usize) -> Option<(&KnownTable<'m, 'b>, usize)> {
        let mut left = number;
        for table in &self.tables {
            match left.checked_sub(table.groups.len()) {
                None => return Some((table, left)),
                Some(more) => left = more,
            }
        }
        None
    }

    /// Returns the partitions after the splits, in the order of the plan.
    fn pieces<'a>(&'a self, insert: &'a InsertPlan) -> Vec<PlacedPiece<'a>> {
        let dest = |at: usize| insert.own.dest.get(at).map_or(&[][..], Holders::machines);
        if insert.partitions.is_empty() {
            let groups = self.tables.iter().flat_map(|table| {
                let groups = table.groups.iter();
                groups.map(|(group, list)| (table.rows.table, *group, *list))
            });
            let whole = groups
                .enumerate()
                .map(|(at, (table, group, list))| PlacedPiece {
                    table,
                    of: at,
                    bounds: group.bounds.clone(),
                    old: list,
                    new: dest(at),
                });
            return whole.collect();
        }
        let piece = |piece: &PieceReport| {
            let (table, at) = self.partition(piece.of as usize)?;
            let (of, old) = table.groups.get(at)?;
            let lower = piece.low.as_ref().and_then(bound_of);
            let upper = piece.high.as_ref().and_then(bound_of);
            let bounds = Bounds {
                lower: lower.unwrap_or_else(|| of.bounds.lower.clone()),
                upper: upper.or_else(|| of.bounds.upper.clone()),
            };
            Some(PlacedPiece {
                table: table.rows.table,
                of: piece.of as usize,
                bounds,
                old,
                new: dest(piece.id as usize),
            })
        };
        insert.partitions.iter().filter_map(piece).collect()
    }

    /// Returns the change of a piece's list: other nodes replace those that its replicas leave.
    fn change(&self, model: &Model, piece: PlacedPiece<'_>) -> Option<ListChange> {
        let PlacedPiece {
            table,
            bounds,
            old,
            new,
            ..
        } = piece;
        let node = |number: &u32| Some(self.machines.get(*number as usize)?.id);
        let new: Vec<NodeId> = new.iter().filter_map(node).collect();
        let layout = LayoutName::Table(table.clone());
        let ranges = model.layouts.get(&layout)?;
        let list = ranges.within(&bounds).next()?.list.clone();
        let mut changed = list.clone();
        for (from, to) in old.iter().zip(&new).filter(|(from, to)| from != to) {
            let place = list.iter().position(|node| node == from)?;
            // If the new node is further back in the list, and holds nothing, the two exchange
            // places.
            if let Some(behind) = changed.iter().position(|node| node == to) {
                changed[behind] = changed[place];
            }
            changed[place] = *to;
        }
        (changed != list).then_some(ListChange {
            layout,
            bounds,
            old: list,
            new: changed,
        })
    }
}

impl<'m, 'b> KnownTable<'m, 'b> {
    fn of(
        model: &'m Model,
        survey: &Survey,
        rows: &'b BulkRows<'b>,
    ) -> Result<Self, PlanningError> {
        let table = rows.table;
        let groups = model.desired_groups(table);
        if groups.is_empty() {
            return Err(PlanningError::NoLiveTable(table.clone()));
        }
        let reported = survey.get(table).into_iter().flatten();
        let sizes: BTreeMap<PartitionId, PartitionSize> = reported
            .map(|(partition, reported)| (*partition, reported.size.clone()))
            .collect();
        let unknown = groups
            .iter()
            .filter(|(group, _)| !sizes.contains_key(&group.partition));
        match unknown.count() {
            0 => Ok(Self {
                rows,
                groups,
                sizes,
            }),
            count => {
                let table = table.clone();
                Err(PlanningError::Unsurveyed { table, count })
            }
        }
    }

    /// Returns the bytes and the records after the insert.
    fn after(&self) -> (u64, u64) {
        let sizes = self.sizes.values();
        let had = sizes.fold((0, 0), |(bytes, records), size| {
            (bytes + size.bytes, records + size.records)
        });
        (had.0 + self.rows.bytes, had.1 + self.rows.rows)
    }

    /// Returns the table for the planner. `number` gives the machine number of a node.
    fn spec(&self, number: impl Fn(&NodeId) -> u32) -> TableSpec {
        let rows = self.rows;
        let hasher = KeyHasher::new(format!("{}:", rows.table).as_bytes());
        let is_hashed = matches!(self.groups[0].0.bounds.lower, Bound::Slot(_));
        let new_key = |key: &Vec<u8>| match is_hashed {
            true => Key::Integer(hasher.slot(key).into()),
            false => Key::from_bytes(key.clone()),
        };
        let homes = self.groups.iter();
        let homes = homes.map(|(_, list)| Holders::Each(list.iter().map(&number).collect()));
        let existing = self.groups.iter();
        let existing = existing.map(|(group, _)| self.sizes[&group.partition].records as f64);
        let (bytes, records) = self.after();
        TableSpec {
            name: Some(rows.table.to_string()),
            record_bytes: Some(mean_bytes(bytes, records)),
            boundaries: self.groups[1..]
                .iter()
                .map(|(group, _)| key_of(&group.bounds.lower))
                .collect(),
            home: homes.collect(),
            existing: Some(existing.collect()),
            existing_samples: self
                .groups
                .iter()
                .flat_map(|group| self.quantiles(group.0))
                .collect(),
            new_samples: rows.keys.iter().map(new_key).collect(),
            new_records: Some(rows.rows as f64),
            ..TableSpec::default()
        }
    }

    /// Returns keys that divide a partition into parts of equal size: its lower bound, and its
    /// split points.
    fn quantiles(&self, group: &GroupEntry) -> Vec<Key> {
        let split_points = &self.sizes[&group.partition].split_points;
        let first = (!split_points.is_empty()).then_some(&group.bounds.lower);
        first.into_iter().chain(split_points).map(key_of).collect()
    }
}

/// Returns the mean bytes of a record.
fn mean_bytes(bytes: u64, records: u64) -> f64 {
    (bytes as f64 / records.max(1) as f64).max(1.0)
}

/// Converts a bound of a table's order to the planner's key.
fn key_of(bound: &Bound) -> Key {
    match bound {
        Bound::Slot(slot) => Key::Integer((*slot).into()),
        Bound::Key(key) => Key::from_bytes(key.clone()),
    }
}

fn bound_of(key: &Key) -> Option<Bound> {
    match (key, key.as_bytes()) {
        (_, Some(bytes)) => Some(Bound::Key(bytes.to_vec())),
        (Key::Integer(slot), _) => u16::try_from(*slot).ok().map(Bound::Slot),
        _ => None,
    }
}
