//! The places of a table's order, and the weight of each.

use serde::{Deserialize, Serialize};

/// The places that classes divide, in order. A class has whole places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// This many places of equal weight, such as the 16,384 slots of hashed tables.
    Uniform(u32),
    /// The weight of each place, such as the bytes of an ordered table's partitions.
    Weighed(Vec<u64>),
}

impl Line {
    pub fn places(&self) -> usize {
        match self {
            Self::Uniform(places) => *places as usize,
            Self::Weighed(weights) => weights.len(),
        }
    }

    /// Returns the weight of some places together.
    pub fn weight(&self, places: std::ops::Range<u32>) -> f64 {
        match self {
            Self::Uniform(_) => f64::from(places.end) - f64::from(places.start),
            Self::Weighed(weights) => {
                let places = places.start as usize..places.end as usize;
                weights[places].iter().map(|&weight| weight as f64).sum()
            }
        }
    }
}

/// A line as parts of the whole: the part before each place.
#[derive(Debug)]
pub(super) struct Extent {
    before: Vec<f64>,
}

impl Extent {
    /// Measures a line. If all places weigh nothing, each has the same part.
    pub fn new(line: &Line) -> Self {
        let places = line.places();
        let total = line.weight(0..places as u32);
        let mut before = Vec::with_capacity(places + 1);
        let mut sum = 0.0;
        for place in 0..places {
            before.push(sum);
            sum += match line {
                Line::Weighed(weights) if total > 0.0 => weights[place] as f64 / total,
                _ => 1.0 / places as f64,
            };
        }
        before.push(1.0);
        Self { before }
    }

    pub fn places(&self) -> usize {
        self.before.len() - 1
    }

    pub fn before(&self, place: usize) -> f64 {
        self.before[place]
    }

    pub fn width(&self, from: usize, to: usize) -> f64 {
        self.before[to] - self.before[from]
    }

    /// Returns the boundary between places that is nearest to this part of the whole.
    pub fn nearest(&self, part: f64) -> usize {
        let above = self.before.partition_point(|&before| before < part);
        let above = above.min(self.places());
        if above > 0 && part - self.before[above - 1] < self.before[above] - part {
            above - 1
        } else {
            above
        }
    }
}
