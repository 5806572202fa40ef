//! Orders moves so that no machine ever has more bytes than it may.

use super::limits::{Limits, UnmetLimit};
use super::problem::Problem;

/// One move, and the earlier moves in the order that it waits for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OrderedMove {
    pub item: u32,
    pub after: Vec<u32>,
}

/// Returns moves in an order, the largest first as far as there is room. A copy needs room on its
/// new machine before the old one is dropped.
///
/// The moves to one machine wait for a growing number of the moves from it. So its limit holds in
/// whatever order the others are done.
pub fn in_order(
    problem: &Problem,
    limits: &Limits,
    dest: &[u32],
) -> Result<Vec<OrderedMove>, UnmetLimit> {
    let homes = problem.homes();
    let mut held = limits.existing(&homes);
    let mut waiting: Vec<u32> = (0..dest.len() as u32)
        .filter(|&item| dest[item as usize] != homes[item as usize])
        .collect();
    let bytes = |item: u32| limits.bytes[item as usize];
    waiting.sort_by(|&a, &b| bytes(b).total_cmp(&bytes(a)).then(a.cmp(&b)));
    let mut order: Vec<OrderedMove> = Vec::with_capacity(waiting.len());
    // The moves from each machine that no move to it waits for yet, and the last one to it that
    // waits.
    let mut gone: Vec<Vec<u32>> = vec![Vec::new(); held.len()];
    let mut last: Vec<Option<u32>> = vec![None; held.len()];
    // The bytes that are certain to be there while no move waits for those moves.
    let mut certain = held.clone();
    while !waiting.is_empty() {
        let before = waiting.len();
        waiting.retain(|&item| {
            let (from, to) = (homes[item as usize] as usize, dest[item as usize] as usize);
            if !limits.fits(to, held[to] + bytes(item)) {
                return true;
            }
            let mut after: Vec<u32> = Vec::new();
            if !limits.fits(to, certain[to] + bytes(item)) {
                after.append(&mut gone[to]);
                certain[to] = held[to];
            }
            let place = order.len() as u32;
            let waits = !after.is_empty();
            after.extend(last[to]);
            if waits {
                last[to] = Some(place);
            }
            held[to] += bytes(item);
            certain[to] += bytes(item);
            held[from] -= bytes(item);
            gone[from].push(place);
            order.push(OrderedMove { item, after });
            false
        });
        if waiting.len() == before {
            let machine = dest[waiting[0] as usize];
            return Err(UnmetLimit::Order { machine });
        }
    }
    Ok(order)
}

/// Returns an assignment that can be carried out. If moves wait for each other, one of them gets
/// another target or stays.
pub fn carried_out(
    problem: &Problem,
    limits: &Limits,
    mut dest: Vec<u32>,
) -> Result<Vec<u32>, UnmetLimit> {
    for _ in 0..=dest.len() {
        let machine = match in_order(problem, limits, &dest) {
            Ok(_) => return Ok(dest),
            Err(UnmetLimit::Order { machine }) => machine,
            Err(other) => return Err(other),
        };
        let held = limits.held(&dest);
        let returns = |&item: &usize| {
            let home = problem.items[item].home as usize;
            let moved = dest[item] == machine && dest[item] as usize != home;
            moved && !limits.drained[home] && limits.fits(home, held[home] + limits.grown[item])
        };
        let insert = |item: &usize| problem.items[*item].insert;
        let back = (0..dest.len()).filter(returns);
        let Some(item) = back.min_by(|a, b| insert(a).total_cmp(&insert(b))) else {
            return Err(UnmetLimit::Order { machine });
        };
        dest[item] = problem.items[item].home;
    }
    Err(UnmetLimit::Order { machine: 0 })
}
