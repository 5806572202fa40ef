//! The source of a table's reads: a version of a batch table, or an open live table.

use std::sync::Arc;

use forebay_engine::live::{LiveError, LiveLookup, LiveTable};
use forebay_engine::{Lookup, Source, Version};
use pyo3::prelude::*;

use crate::errors::{exception, of_error};
use crate::forks::of_parent;
use crate::scan::Walk;
use crate::shape::Shape;
use crate::store::{FoundTable, Live};
use crate::values::to_python;

/// Keys of a batch table to look up between two checks for signals.
const AT_ONCE: usize = 1 << 16;

/// A version of a batch table, or an open live table.
#[derive(Clone)]
pub enum OpenedTable {
    Batch(Arc<Version>, Arc<Shape>),
    Live(Arc<Live>),
}

impl From<FoundTable> for OpenedTable {
    fn from(found: FoundTable) -> Self {
        match found {
            FoundTable::Live(live) => OpenedTable::Live(live),
            FoundTable::Batch(version) => {
                let shape = Shape::of(Source::Batch(&version));
                OpenedTable::Batch(version, Arc::new(shape))
            }
        }
    }
}

impl OpenedTable {
    pub fn shape(&self) -> &Arc<Shape> {
        match self {
            OpenedTable::Batch(_, shape) => shape,
            OpenedTable::Live(live) => &live.shape,
        }
    }

    /// Returns whether both are one version, or one live table.
    pub fn is(&self, other: &OpenedTable) -> bool {
        match (self, other) {
            (OpenedTable::Batch(a, _), OpenedTable::Batch(b, _)) => a.version() == b.version(),
            (OpenedTable::Live(a), OpenedTable::Live(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Returns the live table of a name, or an error that says why there is none.
    pub fn live(&self, py: Python<'_>, name: &str) -> PyResult<(Arc<Live>, LiveTable)> {
        match self {
            OpenedTable::Live(live) => Ok((Arc::clone(live), open(py, name, live)?)),
            OpenedTable::Batch(version, _) => {
                let table = version.table().clone();
                Err(of_error(py, LiveError::Batch { table }))
            }
        }
    }

    /// Returns the value of a key. What is in memory is read without releasing the interpreter.
    pub fn value_of<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        key: &[u8],
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let read = match self {
            OpenedTable::Batch(version, shape) => match version.try_get(key) {
                Ok(Lookup::Found(value)) => return to_python(py, shape, &value).map(Some),
                Ok(Lookup::Absent) => return Ok(None),
                Ok(Lookup::NotResident) => py
                    .detach(|| {
                        let value = version.get(key);
                        value.map(|value| value.map(|value| value.to_vec()))
                    })
                    .map_err(|error| of_error(py, error))?,
                Err(error) => return Err(of_error(py, error)),
            },
            OpenedTable::Live(live) => {
                let table = open(py, name, live)?;
                match table.try_get(key) {
                    Ok(LiveLookup::Found(value)) => Some(value),
                    Ok(LiveLookup::Absent) => None,
                    Ok(LiveLookup::NotResident) => py
                        .detach(|| table.get(key))
                        .map_err(|error| of_error(py, error))?,
                    Err(error) => return Err(of_error(py, error)),
                }
            }
        };
        read.map(|value| to_python(py, self.shape(), &value))
            .transpose()
    }

    /// Returns the values of keys, in their order.
    pub fn values_of(
        &self,
        py: Python<'_>,
        name: &str,
        keys: &[Vec<u8>],
    ) -> PyResult<Vec<Option<Vec<u8>>>> {
        match self {
            OpenedTable::Batch(version, _) => {
                let mut values = py.detach(|| vec![None; keys.len()]);
                for (keys, values) in keys.chunks(AT_ONCE).zip(values.chunks_mut(AT_ONCE)) {
                    let read = py.detach(|| {
                        version.get_many(keys, |place, value| {
                            values[place] = value.map(|value| value.to_vec());
                        })
                    });
                    read.map_err(|error| of_error(py, error))?;
                    py.check_signals()?;
                }
                Ok(values)
            }
            OpenedTable::Live(live) => {
                let table = open(py, name, live)?;
                let read = py.detach(|| table.get_many(keys));
                read.map_err(|error| of_error(py, error))
            }
        }
    }

    pub fn contains(&self, py: Python<'_>, name: &str, key: &[u8]) -> PyResult<bool> {
        match self {
            OpenedTable::Batch(version, _) => py
                .detach(|| version.exists(key))
                .map_err(|error| of_error(py, error)),
            OpenedTable::Live(live) => {
                let table = open(py, name, live)?;
                let value = py.detach(|| table.get(key));
                Ok(value.map_err(|error| of_error(py, error))?.is_some())
            }
        }
    }

    /// Returns when a key expires; `None` if it is absent.
    pub fn expires_ms(&self, py: Python<'_>, name: &str, key: &[u8]) -> PyResult<Option<u64>> {
        match self {
            OpenedTable::Batch(version, _) => py
                .detach(|| version.expires_ms(key))
                .map_err(|error| of_error(py, error)),
            OpenedTable::Live(live) => {
                let table = open(py, name, live)?;
                py.detach(|| table.expires_ms(key))
                    .map_err(|error| of_error(py, error))
            }
        }
    }

    /// Returns the source of a scan: a live table as it is now, or the version.
    pub fn walk(&self, py: Python<'_>, name: &str) -> PyResult<Walk> {
        match self {
            OpenedTable::Batch(version, _) => Ok(Walk::Batch(Arc::clone(version))),
            OpenedTable::Live(live) => {
                let table = open(py, name, live)?;
                let snapshot = py.detach(|| table.snapshot());
                Ok(Walk::Live(snapshot, table.name().clone()))
            }
        }
    }
}

/// Returns the table of a slot, or an error once it is closed.
fn open(py: Python<'_>, name: &str, live: &Live) -> PyResult<LiveTable> {
    if live.opened_in.is_parent() {
        return Err(of_parent(py, name));
    }
    live.table().ok_or_else(|| {
        let message = format!("table {name} is closed: take it from its store again");
        exception(py, "Error", message)
    })
}
