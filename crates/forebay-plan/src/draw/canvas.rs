//! The measures, colours and text that all parts of a drawing share.

use std::fmt::Write;

pub const WIDTH: f64 = 1200.0;
pub const MARGIN: f64 = 60.0;
/// The most nodes that are drawn one by one.
pub const LABELLED: usize = 40;
pub const COLORS: [&str; 4] = ["#4c78a8", "#72a35a", "#e08a3c", "#8d6bb0"];
pub const INK: &str = "#222";
pub const BOLD: &str = r#" font-weight="bold""#;
pub const SMALL: &str = r##" font-size="11" fill="#999""##;

pub fn label(out: &mut String, (x, y): (f64, f64), anchor: &str, more: &str, text: &str) {
    let text = escape(text);
    _ = writeln!(
        out,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}"{more}>{text}</text>"#
    );
}

/// Draws a rectangle with a text that appears under the pointer.
pub fn block(out: &mut String, place: [f64; 4], color: &str, opacity: f64, title: &str) {
    let [x, y, width, height] = place;
    let title = escape(title);
    _ = writeln!(
        out,
        r#"<rect x="{x:.2}" y="{y:.2}" width="{width:.2}" height="{height:.2}" fill="{color}" fill-opacity="{opacity:.2}"><title>{title}</title></rect>"#
    );
}

pub fn line(out: &mut String, from: (f64, f64), to: (f64, f64), color: &str, more: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    _ = writeln!(
        out,
        r#"<line x1="{x1:.2}" y1="{y1:.2}" x2="{x2:.2}" y2="{y2:.2}" stroke="{color}"{more}/>"#
    );
}

pub fn escape(text: &str) -> String {
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    // XML does not allow control characters.
    text.replace(|c: char| c.is_control(), " ")
}
