//! Progress for logs and machines: a line at intervals, and one when a stage ends.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_io::{Clock, SystemClock};
use forebay_load::progress::{Progress, Unit};
use forebay_run::error::lines_without_controls;
use serde_json::json;

use super::meter::Reading;

/// The format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
}

impl Form {
    /// Returns the time between two lines of one stage.
    fn pause(self) -> Duration {
        match self {
            Form::Text => Duration::from_secs(5),
            Form::Json => Duration::from_secs(1),
        }
    }
}

/// A progress printer on standard error.
#[derive(Debug)]
pub struct Lines {
    form: Form,
    clock: SystemClock,
    stage: Mutex<Option<LineStage>>,
    done: AtomicU64,
    /// When the next line is due, in milliseconds of the monotonic clock.
    due_ms: AtomicU64,
}

#[derive(Debug)]
struct LineStage {
    name: String,
    total: Option<u64>,
    unit: Unit,
    started: Duration,
}

impl Lines {
    pub fn new(form: Form) -> Self {
        Self {
            form,
            clock: SystemClock,
            stage: Mutex::new(None),
            done: AtomicU64::new(0),
            due_ms: AtomicU64::new(u64::MAX),
        }
    }

    fn reading(&self, stage: &LineStage) -> Reading {
        let elapsed = self.clock.monotonic().saturating_sub(stage.started);
        let done = self.done.load(Ordering::Relaxed);
        Reading::new(&stage.name, done, stage.total, stage.unit, elapsed)
    }

    fn put_off(&self, now: Duration) {
        let due = now + self.form.pause();
        self.due_ms.store(due.as_millis() as u64, Ordering::Relaxed);
    }

    fn print(&self, event: &str, text: String, reading: Option<&Reading>) {
        match (self.form, reading) {
            (Form::Text, _) => announce!("{}", lines_without_controls(&text)),
            (Form::Json, Some(reading)) => {
                let mut object = json!(reading);
                object["event"] = event.into();
                announce!("{object}");
            }
            (Form::Json, None) => announce!("{}", json!({"event": event, "text": text})),
        }
    }

    fn finish(&self, stage: Option<LineStage>) {
        if let Some(stage) = stage {
            let reading = self.reading(&stage);
            self.print("stage", reading.summary(), Some(&reading));
        }
    }
}

impl Progress for Lines {
    fn stage(&self, name: &str, total: Option<u64>, unit: Unit) {
        let now = self.clock.monotonic();
        let next = LineStage {
            name: name.to_owned(),
            total,
            unit,
            started: now,
        };
        let Ok(mut stage) = self.stage.lock() else {
            return;
        };
        self.finish(stage.replace(next));
        self.done.store(0, Ordering::Relaxed);
        self.put_off(now);
    }

    fn advance(&self, n: u64) {
        self.done.fetch_add(n, Ordering::Relaxed);
        let now = self.clock.monotonic();
        if (now.as_millis() as u64) < self.due_ms.load(Ordering::Relaxed) {
            return;
        }
        // Another thread that holds the lock is printing this very line.
        let Ok(stage) = self.stage.try_lock() else {
            return;
        };
        self.put_off(now);
        if let Some(stage) = stage.as_ref() {
            let reading = self.reading(stage);
            self.print("progress", reading.line(), Some(&reading));
        }
    }

    fn message(&self, text: &str) {
        self.print("message", text.to_owned(), None);
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let last = self.stage.get_mut().ok().and_then(Option::take);
        self.finish(last);
    }
}
