//! Versions that are not removed although they do not serve, while somebody in this process says
//! so.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::name::TableName;

/// How often each version is pinned.
#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<BTreeMap<(TableName, u64), usize>>);

/// Until it is dropped, [`Table::retain`](crate::Table::retain) keeps the version. It holds in this
/// process only, and ends with it.
#[derive(Debug)]
pub struct Pinned {
    pins: Arc<Pins>,
    version: (TableName, u64),
}

impl Pins {
    pub fn pin(self: &Arc<Self>, table: &TableName, version: u64) -> Pinned {
        let version = (table.clone(), version);
        *self.0.lock().entry(version.clone()).or_default() += 1;
        let pins = Arc::clone(self);
        Pinned { pins, version }
    }

    pub fn holds(&self, table: &TableName, version: u64) -> bool {
        self.0.lock().contains_key(&(table.clone(), version))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut pins = self.pins.0.lock();
        if let Some(count) = pins.get_mut(&self.version) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&self.version);
            }
        }
    }
}
