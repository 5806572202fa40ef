//! Draws the picture as SVG.
//!
//! It has the verdict, cost and bound, the timeline, the splits, the steps, and the flows between
//! nodes. Each group of stages has a panel of bars.
//!
//! With few nodes, each has its bar and its name. With many, bars become thin and each cell of the
//! matrix has several nodes, so that the drawing keeps its size.

use super::canvas::{BOLD, INK, MARGIN, WIDTH, label};
use super::text::wrapped;
use super::{Picture, flows, overview, panels, timeline};

/// The number of letters in a line across the drawing, and of bold ones.
const LETTERS: usize = 135;

/// Draws the picture.
pub fn svg(picture: &Picture) -> String {
    let mut body = String::new();
    let big = r#" font-size="20" font-weight="bold""#;
    label(&mut body, (MARGIN, 32.0), "start", big, &picture.title);
    let mut top = 56.0;
    let verdict = Some((BOLD, &picture.verdict)).filter(|(_, words)| !words.is_empty());
    let lines = picture.lines.iter().map(|line| ("", line));
    for (weight, text) in verdict.into_iter().chain(lines) {
        for line in wrapped(text, LETTERS) {
            label(&mut body, (MARGIN, top), "start", weight, &line);
            top += 20.0;
        }
    }
    top += 18.0;
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
    flows::draw(&mut body, picture, top);
    top += flows::height(picture);
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}" font-family="sans-serif" font-size="13" fill="{INK}">
<rect width="{WIDTH}" height="{top}" fill="white"/>
{body}</svg>
"#
    )
}
