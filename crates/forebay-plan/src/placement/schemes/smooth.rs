//! The scheme `smooth`: carries the expected load, and also load that differs from it.
//!
//! 1. Replicas follow half the load and half the mean. So no partition's replica is far hotter than
//!    another's, wherever the load moves.
//! 2. Partitions of one replica, whose load no other node can take, are dealt to the nodes by their
//!    numbers. So a hot range of neighbours is spread over all nodes, wherever it is.
//! 3. The others follow in the order of their numbers. Each copy goes to a light node that shares
//!    few partitions with the nodes that already have it.

use super::builder::PlacementBuilder;
use super::groups::zones_in_turn;
use super::partners::Partners;
use crate::InputError;
use crate::placement::cluster::PlacementProblem;
use crate::placement::layout::Placement;
use crate::placement::replicas::{Objective, per_replica};

pub fn smooth(cluster: &PlacementProblem, objective: Objective) -> Result<Placement, InputError> {
    let mean = cluster.loads.iter().sum::<f64>() / cluster.partitions() as f64;
    let smoothed: Vec<f64> = cluster
        .loads
        .iter()
        .map(|load| load.midpoint(mean))
        .collect();
    let replicas = cluster.replicas(&smoothed, objective)?;
    let weights: Vec<f64> = smoothed
        .iter()
        .zip(&replicas)
        .map(|(&load, &count)| per_replica(load, count))
        .collect();
    let (single, several): (Vec<u32>, Vec<u32>) =
        (0..replicas.len() as u32).partition(|&id| replicas[id as usize] == 1);
    let mut seats = PlacementBuilder::new(cluster);
    let least = seats.put_least(&weights)?;
    if least == 0 {
        deal(cluster, &mut seats, &single, &weights)?;
    }
    let mut partners = Partners::default();
    for partition in several {
        let (count, weight) = (replicas[partition as usize], weights[partition as usize]);
        for _ in least..count {
            if !partners.put(&mut seats, partition, count, weight, f64::INFINITY) {
                seats.put_somehow(partition, &weights)?;
            }
        }
    }
    Ok(seats.into_placement())
}

/// Deals one copy each: partition i to node i modulo their number, or to the next one that takes
/// it.
fn deal(
    cluster: &PlacementProblem,
    seats: &mut PlacementBuilder<'_>,
    partitions: &[u32],
    weights: &[f64],
) -> Result<(), InputError> {
    let nodes = zones_in_turn(cluster);
    for &partition in partitions {
        let turn = partition as usize % nodes.len();
        let mut from_turn = nodes[turn..]
            .iter()
            .chain(&nodes[..turn])
            .map(|&node| node as u32);
        match from_turn.find(|&node| seats.takes(node, partition)) {
            Some(node) => seats.put(node, partition, weights[partition as usize]),
            None => seats.put_somehow(partition, weights)?,
        }
    }
    Ok(())
}
