//! A client that sends requests to a cluster through its catalog.

mod lease_watch;
mod pointers;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::TableName;
use forebay_io::{Clock, Random};
use thiserror::Error;

use crate::catalog::{Catalog, CatalogError, Documented};
use crate::coordinator::unfinished_splits;
use crate::formats::{cannot_upgrade, has_own_layouts, has_plans, has_timing};
use crate::ids::HostPort;
use crate::lease::{COORDINATOR_LEASE, ring};
use crate::live_status::LiveStatus;
use crate::measures::reads::BatchReads;
use crate::model::{
    DocRef, Head, Identity, Model, Outcome, Rebalance, RequestId, Rollout, Survey, TableGroups,
    TableLoad, WorkPage, parsed, written,
};
use crate::request::Request;
use crate::status::Status;

use lease_watch::LeaseWatch;
pub use pointers::{ClusterPointers, RolloutDraft};

/// How late a lease renewal may be, and the interval between polls for it.
const SEAT_SLACK: Duration = Duration::from_secs(2);
const SEAT_POLL: Duration = Duration::from_millis(500);
/// The interval between polls of the catalog.
const LOOK_NEAR: Duration = Duration::from_millis(50);
const LOOK_FAR: Duration = Duration::from_millis(300);
/// A request that no coordinator accepts within this time is withdrawn.
const TAKEN_UP: Duration = Duration::from_secs(45);
/// How long the client then still waits for an answer.
const WITHDRAWN: Duration = Duration::from_secs(2);
/// The interval between progress queries to nodes.
const ASK: Duration = Duration::from_secs(1);
/// How long the catalog, or every coordinator, may be unavailable while the client waits.
const PATIENCE: Duration = Duration::from_secs(150);
/// How long to wait for leaders that have not yet reported their partitions' sizes.
const TOLD_WITHIN: Duration = Duration::from_secs(20);

/// A callback that notifies a node of new requests. It may do nothing: the coordinator also polls
/// for requests.
pub type NodeNotifier = Arc<dyn Fn(&HostPort) + Send + Sync>;
/// A callback that asks a node for the status of the cluster. It returns `None` if the node does
/// not answer.
pub type Inquiry = Arc<dyn Fn(&HostPort) -> Option<Status> + Send + Sync>;
/// A callback that receives the progress of a request.
pub type Watcher = Arc<dyn Fn(ActiveWork<'_>) + Send + Sync>;

/// Work that is under way or has ended.
#[derive(Debug, Clone, Copy)]
pub enum ActiveWork<'a> {
    Rollout(&'a Rollout),
    Rebalance(&'a Rebalance),
    Load(&'a TableLoad),
    /// A node's report of all work under way, with the bytes fetched so far.
    Status(&'a Status),
}

/// A client that writes requests to a catalog and waits for their outcome.
#[derive(Clone)]
pub struct ClusterClient {
    catalog: Arc<dyn Catalog>,
    identity: Identity,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    notify: NodeNotifier,
    inquiry: Inquiry,
    watcher: Watcher,
}

/// The reason why a request was not carried out.
#[derive(Debug, Error)]
pub enum ClientError {
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The coordinator's reason. Nothing was changed.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Busy(String),
    #[error(
        "no node of cluster {cluster} has taken the request up in {seconds} s, and it was withdrawn: are its \
         nodes running? (forebay cluster status)"
    )]
    NobodyHome { cluster: String, seconds: u64 },
    /// The outcome of the request is unknown.
    #[error(
        "cluster {cluster} has taken the request up, but has had no coordinator for {seconds} s: \
         it continues when its nodes run again (forebay cluster status)"
    )]
    Deserted { cluster: String, seconds: u64 },
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestEnd {
    Done,
    /// The rollout, which has ended.
    Rollout(Box<Rollout>),
    /// The plan, which has ended or has reached the stage that the caller waited for.
    Rebalance(Box<Rebalance>),
    /// The load, which has ended.
    Load(Box<TableLoad>),
    Survey(Survey),
    Reads(BatchReads),
    LiveState(serde_json::Value),
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ClusterClient({}, {:?})",
            self.identity.name, self.catalog
        )
    }
}

