//! The ranges that a walk at a port covers.
//!
//! Clients of a cluster ask every primary and add up the results. Therefore each key is covered by
//! exactly one primary's port.
//!
//! A class's port covers the class's slots of hashed tables. Ordered tables span the classes: the
//! port of the first class covers them. A gateway covers everything.

use forebay_cluster::NodeId;
use forebay_cluster::map::{ClusterMap, MapTable};
use forebay_engine::Bound;
use forebay_run::Order;
use forebay_run::hash::{SLOTS, first_hash_of};

use super::page::Spot;
use crate::port::Port;

/// The ranges that a walk at one port covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// First and last slots, ascending.
    slots: Vec<(u16, u16)>,
    ordered: bool,
}

/// A part of a table that the same nodes have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment<'m> {
    pub from: Spot,
    pub until: Option<Spot>,
    pub holders: &'m [NodeId],
}

impl Coverage {
    pub fn of(map: &ClusterMap, port: Port) -> Self {
        if port == Port::Gateway {
            return Self {
                slots: vec![(0, (SLOTS - 1) as u16)],
                ordered: true,
            };
        }
        let headed = map.classes().iter().enumerate();
        let headed = headed.filter(|(_, class)| class.nodes.first() == Some(&map.me));
        let listen = map.node(map.me).map(|node| &node.listen);
        let own = listen.map(|listen| match port {
            Port::Class(port) => listen.at(port),
            _ => listen.clone(),
        });
        let is_own = |primary| own.as_ref() == Some(primary);
        // If classes have ports, no primary is at the ordinary port. It covers what the class ports
        // cover.
        let is_listed = headed.clone().any(|(_, class)| is_own(&class.primary));
        let takes_all = port == Port::Cluster && !is_listed;
        let covered = headed.filter(|(_, class)| takes_all || is_own(&class.primary));
        let covered: Vec<_> = covered.collect();
        Self {
            slots: covered
                .iter()
                .map(|(_, class)| (class.first, class.last))
                .collect(),
            ordered: covered.iter().any(|(at, _)| *at == 0),
        }
    }

    /// Returns whether the range that begins at this bound is covered.
    pub fn covers(&self, bound: &Bound) -> bool {
        match bound {
            Bound::Slot(slot) => {
                let mut slots = self.slots.iter();
                slots.any(|(first, last)| (first..=last).contains(&slot))
            }
            Bound::Key(_) => self.ordered,
        }
    }

    /// Returns the covered parts of a table, in its order.
    pub fn segments<'m>(&self, table: &'m MapTable) -> Vec<Segment<'m>> {
        let ranges = table.layout.ranges();
        let mut segments = Vec::new();
        for (at, range) in ranges.iter().enumerate() {
            let (from, holders) = (Spot::of(&range.lower), table.held(Some(range)));
            let until = ranges.get(at + 1).map(|next| Spot::of(&next.lower));
            match table.layout.order {
                Order::Ordered if self.ordered => segments.push(Segment {
                    from,
                    until,
                    holders,
                }),
                Order::Ordered => {}
                Order::Hashed => {
                    let cut = |slots: &(u16, u16)| {
                        let first = Spot::of(&Bound::Slot(slots.0));
                        let behind = first_hash_of(u32::from(slots.1) + 1).map(Spot::Hash);
                        let segment = Segment {
                            from: first.max(from.clone()),
                            until: earlier(behind, until.clone()),
                            holders,
                        };
                        let is_any = segment.until.as_ref().is_none_or(|end| *end > segment.from);
                        is_any.then_some(segment)
                    };
                    segments.extend(self.slots.iter().filter_map(cut));
                }
            }
        }
        segments
    }
}

impl Coverage {
    /// Returns the covered ranges of a table's order, whatever nodes have them.
    pub fn stretches(&self, order: Order) -> Vec<Segment<'static>> {
        let whole = Segment {
            from: Spot::Key(Vec::new()),
            until: None,
            holders: &[],
        };
        match order {
            Order::Ordered => self.ordered.then_some(whole).into_iter().collect(),
            Order::Hashed => {
                let stretch = |(first, last): &(u16, u16)| Segment {
                    from: Spot::of(&Bound::Slot(*first)),
                    until: first_hash_of(u32::from(*last) + 1).map(Spot::Hash),
                    holders: &[],
                };
                self.slots.iter().map(stretch).collect()
            }
        }
    }
}

/// Returns the earlier of two ends; `None` is the end of the order.
fn earlier(a: Option<Spot>, b: Option<Spot>) -> Option<Spot> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
