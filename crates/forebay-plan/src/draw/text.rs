//! Draws the picture as a few lines of text, for a terminal.

use std::fmt::Write;

use super::{Picture, Stage};

const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The most nodes that each have a line.
const LINES: usize = 16;
const BAR: usize = 24;

/// Draws the picture about `width` columns wide.
pub fn text(picture: &Picture, width: usize) -> String {
    let mut out = String::new();
    if !picture.title.is_empty() {
        _ = writeln!(out, "{}", picture.title);
    }
    if !picture.verdict.is_empty() {
        _ = writeln!(out, "{}", picture.verdict);
    }
    for line in &picture.lines {
        _ = writeln!(out, "{line}");
    }
    if picture.nodes() == 0 {
        return out;
    }
    out.push('\n');
    if picture.nodes() <= LINES {
        bars(&mut out, picture, width);
    } else {
        profiles(&mut out, picture, width);
    }
    out
}

/// Draws a line for each node, with a bar for each stage.
fn bars(out: &mut String, picture: &Picture, width: usize) {
    let heading = picture.rows.heading();
    let names: Vec<String> = (0..picture.nodes())
        .map(|node| picture.name(node))
        .collect();
    let wide = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0)
        .max(heading.len());
    let stages = picture.stages.len().max(1);
    let values = value_width(picture);
    let bar = (width.saturating_sub(wide) / stages)
        .saturating_sub(values + 3)
        .clamp(4, BAR);
    let column = bar + values + 3;
    headings(out, picture, (heading, wide), column - 2);
    for (node, name) in names.iter().enumerate() {
        trim_end(out);
        _ = write!(out, "\n{name:>wide$}");
        for stage in &picture.stages {
            let value = stage.values.get(node).copied().unwrap_or(0.0);
            let part = part(value, picture.scale(stage.group));
            let full = (part * bar as f64).round() as usize;
            _ = write!(
                out,
                "  {:>values$} {}{}",
                picture.shown(value),
                "█".repeat(full),
                " ".repeat(bar - full)
            );
        }
    }
    trim_end(out);
    out.push('\n');
}

/// Writes the titles of the columns, over several lines if they are long.
fn headings(out: &mut String, picture: &Picture, (heading, wide): (&str, usize), column: usize) {
    let stages = picture.stages.iter();
    let titles: Vec<Vec<String>> = stages.map(|stage| wrapped(&stage.title, column)).collect();
    let lines = titles.iter().map(Vec::len).max().unwrap_or(0).max(1);
    for line in 0..lines {
        let is_last = line + 1 == lines;
        _ = write!(out, "{:wide$}", if is_last { heading } else { "" });
        for title in &titles {
            let place = (line + title.len()).checked_sub(lines);
            let words = place.map_or("", |place| title[place].as_str());
            _ = write!(out, "  {words:column$}");
        }
        if !is_last {
            trim_end(out);
            out.push('\n');
        }
    }
}

/// Breaks a title into lines of at most this many letters; keeps words whole if they fit.
pub(super) fn wrapped(title: &str, letters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in title.split(' ') {
        for part in word.chars().collect::<Vec<char>>().chunks(letters.max(1)) {
            let part: String = part.iter().collect();
            match lines.last_mut() {
                Some(last) if last.is_empty() => *last = part,
                Some(last) if last.chars().count() + 1 + part.chars().count() <= letters => {
                    *last += " ";
                    *last += &part;
                }
                _ => lines.push(part),
            }
        }
    }
    lines
}

/// Draws a line of blocks for each stage. Nodes go from left to right, several to a block, and the
/// busiest of them counts.
fn profiles(out: &mut String, picture: &Picture, width: usize) {
    let wide = picture
        .stages
        .iter()
        .map(|stage| stage.title.chars().count())
        .max()
        .unwrap_or(0);
    let values = value_width(picture);
    let columns = width
        .saturating_sub(wide + 16 + 2 * values)
        .clamp(16, 100)
        .min(picture.nodes());
    for stage in &picture.stages {
        let scale = picture.scale(stage.group);
        let profile: String = buckets(stage, columns)
            .map(|value| block(part(value, scale)))
            .collect();
        _ = writeln!(
            out,
            "{:wide$}  {profile}  max {:>values$}  mean {:>values$}",
            stage.title,
            picture.shown(stage.max()),
            picture.shown(stage.mean())
        );
    }
}

/// Returns the number of columns that a value takes.
fn value_width(picture: &Picture) -> usize {
    if picture.sizes { 10 } else { 6 }
}

fn buckets(stage: &Stage, columns: usize) -> impl Iterator<Item = f64> {
    let count = stage.values.len();
    (0..columns).map(move |column| {
        let range = column * count / columns..(column + 1) * count / columns;
        stage.values[range].iter().copied().fold(0.0, f64::max)
    })
}

fn part(value: f64, scale: f64) -> f64 {
    if scale > 0.0 {
        (value / scale).clamp(0.0, 1.0)
    } else {
        0.0
    }
}

fn block(part: f64) -> char {
    // Values above zero are always visible.
    let height = if part > 0.0 {
        (part * 8.0).round().max(1.0)
    } else {
        0.0
    };
    BLOCKS[height as usize]
}

fn trim_end(out: &mut String) {
    out.truncate(out.trim_end_matches(' ').len());
}
