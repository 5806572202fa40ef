//! Moves partitions of one replica.
//!
//! A node serves all of such a partition's load or none. So what moves has to match the room, by an
//! exchange if necessary.

use super::parts::Part;
use super::targets::Fit;
use super::work::Work;

/// The most nodes that are considered for one move.
const MOST_NODES: usize = 12;

/// A move of a partition to a node, and possibly of another one back.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    partition: u32,
    from: u32,
    to: u32,
    back: Option<u32>,
    gain: u64,
    size: u64,
}

impl Work<'_> {
    /// Moves partitions from the node of a part until it serves no more than its limit.
    pub fn move_whole_out(&mut self, part: &Part, outside: &[bool]) -> bool {
        let holder = |&id: &u32| self.holders[id as usize].first().copied();
        let Some(from) = part.partitions.iter().find_map(holder) else {
            return false;
        };
        let mut left = part.excess;
        while left > 0 {
            let Some(best) = self.best_exchange(from, left, outside) else {
                break;
            };
            left -= best.gain.min(left);
            self.exchange(best);
        }
        left < part.excess
    }

    fn exchange(&mut self, exchange: Exchange) {
        let Exchange {
            partition,
            from,
            to,
            back,
            ..
        } = exchange;
        self.drop_copy(from, partition);
        if let Some(back) = back {
            self.drop_copy(to, back);
            self.copy_to(from, back);
        }
        self.copy_to(to, partition);
        for (node, id) in [(to, Some(partition)), (from, back)] {
            if let Some(id) = id {
                self.routing.draw(node, id);
                self.targets.update(node, self.routing.room(node));
            }
        }
    }

    /// Returns the exchange that removes all the remaining excess for the fewest bytes, otherwise
    /// the one that removes most for each byte.
    fn best_exchange(&self, from: u32, left: u64, outside: &[bool]) -> Option<Exchange> {
        let nodes = self.targets.in_order(Fit::Roomiest, 0);
        let nodes = nodes
            .filter(|&node| outside[node as usize] && self.routing.room(node) > 0)
            .take(MOST_NODES);
        let mut best: Option<(Exchange, (bool, f64))> = None;
        for to in nodes {
            let alone = std::iter::once(None);
            let backs: Vec<Option<u32>> = alone
                .chain(self.held[to as usize].iter().copied().map(Some))
                .collect();
            for &partition in &self.held[from as usize] {
                for &back in &backs {
                    let Some(found) = self.exchange_of(partition, from, to, back) else {
                        continue;
                    };
                    let all = found.gain >= left;
                    let each = found.gain.min(left) as f64 / found.size.max(1) as f64;
                    if best.is_none_or(|(_, value)| (all, each) > value) {
                        best = Some((found, (all, each)));
                    }
                }
            }
        }
        best.map(|(exchange, _)| exchange)
    }

    /// Returns the exchange, if it helps and the nodes can store and serve what they get.
    fn exchange_of(
        &self,
        partition: u32,
        from: u32,
        to: u32,
        back: Option<u32>,
    ) -> Option<Exchange> {
        let load = |id: u32| self.routing.load(id);
        let size = |id: u32| self.cluster.size(id);
        let gain = load(partition).checked_sub(back.map_or(0, load))?;
        if gain == 0 || gain > self.routing.room(to) {
            return None;
        }
        let (comes, goes) = (
            i128::from(size(partition)),
            i128::from(back.map_or(0, size)),
        );
        let bytes =
            self.bytes[to as usize] + goes >= comes && self.bytes[from as usize] + comes >= goes;
        let slots = self.slots[to as usize] + i64::from(back.is_some()) > 0;
        (bytes && slots).then_some(Exchange {
            partition,
            from,
            to,
            back,
            gain,
            size: (comes + goes) as u64,
        })
    }
}
