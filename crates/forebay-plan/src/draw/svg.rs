//! The picture as SVG: a panel of bars for each stage, and a matrix of what goes from where to
//! where.
//!
//! With few nodes each has its bar and its name. With many, bars become thin and the matrix's cells
//! hold several nodes each, so that the drawing keeps its size.

use std::fmt::Write;

use super::{Picture, Stage, short};

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 60.0;
const PANEL: f64 = 110.0;
const PANEL_GAP: f64 = 46.0;
const MATRIX: f64 = 460.0;
/// The matrix has at most so many cells a side.
const CELLS: usize = 50;
/// Nodes up to this number are labelled one by one.
const LABELLED: usize = 40;
const COLORS: [&str; 4] = ["#4c78a8", "#72a35a", "#e08a3c", "#8d6bb0"];
const INK: &str = "#222";
const FAINT: &str = "#999";

/// Draws the picture.
pub fn svg(picture: &Picture) -> String {
    let head = 56.0 + 20.0 * picture.lines.len() as f64;
    let panels = picture.stages.len() as f64 * (PANEL + PANEL_GAP);
    let matrix = if picture.flows.is_empty() {
        0.0
    } else {
        MATRIX + 90.0
    };
    let height = head + panels + matrix + 20.0;
    let mut out = String::new();
    _ = writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13" fill="{INK}">"#
    );
    _ = writeln!(
        out,
        r#"<rect width="{WIDTH}" height="{height}" fill="white"/>"#
    );
    label(
        &mut out,
        MARGIN,
        32.0,
        "start",
        r#" font-size="20" font-weight="bold""#,
        &picture.title,
    );
    for (line, text) in picture.lines.iter().enumerate() {
        label(
            &mut out,
            MARGIN,
            56.0 + 20.0 * line as f64,
            "start",
            "",
            text,
        );
    }
    let mut top = head + 10.0;
    for stage in &picture.stages {
        panel(&mut out, picture, stage, top);
        top += PANEL + PANEL_GAP;
    }
    if !picture.flows.is_empty() {
        flows(&mut out, picture, top + 20.0);
    }
    out.push_str("</svg>\n");
    out
}

fn label(out: &mut String, x: f64, y: f64, anchor: &str, more: &str, text: &str) {
    let text = escape(text);
    _ = writeln!(
        out,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}"{more}>{text}</text>"#
    );
}

fn escape(text: &str) -> String {
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    // Control characters have no place in XML.
    text.replace(|c: char| c.is_control(), " ")
}

