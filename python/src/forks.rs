//! Detects processes that were forked from one that uses the package.
//!
//! Their threads stay with the parent. A live table has threads, so only the parent can use it.
//! Using or closing it in the child would wait for threads that do not exist.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

use crate::errors::exception;

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called in each child of a fork, before anything else runs in it.
#[pyfunction]
pub fn is_forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process that opened an object.
#[derive(Debug, Clone, Copy)]
pub struct OpenedIn(u32);

impl OpenedIn {
    pub fn this_process() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns whether this process was forked from that one.
    #[inline]
    pub fn is_parent(self) -> bool {
        self.0 != FORKS.load(Ordering::Relaxed)
    }
}

/// Returns the error of a live table that was opened before a fork.
pub fn of_parent(py: Python<'_>, name: &str) -> PyErr {
    let message = format!(
        "live table {name} is open in the process that this one was forked from, whose threads write it: use it \
         there, or through a server (forebay.connect); workers that are to open tables of their own are not forked \
         (multiprocessing: the start method spawn)"
    );
    exception(py, "BusyError", message)
}
