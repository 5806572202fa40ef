//! Draws the foot of a drawing: the steps and the largest flows in words.
//!
//! If there are more flows than lines, it adds a matrix of the nodes that send or receive.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::canvas::{BOLD, INK, MARGIN, SMALL, WIDTH, escape, label};
use super::{Flow, Picture, short};

/// The most lines of steps, and of flows.
const LINES: usize = 20;
const LINE: f64 = 20.0;
/// The position of the second column.
const MIDDLE: f64 = WIDTH / 2.0;
/// The largest side of the matrix, and of its cells.
const MATRIX: f64 = 460.0;
const CELL: f64 = 40.0;
/// The most cells on a side of the matrix.
const CELLS: usize = 50;
/// The approximate width of a letter of a small label.
const LETTER: f64 = 6.5;

pub fn height(picture: &Picture) -> f64 {
    if picture.flows.is_empty() && picture.steps.is_empty() {
        return 0.0;
    }
    let words = words_height(picture.steps.len().max(picture.flows.len()));
    words + Matrix::of(picture).map_or(0.0, |matrix| matrix.height())
}

fn words_height(lines: usize) -> f64 {
    (lines.min(LINES + 1) as f64 + 2.0) * LINE
}

pub fn draw(out: &mut String, picture: &Picture, top: f64) {
    let top = top + 10.0;
    if !picture.steps.is_empty() {
        let lines = picture.steps.iter().cloned();
        column(out, (MARGIN, top), "The steps, in their order", lines);
    }
    if !picture.flows.is_empty() {
        let left = if picture.steps.is_empty() {
            MARGIN
        } else {
            MIDDLE
        };
        let flows = largest_first(picture);
        let lines = flows.iter().map(|flow| picture.words(flow));
        column(out, (left, top), "The largest flows", lines);
    }
    if let Some(matrix) = Matrix::of(picture) {
        let lines = picture.steps.len().max(picture.flows.len());
        matrix.draw(out, top + words_height(lines));
    }
}

fn column(
    out: &mut String,
    (left, top): (f64, f64),
    title: &str,
    lines: impl ExactSizeIterator<Item = String>,
) {
    label(out, (left, top), "start", BOLD, title);
    let more = lines.len().saturating_sub(LINES);
    let more = (more > 0).then(|| format!("and {more} more"));
    for (line, text) in lines.take(LINES).chain(more).enumerate() {
        let y = top + LINE * (line as f64 + 1.0);
        label(out, (left, y), "start", "", &text);
    }
}

fn largest_first(picture: &Picture) -> Vec<Flow> {
    let mut flows = picture.flows.clone();
    flows.sort_by(|a, b| {
        let by_amount = b.amount.total_cmp(&a.amount);
        by_amount
            .then(b.count.cmp(&a.count))
            .then((a.from, a.to).cmp(&(b.from, b.to)))
    });
    flows
}

impl Picture {
    fn words(&self, flow: &Flow) -> String {
        let partitions = if flow.count == 1 {
            "partition"
        } else {
            "partitions"
        };
        format!(
            "{} to {}: {} in {} {partitions}",
            self.name(flow.from as usize),
            self.name(flow.to as usize),
            self.counted(flow.amount),
            flow.count
        )
    }
}

/// A matrix of flows: a row for each source of partitions, a column for each target.
struct Matrix<'p> {
    picture: &'p Picture,
    /// The nodes of each row and column. Only nodes that send or receive are included; several
    /// share a row if there are many.
    nodes: Vec<Vec<u32>>,
    side: f64,
}

impl<'p> Matrix<'p> {
    /// Returns none if the words show every flow.
    fn of(picture: &'p Picture) -> Option<Self> {
        if picture.flows.len() <= LINES {
            return None;
        }
        let ends = picture.flows.iter().flat_map(|flow| [flow.from, flow.to]);
        let ends: BTreeSet<u32> = ends.collect();
        let ends: Vec<u32> = ends.into_iter().collect();
        let nodes: Vec<Vec<u32>> = ends
            .chunks(ends.len().div_ceil(CELLS).max(1))
            .map(<[u32]>::to_vec)
            .collect();
        let side = (MATRIX / nodes.len() as f64).min(CELL);
        Some(Self {
            picture,
            nodes,
            side,
        })
    }

