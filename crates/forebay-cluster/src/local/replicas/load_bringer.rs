//! The thread that brings the runs of loads from the cluster's store, one after the other, and
//! reads them back.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_engine::live::{StagedLoad, StagedRun};
use forebay_engine::{NewRun, VersionFile};
use forebay_host::LoadedRuns as _;
use forebay_io::{Clock, Disk, Inbox, InboxSender, Received, give_way, inbox, start_behind};
use forebay_run::verify::read_back;
use parking_lot::Mutex;
use tracing::{info, warn};

use super::commons::ReplicaCommons;
use super::load_shelf::{MissingRun, NotBrought};
use crate::version::SPARE_BYTES;

/// Between two looks for what did not come before.
const LOOK: Duration = Duration::from_secs(1);
/// How often a run that turns out damaged is brought.
const TRIES: usize = 3;

#[derive(Debug, PartialEq, Eq)]
enum BringerNews {
    /// Something may have been ordered.
    Look,
    Stop,
}

/// The thread's end of which others have hold.
#[derive(Debug)]
pub struct LoadBringer {
    news: Mutex<InboxSender<BringerNews>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread has.
struct BringingLoads {
    commons: Arc<ReplicaCommons>,
    clock: Arc<dyn Clock>,
    disk: Arc<dyn Disk>,
    /// Told when a run came, or did not.
    news: Box<dyn Fn() + Send>,
    /// The document that was read last, with its checksum.
    staged: Option<(u64, Arc<StagedLoad>)>,
}

impl LoadBringer {
    pub fn start(
        commons: Arc<ReplicaCommons>,
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
        news: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, inbox) = inbox();
        let ordered = sender.clone();
        let wake = move || {
            ordered.send(BringerNews::Look);
        };
        commons.loads_ordered.set(wake);
        let mut bringing = BringingLoads {
            commons,
            clock,
            disk,
            news: Box::new(news),
            staged: None,
        };
        let thread = start_behind("forebay-loads", move || bringing.run(&inbox))?;
        Ok(Self {
            news: Mutex::new(sender),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Returns when it brings nothing any more. What it brings is given up first, by the shelf.
    pub fn stop(&self) {
        // A thread that has ended hears nothing.
        self.news.lock().send(BringerNews::Stop);
        let thread = self.thread.lock().take();
        let this_thread = std::thread::current().id();
        if let Some(thread) = thread
            && thread.thread().id() != this_thread
            && thread.join().is_err()
        {
            warn!("the thread that brings loads ended by a panic");
        }
    }
}

impl BringingLoads {
    fn run(&mut self, inbox: &Inbox<BringerNews>) {
        let is_last = |news| matches!(news, Received::One(BringerNews::Stop) | Received::Ended);
        while !is_last(inbox.receive(&*self.clock, LOOK)) {
            while let Some(of) = self.commons.loads.next(self.clock.monotonic()) {
                if is_last(inbox.take()) {
                    return;
                }
                self.bring(&of);
            }
        }
    }

    fn bring(&mut self, of: &MissingRun) {
        if self.has_it(of) {
            let loads = &self.commons.loads;
            loads.taken(&of.table, of.partition, of.load.number);
            return;
        }
        match self.try_bring(of) {
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

    /// Whether the partition here has the load already: it came with a copy.
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

    fn try_bring(&mut self, of: &MissingRun) -> Result<NewRun, NotBrought> {
        let staged = self.staged(of)?;
        let run = staged
            .run(of.partition)
            .ok_or_else(|| NotBrought::Lasts("the load has no run for the partition".to_owned()))?;
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
        self.bring_files(of, run, &files, &new)?;
        Ok(new)
    }

    fn staged(&mut self, of: &MissingRun) -> Result<Arc<StagedLoad>, NotBrought> {
        let load = &of.load;
        if let Some((sum, staged)) = &self.staged
            && *sum == load.sum
        {
            return Ok(Arc::clone(staged));
        }
        let name = StagedLoad::document(&of.table, &load.id);
        let got = self.commons.staged.document(&name);
        let bytes = got.map_err(|error| of_store(&name, &error))?;
        let damaged = |problem: String| NotBrought::Lasts(format!("{name} is damaged: {problem}"));
        let (staged, sum) =
            StagedLoad::parse(&bytes).map_err(|error| damaged(error.to_string()))?;
        if sum != load.sum || staged.table != of.table {
            return Err(damaged("it is that of another load".to_owned()));
        }
        let staged = Arc::new(staged);
        self.staged = Some((sum, Arc::clone(&staged)));
        Ok(staged)
    }

    fn check_room(&self, run: &StagedRun, files: &[VersionFile]) -> Result<(), NotBrought> {
        let staged = &self.commons.staged;
        let bytes = run.summary.file_bytes + run.summary.ext_bytes;
        let bytes = bytes.saturating_sub(staged.came_bytes(files));
        match staged.free_bytes() {
            Some(free) if bytes.saturating_add(SPARE_BYTES) > free => {
                Err(NotBrought::Lasts(format!(
                    "its run takes {bytes} bytes here, {free} are free, and {SPARE_BYTES} are to be left: make room, or \
                     give the cluster more nodes"
                )))
            }
            _ => Ok(()),
        }
    }

    fn bring_files(
        &self,
        of: &MissingRun,
        run: &StagedRun,
        files: &[VersionFile],
        new: &NewRun,
    ) -> Result<(), NotBrought> {
        let staged = &self.commons.staged;
        let mut problem = String::new();
        for _ in 0..TRIES {
            let brought = staged.bring(&of.table, files, &of.is_over);
            brought.map_err(|error| of_store(&of.table.to_string(), &error))?;
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
        Err(NotBrought::Lasts(format!(
            "its run turned out damaged {TRIES} times: {problem}"
        )))
    }

    /// Reads all of it.
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

fn passes(problem: &str) -> NotBrought {
    NotBrought::Passes(problem.to_owned())
}

fn of_store(name: &str, error: &io::Error) -> NotBrought {
    match error.kind() {
        io::ErrorKind::NotFound => NotBrought::Lasts(format!(
            "the store has not all of it any more: {name}: {error}"
        )),
        _ => NotBrought::Passes(format!("{name}: {error}")),
    }
}
