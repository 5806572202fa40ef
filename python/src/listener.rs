//! Passes a running command's progress and messages to a Python object, and Ctrl-C to the command.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::ThreadId;

use forebay_io::{Clock, SystemClock};
use forebay_load::progress::{Progress, Unit};
use parking_lot::Mutex;
use pyo3::prelude::*;

/// The least time between two calls with progress, in milliseconds.
const PAUSE_MS: u64 = 100;

/// A listener that calls `stage(name, total, unit)` and `advance(n)` of a Python object, from any
/// thread. An exception that they raise stops the command, as an interrupt does.
pub struct Listener {
    object: Option<Py<PyAny>>,
    /// The thread that called the command; only it receives signals.
    caller: ThreadId,
    clock: SystemClock,
    /// The progress since the last call.
    done: AtomicU64,
    due_ms: AtomicU64,
    signals_due_ms: AtomicU64,
    cancelled: AtomicBool,
    raised: Mutex<Option<PyErr>>,
    messages: Mutex<Vec<String>>,
}

impl Listener {
    pub fn new(object: Option<Py<PyAny>>) -> Self {
        Self {
            object,
            caller: std::thread::current().id(),
            clock: SystemClock,
            done: AtomicU64::new(0),
            due_ms: AtomicU64::new(0),
            signals_due_ms: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            raised: Mutex::new(None),
            messages: Mutex::default(),
        }
    }

    /// Passes on the last progress. Returns the exception, if one was raised.
    pub fn end(&self) -> Option<PyErr> {
        self.report_done();
        self.raised.lock().take()
    }

    /// Returns the messages, apart from progress.
    pub fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut *self.messages.lock())
    }

    fn raise(&self, error: PyErr) {
        self.raised.lock().get_or_insert(error);
        self.cancelled.store(true, Relaxed);
    }

    fn report(&self, call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<()>) {
        let Some(object) = &self.object else { return };
        if self.cancelled.load(Relaxed) {
            return;
        }
        Python::attach(|py| {
            if let Err(error) = call(object.bind(py)) {
                self.raise(error);
            }
        });
    }

    fn report_done(&self) {
        let done = self.done.swap(0, Relaxed);
        if done > 0 {
            self.report(|object| object.call_method1("advance", (done,)).map(drop));
        }
    }

    fn now_ms(&self) -> u64 {
        self.clock.monotonic().as_millis() as u64
    }

    /// Returns whether a call is due, at most every [`PAUSE_MS`], for the first thread that asks.
    fn is_due(&self, due_ms: &AtomicU64) -> bool {
        let now = self.now_ms();
        let due = due_ms.load(Relaxed);
        now >= due && (due_ms.compare_exchange(due, now + PAUSE_MS, Relaxed, Relaxed)).is_ok()
    }

    fn look_for_signals(&self) {
        let is_caller = std::thread::current().id() == self.caller;
        if is_caller && self.is_due(&self.signals_due_ms) {
            Python::attach(|py| {
                if let Err(error) = py.check_signals() {
                    self.raise(error);
                }
            });
        }
    }
}

impl Progress for Listener {
    fn stage(&self, name: &str, total: Option<u64>, unit: Unit) {
        self.report_done();
        let unit = match unit {
            Unit::Rows => "rows",
            Unit::Bytes => "bytes",
            Unit::Pages => "pages",
            Unit::Partitions => "partitions",
        };
        self.report(|object| object.call_method1("stage", (name, total, unit)).map(drop));
        self.look_for_signals();
    }

    fn advance(&self, n: u64) {
        self.done.fetch_add(n, Relaxed);
        if self.object.is_some() && self.is_due(&self.due_ms) {
            self.report_done();
        }
        self.look_for_signals();
    }

    fn message(&self, text: &str) {
        self.messages.lock().push(text.to_owned());
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }
}
