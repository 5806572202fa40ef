//! Prints the tables of docs/decisions/planners.md about preference lists.
//!
//! They show how even layouts are, and what one node more or less copies against the bound.

use std::collections::BTreeMap;

use forebay_plan::lists::{Class, Line, ListNode, change, lay_out};

const SLOTS: u32 = 16_384;
const REPLICAS: usize = 3;

fn even(nodes: u32, zones: u32) -> Vec<ListNode> {
    let node = |id| ListNode {
        id,
        zone: id % zones,
        weight: 1.0,
    };
    (0..nodes).map(node).collect()
}

/// The busiest node beside the mean of its zone, as a primary and as any replica, in per cent
/// above.
fn above(classes: &[Class], nodes: &[ListNode]) -> [f64; 2] {
    let mut loads: BTreeMap<u32, [f64; 2]> = nodes.iter().map(|node| (node.id, [0.0; 2])).collect();
    for (index, class) in classes.iter().enumerate() {
        let end = classes.get(index + 1).map_or(SLOTS, |next| next.start);
        let width = f64::from(end - class.start);
        for (place, id) in class.list.iter().enumerate() {
            if let Some(load) = loads.get_mut(id) {
                load[0] += if place == 0 { width } else { 0.0 };
                load[1] += width;
            }
        }
    }
    [0, 1].map(|kind| {
        let mut most: f64 = 0.0;
        for node in nodes {
            // Primaries are spread over all nodes, replicas over those of a zone.
            let beside = |other: &&ListNode| kind == 0 || other.zone == node.zone;
            let others: Vec<f64> = nodes
                .iter()
                .filter(beside)
                .map(|n| loads[&n.id][kind])
                .collect();
            let mean = others.iter().sum::<f64>() / others.len() as f64;
            most = most.max(loads[&node.id][kind] / mean - 1.0);
        }
        100.0 * most
    })
}

/// The fewest and the most nodes that one shares data with.
fn peers(classes: &[Class], nodes: &[ListNode]) -> (usize, usize) {
    let of = |node: &ListNode| {
        let lists = classes.iter().filter(|class| class.list.contains(&node.id));
        let mut peers: Vec<u32> = lists.flat_map(|class| class.list.iter().copied()).collect();
        peers.sort_unstable();
        peers.dedup();
        peers.len() - 1
    };
    let all: Vec<usize> = nodes.iter().map(of).collect();
    (
        all.iter().copied().min().unwrap_or(0),
        all.iter().copied().max().unwrap_or(0),
    )
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let line = Line::Uniform(SLOTS);
    println!(
        "| nodes, zones, K | classes | primary, all (% above) | peers | added: copied / bound | primary, all | drained: copied / bound | primary, all |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for count in [3, 5, 10, 50, 1000] {
        for zones in [1, 3] {
            for heads in [1, 2, 4] {
                let nodes = even(count, zones);
                let classes = lay_out(&nodes, &line, REPLICAS, heads)?;
                let [primary, all] = above(&classes, &nodes);
                let (fewest, most) = peers(&classes, &nodes);
                print!(
                    "| {count}, {zones}, {heads} | {} | {primary:.1}, {all:.1} | {fewest}-{most} |",
                    classes.len()
                );
                for now in [even(count + 1, zones), nodes[1..].to_vec()] {
                    let changed = change(&classes, &now, &line, REPLICAS, heads)?;
                    let [primary, all] = above(&changed.classes, &now);
                    let part = |weight: f64| 100.0 * weight / f64::from(SLOTS);
                    let (copied, bound) = (part(changed.copied), part(changed.lacking));
                    let factor = if bound > 0.0 {
                        format!(" ({:.2})", copied / bound)
                    } else {
                        String::new()
                    };
                    print!(" {copied:.2}% / {bound:.2}%{factor} | {primary:.1}, {all:.1} |");
                }
                println!();
            }
        }
    }
    Ok(())
}
