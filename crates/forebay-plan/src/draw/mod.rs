//! Draws plans for operators to review before they approve: one [`Picture`], as SVG or as text.

mod canvas;
mod flows;
mod overview;
mod panels;
mod svg;
mod text;
mod timeline;

pub use overview::{CostBar, SplitBar};
pub use svg::svg;
pub use text::text;
pub use timeline::{Activity, TimeBar, TimeUnit, Timeline, timeline_of_copies};

/// A drawing's data: the nodes' load at each stage, the flows between nodes, and the figures.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    pub title: String,
    /// The verdict in one line; empty for none.
    pub verdict: String,
    /// Figures above the drawing, such as price and bound.
    pub lines: Vec<String>,
    /// The plan's cost beside other costs, in `unit` times its price.
    pub costs: Vec<CostBar>,
    pub timeline: Option<Timeline>,
    /// The partitions that are split, those with the most pieces first.
    pub splits: Vec<SplitBar>,
    /// The stages. The first is of the nodes; others may be of partitions.
    pub stages: Vec<Stage>,
    /// The kind of row in the first stage, if it is not nodes.
    pub rows: PictureRows,
    pub flows: Vec<Flow>,
    /// The steps in order, a line for each.
    pub steps: Vec<String>,
    /// The unit of a flow's amount, such as `records`.
    pub unit: String,
    /// Values and amounts are bytes, in the format that commands use: `1.5 MiB`.
    pub sizes: bool,
    /// The names of the nodes; without names, their numbers.
    pub names: Vec<String>,
}

/// The kind of row that values belong to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PictureRows {
    #[default]
    Nodes,
    Partitions,
}

impl PictureRows {
    /// Returns the heading above the rows.
    fn heading(self) -> &'static str {
        match self {
            Self::Nodes => "node",
            Self::Partitions => "partition",
        }
    }
}

/// One value for each node, such as `existing before`.
#[derive(Debug, Clone, Default)]
pub struct Stage {
    pub title: String,
    pub values: Vec<f64>,
    /// Stages of one group are drawn to one scale.
    pub group: u32,
}

/// An amount that moves from one node to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flow {
    pub from: u32,
    pub to: u32,
    pub amount: f64,
    pub count: u32,
}

impl Picture {
    /// Sums the flows between each pair of nodes. Flows keep their order of arrival.
    pub fn sum_flows(transfers: impl IntoIterator<Item = (u32, u32, f64)>) -> Vec<Flow> {
        let mut sums = std::collections::BTreeMap::<(u32, u32), (f64, u32)>::new();
        for (from, to, amount) in transfers {
            let sum = sums.entry((from, to)).or_default();
            sum.0 += amount;
            sum.1 += 1;
        }
        let flow = |((from, to), (amount, count))| Flow {
            from,
            to,
            amount,
            count,
        };
        sums.into_iter().map(flow).collect()
    }

    /// Formats a value.
    fn shown(&self, value: f64) -> String {
        match self.sizes {
            true => size(value),
            false => short(value),
        }
    }

    /// Formats an amount with its unit.
    fn counted(&self, amount: f64) -> String {
        match self.sizes {
            true => size(amount),
            false => format!("{} {}", short(amount), self.unit),
        }
    }

    fn nodes(&self) -> usize {
        self.stages.first().map_or(0, |stage| stage.values.len())
    }

    fn name(&self, node: usize) -> String {
        let given = self.names.get(node).filter(|name| !name.is_empty());
        given.cloned().unwrap_or_else(|| node.to_string())
    }

    /// Returns the largest value of a stage's group.
    fn scale(&self, group: u32) -> f64 {
        let stages = self.stages.iter().filter(|stage| stage.group == group);
        stages
            .flat_map(|stage| &stage.values)
            .copied()
            .fold(0.0, f64::max)
    }
}

impl Stage {
    pub fn new(title: &str, group: u32, values: Vec<f64>) -> Self {
        Self {
            title: title.to_owned(),
            values,
            group,
        }
    }

    fn max(&self) -> f64 {
        self.values.iter().copied().fold(0.0, f64::max)
    }

    fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len().max(1) as f64
    }
}

/// Formats a number as three digits and a unit: 1234567 -> `1.23M`.
pub fn short(value: f64) -> String {
    let units = ["", "k", "M", "G", "T", "P", "E"];
    let (mut value, mut unit) = (value, 0);
    while value.abs() >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = match value.abs() {
        size if size >= 99.95 || (unit == 0 && value.fract() == 0.0) => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{}", units[unit])
}

/// Formats bytes with one digit and a unit of 1024: 1572864 -> `1.5 MiB`.
pub fn size(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0);
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
