//! Processes that are forked from one that uses the package.
//!
//! Their threads stay with the parent: a live table has some, so it is the parent's alone. To use
//! it in the child, or to close it there, would wait for threads that are not there.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

use crate::errors::exception;

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Told in each child of a fork, before anything else runs there.
#[pyfunction]
pub fn is_forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process that something was opened in.
#[derive(Debug, Clone, Copy)]
pub struct OpenedIn(u32);

impl OpenedIn {
    pub fn this_process() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether that is a process that this one was forked from.
    #[inline]
    pub fn is_parent(self) -> bool {
        self.0 != FORKS.load(Ordering::Relaxed)
    }
}

/// What a live table says that was opened before a fork.
pub fn of_parent(py: Python<'_>, name: &str) -> PyErr {
    let message = format!(
        "live table {name} is open in the process that this one was forked from, whose threads write it: use it \
         there, or through a server (forebay.connect); workers that are to open tables of their own are not forked \
         (multiprocessing: the start method spawn)"
    );
    exception(py, "BusyError", message)
}
