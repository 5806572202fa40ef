//! Computes the times of an insert plan's steps and inserts, for the drawing.

use super::pieces::Pieces;
use super::region::Region;
use super::request::Request;
use crate::draw::{Activity, TimeBar, TimeUnit, Timeline};
use crate::plan::StepTime;
use crate::{Action, Node, PartitionMap, Plan};

/// Returns the timeline in seconds if all bandwidths are given, otherwise in units of cost: one
/// takes as long on every machine of capacity 1.
pub fn timeline(
    request: &Request,
    region: &Region,
    plan: &Plan,
    map: &PartitionMap,
    pieces: &Pieces,
) -> Option<Timeline> {
    let (unit, times, rates) = times_and_rates(request, region, plan, map)?;
    let mut bars = Vec::new();
    for (step, time) in plan.steps.iter().zip(&times) {
        let mut add = |node: u32, work: Activity| {
            bars.push(TimeBar {
                work,
                node,
                begin: time.begin,
                end: time.end,
            });
        };
        match step.action {
            Action::Split { partition, .. } => {
                let of = pieces.pieces[partition as usize].of;
                // One mark for each partition, however many pieces it has.
                if partition == of {
                    for &node in region.homes[of as usize].machines() {
                        add(node, Activity::Split(of));
                    }
                }
            }
            Action::Move {
                partition,
                from,
                to,
            } => {
                add(from, Activity::Send(partition, to));
                add(to, Activity::Receive(partition, from));
            }
            Action::Copy { .. } | Action::HandOver { .. } | Action::Drop { .. } => {}
        }
    }
    let steps_end = times.iter().map(|time| time.end).fold(0.0, f64::max);
    let inserting = || plan.price.nodes.iter().zip(&rates);
    let without = inserting().map(|(price, rate)| price.insert_before / rate);
    let without = without.fold(0.0, f64::max);
    for (node, (price, rate)) in inserting().enumerate() {
        let end = steps_end + price.insert_after / rate;
        if end > steps_end {
            bars.push(TimeBar {
                work: Activity::Insert,
                node: node as u32,
                begin: steps_end,
                end,
            });
        }
    }
    let timeline = Timeline {
        bars,
        unit,
        steps_end,
        without: Some(without).filter(|time| time.is_finite()),
    };
    Some(timeline).filter(|timeline| timeline.end() > 0.0 && timeline.end().is_finite())
}

/// Returns when each step is done, and what each machine inserts in one unit of time.
fn times_and_rates(
    request: &Request,
    region: &Region,
    plan: &Plan,
    map: &PartitionMap,
) -> Option<(TimeUnit, Vec<StepTime>, Vec<f64>)> {
    let given = plan
        .step_times(&map.nodes)
        .zip(region.insert_rates(request));
    if let Some((times, rates)) = given {
        return Some((TimeUnit::Seconds, times, rates));
    }
    let times = plan.step_times(&nodes_by_cost(request, region))?;
    let price = request.record_price();
    let rates = region.machines.iter().map(|spec| spec.capacity / price);
    let unit = match request.handover_price > 0.0 {
        true => "record; the fixed price of a move is not in it",
        false => "unit of cost",
    };
    Some((TimeUnit::One(unit), times, rates.collect()))
}

/// Returns machines whose bandwidth follows from the cost of a move.
fn nodes_by_cost(request: &Request, region: &Region) -> Vec<Node> {
    let speeds = region.machines.iter().map(|spec| {
        let speed = spec.move_capacity.unwrap_or(spec.capacity);
        speed * request.record_bytes / request.move_price
    });
    let nodes = region.nodes(request).into_iter().zip(speeds);
    nodes
        .map(|(node, speed)| Node {
            bytes_per_second: Some(speed),
            ..node
        })
        .collect()
}
