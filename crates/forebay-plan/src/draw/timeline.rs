//! The timeline: a row for each node, on it what the node sends, receives and inserts, and when.

use super::canvas::{BOLD, COLORS, INK, LABELLED, MARGIN, SMALL, WIDTH, block, label, line};
use super::{Picture, short};

/// What nodes do when.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    pub bars: Vec<TimeBar>,
    pub unit: TimeUnit,
    /// When the steps end and the inserts begin, where there are any.
    pub steps_end: f64,
}

/// What the time axis counts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum TimeUnit {
    #[default]
    Seconds,
    /// The time that a node takes for one of these, where bandwidths are not known.
    One(&'static str),
}

/// What one node does from one moment to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeBar {
    pub work: Activity,
    pub node: u32,
    pub begin: f64,
    pub end: f64,
}

/// The kinds of work, with the partition and the node at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Split(u32),
    Send(u32, u32),
    Receive(u32, u32),
    Insert,
}

const LEGEND: [(&str, &str); 3] = [
    ("sends", COLORS[2]),
    ("receives", COLORS[0]),
    ("inserts", COLORS[1]),
];
/// Beyond so many bars a row is cut into cells, each as dark as the nodes are busy.
const MOST_BARS: usize = 3000;
const CELLS: usize = 150;
const STEPS_LEAST: f64 = 0.45;
const STEPS_MOST: f64 = 0.8;

impl Activity {
    fn kind(self) -> usize {
        match self {
            Self::Send(..) | Self::Split(_) => 0,
            Self::Receive(..) => 1,
            Self::Insert => 2,
        }
    }
}

impl Timeline {
    /// When all is done.
    pub fn end(&self) -> f64 {
        self.bars.iter().map(|bar| bar.end).fold(0.0, f64::max)
    }

    fn rows(nodes: usize) -> usize {
        nodes.clamp(1, LABELLED)
    }

    fn row_height(nodes: usize) -> f64 {
        if Self::rows(nodes) > 16 { 12.0 } else { 20.0 }
    }

    /// Pixels from the top of its title to the foot of its axis.
    pub fn height(&self, nodes: usize) -> f64 {
        Self::rows(nodes) as f64 * Self::row_height(nodes) + 86.0
    }

    /// A moment as people tell it.
    fn moment(&self, time: f64) -> String {
        if self.unit != TimeUnit::Seconds {
            return short(time);
        }
        let units = [(86_400.0, "days"), (3600.0, "h"), (60.0, "min")];
        let fits = units.into_iter().find(|(size, _)| time >= 2.0 * size);
        let (size, unit) = fits.unwrap_or((1.0, "s"));
        format!("{} {unit}", short(time / size))
    }

    /// The part of the width that the steps have. Short steps before long inserts, and the other
    /// way round, have a scale of their own.
    fn steps_share(&self) -> f64 {
        let part = self.steps_end / self.end().max(f64::MIN_POSITIVE);
        if self.steps_end <= 0.0 || self.steps_end >= self.end() {
            return part;
        }
        part.clamp(STEPS_LEAST, STEPS_MOST)
    }

    fn x(&self, time: f64) -> f64 {
        let (share, rest) = (self.steps_share(), self.end() - self.steps_end);
        let part = if time <= self.steps_end {
            share * time / self.steps_end.max(f64::MIN_POSITIVE)
        } else {
            share + (1.0 - share) * (time - self.steps_end) / rest.max(f64::MIN_POSITIVE)
        };
        MARGIN + (WIDTH - 2.0 * MARGIN) * part
    }
}

/// Draws the picture's timeline, if it has one.
pub fn draw(out: &mut String, picture: &Picture, top: f64) {
    let Some(timeline) = &picture.timeline else {
        return;
    };
    legend(out, timeline, top);
    let nodes = picture.nodes().max(1);
    let (rows, height) = (Timeline::rows(nodes), Timeline::row_height(nodes));
    let top = top + 14.0;
    let bottom = top + rows as f64 * height;
    for row in 0..rows {
        let y = top + height * row as f64;
        let name = picture.name((row * nodes).div_ceil(rows));
        label(out, (MARGIN - 6.0, y + height * 0.72), "end", SMALL, &name);
        line(
            out,
            (MARGIN, y + height),
            (WIDTH - MARGIN, y + height),
            "#eee",
            "",
        );
    }
    axis(out, timeline, top, bottom);
    if nodes <= LABELLED && timeline.bars.len() <= MOST_BARS {
        bars(out, picture, timeline, top, height);
    } else {
        cells(out, timeline, nodes, top, height);
    }
}

fn legend(out: &mut String, timeline: &Timeline, top: f64) {
    let unit = match timeline.unit {
        TimeUnit::Seconds => "at the bandwidths given".to_owned(),
        TimeUnit::One(unit) => format!("1 = the time that a node takes for one {unit}"),
    };
    let scales = timeline.steps_end > 0.0 && timeline.steps_end < timeline.end();
    let scales = if scales {
        ", steps and inserts each to a scale"
    } else {
        ""
    };
    let title = format!("Timeline, {unit}{scales}");
    label(out, (MARGIN, top), "start", BOLD, &title);
    for (place, (word, color)) in LEGEND.into_iter().enumerate() {
        if !timeline.bars.iter().any(|bar| bar.work.kind() == place) {
            continue;
        }
        let x = WIDTH - MARGIN - 350.0 + 85.0 * place as f64;
        block(out, [x, top - 10.0, 12.0, 12.0], color, 0.85, word);
        label(out, (x + 16.0, top), "start", "", word);
    }
    let is_split = |bar: &TimeBar| matches!(bar.work, Activity::Split(_));
    if !timeline.bars.iter().any(is_split) {
        return;
    }
    let x = WIDTH - MARGIN - 350.0 + 255.0;
    diamond(out, x + 6.0, top - 4.0, "splits");
    label(out, (x + 16.0, top), "start", "", "is split first");
}

