//! The picture as SVG: cost and bound, the timeline, the splits, a panel of bars for each group of
//! stages, and a matrix of what goes from where to where.
//!
//! With few nodes each has its bar and its name. With many, bars become thin and the matrix's cells
//! hold several nodes each, so that the drawing keeps its size.

use std::fmt::Write;

use super::canvas::{BOLD, INK, MARGIN, SMALL, WIDTH, escape, label};
use super::{Picture, overview, panels, short, timeline};

const MATRIX: f64 = 460.0;
/// About the width of a letter of a small label.
const LETTER: f64 = 6.5;

/// The matrix has at most so many cells a side.
const CELLS: usize = 50;

/// Draws the picture.
pub fn svg(picture: &Picture) -> String {
    let mut body = String::new();
    let big = r#" font-size="20" font-weight="bold""#;
    label(&mut body, (MARGIN, 32.0), "start", big, &picture.title);
    for (line, text) in picture.lines.iter().enumerate() {
        let y = 56.0 + 20.0 * line as f64;
        label(&mut body, (MARGIN, y), "start", "", text);
    }
    let mut top = 74.0 + 20.0 * picture.lines.len() as f64;
    overview::costs(&mut body, picture, top);
    top += overview::costs_height(picture);
    if let Some(drawn) = &picture.timeline {
        timeline::draw(&mut body, picture, top);
        top += drawn.height(picture.nodes());
    }
    overview::splits(&mut body, picture, top);
    top += overview::splits_height(picture) + 26.0;
    panels::draw(&mut body, picture, top);
    top += panels::height(picture);
    if !picture.flows.is_empty() {
        flows(&mut body, picture, top + 10.0);
        top += MATRIX + 60.0;
    }
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}" font-family="sans-serif" font-size="13" fill="{INK}">
<rect width="{WIDTH}" height="{top}" fill="white"/>
{body}</svg>
"#
    )
}

/// The matrix: a row for where partitions come from, a column for where they go, and beside it the
/// largest flows in words.
fn flows(out: &mut String, picture: &Picture, top: f64) {
    let nodes = picture.nodes().max(1);
    let cells = nodes.min(CELLS);
    let cell = |node: u32| (node as usize).min(nodes - 1) * cells / nodes;
    let mut sums = vec![(0.0, 0u32); cells * cells];
    for flow in &picture.flows {
        let sum = &mut sums[cell(flow.from) * cells + cell(flow.to)];
        sum.0 += flow.amount;
        sum.1 += flow.count;
    }
    // By count where nothing is carried, as when moves only hand over.
    let weight = |sum: &(f64, u32)| (sum.0, f64::from(sum.1));
    let carried = sums.iter().any(|sum| sum.0 > 0.0);
    let size = |sum: &(f64, u32)| {
        if carried {
            weight(sum).0
        } else {
            weight(sum).1
        }
    };
    let most = sums.iter().map(size).fold(0.0, f64::max);
    let what = if carried {
        picture.unit.as_str()
    } else {
        "partitions"
    };
    let darkest = match carried {
        true => picture.shown(most),
        false => short(most),
    };
    let title = format!("What goes from (down) where to (across), in {what}: darkest {darkest}");
    label(out, (MARGIN, top - 8.0), "start", BOLD, &title);
    let side = MATRIX / cells as f64;
    for (place, sum) in sums.iter().enumerate().filter(|(_, sum)| sum.1 > 0) {
        let (row, column) = (place / cells, place % cells);
        // The faintest flow is still seen.
        let shade = 0.15 + 0.85 * size(sum) / most.max(f64::MIN_POSITIVE);
        let (x, y) = (MARGIN + side * column as f64, top + side * row as f64);
        _ = writeln!(
            out,
            r##"<rect x="{x:.2}" y="{y:.2}" width="{side:.2}" height="{side:.2}" fill="#a83232" fill-opacity="{shade:.3}"><title>{} to {}: {}, {} partitions</title></rect>"##,
            escape(&span(picture, row, cells)),
            escape(&span(picture, column, cells)),
            escape(&picture.counted(sum.0)),
            sum.1
        );
    }
    _ = writeln!(
        out,
        r#"<rect x="{MARGIN}" y="{top}" width="{MATRIX}" height="{MATRIX}" fill="none" stroke="{INK}"/>"#
    );
    axis(out, picture, cells, top);
    largest(out, picture, top);
}

/// The nodes of one row or column of cells.
fn span(picture: &Picture, cell: usize, cells: usize) -> String {
    let nodes = picture.nodes().max(1);
    let first = (cell * nodes).div_ceil(cells);
    let last = ((cell + 1) * nodes).div_ceil(cells) - 1;
    if first == last {
        picture.name(first)
    } else {
        format!("{first}-{last}")
    }
}

fn axis(out: &mut String, picture: &Picture, cells: usize, top: f64) {
    let nodes = picture.nodes().max(1);
    let side = MATRIX / cells as f64;
    let every = cells.div_ceil(10);
    let across = (side * every as f64 / LETTER) as usize;
    for cell in (0..cells).step_by(every) {
        let middle = side * (cell as f64 + 0.5);
        let name = picture.name((cell * nodes).div_ceil(cells));
        let down = shortened(&name, (MARGIN / LETTER) as usize);
        label(out, (MARGIN - 6.0, top + middle + 4.0), "end", SMALL, &down);
        let below = (MARGIN + middle, top + MATRIX + 15.0);
        label(out, below, "middle", SMALL, &shortened(&name, across));
    }
}

/// A name that takes no more than so many letters: its end tells it from its neighbours.
fn shortened(name: &str, letters: usize) -> String {
    let count = name.chars().count();
    match count.checked_sub(letters.max(2)) {
        None | Some(0) => name.to_owned(),
        Some(more) => format!("…{}", name.chars().skip(more + 1).collect::<String>()),
    }
}

fn largest(out: &mut String, picture: &Picture, top: f64) {
    let mut flows = picture.flows.clone();
    flows.sort_by(|a, b| {
        let by_amount = b.amount.total_cmp(&a.amount);
        by_amount
            .then(b.count.cmp(&a.count))
            .then((a.from, a.to).cmp(&(b.from, b.to)))
    });
    let left = MARGIN + MATRIX + 50.0;
    let shown = 20;
    label(out, (left, top + 8.0), "start", BOLD, "The largest flows");
    for (line, flow) in flows.iter().take(shown).enumerate() {
        let partitions = if flow.count == 1 {
            "partition"
        } else {
            "partitions"
        };
        let text = format!(
            "{} to {}: {} in {} {partitions}",
            picture.name(flow.from as usize),
            picture.name(flow.to as usize),
            picture.counted(flow.amount),
            flow.count
        );
        label(
            out,
            (left, top + 30.0 + 20.0 * line as f64),
            "start",
            "",
            &text,
        );
    }
    if flows.len() > shown {
        let text = format!("and {} more", flows.len() - shown);
        label(
            out,
            (left, top + 30.0 + 20.0 * shown as f64),
            "start",
            "",
            &text,
        );
    }
}
