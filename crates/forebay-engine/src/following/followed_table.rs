//! A follower's state of one table: its open versions and its pointer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::documents::pins::PinnedVersion;
use crate::documents::pointer::Pointer;
use crate::error::StoreError;
use crate::following::serving_set::TableState;
use crate::tables::table::Table;
use crate::tables::version::Version;

#[derive(Debug, Default)]
pub(crate) struct Follow {
    pub serving: Option<Arc<Version>>,
    pub previous: Option<Arc<Version>>,
    pub ahead: Option<OpenAhead>,
    /// The pointer of the serving version, which could not be written yet.
    pub owed: Option<Pointer>,
    /// An open version that serves from the next activation on.
    pub ready: Option<Ready>,
    /// The versions that the last activation replaced, until it is settled which of them stay open.
    pub replaced: Option<Replaced>,
    /// The last pointer that was acted on, with or without success.
    pub pointer: Option<Pointer>,
    /// When to try again after a failure, on the monotonic clock.
    pub retry_at: Option<Duration>,
    pub swaps: u64,
    pub load_errors: u64,
    pub problem: Option<String>,
    /// Files of the open versions were replaced: the versions have to be reopened.
    pub stale: bool,
}

/// A version that is kept open for a later activation.
#[derive(Debug)]
pub(crate) struct OpenAhead {
    pub version: Arc<Version>,
    pub _pin: PinnedVersion,
}

#[derive(Debug)]
pub(crate) struct Ready {
    pub version: Arc<Version>,
    /// The version that a rollback would restore.
    pub before: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Replaced {
    /// Versions of this table that were open until now.
    pub versions: Vec<Arc<Version>>,
    /// The version that a rollback would restore.
    pub before: Option<u64>,
}

/// The result of a look at a table's pointer.
pub(crate) enum PointerSeen {
    /// The same pointer as before, or no action needed.
    Same,
    /// No version is requested.
    Nothing,
    Dropped,
    Serve(Pointer, u64),
}

impl Follow {
    /// Returns the versions that are kept open.
    pub fn open(&self) -> impl Iterator<Item = &Arc<Version>> {
        let ahead = self.ahead.as_ref().map(|ahead| &ahead.version);
        let open = [ahead, self.serving.as_ref(), self.previous.as_ref()];
        open.into_iter().flatten()
    }

    pub fn open_mut(&mut self) -> impl Iterator<Item = &mut Arc<Version>> {
        let ahead = self.ahead.as_mut().map(|ahead| &mut ahead.version);
        let open = [ahead, self.serving.as_mut(), self.previous.as_mut()];
        open.into_iter().flatten()
    }

    /// Makes a version serve; returns whether it is another one, and the version that served
    /// before.
    pub fn serve(&mut self, version: Arc<Version>, before: Option<u64>) -> (bool, Option<u64>) {
        let old = self.serving.replace(Arc::clone(&version));
        let is_other = old.as_ref().is_none_or(|old| !Arc::ptr_eq(old, &version));
        let from = old.as_ref().map(|old| old.version());
        self.swaps += u64::from(is_other);
        self.ahead
            .take_if(|ahead| Arc::ptr_eq(&ahead.version, &version));
        let versions = old.into_iter().chain(self.previous.take()).collect();
        self.replaced = Some(Replaced { versions, before });
        (is_other, from)
    }

    /// Returns the version: the open one if it is exactly the same, else from the disk.
    pub fn find_or_open(&self, table: &Table, version: u64) -> Result<Arc<Version>, String> {
        let read = table.manifest_and_sum(version);
        let read = read.map_err(|error| error.to_string())?;
        let held = table.store().held(&read.0);
        let open = || self.open().filter(|_| !self.stale);
        if let Some(open) = open().find(|open| open.is_same(&read, &held)) {
            return Ok(Arc::clone(open));
        }
        let known: Vec<&Version> = open().map(|open| &**open).collect();
        let opened = table.open_read(read, &held, &known);
        opened.map_err(|error| error.to_string())
    }

    /// Returns the version to keep open for a rollback. An error stops nothing: a rollback would
    /// find and report it.
    pub fn keep_previous(
        &self,
        table: &Table,
        before: Option<u64>,
        open: &[Arc<Version>],
    ) -> Option<Arc<Version>> {
        let before = before?;
        let read = table.manifest_and_sum(before).ok()?;
        let held = table.store().held(&read.0);
        match open.iter().find(|open| open.is_same(&read, &held)) {
            Some(open) => Some(Arc::clone(open)),
            None => {
                let known: Vec<&Version> = open.iter().map(|open| &**open).collect();
                table.open_read(read, &held, &known).ok()
            }
        }
    }

    pub fn state(&self) -> TableState {
        let manifest = self.serving.as_ref().map(|version| version.manifest());
        TableState {
            serving: manifest.map(|manifest| manifest.version),
            previous: self.previous.as_ref().map(|version| version.version()),
            ahead: self.ahead.as_ref().map(|ahead| ahead.version.version()),
            wanted: self.pointer.as_ref().and_then(|pointer| pointer.serving),
            sequence: self.pointer.as_ref().map_or(0, |pointer| pointer.sequence),
            rows: manifest.map_or(0, |manifest| manifest.rows()),
            bytes: manifest.map_or(0, |manifest| manifest.bytes()),
            file_bytes: self.serving.as_ref().map_or(0, |open| open.file_bytes()),
            memory_bytes: self
                .serving
                .as_ref()
                .map_or(0, |version| version.memory_bytes() as u64),
            swaps: self.swaps,
            load_errors: self.load_errors,
            problem: self.problem.clone(),
        }
    }
}

/// Reads a table's pointer and returns what it requests.
pub(crate) fn see(
    table: &Table,
    known: Option<&Follow>,
    now: Duration,
) -> Result<PointerSeen, StoreError> {
    let serving = known.and_then(|follow| follow.serving.as_ref());
    let waits = known
        .and_then(|follow| follow.retry_at)
        .is_some_and(|at| now < at);
    let Some(pointer) = Pointer::read(&**table.disk(), &table.files.pointer())? else {
        return match serving {
            None => Ok(PointerSeen::Nothing),
            Some(_) if table.version_numbers()?.is_empty() => Ok(PointerSeen::Dropped),
            Some(_) => Err(StoreError::Io {
                action: "read",
                path: table.files.pointer(),
                source: io::ErrorKind::NotFound.into(),
            }),
        };
    };
    if pointer.dropped {
        return Ok(PointerSeen::Dropped);
    }
    let same = known.and_then(|follow| follow.pointer.as_ref()) == Some(&pointer);
    let settled = known.is_some_and(|follow| follow.problem.is_none());
    match pointer.serving {
        Some(_) if same && (settled || waits) => Ok(PointerSeen::Same),
        Some(version) => Ok(PointerSeen::Serve(pointer, version)),
        None => Ok(PointerSeen::Nothing),
    }
}
