//! Keeps the serving versions open for a server's readers.
//!
//! A thread reads every table's pointer (one small read per table each time). It opens the version
//! that the pointer names outside of the read path, and then swaps it in. A reader calls
//! [`Serving::load`] once per command. It gets one consistent set of versions, even if swaps
//! follow. The thread, never a reader, closes a version that has no readers left.
//!
//! If a file is damaged or missing, the serving version keeps serving, and [`Serving::states`]
//! reports the problem. Only a dropped table stops.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use forebay_io::{Clock, start_thread};
use parking_lot::Mutex;
use tracing::warn;

use crate::error::{ReadError, StoreError};
use crate::following::activate::{ActivateError, Activation, Next};
use crate::following::follow::FollowerMemory;
use crate::following::followed_table::OpenAhead;
use crate::following::serving_set::{Change, ServingState, Tables};
use crate::keys::partition::OpenPartitions;
use crate::name::{RunId, TableName};
use crate::tables::store::Store;
use crate::tables::version::Version;

/// The default time between two looks at the pointers.
pub const DEFAULT_POLL: Duration = Duration::from_millis(100);

/// The time between two checks for pages that the system dropped from memory.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);
/// Such a check may take at most one part in this many of the time.
const SWEEP_SHARE: u32 = 20;

/// The set of serving versions and the thread that updates it. Dropping it ends the thread, within
/// one poll.
pub struct Serving {
    shared: Arc<ServingShared>,
    thread: Option<JoinHandle<()>>,
}

type Listener = Box<dyn Fn(&Change) + Send + Sync>;

struct ServingShared {
    tables: ArcSwap<Tables>,
    state: ArcSwap<ServingState>,
    followed: Mutex<FollowerMemory>,
    listeners: Mutex<Vec<Arc<Listener>>>,
    stop: AtomicBool,
}

impl Serving {
    /// Opens all serving versions, then follows the pointers. A table that cannot be opened does
    /// not make this fail; see [`Serving::states`].
    pub fn open(store: Store, poll: Duration) -> Result<Self, StoreError> {
        let clock = store.clock().clone();
        Self::manual(store).following(clock, poll)
    }

    fn following(mut self, clock: Arc<dyn Clock>, poll: Duration) -> Result<Self, StoreError> {
        let shared = Arc::clone(&self.shared);
        let follow = move || {
            let mut sweep_at = SWEEP_PERIOD;
            while !shared.stop.load(Ordering::Relaxed) {
                clock.sleep(poll);
                shared.refresh(|_| ());
                sweep_at = shared.sweep(&*clock, sweep_at);
            }
        };
        let thread = start_thread("forebay-follow", follow);
        self.thread = Some(thread.map_err(StoreError::Thread)?);
        Ok(self)
    }

    /// Serves only versions that [`Serving::activate`] activates. The pointers of the store are
    /// written, and not read.
    pub fn commanded(store: Store, poll: Duration) -> Result<Self, StoreError> {
        let clock = store.clock().clone();
        Self::over(FollowerMemory::commanded(store)).following(clock, poll)
    }

    /// Opens the set without a thread: only [`Serving::refresh`] reads the pointers.
    pub fn manual(store: Store) -> Self {
        Self::over(FollowerMemory::new(store))
    }

    fn over(followed: FollowerMemory) -> Self {
        let shared = ServingShared {
            tables: ArcSwap::default(),
            state: ArcSwap::default(),
            followed: Mutex::new(followed),
            listeners: Mutex::default(),
            stop: AtomicBool::new(false),
        };
        shared.refresh(|_| ());
        Self {
            shared: Arc::new(shared),
            thread: None,
        }
    }

    /// Returns all versions that serve now. Cheap: hold it for one command, not for long.
    #[inline]
    pub fn load(&self) -> Guard<Arc<Tables>> {
        self.shared.tables.load()
    }

    /// Returns the tables in whose serving versions readers found damage, those versions, and the
    /// runs.
    pub fn damaged(&self) -> Vec<(TableName, u64, Vec<RunId>)> {
        let tables = self.load();
        let met = tables
            .iter()
            .map(|(name, version)| (name.clone(), version.version(), version.damaged()));
        met.filter(|(_, _, runs)| !runs.is_empty()).collect()
    }

    /// Returns the version that serves a table now. The caller may keep it for as long as it wants.
    pub fn table(&self, name: &[u8]) -> Option<Arc<Version>> {
        self.load().get(name).cloned()
    }

    /// Reads the pointers now. Returns when the versions that they name serve, or are known to
    /// fail.
    pub fn refresh(&self) {
        self.shared.refresh(|followed| followed.look_at_all());
    }

    /// Reopens the versions of a table whose files were replaced by sound ones, and returns when
    /// they serve. Commands that began with the old ones finish with them.
    pub fn reopen(&self, name: &TableName) {
        let mut ahead = None;
        self.shared
            .refresh(|followed| ahead = followed.invalidate(name));
        if let Some(version) = ahead
            && let Err(error) = self.open_ahead(name, version)
        {
            warn!(table = %name, version, %error, "it is not open ahead any more");
        }
    }

