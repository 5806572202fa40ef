//! Draws the timeline: a row for each node, with what it sends, receives and inserts, and when.

use super::canvas::{BOLD, COLORS, INK, LABELLED, MARGIN, SMALL, WIDTH, block, label, line};
use super::{Picture, short};
use crate::plan::{Action, Node, Plan};

/// The work of the nodes over time.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    pub bars: Vec<TimeBar>,
    pub unit: TimeUnit,
    /// The time at which the steps end and the inserts, if any, begin.
    pub steps_end: f64,
    /// The time at which everything would be inserted without the plan.
    pub without: Option<f64>,
}

/// The unit of the time axis.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum TimeUnit {
    #[default]
    Seconds,
    /// The time that a node takes for one of these, if bandwidths are not known.
    One(&'static str),
}

/// One piece of work of a node, with its start and end.
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
/// With more bars than this, a row is divided into cells, each as dark as the nodes are busy.
const MOST_BARS: usize = 3000;
const CELLS: usize = 150;

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
    /// Returns the time at which all work is done.
    pub fn end(&self) -> f64 {
        self.bars.iter().map(|bar| bar.end).fold(0.0, f64::max)
    }

    fn rows(nodes: usize) -> usize {
        nodes.clamp(1, LABELLED)
    }

    fn row_height(nodes: usize) -> f64 {
        if Self::rows(nodes) > 16 { 12.0 } else { 20.0 }
    }

    /// Returns the pixels from the top of its title to the foot of its axis.
    pub fn height(&self, nodes: usize) -> f64 {
        Self::rows(nodes) as f64 * Self::row_height(nodes) + 102.0
    }

    /// Formats a moment for people.
    fn moment(&self, time: f64) -> String {
        if self.unit != TimeUnit::Seconds {
            return short(time);
        }
        let units = [(86_400.0, "days"), (3600.0, "h"), (60.0, "min")];
        let fits = units.into_iter().find(|(size, _)| time >= 2.0 * size);
        let (size, unit) = fits.unwrap_or((1.0, "s"));
        format!("{} {unit}", short(time / size))
    }

    /// Returns the time at which all work is done, the later of with and without the plan.
    fn last(&self) -> f64 {
        self.without.unwrap_or(0.0).max(self.end())
    }

    fn x(&self, time: f64) -> f64 {
        let part = time / self.last().max(f64::MIN_POSITIVE);
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
    let title = format!("Timeline, {unit}");
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

/// Draws the axis: round moments, and the ends of the steps, of the inserts, and of those without
/// the plan.
fn axis(out: &mut String, timeline: &Timeline, top: f64, bottom: f64) {
    let (steps, end, last) = (timeline.steps_end, timeline.end(), timeline.last());
    line(out, (MARGIN, bottom), (WIDTH - MARGIN, bottom), INK, "");
    let units = [86_400.0, 3600.0, 60.0].into_iter();
    let units =
        units.filter(|unit| timeline.unit == TimeUnit::Seconds && last / 10.0 >= unit / 2.0);
    let unit = units.fold(1.0, f64::max);
    let step = round_step(last / 10.0 / unit) * unit;
    for tick in 0..=(last / step) as usize {
        let time = tick as f64 * step;
        let x = timeline.x(time);
        line(out, (x, bottom), (x, bottom + 4.0), INK, "");
        let below = (x, bottom + 16.0);
        label(out, below, "middle", SMALL, &timeline.moment(time));
    }
    let inserted = (steps < end).then_some(("all inserted", end));
    let without = timeline.without.map(|time| ("without the plan", time));
    let ends = [Some(("all steps done", steps)), inserted, without];
    let mut right_of_last = 0.0;
    for (row, (word, time)) in ends.into_iter().flatten().enumerate() {
        let x = timeline.x(time);
        let dashed = r#" stroke-dasharray="4,3""#;
        line(out, (x, top), (x, bottom + 22.0), INK, dashed);
        let text = format!("{word}: {}", timeline.moment(time));
        let width = 8.0 * text.chars().count() as f64;
        // Each label is beside its line, and below the previous one if the two would touch.
        let (anchor, left) = match x + width > WIDTH - MARGIN {
            true => ("end", x - width),
            false => ("start", x),
        };
        let lower = if row > 0 && left < right_of_last {
            16.0
        } else {
            0.0
        };
        right_of_last = left + width;
        label(out, (x, bottom + 34.0 + lower), anchor, BOLD, &text);
    }
}

/// Returns 1, 2 or 5 times a power of ten, at least `least`.
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

/// Draws cells for many nodes or steps: each as dark as its nodes are busy in its time.
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

/// Returns the timeline of a plan of copies whose bandwidths are not known: each node ships one
/// after the other at one pace.
pub fn timeline_of_copies(plan: &Plan, nodes: usize, unit: &'static str) -> Option<Timeline> {
    let node = Node {
        bytes_per_second: Some(1.0),
        ..Node::default()
    };
    let times = plan.step_times(&vec![node; nodes])?;
    let mut timeline = Timeline {
        unit: TimeUnit::One(unit),
        steps_end: times.iter().map(|time| time.end).fold(0.0, f64::max),
        ..Timeline::default()
    };
    for (step, time) in plan.steps.iter().zip(times) {
        if let Action::Copy {
            partition,
            from,
            to,
        } = step.action
        {
            for (node, work) in [
                (from, Activity::Send(partition, to)),
                (to, Activity::Receive(partition, from)),
            ] {
                let (begin, end) = (time.begin, time.end);
                timeline.bars.push(TimeBar {
                    work,
                    node,
                    begin,
                    end,
                });
            }
        }
    }
    Some(timeline).filter(|timeline| timeline.end() > 0.0)
}
