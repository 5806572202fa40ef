//! Draws a panel for each group of stages, with the nodes' values side by side.

use std::fmt::Write;

use super::canvas::{COLORS, INK, LABELLED, MARGIN, SMALL, WIDTH, block, label, line};
use super::{Picture, Stage};

const PANEL: f64 = 110.0;
const PANEL_GAP: f64 = 62.0;

pub fn height(picture: &Picture) -> f64 {
    groups(picture).len() as f64 * (PANEL + PANEL_GAP)
}

/// Splits the stages into runs of the same group.
fn groups(picture: &Picture) -> Vec<&[Stage]> {
    picture
        .stages
        .chunk_by(|a, b| a.group == b.group && a.values.len() == b.values.len())
        .collect()
}

pub fn draw(out: &mut String, picture: &Picture, top: f64) {
    for (place, stages) in groups(picture).into_iter().enumerate() {
        panel(
            out,
            picture,
            stages,
            top + (PANEL + PANEL_GAP) * place as f64,
        );
    }
}

/// Returns the opacity of a stage: the later, the darker.
fn opacity(place: usize, stages: usize) -> f64 {
    1.0 - 0.65 * (stages - 1 - place) as f64 / (stages.max(2) - 1) as f64
}

fn panel(out: &mut String, picture: &Picture, stages: &[Stage], top: f64) {
    let group = stages[0].group;
    let scale = picture.scale(group);
    let color = COLORS[group as usize % COLORS.len()];
    let bottom = top + PANEL;
    for (place, stage) in stages.iter().enumerate() {
        let x = MARGIN + 360.0 * place as f64;
        let text = format!(
            "{}: most {}, mean {}",
            stage.title,
            picture.shown(stage.max()),
            picture.shown(stage.mean())
        );
        block(
            out,
            [x, top - 26.0, 12.0, 12.0],
            color,
            opacity(place, stages.len()),
            &stage.title,
        );
        label(out, (x + 17.0, top - 16.0), "start", "", &text);
    }
    let height = |value: f64| {
        if scale > 0.0 {
            PANEL * value / scale
        } else {
            0.0
        }
    };
    let right = WIDTH - MARGIN;
    for (value, at) in [(scale, top), (scale / 2.0, top + PANEL / 2.0)] {
        line(out, (MARGIN, at), (right, at), "#ddd", "");
        label(
            out,
            (MARGIN - 6.0, at + 4.0),
            "end",
            SMALL,
            &picture.shown(value),
        );
    }
    let count = stages[0].values.len();
    for (place, stage) in stages.iter().enumerate() {
        if count > LABELLED && place > 0 {
            profile(out, stage, bottom, &height, place);
        } else {
            bars(out, picture, (stages, place), bottom, &height);
        }
    }
    line(out, (MARGIN, bottom), (right, bottom), INK, "");
    names(out, picture, count, bottom);
}

fn bars(
    out: &mut String,
    picture: &Picture,
    (stages, place): (&[Stage], usize),
    bottom: f64,
    height: &dyn Fn(f64) -> f64,
) {
    let stage = &stages[place];
    let color = COLORS[stage.group as usize % COLORS.len()];
    let step = (WIDTH - 2.0 * MARGIN) / stage.values.len().max(1) as f64;
    let single = stage.values.len() > LABELLED;
    let (share, offset) = if single {
        (1.0, 0.0)
    } else {
        (0.8 / stages.len() as f64, 0.1)
    };
    for (node, &value) in stage.values.iter().enumerate() {
        let x = MARGIN
            + step * (node as f64 + offset + if single { 0.0 } else { share * place as f64 });
        let title = format!(
            "{}, {}: {}",
            picture.name(node),
            stage.title,
            picture.shown(value)
        );
        let (width, high) = ((step * share).max(0.8), height(value));
        let faint = opacity(place, stages.len());
        block(out, [x, bottom - high, width, high], color, faint, &title);
        if step * share > 34.0 {
            label(
                out,
                (x + width / 2.0, bottom - high - 3.0),
                "middle",
                r#" font-size="10""#,
                &picture.shown(value),
            );
        }
    }
}

/// Draws many nodes: later stages are lines over the bars of the first one.
fn profile(
    out: &mut String,
    stage: &Stage,
    bottom: f64,
    height: &dyn Fn(f64) -> f64,
    place: usize,
) {
    let step = (WIDTH - 2.0 * MARGIN) / stage.values.len().max(1) as f64;
    let mut path = String::new();
    for (node, &value) in stage.values.iter().enumerate() {
        let command = if node == 0 { 'M' } else { 'L' };
        let (x, y) = (MARGIN + step * (node as f64 + 0.5), bottom - height(value));
        _ = write!(path, "{command}{x:.1} {y:.1}");
    }
    let color = COLORS[stage.group as usize % COLORS.len()];
    let color = if place == 1 { INK } else { color };
    _ = writeln!(
        out,
        r#"<path d="{path}" fill="none" stroke="{color}" stroke-width="1.2"/>"#
    );
}

/// Draws the nodes' names, or some of their numbers along the axis.
fn names(out: &mut String, picture: &Picture, count: usize, bottom: f64) {
    let step = (WIDTH - 2.0 * MARGIN) / count.max(1) as f64;
    let every = [1, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
    let most = if count <= LABELLED { LABELLED } else { 12 };
    let every = every.into_iter().find(|every| count / every <= most);
    for node in (0..count).step_by(every.unwrap_or(count / 10).max(1)) {
        let x = MARGIN + step * (node as f64 + 0.5);
        let name = if count == picture.nodes() {
            picture.name(node)
        } else {
            node.to_string()
        };
        label(out, (x, bottom + 14.0), "middle", SMALL, &name);
    }
}
