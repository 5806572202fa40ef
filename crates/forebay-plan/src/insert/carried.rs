//! Turns an assignment into a plan: its moves, steps, map and nodes' prices.

use super::holders::Holders;
use super::order::{OrderedMove, in_order};
use super::outcome::Move;
use super::pieces::{Original, Pieces};
use super::problem::Problem;
use super::region::Region;
use crate::{Action, Node, NodePrice, Partition, PartitionMap, Step};

/// Returns the partitions before the plan.
pub fn map(region: &Region, pieces: &Pieces, nodes: Vec<Node>) -> PartitionMap {
    let mut held = vec![(0.0, 0.0); pieces.originals.len()];
    for piece in &pieces.pieces {
        let (records, bytes) = &mut held[piece.of as usize];
        *records += piece.existing;
        *bytes += piece.existing * piece.record_bytes;
    }
    let partition = |(index, original): (usize, &Original)| Partition {
        table: original
            .table
            .map(|table| pieces.tables[table as usize].clone()),
        low: original.low.clone(),
        high: original.high.clone(),
        records: held[index].0,
        bytes: held[index].1,
        replicas: region.homes[index].machines().to_vec(),
    };
    let replicas = region.homes.iter().map(|home| home.machines().len());
    PartitionMap {
        nodes,
        partitions: pieces.originals.iter().enumerate().map(partition).collect(),
        min_live: replicas.max().unwrap_or(1) as u32,
    }
}

/// Returns the machines of each piece under an assignment of all replicas.
pub fn holders(region: &Region, pieces: &Pieces, dest: &[u32]) -> Vec<Holders> {
    let mut rest = dest;
    let of_piece = |of: u32| {
        let home = &region.homes[of as usize];
        let (own, others) = rest.split_at(home.machines().len());
        rest = others;
        home.like(own)
    };
    let origins = pieces.pieces.iter().map(|piece| piece.of);
    origins.map(of_piece).collect()
}

/// Returns the moves, in the order of the pieces.
pub fn moves(region: &Region, homes: &[u32], dest: &[u32]) -> Vec<Move> {
    let pairs = (0u32..).zip(homes.iter().zip(dest));
    let moved = pairs.filter(|(_, (from, to))| from != to);
    moved
        .map(|(item, (&from, &to))| Move {
            partition: region.siblings.piece(item),
            from,
            to,
        })
        .collect()
}

/// Returns the splits, then the moves. The largest come first, as far as there is room, so that no
/// large move is alone at the end.
pub fn steps(region: &Region, pieces: &Pieces, problem: &Problem, dest: &[u32]) -> Vec<Step> {
    let mut steps = pieces.steps.clone();
    let splits = steps.len() as u32;
    let step_of = |at: OrderedMove| {
        let partition = region.siblings.piece(at.item);
        let piece = &pieces.pieces[partition as usize];
        let action = Action::Move {
            partition,
            from: problem.items[at.item as usize].home,
            to: dest[at.item as usize],
        };
        let mut step = Step::new(action, piece.existing, piece.existing * piece.record_bytes);
        step.after = pieces.split_of[partition as usize].into_iter().collect();
        step.after
            .extend(at.after.iter().map(|place| splits + place));
        step
    };
    steps.extend(ordered(pieces, problem, dest).into_iter().map(step_of));
    steps
}

fn ordered(pieces: &Pieces, problem: &Problem, dest: &[u32]) -> Vec<OrderedMove> {
    if let Some(limits) = &problem.limits {
        // The solver accepts only solutions that have an order.
        return in_order(problem, limits, dest).unwrap_or_default();
    }
    // Without limits there are no replicas: each piece is one item.
    let leaves = |item: &u32| dest[*item as usize] != problem.items[*item as usize].home;
    let mut items: Vec<u32> = (0..dest.len() as u32).filter(leaves).collect();
    let existing = |item: u32| pieces.pieces[item as usize].existing;
    items.sort_by(|&a, &b| existing(b).total_cmp(&existing(a)).then(a.cmp(&b)));
    let alone = |item: u32| OrderedMove {
        item,
        after: Vec::new(),
    };
    items.into_iter().map(alone).collect()
}

/// Returns what each machine pays. Every replica counts.
pub fn node_prices(
    region: &Region,
    pieces: &Pieces,
    homes: &[u32],
    dest: &[u32],
) -> Vec<NodePrice> {
    let mut nodes = vec![NodePrice::default(); region.machines.len()];
    for (node, spec) in nodes.iter_mut().zip(&region.machines) {
        node.insert_before = spec.insert_load;
        node.insert_after = spec.insert_load;
    }
    let replicas = region.replicas(pieces).map(|(piece, _)| piece);
    for (piece, (&from, &to)) in replicas.zip(homes.iter().zip(dest)) {
        let (from, to) = (from as usize, to as usize);
        nodes[from].before += piece.existing;
        nodes[to].after += piece.existing;
        nodes[from].insert_before += piece.new + piece.running;
        nodes[to].insert_after += piece.new + piece.running;
        if from != to {
            nodes[from].moved_out += piece.existing;
            nodes[to].moved_in += piece.existing;
        }
    }
    nodes
}
