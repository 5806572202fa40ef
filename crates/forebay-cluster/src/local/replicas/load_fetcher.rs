//! The thread that fetches the runs of loads from the cluster's store and reads them back.
//!
//! It fetches one run at a time.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_engine::live::{StagedLoad, StagedRun};
use forebay_engine::{NewRun, VersionFile};
use forebay_host::LoadedRuns as _;
use forebay_io::{Clock, Disk, Inbox, InboxSender, Receipt, give_way, inbox, start_behind};
use forebay_run::verify::read_back;
use parking_lot::Mutex;
use tracing::{info, warn};

use super::commons::ReplicaCommons;
use super::load_runs::{FetchFailure, MissingRun};
use crate::routing::version::SPARE_BYTES;

/// The time between two checks for runs that could not be fetched before.
const LOOK: Duration = Duration::from_secs(1);
/// The number of times that a damaged run is fetched.
const TRIES: usize = 3;

#[derive(Debug, PartialEq, Eq)]
enum FetcherEvent {
    /// There may be new orders.
    Look,
    Stop,
}

/// A handle to the thread.
#[derive(Debug)]
pub struct LoadFetcher {
    news: Mutex<InboxSender<FetcherEvent>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The state of the thread.
struct LoadFetches {
    commons: Arc<ReplicaCommons>,
    clock: Arc<dyn Clock>,
    disk: Arc<dyn Disk>,
    /// Called when a fetch succeeds or fails.
    news: Box<dyn Fn() + Send>,
    /// The document that was read last, with its checksum.
    staged: Option<(u64, Arc<StagedLoad>)>,
}

impl LoadFetcher {
    pub fn start(
        commons: Arc<ReplicaCommons>,
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
        news: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, inbox) = inbox();
        let ordered = sender.clone();
        let wake = move || {
            ordered.send(FetcherEvent::Look);
        };
        commons.loads_ordered.set(wake);
        let mut fetching = LoadFetches {
            commons,
            clock,
            disk,
            news: Box::new(news),
            staged: None,
        };
        let thread = start_behind("forebay-loads", move || fetching.run(&inbox))?;
        Ok(Self {
            news: Mutex::new(sender),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Stops the thread and waits until it has ended. The caller first cancels its fetches through
    /// `LoadRuns`.
    pub fn stop(&self) {
        // A thread that has ended receives nothing.
        self.news.lock().send(FetcherEvent::Stop);
        let thread = self.thread.lock().take();
        let this_thread = std::thread::current().id();
        if let Some(thread) = thread
            && thread.thread().id() != this_thread
            && thread.join().is_err()
        {
            warn!("the thread that fetches loads panicked");
        }
    }
}

impl LoadFetches {
    fn run(&mut self, inbox: &Inbox<FetcherEvent>) {
        let is_last = |news| matches!(news, Receipt::One(FetcherEvent::Stop) | Receipt::Ended);
        while !is_last(inbox.receive(&*self.clock, LOOK)) {
            while let Some(of) = self.commons.loads.next(self.clock.monotonic()) {
                if is_last(inbox.take()) {
                    return;
                }
                self.fetch_copy(&of);
            }
        }
    }

    fn fetch_copy(&mut self, of: &MissingRun) {
        if self.has_it(of) {
            let loads = &self.commons.loads;
            loads.taken(&of.table, of.partition, of.load.number);
            return;
        }
        match self.try_fetch(of) {
            Ok(new) => {
                let (table, partition) = (&of.table, of.partition);
                info!(%table, %partition, load = of.load.number, "the run of a load came");
                if !self.commons.loads.came(of, new.clone()) {
                    self.discard(of, &new);
                }
            }
            Err(why) => {
                let (table, partition) = (&of.table, of.partition);
                let load = of.load.number;
                warn!(%table, %partition, load, %why, "the run of a load did not come");
                self.commons.loads.failed(self.clock.monotonic(), of, why);
            }
        }
        (self.news)();
    }

    /// Returns whether the local partition already has the load: a copy may have contained it.
    fn has_it(&self, of: &MissingRun) -> bool {
        let table = self.commons.tables.load().get(&of.table).cloned();
        let applied = table.and_then(|table| table.applied(of.partition).ok());
        applied.is_some_and(|applied| applied.loaded >= of.load.number)
    }

    fn discard(&self, of: &MissingRun, new: &NewRun) {
        if let Some(table) = self.commons.tables.load().get(&of.table) {
            table.discard_runs([&new.id].into_iter());
        }
    }

    fn try_fetch(&mut self, of: &MissingRun) -> Result<NewRun, FetchFailure> {
        let staged = self.staged(of)?;
        let run = staged.run(of.partition).ok_or_else(|| {
            FetchFailure::Lasts("the load has no run for the partition".to_owned())
        })?;
        let new = match &of.begun {
            Some(new) => new.clone(),
            None => {
                let tables = self.commons.tables.load();
                let table = tables.get(&of.table);
                let table = table.ok_or_else(|| passes("the table is not open here yet"))?;
                table.new_run()
            }
        };
        let files = run.files(&new.path);
        self.commons.loads.begins(of, &new, &files);
        self.check_room(run, &files)?;
        self.fetch_files(of, run, &files, &new)?;
        Ok(new)
    }

    fn staged(&mut self, of: &MissingRun) -> Result<Arc<StagedLoad>, FetchFailure> {
        let load = &of.load;
        if let Some((sum, staged)) = &self.staged
            && *sum == load.sum
        {
            return Ok(Arc::clone(staged));
        }
        let name = StagedLoad::document(&of.table, &load.id);
        let got = self.commons.staged.document(&name);
        let bytes = got.map_err(|error| of_store(&name, &error))?;
        let damaged =
            |problem: String| FetchFailure::Lasts(format!("{name} is damaged: {problem}"));
        let (staged, sum) =
            StagedLoad::parse(&bytes).map_err(|error| damaged(error.to_string()))?;
        if sum != load.sum || staged.table != of.table {
            return Err(damaged("it is that of another load".to_owned()));
        }
        let staged = Arc::new(staged);
        self.staged = Some((sum, Arc::clone(&staged)));
        Ok(staged)
    }

    fn check_room(&self, run: &StagedRun, files: &[VersionFile]) -> Result<(), FetchFailure> {
        let staged = &self.commons.staged;
        let bytes = run.summary.file_bytes + run.summary.ext_bytes;
        let bytes = bytes.saturating_sub(staged.came_bytes(files));
        match staged.free_bytes() {
            Some(free) if bytes.saturating_add(SPARE_BYTES) > free => {
                Err(FetchFailure::Lasts(format!(
                    "its run takes {bytes} bytes here, but {free} bytes are free, and {SPARE_BYTES} \
                     must stay free: make room, or add nodes to the cluster"
                )))
            }
            _ => Ok(()),
        }
    }

    fn fetch_files(
        &self,
        of: &MissingRun,
        run: &StagedRun,
        files: &[VersionFile],
        new: &NewRun,
    ) -> Result<(), FetchFailure> {
        let staged = &self.commons.staged;
        let mut problem = String::new();
        for _ in 0..TRIES {
            let fetched = staged.fetch_copy(&of.table, files, &of.is_over);
            fetched.map_err(|error| of_store(&of.table.to_string(), &error))?;
            match self.verify(of, run, new) {
                Ok(()) => {
                    let dir = new.path.parent().unwrap_or(Path::new("/"));
                    let synced = self.disk.sync_dir(dir);
                    return synced.map_err(|error| passes(&error.to_string()));
                }
                Err(error) => problem = error,
            }
            let forgotten = staged.forget(files);
            forgotten.map_err(|error| passes(&error.to_string()))?;
        }
        Err(FetchFailure::Lasts(format!(
            "its run turned out damaged {TRIES} times: {problem}"
        )))
    }

    /// Reads the whole run.
    fn verify(&self, of: &MissingRun, run: &StagedRun, new: &NewRun) -> Result<(), String> {
        let order = self.commons.tables.load();
        let order = order.get(&of.table).map(|table| table.options().order);
        let order = order.ok_or("the table is not open here")?;
        let read = read_back(&*self.disk, &new.path, order, &mut |_| give_way());
        let read = read.map_err(|error| error.to_string())?;
        match *read.summary() == run.summary {
            true => Ok(()),
            false => Err(format!(
                "{} is another run than was staged",
                new.path.display()
            )),
        }
    }
}

fn passes(problem: &str) -> FetchFailure {
    FetchFailure::Passes(problem.to_owned())
}

fn of_store(name: &str, error: &io::Error) -> FetchFailure {
    match error.kind() {
        io::ErrorKind::NotFound => FetchFailure::Lasts(format!(
            "the store has not all of it any more: {name}: {error}"
        )),
        _ => FetchFailure::Passes(format!("{name}: {error}")),
    }
}
