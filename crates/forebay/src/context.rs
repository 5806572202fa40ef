//! The context of every command: the store, and how to print.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context as _, bail};
use forebay_engine::live::Budget;
use forebay_engine::{Actor, Pointers, Store, StoreError, Table, TableName, Version};
use forebay_io::{Clock, Disk, OsDisk, Random, SystemClock, SystemRandom};
use forebay_load::progress::Progress;
use forebay_load::sources::Spool;
use forebay_objects::{Patience, RemoteDisk, RemoteStore, StoreMemory, is_claimed};
use forebay_run::error::lines_without_controls;
use serde::Serialize;
use tracing::warn;

use crate::actor;
use crate::cluster_handle::{ClusterContext, is_in_cluster};
use crate::exit::{Outcome, is_closed_pipe};
use crate::global::Global;
use crate::memory;
use crate::nodes::login::{LoginArgs, NodeLogin, given};
use crate::nodes::node_pages::NodePages;
use crate::printing::Output;
use crate::progress;
use crate::target::Target;

/// A listener to the progress of a command: anything that outlives the command.
pub type Listener = Arc<dyn Progress + Send + Sync>;

/// The destination of a command's results.
enum Sink {
    Stdout,
    /// Memory, for the program that embeds the command.
    Memory {
        result: Mutex<Vec<u8>>,
        listener: Listener,
    },
}

pub struct Context {
    pub output: Output,
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    store: String,
    sink: Sink,
    work_dir: Option<PathBuf>,
    login: OnceLock<LoginArgs>,
    pub(crate) clustered: ClusterContext,
    /// The memory of --store in object storage.
    memory: StoreMemory,
    /// Why the history of the store lacks an entry.
    history_problem: Arc<parking_lot::Mutex<Option<String>>>,
}

impl fmt::Debug for Context {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Context({}, {:?})", self.store, self.output)
    }
}

impl Context {
    /// Creates a context on the real disk, clock and randomness.
    pub fn new(global: &Global) -> Self {
        Self {
            output: Output {
                json: global.json,
                quiet: global.quiet,
            },
            disk: Arc::new(OsDisk::default()),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            store: global.store.clone(),
            work_dir: given(&global.work_dir).map(Path::to_path_buf),
            login: OnceLock::new(),
            clustered: ClusterContext::default(),
            memory: StoreMemory::default(),
            history_problem: Arc::default(),
            sink: Sink::Stdout,
        }
    }

    /// As `new`, with results kept for [`Context::take_result`].
    pub fn embedded(global: &Global, listener: Listener) -> Self {
        let result = Mutex::default();
        Self {
            sink: Sink::Memory { result, listener },
            ..Self::new(global)
        }
    }

    /// Creates a context for a store and nothing else.
    pub fn of_store(store: &str) -> Self {
        Self::new(&Global {
            store: store.to_owned(),
            work_dir: None,
            json: true,
            quiet: true,
        })
    }

