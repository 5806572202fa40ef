//! Computes the share of each node: by weight, as far as the rule of zones allows.

use std::collections::BTreeMap;

use super::ListNode;

/// The shares of nodes. Zones are numbers, and nodes are positions in the input.
#[derive(Debug)]
pub(super) struct Shares {
    /// The position of each node's zone in `sizes`.
    pub zones: Vec<usize>,
    /// The number of nodes of each zone.
    pub sizes: Vec<usize>,
    /// For the first 1, 2, .. entries of the lists: the part of the line that each node should
    /// have. The sum over the nodes is the number of entries.
    pub prefixes: Vec<Vec<f64>>,
}

impl Shares {
    pub fn new(nodes: &[ListNode], replicas: usize) -> Self {
        let mut numbers = BTreeMap::new();
        for node in nodes {
            let next = numbers.len();
            numbers.entry(node.zone).or_insert(next);
        }
        let zones: Vec<usize> = nodes.iter().map(|node| numbers[&node.zone]).collect();
        let mut members = vec![Vec::new(); numbers.len()];
        for (node, &zone) in zones.iter().enumerate() {
            members[zone].push(node);
        }
        let sizes = members.iter().map(Vec::len).collect();
        let most = nodes.iter().map(|node| node.weight).fold(0.0, f64::max);
        let scaled = |node: &ListNode| (node.weight / most).max(f64::MIN_POSITIVE);
        let weights: Vec<f64> = nodes.iter().map(scaled).collect();
        let prefixes = (1..=replicas).map(|count| prefix(&weights, &members, count));
        Self {
            prefixes: prefixes.collect(),
            zones,
            sizes,
        }
    }

    /// Returns whether a list follows the rule of zones in each of its prefixes: an entry is in a
    /// zone that had no more entries than any other with a node left.
    pub fn allows(&self, list: &[u32]) -> bool {
        (0..list.len()).all(|place| self.may_follow(&list[..place], list[place]))
    }

    /// Returns whether a node may be the next entry of a list.
    pub fn may_follow(&self, list: &[u32], node: u32) -> bool {
        let zone = self.zones[node as usize];
        let entries = |zone: usize| {
            let in_zone = |&&entry: &&u32| self.zones[entry as usize] == zone;
            list.iter().filter(in_zone).count()
        };
        let own = entries(zone);
        if list.contains(&node) {
            return false;
        }
        if own == 0 {
            return true;
        }
        let first_of_zone = |place: usize| {
            let zone = self.zones[list[place] as usize];
            list[..place]
                .iter()
                .all(|&entry| self.zones[entry as usize] != zone)
        };
        if (0..list.len())
            .filter(|&place| first_of_zone(place))
            .count()
            < self.sizes.len()
        {
            return false;
        }
        list.iter().all(|&entry| {
            let other = self.zones[entry as usize];
            let count = entries(other);
            count >= own || count == self.sizes[other]
        })
    }
}

/// Returns the shares of the first `count` entries. Each zone has as many entries of every list as
/// the others, or one more. The weights decide how often a zone has one more.
fn prefix(weights: &[f64], members: &[Vec<usize>], count: usize) -> Vec<f64> {
    let sizes: Vec<usize> = members.iter().map(Vec::len).collect();
    let filled = |level: usize| sizes.iter().map(|&size| size.min(level)).sum::<usize>();
    let mut level = 0;
    while level < count && filled(level + 1) <= count {
        level += 1;
    }
    let zone_weight = |zone: &Vec<usize>| zone.iter().map(|&node| weights[node]).sum();
    let zones: Vec<Portion> = members
        .iter()
        .map(|zone| Portion {
            weight: zone_weight(zone),
            least: zone.len().min(level) as f64,
            most: zone.len().min(level + 1) as f64,
        })
        .collect();
    let mut shares = vec![0.0; weights.len()];
    for (zone, load) in members.iter().zip(divide(&zones, count as f64)) {
        let portions: Vec<Portion> = zone
            .iter()
            .map(|&node| Portion {
                weight: weights[node],
                least: 0.0,
                most: 1.0,
            })
            .collect();
        for (&node, share) in zone.iter().zip(divide(&portions, load)) {
            shares[node] = share;
        }
    }
    shares
}

/// A portion that is divided by weight, within bounds.
struct Portion {
    weight: f64,
    least: f64,
    most: f64,
}

/// Divides an amount in proportion to the weights, except where a bound prevents that.
fn divide(portions: &[Portion], amount: f64) -> Vec<f64> {
    let at = |scale: f64| {
        let share =
            move |portion: &Portion| (portion.weight * scale).clamp(portion.least, portion.most);
        portions.iter().map(share)
    };
    let sum: f64 = portions.iter().map(|portion| portion.weight).sum();
    let (mut low, mut high) = (0.0, amount / sum);
    // At most as many doublings as floats have exponents: when all are at their most, further ones
    // have no effect.
    for _ in 0..2100 {
        if at(high).sum::<f64>() >= amount {
            break;
        }
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..100 {
        let middle = low + (high - low) / 2.0;
        if at(middle).sum::<f64>() < amount {
            low = middle;
        } else {
            high = middle;
        }
    }
    at(high).collect()
}