/// The bars of one stage, with its maximum and mean.
fn panel(out: &mut String, picture: &Picture, stage: &Stage, top: f64) {
    let scale = picture.scale(stage.group);
    let width = WIDTH - 2.0 * MARGIN;
    let bottom = top + PANEL;
    let title = format!(
        "{}: busiest {}, mean {}",
        stage.title,
        short(stage.max()),
        short(stage.mean())
    );
    label(
        out,
        MARGIN,
        top - 5.0,
        "start",
        r#" font-weight="bold""#,
        &title,
    );
    let y = |value: f64| {
        if scale > 0.0 {
            bottom - PANEL * value / scale
        } else {
            bottom
        }
    };
    let color = COLORS[stage.group as usize % COLORS.len()];
    let step = width / stage.values.len().max(1) as f64;
    let gap = if step > 6.0 { step * 0.15 } else { 0.0 };
    for (node, &value) in stage.values.iter().enumerate() {
        let x = MARGIN + step * node as f64 + gap / 2.0;
        let bar = (step - gap).max(0.8);
        _ = writeln!(
            out,
            r#"<rect x="{x:.2}" y="{:.2}" width="{bar:.2}" height="{:.2}" fill="{color}"><title>{}: {}</title></rect>"#,
            y(value),
            bottom - y(value),
            escape(&picture.name(node)),
            short(value)
        );
        if stage.values.len() <= LABELLED {
            let middle = x + bar / 2.0;
            let small = format!(r#" font-size="11" fill="{FAINT}""#);
            label(
                out,
                middle,
                bottom + 14.0,
                "middle",
                &small,
                &picture.name(node),
            );
        }
    }
    if stage.values.len() > LABELLED {
        ticks(out, stage.values.len(), step, bottom);
    }
    let right = MARGIN + width;
    for (value, dash) in [(scale, "1,3"), (stage.mean(), "6,3")] {
        let y = y(value);
        _ = writeln!(
            out,
            r#"<line x1="{MARGIN}" x2="{right}" y1="{y:.2}" y2="{y:.2}" stroke="{INK}" stroke-dasharray="{dash}" stroke-width="0.8"/>"#
        );
        let small = r#" font-size="11""#;
        label(out, right + 4.0, y + 4.0, "start", small, &short(value));
    }
    _ = writeln!(
        out,
        r#"<line x1="{MARGIN}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="{INK}"/>"#
    );
}

/// Some node numbers along the axis.
fn ticks(out: &mut String, nodes: usize, step: f64, bottom: f64) {
    let every = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
    let every = every
        .into_iter()
        .find(|every| nodes / every <= 12)
        .unwrap_or(nodes / 10);
    for node in (0..nodes).step_by(every.max(1)) {
        let x = MARGIN + step * (node as f64 + 0.5);
        let small = format!(r#" font-size="11" fill="{FAINT}""#);
        label(out, x, bottom + 14.0, "middle", &small, &node.to_string());
    }
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
    let title = format!(
        "What goes from (down) where to (across), in {what}: darkest {}",
        short(most)
    );
    label(
        out,
        MARGIN,
        top - 8.0,
        "start",
        r#" font-weight="bold""#,
        &title,
    );
    let side = MATRIX / cells as f64;
    for (place, sum) in sums.iter().enumerate().filter(|(_, sum)| sum.1 > 0) {
        let (row, column) = (place / cells, place % cells);
        // The faintest flow is still seen.
        let shade = 0.15 + 0.85 * size(sum) / most.max(f64::MIN_POSITIVE);
        let (x, y) = (MARGIN + side * column as f64, top + side * row as f64);
        _ = writeln!(
            out,
            r##"<rect x="{x:.2}" y="{y:.2}" width="{side:.2}" height="{side:.2}" fill="#a83232" fill-opacity="{shade:.3}"><title>{} to {}: {} {}, {} partitions</title></rect>"##,
            span(row, cells, nodes),
            span(column, cells, nodes),
            short(sum.0),
            escape(&picture.unit),
            sum.1
        );
    }
    _ = writeln!(
        out,
        r#"<rect x="{MARGIN}" y="{top}" width="{MATRIX}" height="{MATRIX}" fill="none" stroke="{INK}"/>"#
    );
    axis(out, cells, nodes, side, top);
    largest(out, picture, top);
}

/// The nodes of one row or column of cells.
fn span(cell: usize, cells: usize, nodes: usize) -> String {
    let first = (cell * nodes).div_ceil(cells);
    let last = ((cell + 1) * nodes).div_ceil(cells) - 1;
    if first == last {
        first.to_string()
    } else {
        format!("{first}-{last}")
    }
}

fn axis(out: &mut String, cells: usize, nodes: usize, side: f64, top: f64) {
    let every = cells.div_ceil(10);
    let small = format!(r#" font-size="11" fill="{FAINT}""#);
    for cell in (0..cells).step_by(every) {
        let middle = side * (cell as f64 + 0.5);
        let node = (cell * nodes).div_ceil(cells).to_string();
        label(out, MARGIN - 6.0, top + middle + 4.0, "end", &small, &node);
        label(
            out,
            MARGIN + middle,
            top + MATRIX + 15.0,
            "middle",
            &small,
            &node,
        );
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
    label(
        out,
        left,
        top + 8.0,
        "start",
        r#" font-weight="bold""#,
        "The largest flows",
    );
    for (line, flow) in flows.iter().take(shown).enumerate() {
        let partitions = if flow.count == 1 {
            "partition"
        } else {
            "partitions"
        };
        let text = format!(
            "{} to {}: {} {} in {} {partitions}",
            picture.name(flow.from as usize),
            picture.name(flow.to as usize),
            short(flow.amount),
            picture.unit,
            flow.count
        );
        label(
            out,
            left,
            top + 30.0 + 20.0 * line as f64,
            "start",
            "",
            &text,
        );
    }
    if flows.len() > shown {
        let text = format!("and {} more", flows.len() - shown);
        label(
            out,
            left,
            top + 30.0 + 20.0 * shown as f64,
            "start",
            "",
            &text,
        );
    }
}