    /// Returns what an embedded command printed.
    pub fn take_result(&self) -> Vec<u8> {
        match &self.sink {
            Sink::Stdout => Vec::new(),
            Sink::Memory { result, .. } => {
                std::mem::take(&mut *result.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Returns whether another program, which names its store itself, embeds the command.
    pub fn is_embedded(&self) -> bool {
        matches!(self.sink, Sink::Memory { .. })
    }

    /// Returns the drawing of a long command's progress, which lasts until it is dropped.
    pub fn progress(&self) -> Box<dyn Progress + Send> {
        match &self.sink {
            Sink::Stdout => progress::for_output(self.output),
            Sink::Memory { listener, .. } => Box::new(Arc::clone(listener)),
        }
    }

    /// Sets the command's login to nodes, before any is asked.
    pub fn log_in(&self, login: &LoginArgs) {
        self.login.get_or_init(|| login.clone());
    }

    /// Returns the command's login to nodes.
    pub fn login(&self) -> anyhow::Result<NodeLogin> {
        let login = self.login.get();
        login.map_or_else(|| Ok(NodeLogin::default()), |login| login.read(&*self.disk))
    }

    /// Returns the HTTP client for the nodes of a cluster.
    pub fn node_pages(&self) -> anyhow::Result<NodePages> {
        Ok(NodePages::new(self.login()?))
    }

    /// Returns the value of --store.
    pub fn store_name(&self) -> &str {
        &self.store
    }

    /// Returns the directory that --store names.
    pub fn store_path(&self) -> anyhow::Result<PathBuf> {
        match self.store.split_once("://") {
            None if self.store.is_empty() => wrong!("--store is empty: give a directory"),
            None => Ok(PathBuf::from(&self.store)),
            Some(("file", rest)) => match forebay_objects::path_of_file_url(rest) {
                Some(path) => Ok(PathBuf::from(path)),
                None => wrong!(
                    "{}: a file URL names an absolute path of this machine, as in file:///srv/forebay",
                    self.store
                ),
            },
            Some((scheme, _)) => wrong!(
                "{}: stores at {scheme}:// are not supported: give a directory of this machine, or an \
                 s3://, gs:// or az:// URL",
                self.store
            ),
        }
    }

    /// Returns the name of --store as it is from any directory.
    pub fn whole_store_name(&self) -> anyhow::Result<String> {
        if self.is_remote() {
            return Ok(self.store.clone());
        }
        let path = std::path::absolute(self.store_path()?).context("--store")?;
        let text = path.to_str().map(str::to_owned);
        text.with_context(|| format!("--store {}: its path is no UTF-8", path.display()))
    }

    /// Returns the URL of the store in object storage that --store names.
    pub fn remote_url(&self) -> anyhow::Result<&str> {
        if !self.is_remote() {
            wrong!(
                "{}: there is nothing to pull from a directory: give --store an s3://, gs:// or az:// URL",
                self.store
            );
        }
        Ok(&self.store)
    }

    /// Returns whether --store is in object storage.
    pub fn is_remote(&self) -> bool {
        forebay_objects::is_remote(&self.store)
    }

    /// Opens the store in object storage that --store names.
    pub fn open_remote(
        &self,
        patience: Patience,
        create: bool,
    ) -> anyhow::Result<(Store, Arc<RemoteDisk>)> {
        self.in_cluster_or_not(|pointers| self.open_remote_with(patience, create, pointers))
    }

    /// Opens the store in object storage, and creates it if it does not exist. Refuses a store of a
    /// cluster.
    pub fn make_remote(&self) -> anyhow::Result<Store> {
        Ok(self.open_remote_with(Patience::Short, true, None)?.0)
    }

    /// Opens the store if it belongs to no cluster. Refuses a store of a cluster.
    pub(crate) fn open_plainly(&self) -> anyhow::Result<Store> {
        match self.is_remote() {
            true => Ok(self.open_remote_with(Patience::Short, false, None)?.0),
            false => self.open_directory(&self.store_path()?, None),
        }
    }

    fn open_remote_with(
        &self,
        patience: Patience,
        create: bool,
        pointers: Option<Arc<dyn Pointers>>,
    ) -> anyhow::Result<(Store, Arc<RemoteDisk>)> {
        let on = self.remote_parts(patience, pointers);
        let (store, disk) = forebay_objects::open(&self.store, &on, create)?;
        Ok((self.acting_on(store), disk))
    }

    /// Returns the parts with which a store in object storage is opened.
    pub(crate) fn remote_parts(
        &self,
        patience: Patience,
        pointers: Option<Arc<dyn Pointers>>,
    ) -> RemoteStore {
        RemoteStore {
            pointers,
            disk: self.disk.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            work_dir: self.work_dir.clone(),
            patience,
            memory: self.memory.clone(),
        }
    }

    /// Opens the store, which must exist.
    pub fn open_store(&self) -> anyhow::Result<Store> {
        if self.is_remote() {
            return Ok(self.open_remote(Patience::Short, false)?.0);
        }
        let path = self.store_path()?;
        self.in_cluster_or_not(|pointers| self.open_directory(&path, pointers))
    }

    /// Opens a store and, if it belongs to a cluster, opens it again with that cluster's pointers.
    pub(crate) fn in_cluster_or_not<T>(
        &self,
        open: impl Fn(Option<Arc<dyn Pointers>>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        match open(None) {
            Err(error) if is_in_cluster(&error) => open(Some(self.cluster()?)),
            opened => opened,
        }
    }

    pub(crate) fn open_directory(
        &self,
        path: &Path,
        pointers: Option<Arc<dyn Pointers>>,
    ) -> anyhow::Result<Store> {
        let (disk, clock, random) = (&self.disk, &self.clock, &self.random);
        let parts = (disk.clone(), clock.clone(), random.clone());
        let store = Store::open_with(parts.0, parts.1, parts.2, path, pointers)?;
        Ok(self.acting_on(store))
    }

    /// Returns the store with the user of this process as its actor.
    fn acting_on(&self, store: Store) -> Store {
        store.acting_as(Actor {
            problem: Arc::clone(&self.history_problem),
            ..actor::of_process(&*self.disk)
        })
    }

    /// Opens the store of a server, and creates it if it does not exist and `create` is set.
    pub fn open_store_to_serve(&self, create: bool) -> anyhow::Result<Store> {
        if create || self.is_remote() {
            return self.open_or_create_store();
        }
        match self.open_directory(&self.store_path()?, None) {
            Err(error) if matches!(error.downcast_ref(), Some(StoreError::NoStore { .. })) => {
                bail!(
                    "there is no forebay store at {}, so there is nothing to serve: push a table to it, name \
                     another store, or have an empty one made by --create",
                    self.store
                )
            }
            opened => opened,
        }
    }

    /// Opens the store, and creates it if it does not exist. Live tables and servers need a store
    /// in a directory.
    pub fn open_or_create_store(&self) -> anyhow::Result<Store> {
        if self.is_remote() {
            bail!(
                "{}: a live table and a server need a directory of this machine; a server pulls a store \
                 in object storage into one: forebay serve --store {0} --cache DIR",
                self.store
            );
        }
        let store = self.open_or_create_directory(&self.store_path()?)?;
        Ok(self.acting_on(store))
    }

    /// Opens a store in a directory, and creates it if it does not exist.
    pub fn open_or_create_directory(&self, path: &Path) -> anyhow::Result<Store> {
        Ok(Store::open_or_create(
            self.disk.clone(),
            self.clock.clone(),
            self.random.clone(),
            path,
        )?)
    }

    /// Opens the store in a cache. Its own file has nothing but the format. If it is damaged or
    /// missing, and the directory is known to be a cache, it is rewritten: everything else in a
    /// cache has its own checksums.
    pub fn open_cache_directory(&self, path: &Path) -> anyhow::Result<Store> {
        match self.open_or_create_directory(path) {
            Err(error)
                if error.downcast_ref().is_some_and(StoreError::lacks_kind)
                    && is_claimed(&*self.disk, path)? =>
            {
                warn!(%error, "the file of the cache is rewritten");
                Store::rewrite_kind(&*self.disk, path)?;
                self.open_or_create_directory(path)
            }
            opened => opened,
        }
    }

    /// Returns the value of --work-dir.
    pub fn work_dir(&self) -> Option<&Path> {
        self.work_dir.as_deref()
    }

    /// Returns the directory for sources that can be read only once: beside the work of pushes, if
    /// --work-dir is given.
    pub fn spool(&self) -> Spool {
        self.work_dir
            .clone()
            .map_or_else(Spool::default, Spool::new)
    }

    pub fn open_table(&self, name: &TableName) -> anyhow::Result<Table> {
        Ok(self.open_store()?.table(name)?)
    }

    /// Returns the memory of live tables: a quarter of the machine's.
    pub fn live_budget(&self) -> Arc<Budget> {
        let memory_bytes = usize::try_from(memory::quarter(&*self.disk)).unwrap_or(usize::MAX);
        Budget::new(memory_bytes)
    }

    /// Opens the version that a target names.
    pub fn open_version(&self, target: &Target) -> anyhow::Result<Arc<Version>> {
        let table = self.open_table(&target.table)?;
        let version = self.version_of(&table, target)?;
        Ok(table.open_version(version)?)
    }

    /// Returns the number of the version that a target names.
    pub fn version_of(&self, table: &Table, target: &Target) -> anyhow::Result<u64> {
        match target.version {
            Some(version) => Ok(version),
            None => Ok(table.serving()?),
        }
    }

    /// Prints bytes as they are.
    pub fn print_raw(&self, bytes: &[u8]) -> anyhow::Result<()> {
        match &self.sink {
            Sink::Memory { result, .. } => {
                let mut result = result.lock().unwrap_or_else(PoisonError::into_inner);
                result.extend_from_slice(bytes);
                Ok(())
            }
            Sink::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(bytes)?;
                Ok(out.flush()?)
            }
        }
    }

    /// Prints the reason for a non-zero exit code with --quiet, which prints no result.
    pub fn announce_though_quiet(&self, reason: Option<String>) {
        if let (true, Some(reason)) = (self.output.is_silent(), reason) {
            self.output.announce(&reason);
        }
    }

    /// Prints the result of a command that has succeeded; with --quiet only if --json is given. The
    /// command is done whether its result can be printed or not. If standard output is closed, the
    /// result is just `outcome`; any other failure says what was done.
    pub fn print_done(
        &self,
        outcome: Outcome,
        object: &impl Serialize,
        text: impl Fn() -> String,
    ) -> anyhow::Result<Outcome> {
        for notice in self.memory.take_notices() {
            self.output.announce(&notice);
        }
        if let Some(problem) = self.history_problem.lock().take() {
            let reported = format!("the history of the store lacks an entry: {problem}");
            self.output.announce(&reported);
        }
        if self.output.is_silent() {
            return Ok(outcome);
        }
        match self.print(object, &text) {
            Err(error) if !is_closed_pipe(&error) => {
                let done = text();
                let done = done.trim_end();
                Err(error.context(format!(
                    "{done}. This is done, only the result could not be written to standard output"
                )))
            }
            _ => Ok(outcome),
        }
    }

    /// Prints a command's result: an object with --json, otherwise the text.
    pub fn print(
        &self,
        object: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let mut out = if self.output.json {
            serde_json::to_vec(object).context("cannot print the result")?
        } else {
            lines_without_controls(text().trim_end()).into_bytes()
        };
        out.push(b'\n');
        self.print_raw(&out)
    }
}
