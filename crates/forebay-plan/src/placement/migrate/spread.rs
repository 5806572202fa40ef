//! Copies and moves partitions out of the nodes that limit the capacity.
//!
//! While load remains, the minimum cut names the full nodes that alone have it. Each connected part
//! of it needs copies of its partitions elsewhere. The bound of `bound.rs` says how many at least.
//! That many are made at once, those that relieve most for each byte first, and the load is routed
//! again.

use super::super::routing::Cut;
use super::parts::{Part, parts};
use super::targets::Fit;
use super::work::Work;

/// The most rounds without much less remaining load, and the most rounds in all.
const MOST_VAIN: usize = 12;
const MOST_ROUNDS: usize = 300;
/// The most partitions of a part that are tried without success in one round, and nodes for each.
const MOST_TRIED: usize = 200;

impl Work<'_> {
    /// Copies or moves partitions out of the nodes that limit the capacity, until none does or
    /// nothing helps.
    ///
    /// With `hopes`, a copy counts for all the load that it may take, since its node may pass load
    /// on to others. Without it, a copy counts for what that node has room for.
    pub fn spread(&mut self, hopes: bool) {
        let mut least = u64::MAX;
        let mut vain = 0;
        for _ in 0..MOST_ROUNDS {
            let Some(cut) = self.routing.route() else {
                break;
            };
            let left = self.routing.unrouted();
            let less = left < least - least / 200;
            vain = if less { 0 } else { vain + 1 };
            least = least.min(left);
            if vain > MOST_VAIN {
                break;
            }
            self.targets.refresh(&self.routing);
            let helped = [CopyBudget::Whole, CopyBudget::Parts]
                .into_iter()
                .any(|copy_budget| {
                    let relief = Relief::new(self, &cut, copy_budget, hopes);
                    let mut helped = false;
                    for part in parts(&self.routing, &cut) {
                        helped |= relief.shed(self, part);
                    }
                    helped
                });
            if !helped {
                break;
            }
        }
    }
}

/// The required effect of a copy, as a part of the wanted load or of what any node has room for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyBudget {
    /// All of it, or half of it if no other copy has to give way.
    Whole,
    /// Any part, if there is nothing better.
    Parts,
}

/// The nodes that can take the load of one cut.
struct Relief {
    outside: Vec<bool>,
    copy_budget: CopyBudget,
    hopes: bool,
}

impl Relief {
    fn new(work: &Work, cut: &Cut, copy_budget: CopyBudget, hopes: bool) -> Self {
        let mut outside = vec![true; work.cluster.nodes.len()];
        for &node in &cut.nodes {
            outside[node as usize] = false;
        }
        Self {
            outside,
            copy_budget,
            hopes,
        }
    }

    /// Moves the excess of one part out, as far as nodes elsewhere have room.
    fn shed(&self, work: &mut Work, part: Part) -> bool {
        if work.cluster.max == 1 {
            return work.move_whole_out(&part, &self.outside);
        }
        let mut left = part.excess;
        let mut partitions = part.partitions;
        let worth = |id: u32| {
            let load = work.routing.load(id);
            let gain = load.min(left) as f64;
            (gain / work.cluster.size(id).max(1) as f64, load)
        };
        partitions.sort_by(|&a, &b| {
            let (a, b) = (worth(a), worth(b));
            b.0.total_cmp(&a.0).then(b.1.cmp(&a.1))
        });
        let mut vain = 0;
        for id in partitions {
            let wanted = work.routing.load(id).min(left);
            if wanted == 0 || vain > MOST_TRIED {
                break;
            }
            match self.move_one_out(work, id, wanted) {
                Some(node) => {
                    let drawn = work.routing.draw(node, id);
                    left -= if self.hopes { wanted } else { drawn.min(left) };
                    work.targets.update(node, work.routing.room(node));
                }
                None => vain += 1,
            }
        }
        left < part.excess
    }

    /// Returns the node that now has a copy of the partition.
    fn move_one_out(&self, work: &mut Work, partition: u32, wanted: u64) -> Option<u32> {
        let outside = |&node: &u32| self.outside[node as usize];
        let most = work.targets.in_order(Fit::Roomiest, 0).find(outside)?;
        let wanted = wanted.min(work.routing.room(most));
        let (half, all) = match self.copy_budget {
            CopyBudget::Whole => (wanted.div_ceil(2), wanted),
            CopyBudget::Parts => (1, 1),
        };
        if wanted == 0 {
            return None;
        }
        for (least, gives_way) in [(all, false), (half, false), (all, true)] {
            let found = self
                .copy_out(work, partition, least, gives_way)
                .or_else(|| self.move_out(work, partition, wanted, least, gives_way));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn has_room(&self, work: &Work, node: u32, least: u64) -> bool {
        self.outside[node as usize] && work.routing.room(node) >= least
    }

    /// Adds a copy, if the partition may have one.
    fn copy_out(
        &self,
        work: &mut Work,
        partition: u32,
        least: u64,
        gives_way: bool,
    ) -> Option<u32> {
        if work.holders[partition as usize].len() >= work.cluster.max {
            return None;
        }
        work.copy_if(partition, gives_way, &|work, to| {
            self.has_room(work, to, least)
        })
    }

    /// Moves a copy of a full node to one with room, preferably within its zone.
    fn move_out(
        &self,
        work: &mut Work,
        partition: u32,
        wanted: u64,
        least: u64,
        gives_way: bool,
    ) -> Option<u32> {
        let in_order = work.targets.in_order(work.fit, wanted);
        let targets: Vec<u32> = in_order
            .filter(|&to| self.has_room(work, to, least))
            .filter(|&to| gives_way || work.may_have_room(to))
            .take(MOST_TRIED)
            .collect();
        let mut holders = work.holders[partition as usize].clone();
        holders.sort_by_key(|&node| (work.routing.flow(node, partition), node));
        targets.into_iter().find(|&to| {
            let same = |&&from: &&u32| work.zone(from) == work.zone(to);
            let within = holders.iter().filter(same).copied();
            let across = holders.iter().filter(|from| !same(from)).copied();
            let sources: Vec<u32> = within.chain(across).collect();
            sources
                .into_iter()
                .any(|from| work.move_copy(partition, from, to, gives_way))
        })
    }
}
