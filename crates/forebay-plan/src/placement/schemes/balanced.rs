//! The scheme `balanced`: spreads the expected load as evenly as possible over the nodes.
//!
//! Each replica of a partition has the same part of its load.
//!
//! 1. Copies with the most load come first, each to a node that is the lightest by half a copy or
//!    nearer (longest processing time first). Of these, it chooses one that shares few partitions
//!    with the other nodes of the partition.
//! 2. The hottest node exchanges copies with lighter ones, as long as its load falls.

use super::builder::PlacementBuilder;
use super::partners::Partners;
use crate::InputError;
use crate::placement::cluster::PlacementProblem;
use crate::placement::layout::Placement;
use crate::placement::replicas::{Objective, per_replica};

/// Exchanges end when the hottest node is at most this much above the mean.
const EVEN_ENOUGH: f64 = 1e-4;

pub fn balanced(cluster: &PlacementProblem, objective: Objective) -> Result<Placement, InputError> {
    let replicas = cluster.replicas(&cluster.loads, objective)?;
    let weights: Vec<f64> = cluster
        .loads
        .iter()
        .zip(&replicas)
        .map(|(&load, &count)| per_replica(load, count))
        .collect();
    let mut seats = PlacementBuilder::new(cluster);
    let least = seats.put_least(&weights)?;
    let mut partners = Partners::default();
    let mut order: Vec<u32> = (0..replicas.len() as u32).collect();
    order.sort_by(|&a, &b| weights[b as usize].total_cmp(&weights[a as usize]));
    for partition in order {
        let (count, weight) = (replicas[partition as usize], weights[partition as usize]);
        for _ in least..count {
            if !partners.put(&mut seats, partition, count, weight, weight / 2.0) {
                seats.put_somehow(partition, &weights)?;
            }
        }
    }
    even_out(cluster, &mut seats, &weights);
    Ok(seats.into_placement())
}

/// Exchanges copies of the hottest node until it is near the mean or nothing helps.
pub fn even_out(cluster: &PlacementProblem, seats: &mut PlacementBuilder<'_>, weights: &[f64]) {
    let nodes: Vec<u32> = cluster.staying().iter().map(|&node| node as u32).collect();
    let mean = nodes.iter().map(|&node| seats.weight(node)).sum::<f64>() / nodes.len() as f64;
    for _ in 0..nodes.len() * 20 {
        let mut by_weight = nodes.clone();
        by_weight.sort_by(|&a, &b| seats.weight(a).total_cmp(&seats.weight(b)));
        let Some(hottest) = by_weight.pop() else {
            return;
        };
        if seats.weight(hottest) <= mean * (1.0 + EVEN_ENOUGH) {
            return;
        }
        let mut helped = false;
        for &cooler in by_weight.iter().take(8) {
            if let Some((out, into)) = best_exchange(seats, hottest, cooler, weights) {
                seats.exchange((hottest, out), (cooler, into), weights);
                helped = true;
                break;
            }
        }
        if !helped {
            return;
        }
    }
}

/// Returns the exchange that makes the two nodes' loads most alike, if any does.
fn best_exchange(
    seats: &mut PlacementBuilder<'_>,
    hot: u32,
    cool: u32,
    weights: &[f64],
) -> Option<(u32, u32)> {
    let gap = seats.weight(hot) - seats.weight(cool);
    let mut pairs: Vec<(f64, u32, u32)> = Vec::new();
    for &out in seats.held(hot) {
        for &into in seats.held(cool) {
            let change = weights[out as usize] - weights[into as usize];
            let left = (gap - 2.0 * change).abs();
            if change > 0.0 && left < gap * (1.0 - 1e-9) {
                pairs.push((left, out, into));
            }
        }
    }
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    pairs
        .into_iter()
        .find(|&(_, out, into)| seats.exchangeable((hot, out), (cool, into)))
        .map(|(_, out, into)| (out, into))
}