impl ClusterClient {
    /// Opens the cluster that a catalog describes.
    pub fn open(
        catalog: Arc<dyn Catalog>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, CatalogError> {
        let identity = Documented(&*catalog).identity()?;
        Ok(Self {
            catalog,
            identity,
            clock,
            random,
            notify: Arc::new(|_| {}),
            inquiry: Arc::new(|_| None),
            watcher: Arc::new(|_| {}),
        })
    }

    #[must_use]
    pub fn nudging(mut self, notify: NodeNotifier) -> Self {
        self.notify = notify;
        self
    }

    #[must_use]
    pub fn asking(mut self, inquiry: Inquiry) -> Self {
        self.inquiry = inquiry;
        self
    }

    #[must_use]
    pub fn watched_by(mut self, watcher: Watcher) -> Self {
        self.watcher = watcher;
        self
    }

    pub(crate) fn unix_ms(&self) -> u64 {
        self.clock.unix_ms()
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn head(&self) -> Result<Head, CatalogError> {
        Ok(Documented(&*self.catalog).head()?.0)
    }

    /// Returns the cluster as the catalog describes it.
    pub fn model(&self) -> Result<(Head, Model), CatalogError> {
        let catalog = Documented(&*self.catalog);
        let (head, _) = catalog.head()?;
        let model = catalog.model(&head, &Model::default())?;
        Ok((head, model))
    }

    /// Returns the cluster for planning. If a plan has moved everything but has not ended, this
    /// waits some seconds for its end.
    pub fn model_to_plan(&self) -> Result<(Head, Model), ClientError> {
        let (head, model) = self.model()?;
        match model.work.moving().filter(|plan| plan.has_moved()) {
            Some(plan) => {
                self.wait_until_over(&plan.request)?;
                Ok(self.model()?)
            }
            None => Ok((head, model)),
        }
    }

    /// Returns the cluster's state by the catalog alone. The coordinator knows more.
    pub fn status(&self) -> Result<Status, CatalogError> {
        let (head, model) = self.model()?;
        Ok(Status::of(&self.identity, &head, &model, None))
    }

    /// Returns whether there is a coordinator, by watching for renewals of its lease. If the
    /// catalog does not answer, this is an error.
    pub fn has_coordinator(&self) -> io::Result<bool> {
        let (_, model) = self.model().map_err(io::Error::other)?;
        let limit = model.timing().lease_renewal() + SEAT_SLACK;
        let read =
            || Ok::<_, io::Error>(self.catalog.get(COORDINATOR_LEASE)?.map(|(bytes, _)| bytes));
        let (begun, first) = (self.clock.monotonic(), read()?);
        while self.clock.monotonic() - begun < limit {
            self.clock.sleep(SEAT_POLL);
            let now = read()?;
            if now.is_some() && now != first {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Describes the process that keeps all others from writing the catalog, if it is known.
    pub fn held_up_by(&self) -> Option<String> {
        match self.catalog.held_up_by() {
            Ok(holder) => holder,
            Err(error) => Some(format!("the catalog cannot be written: {error}")),
        }
    }

    /// Sends a request and waits until it is done. A rollout that has begun continues if this
    /// process ends.
    pub fn carry_out(&self, request: &Request) -> Result<RequestEnd, ClientError> {
        let id = self.ask(request)?;
        self.wait_until_over(&id)
    }

    /// Sends a request and does not wait.
    pub fn ask(&self, request: &Request) -> Result<RequestId, ClientError> {
        let format = self.check(request)?;
        self.submit(request, format)
    }

    pub fn wait_until_over(&self, id: &RequestId) -> Result<RequestEnd, ClientError> {
        self.wait(id, |plan| plan.stage.is_over())
    }

    /// Waits until a plan has split and moved everything, or has ended. The previous holders of
    /// moved partitions may still wait for commands that are in flight.
    pub fn wait_until_moved(&self, id: &RequestId) -> Result<RequestEnd, ClientError> {
        self.wait(id, Rebalance::has_moved)
    }

    /// Waits until no work under way still has to split the table. If there is such work, this
    /// calls `waits` first.
    pub fn wait_for_splits(
        &self,
        table: &TableName,
        waits: impl FnOnce(),
    ) -> Result<(), CatalogError> {
        let mut waits = Some(waits);
        while self.is_being_cut(table)? {
            if let Some(waits) = waits.take() {
                waits();
            }
            self.clock.sleep(ASK);
        }
        Ok(())
    }

    /// Waits until no load into the table is under way. If one is, this calls `waits` first.
    pub fn wait_for_load(
        &self,
        table: &TableName,
        waits: impl FnOnce(&TableLoad),
    ) -> Result<(), CatalogError> {
        let mut waits = Some(waits);
        loop {
            let (_, model) = self.model()?;
            let Some(load) = model.work.load_of(table) else {
                return Ok(());
            };
            if let Some(waits) = waits.take() {
                waits(load);
            }
            self.clock.sleep(ASK);
        }
    }

    fn is_being_cut(&self, table: &TableName) -> Result<bool, CatalogError> {
        let (_, model) = self.model()?;
        let batch = model.work.moving().and_then(|plan| model.batch_of(plan));
        let left = batch.map_or_else(Vec::new, |batch| unfinished_splits(&model, &batch));
        let mut groups = model
            .groups
            .get(table)
            .into_iter()
            .flat_map(TableGroups::all);
        Ok(left.iter().any(|split| split.table == *table)
            || groups.any(|group| group.split.is_some()))
    }

    /// Returns the approximate size of live tables, as the coordinator knows it. Changes nothing.
    pub fn survey(&self, tables: BTreeSet<TableName>) -> Result<Survey, ClientError> {
        match self.carry_out(&Request::Survey { tables })? {
            RequestEnd::Survey(survey) => Ok(survey),
            _ => Err(ClientError::Refused(
                "it was taken for another request".to_owned(),
            )),
        }
    }

    /// Returns the read rates of batch tables, as the coordinator knows them. Changes nothing.
    pub fn reads(&self) -> Result<BatchReads, ClientError> {
        match self.carry_out(&Request::Reads {})? {
            RequestEnd::Reads(reads) => Ok(reads),
            _ => Err(ClientError::Refused(
                "it was taken for another request".to_owned(),
            )),
        }
    }

    /// Returns the cluster and the sizes of these tables, for planning.
    ///
    /// Leaders report within seconds of their own election, or of a new coordinator's. This waits
    /// for leaders that have not reported. While a plan is carried out, it does not wait.
    pub fn survey_to_plan(
        &self,
        tables: &BTreeSet<TableName>,
    ) -> Result<(Model, Survey), ClientError> {
        let until = self.clock.monotonic() + TOLD_WITHIN;
        loop {
            self.model_to_plan()?;
            let survey = self.survey(tables.clone())?;
            let (_, model) = self.model()?;
            let is_reported = |table: &TableName| {
                let reported = survey.get(table);
                let mut groups = model.desired_groups(table).into_iter();
                groups.all(|(group, _)| {
                    reported.is_some_and(|reported| reported.contains_key(&group.partition))
                })
            };
            let is_over = self.clock.monotonic() >= until || model.work.moving().is_some();
            if is_over || tables.iter().all(is_reported) {
                return Ok((model, survey));
            }
            self.clock.sleep(ASK);
        }
    }

    /// Returns the state of live tables, as the coordinator knows it. The question goes through the
    /// catalog: over HTTP, nodes answer only clients that have a name and a password, or trust the
    /// nodes' certificate.
    pub fn live_state(&self) -> Result<Option<LiveStatus>, ClientError> {
        match self.carry_out(&Request::LiveState {})? {
            RequestEnd::LiveState(state) => serde_json::from_value(state).map_err(|error| {
                ClientError::Refused(format!("the answer cannot be read: {error}"))
            }),
            _ => Err(ClientError::Refused(
                "it was taken for another request".to_owned(),
            )),
        }
    }

    /// Checks whether the catalog accepts the request, and returns the catalog's format. A node of
    /// the previous program version does not know requests of later formats, and would not answer.
    /// This finds errors that the catalog alone shows, without a running node.
    pub fn check(&self, request: &Request) -> Result<u64, ClientError> {
        let catalog = Documented(&*self.catalog);
        let (head, _) = catalog.head()?;
        let model = || catalog.model(&head, &Model::default());
        let refused = match request {
            Request::Rebalance { plan } if plan.has_own() => has_own_layouts(head.forebay_head),
            Request::Rebalance { .. } => has_plans(head.forebay_head),
            Request::Upgrade { format } => cannot_upgrade(&model()?, *format),
            Request::Pause { node, .. } | Request::Remove { node } => {
                model()?.known_node(node).map(|_| ())
            }
            Request::ForceRecover { table, .. } | Request::Split { table, .. } => {
                has_live_table(&model()?, table)
            }
            Request::Cancel { rollout } => model()?.work.can_cancel(rollout),
            Request::SetTiming { .. } => has_timing(head.forebay_head),
            _ => Ok(()),
        };
        refused.map_err(ClientError::Refused)?;
        Ok(head.forebay_head)
    }

    fn submit(&self, request: &Request, format: u64) -> Result<RequestId, ClientError> {
        let id = RequestId(format!("{:016x}", self.random.next_u64()));
        let bytes = written(format, request).map_err(CatalogError::from)?;
        let name = format!("requests/{id}");
        let put = self.catalog.put_if(&name, bytes.into(), None);
        put.map_err(|source| CatalogError::Io { name, source })?;
        Ok(id)
    }

    /// Notifies the coordinator of new requests. If it cannot be notified, that is no error: it
    /// polls by itself. Returns the HTTP addresses of some nodes to ask for progress.
    fn ring(&self) -> Vec<HostPort> {
        let mut https = Vec::new();
        if let Ok((_, model)) = self.model() {
            let up = model.all_nodes().filter(|node| node.is_up());
            https.extend(up.filter_map(|node| node.http.clone()).take(3));
        }
        https.iter().for_each(|http| (self.notify)(http));
        if !self.catalog.is_near() {
            ring(&*self.catalog, self.random.next_u64());
        }
        https
    }

    /// Waits for the end of a request. `is_enough` decides whether a plan has reached the wanted
    /// stage.
    fn wait(
        &self,
        id: &RequestId,
        is_enough: fn(&Rebalance) -> bool,
    ) -> Result<RequestEnd, ClientError> {
        let https = self.ring();
        let begun = self.clock.monotonic();
        let (mut reached, mut withdrawn, mut asked) = (begun, false, begun);
        let mut seen = SeenWork::default();
        let mut absence = LeaseWatch::since(begun);
        let pause = if self.catalog.is_near() {
            LOOK_NEAR
        } else {
            LOOK_FAR
        };
        loop {
            let now = self.clock.monotonic();
            match self.look(&mut seen) {
                Ok(()) => reached = now,
                Err(_) if now.saturating_sub(reached) < PATIENCE => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(ended) = self.ended(&seen.work, id, is_enough) {
                return ended;
            }
            let is_taken_up = seen.work.answers.contains_key(id);
            if is_taken_up && absence.look(&*self.catalog, seen.work.timing, now) >= PATIENCE {
                return Err(ClientError::Deserted {
                    cluster: self.identity.name.clone(),
                    seconds: PATIENCE.as_secs(),
                });
            }
            if is_taken_up && now.saturating_sub(asked) >= ASK {
                asked = now;
                if let Some(status) = https.iter().find_map(|http| (self.inquiry)(http)) {
                    (self.watcher)(ActiveWork::Status(&status));
                }
            }
            if !is_taken_up && reached == now && now.saturating_sub(begun) >= TAKEN_UP {
                if withdrawn {
                    return Err(ClientError::NobodyHome {
                        cluster: self.identity.name.clone(),
                        seconds: TAKEN_UP.as_secs(),
                    });
                }
                let name = format!("requests/{id}");
                let removed = self.catalog.remove(&name);
                removed.map_err(|source| CatalogError::Io { name, source })?;
                // If a coordinator read the request just before its removal, it answers soon.
                withdrawn = true;
                self.clock.sleep(WITHDRAWN);
            }
            self.clock.sleep(pause);
        }
    }

    /// Reads the work under way, if the head has changed since the last read.
    fn look(&self, seen: &mut SeenWork) -> Result<(), CatalogError> {
        let catalog = Documented(&*self.catalog);
        let (head, _) = catalog.head()?;
        if let Some(work) = head.roots.get("work")
            && seen.reference.as_ref() != Some(work)
        {
            seen.work = parsed(work.as_str(), &catalog.document(work)?)?;
            seen.reference = Some(work.clone());
        }
        Ok(())
    }

    /// Returns the outcome of the request, if it has ended. Reports its progress to the watcher.
    fn ended(
        &self,
        work: &WorkPage,
        id: &RequestId,
        is_enough: fn(&Rebalance) -> bool,
    ) -> Option<Result<RequestEnd, ClientError>> {
        let rollout = match &work.answers.get(id)?.outcome {
            Outcome::Done => return Some(Ok(RequestEnd::Done)),
            Outcome::Refused(words) => return Some(Err(ClientError::Refused(words.clone()))),
            Outcome::Busy(words) => return Some(Err(ClientError::Busy(words.clone()))),
            Outcome::Rebalance => return self.moved(work, id, is_enough),
            Outcome::Load(number) => return self.loaded(work, *number),
            Outcome::Survey(survey) => return Some(Ok(RequestEnd::Survey(survey.clone()))),
            Outcome::Reads(reads) => return Some(Ok(RequestEnd::Reads(reads.clone()))),
            Outcome::LiveState(state) => return Some(Ok(RequestEnd::LiveState(state.clone()))),
            Outcome::Rollout(id) => work.rollouts.get(id),
        };
        let Some(rollout) = rollout else {
            return Some(Err(forgotten()));
        };
        (self.watcher)(ActiveWork::Rollout(rollout));
        let is_over = rollout.phase.is_over();
        is_over.then(|| Ok(RequestEnd::Rollout(Box::new(rollout.clone()))))
    }

    fn moved(
        &self,
        work: &WorkPage,
        id: &RequestId,
        is_enough: fn(&Rebalance) -> bool,
    ) -> Option<Result<RequestEnd, ClientError>> {
        let mut plans = work.rebalances.iter();
        let Some(plan) = plans.find(|plan| plan.request == *id) else {
            return Some(Err(forgotten()));
        };
        (self.watcher)(ActiveWork::Rebalance(plan));
        is_enough(plan).then(|| Ok(RequestEnd::Rebalance(Box::new(plan.clone()))))
    }
}

impl ClusterClient {
    fn loaded(&self, work: &WorkPage, number: u64) -> Option<Result<RequestEnd, ClientError>> {
        let mut loads = work.loads.iter();
        let Some(load) = loads.find(|load| load.number == number) else {
            return Some(Err(forgotten()));
        };
        (self.watcher)(ActiveWork::Load(load));
        let is_over = load.stage.is_over();
        is_over.then(|| Ok(RequestEnd::Load(Box::new(load.clone()))))
    }
}

fn has_live_table(model: &Model, table: &TableName) -> Result<(), String> {
    let entry = model.table(table);
    match entry.and_then(|entry| entry.live()) {
        Some(_) => Ok(()),
        None => Err(format!("the cluster has no live table {table}")),
    }
}

fn forgotten() -> ClientError {
    ClientError::Refused("it ended long ago, and nothing is known of it any more".to_owned())
}

/// The work under way that a client read last.
#[derive(Default)]
struct SeenWork {
    reference: Option<DocRef>,
    work: WorkPage,
}