fn diamond(out: &mut String, x: f64, y: f64, title: &str) {
    use std::fmt::Write;
    _ = writeln!(
        out,
        r#"<path d="M{:.1} {y:.1}l5 -5l5 5l-5 5z" fill="{INK}"><title>{title}</title></path>"#,
        x - 5.0
    );
}

/// Round moments, and the two ends that count: of the steps and of the inserts.
fn axis(out: &mut String, timeline: &Timeline, top: f64, bottom: f64) {
    let (steps, end) = (timeline.steps_end, timeline.end());
    line(out, (MARGIN, bottom), (WIDTH - MARGIN, bottom), INK, "");
    let share = timeline.steps_share();
    for (from, to, part) in [(0.0, steps, share), (steps, end, 1.0 - share)] {
        let least = (to - from) / (10.0 * part).max(1.0);
        let units = [86_400.0, 3600.0, 60.0].into_iter();
        let unit = units.filter(|unit| timeline.unit == TimeUnit::Seconds && least >= unit / 2.0);
        let unit = unit.fold(1.0, f64::max);
        let step = round_step(least / unit) * unit;
        let count = if to > from {
            ((to - from) / step) as usize
        } else {
            0
        };
        for tick in 0..=count.min(20) {
            let time = ((from / step).ceil() + tick as f64) * step;
            if to <= from || time > to {
                continue;
            }
            let x = timeline.x(time);
            line(out, (x, bottom), (x, bottom + 4.0), INK, "");
            label(
                out,
                (x, bottom + 16.0),
                "middle",
                SMALL,
                &timeline.moment(time),
            );
        }
    }
    let ends = [("all steps done", steps), ("all inserted", end)];
    for (word, time) in ends.into_iter().take(1 + usize::from(steps < end)) {
        let x = timeline.x(time);
        line(
            out,
            (x, top),
            (x, bottom + 22.0),
            INK,
            r#" stroke-dasharray="4,3""#,
        );
        let anchor = if x > WIDTH / 2.0 { "end" } else { "start" };
        let text = format!("{word}: {}", timeline.moment(time));
        label(out, (x, bottom + 34.0), anchor, BOLD, &text);
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| *step >= least);
    step.unwrap_or(10.0 * power)
}

fn bars(out: &mut String, picture: &Picture, timeline: &Timeline, top: f64, height: f64) {
    for bar in &timeline.bars {
        let (x, y) = (timeline.x(bar.begin), top + height * f64::from(bar.node));
        let name = |node: u32| picture.name(node as usize);
        let (title, short_text) = match bar.work {
            Activity::Split(partition) => {
                let title = format!("partition {partition} is split");
                diamond(out, x, y + height / 2.0, &title);
                continue;
            }
            Activity::Send(partition, to) => (
                format!("partition {partition} to {}", name(to)),
                format!("{partition}→{}", name(to)),
            ),
            Activity::Receive(partition, from) => (
                format!("partition {partition} from {}", name(from)),
                format!("{partition}←{}", name(from)),
            ),
            Activity::Insert => ("inserts".to_owned(), String::new()),
        };
        let width = timeline.x(bar.end) - x;
        let times = format!(
            "{title}, {} to {}",
            timeline.moment(bar.begin),
            timeline.moment(bar.end)
        );
        let place = [x, y + 1.0, (width - 0.5).max(0.8), height - 2.0];
        block(out, place, LEGEND[bar.work.kind()].1, 0.85, &times);
        if height > 16.0
            && width > 8.0 * short_text.chars().count() as f64 + 4.0
            && !short_text.is_empty()
        {
            let white = r#" font-size="11" fill="white""#;
            label(
                out,
                (x + width / 2.0, y + height * 0.72),
                "middle",
                white,
                &short_text,
            );
        }
    }
}

/// Many nodes, or many steps: each cell as dark as its nodes are busy in its time.
fn cells(out: &mut String, timeline: &Timeline, nodes: usize, top: f64, height: f64) {
    let rows = Timeline::rows(nodes);
    let mut busy = vec![[0.0f64; LEGEND.len()]; rows * CELLS];
    let width = (WIDTH - 2.0 * MARGIN) / CELLS as f64;
    for bar in &timeline.bars {
        let row = bar.node as usize * rows / nodes;
        let [begin, end] = [bar.begin, bar.end].map(|time| (timeline.x(time) - MARGIN) / width);
        let last = (end as usize).min(CELLS - 1);
        for cell in (begin as usize).min(CELLS - 1)..=last {
            let part = end.min((cell + 1) as f64) - begin.max(cell as f64);
            busy[row * CELLS + cell][bar.work.kind()] += part.max(0.0);
        }
    }
    let share = rows as f64 / nodes as f64;
    for (place, kinds) in busy.iter().enumerate() {
        let total: f64 = kinds.iter().sum();
        let mut x = MARGIN + width * (place % CELLS) as f64;
        let y = top + height * (place / CELLS) as f64 + 1.0;
        for (kind, amount) in kinds
            .iter()
            .enumerate()
            .filter(|(_, amount)| **amount > 0.0)
        {
            let part = width * amount / total;
            let opacity = (total * share).clamp(0.15, 1.0);
            block(
                out,
                [x, y, part, height - 2.0],
                LEGEND[kind].1,
                opacity,
                LEGEND[kind].0,
            );
            x += part;
        }
    }
}
