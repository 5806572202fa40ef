//! When the steps of an insert plan and the inserts after them are done, for the drawing.

use super::pieces::Pieces;
use super::region::Region;
use super::request::Request;
use crate::draw::{Activity, TimeBar, TimeUnit, Timeline};
use crate::{Action, Node, PartitionMap, Plan};

/// In seconds where all bandwidths are given, else in units of cost: one takes as long on every
/// machine of capacity 1.
pub fn timeline(
    request: &Request,
    region: &Region,
    plan: &Plan,
    map: &PartitionMap,
    pieces: &Pieces,
) -> Option<Timeline> {
    let given = plan
        .step_times(&map.nodes)
        .zip(region.insert_rates(request));
    let (unit, times, rates) = match given {
        Some((times, rates)) => (TimeUnit::Seconds, times, rates),
        None => {
            let times = plan.step_times(&nodes_by_cost(request, region))?;
            let price = request.record_price();
            let rates = region.machines.iter().map(|spec| spec.capacity / price);
            (TimeUnit::One("unit of cost"), times, rates.collect())
        }
    };
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
                // One mark a partition, however many pieces it is cut into.
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
    let mut without = 0.0f64;
    for (node, (price, rate)) in plan.price.nodes.iter().zip(rates).enumerate() {
        without = without.max(price.insert_before / rate);
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

/// Machines whose bandwidth is what a move costs.
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
