//! Progress on a terminal.
//!
//! The running stage has a bar with rate and time left. Each finished stage has a line.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use forebay_io::check_threads;
use forebay_load::progress::{Progress, Unit};
use forebay_run::error::lines_without_controls;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::printing::human;

use super::meter::{Reading, unit_name};

/// A progress display on standard error.
#[derive(Debug)]
pub struct Bars {
    stage: Mutex<BarStage>,
}

#[derive(Debug)]
struct BarStage {
    bar: ProgressBar,
    unit: Unit,
}

impl Bars {
    pub fn new() -> Self {
        Self {
            stage: Mutex::new(BarStage {
                bar: ProgressBar::hidden(),
                unit: Unit::Rows,
            }),
        }
    }
}

/// Returns the style of a stage. If the total is unknown it is a spinner instead of a bar.
fn style(total: Option<u64>, unit: Unit) -> ProgressStyle {
    let name = unit_name(unit);
    let amount = match (unit, total.is_some()) {
        (Unit::Bytes, true) => {
            "{binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left".to_owned()
        }
        (Unit::Bytes, false) => "{binary_bytes}, {binary_bytes_per_sec}".to_owned(),
        (_, true) => format!("{{human_pos}} of {{human_len}} {name}, {{rate}}/s, {{eta}} left"),
        (_, false) => format!("{{human_pos}} {name}, {{rate}}/s"),
    };
    let shape = if total.is_some() {
        "[{bar:30}] {percent}%"
    } else {
        "{spinner}"
    };
    ProgressStyle::with_template(&format!("{{msg:12}} {shape} {amount}"))
        .map(|style| style.progress_chars("=> ").with_key("rate", write_rate))
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn write_rate(state: &ProgressState, out: &mut dyn fmt::Write) {
    // An error here means that the terminal's line cannot be made. There is no place to report it.
    _ = out.write_str(&human::count(state.per_sec() as u64));
}

impl BarStage {
    fn new(name: &str, total: Option<u64>, unit: Unit) -> Self {
        let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        let bar = bar
            .with_style(style(total, unit))
            .with_message(name.to_owned());
        // A thread moves the bar. Without one the bar moves only with progress.
        if check_threads().is_ok() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar, unit }
    }

    /// Replaces the bar of a finished stage by a line.
    fn finish(&self) {
        let name = self.bar.message();
        if !name.is_empty() {
            let position = self.bar.position();
            let elapsed = self.bar.elapsed();
            let reading = Reading::new(&name, position, None, self.unit, elapsed);
            self.bar
                .suspend(|| announce!("{}", lines_without_controls(&reading.summary())));
        }
        self.bar.finish_and_clear();
    }
}

impl Progress for Bars {
    fn stage(&self, name: &str, total: Option<u64>, unit: Unit) {
        let Ok(mut stage) = self.stage.lock() else {
            return;
        };
        stage.finish();
        *stage = BarStage::new(name, total, unit);
    }

    fn advance(&self, n: u64) {
        if let Ok(stage) = self.stage.lock() {
            stage.bar.inc(n);
        }
    }

    fn message(&self, text: &str) {
        if let Ok(stage) = self.stage.lock() {
            stage
                .bar
                .suspend(|| announce!("{}", lines_without_controls(text)));
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        if let Ok(stage) = self.stage.get_mut() {
            stage.finish();
        }
    }
}
