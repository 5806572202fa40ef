//! Draws the cost beside the bound above the timeline, and the split partitions below it.

use super::canvas::{BOLD, COLORS, INK, MARGIN, SMALL, WIDTH, block, label, line};
use super::{Picture, short};

/// A cost, and the parts that it is the sum of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CostBar {
    pub title: String,
    pub parts: Vec<(&'static str, f64)>,
}

/// A split partition: its pieces in order, each with its records and its nodes, the primary's
/// first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SplitBar {
    pub title: String,
    pub pieces: Vec<(f64, Vec<u32>)>,
}

const ROW: f64 = 24.0;
/// The left end of the bars, right of their titles.
const LEFT: f64 = MARGIN + 150.0;
const SHOWN_SPLITS: usize = 6;
/// The most pieces that are drawn with their own edges.
const DRAWN_PIECES: usize = 400;

pub fn costs_height(picture: &Picture) -> f64 {
    rows_height(picture.costs.len())
}

pub fn splits_height(picture: &Picture) -> f64 {
    rows_height(picture.splits.len().min(SHOWN_SPLITS))
}

fn rows_height(rows: usize) -> f64 {
    if rows == 0 {
        0.0
    } else {
        rows as f64 * ROW + 46.0
    }
}

/// Draws a bar for each cost, to one scale. The last one is the bound, drawn through all of them.
pub fn costs(out: &mut String, picture: &Picture, top: f64) {
    let total = |bar: &CostBar| bar.parts.iter().map(|part| part.1).sum::<f64>();
    let most = picture.costs.iter().map(total).fold(0.0, f64::max);
    let Some(bound) = picture.costs.last().map(total) else {
        return;
    };
    label(
        out,
        (MARGIN, top),
        "start",
        BOLD,
        "Cost, and the bound that no plan can beat",
    );
    let scale = (WIDTH - MARGIN - 70.0 - LEFT) / most.max(f64::MIN_POSITIVE);
    for (row, bar) in picture.costs.iter().enumerate() {
        let y = top + 10.0 + ROW * row as f64;
        label(out, (LEFT - 8.0, y + 14.0), "end", "", &bar.title);
        let mut x = LEFT;
        for (word, cost) in &bar.parts {
            let color = match *word {
                "moves" => COLORS[2],
                "inserts" => COLORS[1],
                _ => INK,
            };
            let text = format!("{word} {}", short(*cost));
            block(out, [x, y, cost * scale, ROW - 6.0], color, 0.85, &text);
            if cost * scale > 8.0 * text.len() as f64 {
                let white = r#" fill="white""#;
                label(out, (x + 6.0, y + 14.0), "start", white, &text);
            }
            x += cost * scale;
        }
        label(out, (x + 6.0, y + 14.0), "start", BOLD, &short(total(bar)));
    }
    let x = LEFT + bound * scale;
    let bottom = top + 10.0 + ROW * picture.costs.len() as f64;
    line(
        out,
        (x, top + 6.0),
        (x, bottom),
        INK,
        r#" stroke-dasharray="4,3""#,
    );
}

/// Draws the split partitions, each as a bar of its pieces with their nodes.
pub fn splits(out: &mut String, picture: &Picture, top: f64) {
    if picture.splits.is_empty() {
        return;
    }
    let more = picture.splits.len().saturating_sub(SHOWN_SPLITS);
    let more = match more {
        0 => String::new(),
        more => format!(" ({more} more are not shown)"),
    };
    let mut pieces_of = picture.splits.iter().flat_map(|bar| &bar.pieces);
    let replicas = match pieces_of.any(|(_, nodes)| nodes.len() > 1) {
        true => "s, the primary's first",
        false => "",
    };
    let title = format!(
        "Splits: pieces by their records after the insert, with their node{replicas}{more}"
    );
    label(out, (MARGIN, top), "start", BOLD, &title);
    for (row, bar) in picture.splits.iter().take(SHOWN_SPLITS).enumerate() {
        let y = top + 10.0 + ROW * row as f64;
        label(out, (LEFT - 8.0, y + 14.0), "end", "", &bar.title);
        pieces(out, picture, bar, y);
    }
}

fn pieces(out: &mut String, picture: &Picture, bar: &SplitBar, y: f64) {
    let total: f64 = bar.pieces.iter().map(|piece| piece.0).sum();
    let scale = (WIDTH - MARGIN - LEFT) / total.max(f64::MIN_POSITIVE);
    let edge = if bar.pieces.len() > DRAWN_PIECES {
        0.0
    } else {
        1.0
    };
    let mut x = LEFT;
    let mut first = 0;
    // Beyond what the eye can distinguish, neighbours are drawn as one.
    let together = bar.pieces.len().div_ceil(DRAWN_PIECES);
    for pieces in bar.pieces.chunks(together) {
        let width = pieces.iter().map(|piece| piece.0).sum::<f64>() * scale;
        let (records, nodes) = &pieces[0];
        let names: Vec<String> = nodes
            .iter()
            .map(|&node| picture.name(node as usize))
            .collect();
        let node = names.join(" ");
        let title = format!("piece {first}: {} to {node}", short(*records));
        let primary = nodes.first().copied().unwrap_or(0);
        let color = COLORS[primary as usize % COLORS.len()];
        block(
            out,
            [x, y, (width - edge).max(0.5), ROW - 6.0],
            color,
            0.6,
            &title,
        );
        if together == 1 && width > 7.0 * node.chars().count() as f64 + 4.0 {
            let dark = SMALL.replace("#999", INK);
            label(out, (x + width / 2.0, y + 13.0), "middle", &dark, &node);
        }
        x += width;
        first += pieces.len();
    }
}