    fn whole(&self) -> f64 {
        self.side * self.nodes.len() as f64
    }

    fn height(&self) -> f64 {
        self.whole() + 60.0
    }

    fn cell(&self, node: u32) -> usize {
        self.nodes
            .partition_point(|nodes| nodes.last() < Some(&node))
    }

    fn draw(&self, out: &mut String, top: f64) {
        let cells = self.nodes.len();
        let mut sums = vec![(0.0, 0u32); cells * cells];
        for flow in &self.picture.flows {
            let sum = &mut sums[self.cell(flow.from) * cells + self.cell(flow.to)];
            sum.0 += flow.amount;
            sum.1 += flow.count;
        }
        // Counts moves if nothing is copied, as when they only hand over.
        let carried = sums.iter().any(|sum| sum.0 > 0.0);
        let size = |sum: &(f64, u32)| if carried { sum.0 } else { f64::from(sum.1) };
        let most = sums.iter().map(size).fold(0.0, f64::max);
        let (what, darkest) = match carried {
            true => (self.picture.unit.as_str(), self.picture.shown(most)),
            false => ("partitions", short(most)),
        };
        let title = format!(
            "What goes from (down) where to (across), in {what}: darkest {darkest}. Only nodes that send or receive"
        );
        label(out, (MARGIN, top - 8.0), "start", BOLD, &title);
        for (place, sum) in sums.iter().enumerate().filter(|(_, sum)| sum.1 > 0) {
            let (row, column) = (place / cells, place % cells);
            // The faintest flow is still visible.
            let shade = 0.15 + 0.85 * size(sum) / most.max(f64::MIN_POSITIVE);
            let side = self.side;
            let (x, y) = (MARGIN + side * column as f64, top + side * row as f64);
            _ = writeln!(
                out,
                r##"<rect x="{x:.2}" y="{y:.2}" width="{side:.2}" height="{side:.2}" fill="#a83232" fill-opacity="{shade:.3}"><title>{} to {}: {}, {} partitions</title></rect>"##,
                escape(&self.name(row)),
                escape(&self.name(column)),
                escape(&self.picture.counted(sum.0)),
                sum.1
            );
        }
        let whole = self.whole();
        _ = writeln!(
            out,
            r#"<rect x="{MARGIN}" y="{top}" width="{whole:.2}" height="{whole:.2}" fill="none" stroke="{INK}"/>"#
        );
        self.axis(out, top);
    }

    fn axis(&self, out: &mut String, top: f64) {
        let every = self.nodes.len().div_ceil(10);
        let across = (self.side * every as f64 / LETTER) as usize;
        for cell in (0..self.nodes.len()).step_by(every) {
            let middle = self.side * (cell as f64 + 0.5);
            let name = self.picture.name(self.nodes[cell][0] as usize);
            let down = shortened(&name, (MARGIN / LETTER) as usize);
            label(out, (MARGIN - 6.0, top + middle + 4.0), "end", SMALL, &down);
            let below = (MARGIN + middle, top + self.whole() + 15.0);
            label(out, below, "middle", SMALL, &shortened(&name, across));
        }
    }

    /// Returns the nodes of one row or column.
    fn name(&self, cell: usize) -> String {
        match &self.nodes[cell][..] {
            [node] => self.picture.name(*node as usize),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        }
    }
}

/// Shortens a name to at most this many letters. Keeps its end, where it differs from its
/// neighbours.
fn shortened(name: &str, letters: usize) -> String {
    let count = name.chars().count();
    match count.checked_sub(letters.max(2)) {
        None | Some(0) => name.to_owned(),
        Some(more) => format!("…{}", name.chars().skip(more + 1).collect::<String>()),
    }
}
