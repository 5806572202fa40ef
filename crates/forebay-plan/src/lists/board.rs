//! A layout under change: its classes, the loads of nodes, and the gain of changes.
//!
//! The cost of a layout is a sum:
//!
//! - for each node and each prefix of the lists, the square of the distance of its load from its
//!   share; the distance is measured as a part of the share, and the square is weighed by the
//!   share;
//! - the amount copied from the old layout, times [`Prices::copied`];
//! - the places with another primary than in the old layout, or with their entries in another
//!   order;
//! - a little for each class.
//!
//! So data is copied if that evens out a deviation above about half that price, and not otherwise.

use super::line::Extent;
use super::shares::Shares;

/// A class under change: it ends where the next one begins. Nodes are positions in the input.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Section {
    pub start: usize,
    pub list: Vec<u32>,
}

/// The prices of a layout besides uneven loads, for the whole line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prices {
    pub copied: f64,
    pub primary: f64,
    pub order: f64,
    /// The price of as many classes as there are nodes.
    pub class: f64,
}

impl Prices {
    pub fn per_node(self, nodes: usize) -> Self {
        Self {
            class: self.class / nodes as f64,
            ..self
        }
    }
}

/// A line with fewer places than this is short: each place weighs much, and is placed with care.
const FEW_PLACES: usize = 1000;

#[derive(Clone)]
pub(super) struct Board<'a> {
    pub extent: &'a Extent,
    pub shares: &'a Shares,
    pub old: &'a [Section],
    pub sections: Vec<Section>,
    /// For each node and prefix: its load, its share, and 1 / the greater of that and half a place,
    /// which cannot be divided.
    loads: Vec<f64>,
    wanted: Vec<f64>,
    scale: Vec<f64>,
    /// The number of classes that each node heads.
    pub heads: Vec<u32>,
    pub most_heads: u32,
    pub prices: Prices,
    /// Loads that are this near to their share are left alone.
    near: f64,
}

impl<'a> Board<'a> {
    pub fn new(
        extent: &'a Extent,
        shares: &'a Shares,
        old: &'a [Section],
        sections: Vec<Section>,
        most_heads: u32,
        prices: Prices,
    ) -> Self {
        let nodes = shares.zones.len();
        let prefixes = shares.prefixes.len();
        let of_node = |node: usize| shares.prefixes.iter().map(move |prefix| prefix[node]);
        let wanted: Vec<f64> = (0..nodes).flat_map(of_node).collect();
        let grain = 0.5 / extent.places() as f64;
        let mut board = Self {
            extent,
            shares,
            old,
            sections,
            loads: vec![0.0; nodes * prefixes],
            scale: wanted.iter().map(|share| 1.0 / share.max(grain)).collect(),
            wanted,
            heads: vec![0; nodes],
            most_heads,
            prices,
            near: if extent.places() < FEW_PLACES {
                0.0
            } else {
                1.0 / extent.places() as f64
            },
        };
        for section in 0..board.sections.len() {
            let width = extent.width(board.sections[section].start, board.end(section));
            let list = std::mem::take(&mut board.sections[section].list);
            board.add(&list, width);
            board.heads[list[0] as usize] += 1;
            board.sections[section].list = list;
        }
        board
    }

    /// Joins neighbours with the same list into one class.
    pub fn join(sections: &mut Vec<Section>) {
        sections.dedup_by(|next, section| next.list == section.list);
    }

    pub fn end(&self, section: usize) -> usize {
        let next = self.sections.get(section + 1);
        next.map_or(self.extent.places(), |next| next.start)
    }

    pub fn prefixes(&self) -> usize {
        self.shares.prefixes.len()
    }

    pub fn add(&mut self, list: &[u32], width: f64) {
        let prefixes = self.prefixes();
        for (place, &node) in list.iter().enumerate() {
            let first = node as usize * prefixes;
            for load in &mut self.loads[first + place..first + prefixes] {
                *load += width;
            }
        }
    }

    /// Returns 1 / a node's share.
    pub fn scale(&self, prefix: usize, node: u32) -> f64 {
        self.scale[node as usize * self.prefixes() + prefix]
    }

    /// Returns the distance of a node's load from its share, as a part of the share.
    pub fn deviation(&self, prefix: usize, node: u32) -> f64 {
        let at = node as usize * self.prefixes() + prefix;
        (self.loads[at] - self.wanted[at]) * self.scale[at]
    }

    /// Returns the largest distance of a node from its share in any prefix, as a part of the share.
    /// In long lines, it is 0 within a place, as boundaries are rounded to places. A node that
    /// heads too many classes is further than others.
    pub fn distance(&self, node: u32) -> f64 {
        if self.is_over_heads(node) {
            return f64::INFINITY;
        }
        let prefixes = 0..self.prefixes();
        let far = |prefix: usize| {
            let far = self.deviation(prefix, node).abs();
            if far > self.near * self.scale(prefix, node) {
                far
            } else {
                0.0
            }
        };
        prefixes.map(far).fold(0.0, f64::max)
    }

    pub fn is_over_heads(&self, node: u32) -> bool {
        self.heads[node as usize] > self.most_heads
    }
}