    /// Opens a version, with the partitions that the store holds, ahead of its activation. Keeps it
    /// open, and pins it against removal, beside the serving version. There is one per table: this
    /// closes any earlier one. Readers find it by its number ([`Tables::at`]).
    pub fn open_ahead(&self, name: &TableName, version: u64) -> Result<Arc<Version>, ReadError> {
        let followed = &self.shared.followed;
        loop {
            let (table, open) = {
                let followed = followed.lock();
                (followed.store().any_table(name), followed.open_of(name))
            };
            let pin = table.pin(version);
            let read = table.manifest_and_sum(version)?;
            let held = table.store().held(&read.0);
            let known: Vec<&Version> = open.iter().map(|open| &**open).collect();
            let opened = match open.iter().find(|open| open.is_same(&read, &held)) {
                Some(open) => Arc::clone(open),
                None => table.open_read(read, &held, &known)?,
            };
            let mut followed = followed.lock();
            if opened.has_just(&table.store().held(opened.manifest())) {
                let version = Arc::clone(&opened);
                followed.keep_ahead(name, OpenAhead { version, _pin: pin });
                self.shared.publish(&mut followed);
                return Ok(opened);
            }
        }
    }

    /// Closes the version that was opened ahead for a table.
    pub fn close_ahead(&self, name: &TableName) {
        let mut followed = self.shared.followed.lock();
        followed.close_ahead(name);
        self.shared.publish(&mut followed);
    }

    /// Makes versions of several tables serve, or drops tables, all in one step. Each version has
    /// to be open already: as one opened ahead, as the rollback target, or as the serving one. When
    /// this returns without an error, a start after a power cut finds the same state.
    /// [`ActivateError`] describes the state after an error. It opens no files. Up to the switch it
    /// takes a few microseconds per table, after a running look at the pointers; then a few syncs
    /// per table.
    pub fn activate(&self, next: &[(TableName, Next)]) -> Result<(), ActivateError> {
        let (activation, changes, written) = {
            let mut followed = self.shared.followed.lock();
            let activation = Activation::find(&followed, next)?;
            activation.mark_dropped()?;
            let changes = activation.take(&mut followed);
            self.shared.publish_tables(&mut followed);
            let written = activation.write_pointers(&mut followed);
            followed.settle();
            self.shared.publish(&mut followed);
            (activation, changes, written)
        };
        self.shared.notify(&changes);
        written.and(activation.remove_dropped())
    }

    /// Reopens the open versions of some tables with the partitions that the store holds now.
    /// Returns when all of them serve; they switch in one step. The versions stay the same; open
    /// runs are shared. Commands that began earlier finish with the old ones. After an error
    /// nothing has changed.
    pub fn rehold(&self, tables: &[TableName]) -> Result<(), ReadError> {
        let followed = &self.shared.followed;
        loop {
            let (store, open) = {
                let followed = followed.lock();
                (followed.store().clone(), followed.held_otherwise(tables))
            };
            let anew = |(old, held): (Arc<Version>, OpenPartitions)| {
                let new = store.any_table(old.table()).open_again(&old, &held)?;
                Ok((old, new))
            };
            let anew = open
                .into_iter()
                .map(anew)
                .collect::<Result<Vec<_>, ReadError>>()?;
            let mut followed = followed.lock();
            if followed.exchange(tables, &anew) {
                self.shared.publish(&mut followed);
                return Ok(());
            }
        }
    }

    pub fn states(&self) -> Arc<ServingState> {
        self.shared.state.load_full()
    }

    /// Calls `listener` after every change, from the thread that found it.
    pub fn on_change(&self, listener: impl Fn(&Change) + Send + Sync + 'static) {
        self.shared
            .listeners
            .lock()
            .push(Arc::new(Box::new(listener)));
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread has reported its own panic.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving")
            .field("state", &self.shared.state.load())
            .finish()
    }
}

impl ServingShared {
    /// Calls `first` with the follower, then reads the pointers.
    fn refresh(&self, first: impl FnOnce(&mut FollowerMemory)) {
        let changes = {
            let mut followed = self.followed.lock();
            first(&mut followed);
            followed.prepare();
            let changes = followed.activate();
            self.publish_tables(&mut followed);
            followed.settle();
            self.publish(&mut followed);
            changes
        };
        self.notify(&changes);
    }

    /// Publishes the open versions to readers.
    fn publish_tables(&self, followed: &mut FollowerMemory) {
        if let Some(tables) = followed.published() {
            self.tables.store(Arc::new(tables));
        }
    }

    /// Publishes the open versions, closes unread ones, and updates the state.
    fn publish(&self, followed: &mut FollowerMemory) {
        self.publish_tables(followed);
        followed.close_unread();
        let state = followed.state();
        if **self.state.load() != state {
            self.state.store(Arc::new(state));
        }
    }

    /// Marks pages of the serving versions that are no longer in memory, if that is due. Returns
    /// the next due time, on the monotonic clock.
    fn sweep(&self, clock: &dyn Clock, due: Duration) -> Duration {
        let start = clock.monotonic();
        if start < due {
            return due;
        }
        for (_, version) in self.tables.load_full().iter() {
            version.forget_evicted();
        }
        let end = clock.monotonic();
        end + SWEEP_PERIOD.max(end.saturating_sub(start).saturating_mul(SWEEP_SHARE))
    }

    fn notify(&self, changes: &[Change]) {
        let listeners = if changes.is_empty() {
            Vec::new()
        } else {
            self.listeners.lock().clone()
        };
        for change in changes {
            listeners.iter().for_each(|listener| listener(change));
        }
    }
}
