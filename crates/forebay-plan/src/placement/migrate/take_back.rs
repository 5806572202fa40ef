//! Takes back copies that turn out not to be needed, and drops that nothing needs.

use super::super::cluster::Fate;
use super::super::routing::NEAR;
use super::work::Work;

/// The most copies whose need is checked again at the end.
const DOUBTS: usize = 4_096;

impl Work<'_> {
    /// Takes copies back, those that serve least first, as long as the capacity stays `wanted`.
    /// Restores dropped copies if they still fit: that ships nothing.
    pub fn take_back(&mut self, wanted: f64) {
        self.limit_to(wanted);
        self.routing.route();
        if self.routing.unrouted() == 0 {
            let flow = |&(node, partition): &(u32, u32)| {
                (self.routing.flow(node, partition), node, partition)
            };
            let mut doubtful: Vec<(u64, u32, u32)> = self.made.iter().map(flow).collect();
            doubtful.sort_unstable();
            let homes = self.current.holders(self.cluster.partitions());
            for (_, node, partition) in doubtful.into_iter().take(DOUBTS) {
                self.take_back_one(node, partition, &homes[partition as usize]);
            }
        }
        self.restore_dropped();
    }

    /// Takes back one copy. `homes` are the nodes that have the partition now.
    fn take_back_one(&mut self, node: u32, partition: u32, homes: &[u32]) {
        let enough = self.holders[partition as usize].len() > self.cluster.min;
        if enough
            && self.zones_hold(partition, node, None)
            && self.routing.remove_if_spare(node, partition, NEAR)
        {
            self.forget(node, partition);
            return;
        }
        // A move returns to its source.
        for &from in homes {
            let returns = self.cluster.nodes[from as usize].fate == Fate::Stays
                && !self.holds(from, partition)
                && self.fits(from, partition)
                && self.zones_hold(partition, node, Some(from));
            if !returns {
                continue;
            }
            self.copy_to(from, partition);
            if self.routing.remove_if_spare(node, partition, NEAR) {
                self.forget(node, partition);
                return;
            }
            self.drop_copy(from, partition);
        }
    }

    fn restore_dropped(&mut self) {
        for node in self.cluster.staying() {
            if self.slots[node] <= 0 {
                continue;
            }
            let now: Vec<u32> = self.current.distinct(node).collect();
            for partition in now {
                let few = self.holders[partition as usize].len() < self.cluster.max;
                let node = node as u32;
                if few && !self.holds(node, partition) && self.fits(node, partition) {
                    self.copy_to(node, partition);
                }
            }
        }
    }
}
