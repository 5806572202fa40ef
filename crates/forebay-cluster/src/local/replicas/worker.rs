//! The thread that carries out orders.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_io::{Clock, Inbox, InboxSender, Receipt, inbox, start_thread};
use parking_lot::Mutex;
use tracing::warn;

use super::ReplicaWatch;
use super::carry_out_orders::ReplicaKeeper;
use super::commons::ReplicaCommons;
use crate::routing::live::ReplicaOrders;

/// The time between two rounds if nothing happens.
const LOOK: Duration = Duration::from_secs(1);
/// How long rounds come sooner after a step begins. Anything unfinished by then waits for others.
const SOON_FOR: Duration = Duration::from_secs(5);
/// The time between two rounds while leaders may not propose the orders yet.
const LOOK_SOON: Duration = Duration::from_millis(20);
/// Events within this time share one round. Rounds take at most a fifth of the time, or half of it
/// while a step is in progress.
const TOGETHER: Duration = Duration::from_millis(5);
const PAUSE_A_LOOK: u32 = 4;
const PAUSE_A_SOON_LOOK: u32 = 1;

#[derive(Debug)]
enum WorkerNews {
    Orders(Box<ReplicaOrders>),
    /// A replica's state changed, a load's run arrived or failed, or a reader found damage.
    Look,
    Stop,
}

type WatchedOrders = Arc<Mutex<Option<Arc<dyn ReplicaWatch>>>>;

/// A handle to the thread.
#[derive(Debug)]
pub struct ReplicaWorker {
    news: Mutex<InboxSender<WorkerNews>>,
    watch: WatchedOrders,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The state of the thread.
struct WorkerState {
    keeper: Arc<Mutex<ReplicaKeeper>>,
    commons: Arc<ReplicaCommons>,
    watch: WatchedOrders,
    orders: Option<Box<ReplicaOrders>>,
    is_done: bool,
    /// How soon to look for the next step that is begun or not allowed yet, and since when there
    /// has been one.
    next_look: Option<Duration>,
    soon_since: Option<Duration>,
}

impl ReplicaWorker {
    pub fn start(
        keeper: Arc<Mutex<ReplicaKeeper>>,
        commons: Arc<ReplicaCommons>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let (news, inbox) = inbox();
        let watch = WatchedOrders::default();
        let mut working = WorkerState {
            keeper,
            commons,
            watch: Arc::clone(&watch),
            orders: None,
            is_done: true,
            next_look: None,
            soon_since: None,
        };
        let thread = start_thread("forebay-replicas", move || working.run(&inbox, &*clock))?;
        Ok(Self {
            news: Mutex::new(news),
            watch,
            thread: Mutex::new(Some(thread)),
        })
    }

    pub fn watched_by(&self, watch: Arc<dyn ReplicaWatch>) {
        *self.watch.lock() = Some(watch);
    }

    pub fn carry_out(&self, orders: ReplicaOrders) {
        self.notify(WorkerNews::Orders(Box::new(orders)));
    }

    /// Wakes the thread soon.
    pub fn wake(&self) {
        self.notify(WorkerNews::Look);
    }

    /// Returns a function that wakes the thread.
    pub fn waker(&self) -> impl Fn() + Send + 'static {
        let news = self.news.lock().clone();
        move || {
            news.send(WorkerNews::Look);
        }
    }

    fn notify(&self, news: WorkerNews) {
        // Once the thread has stopped, it carries out nothing.
        self.news.lock().send(news);
    }

    /// Stops the thread and waits until it has ended.
    pub fn stop(&self) {
        self.notify(WorkerNews::Stop);
        let thread = self.thread.lock().take();
        let this_thread = std::thread::current().id();
        if let Some(thread) = thread
            && thread.thread().id() != this_thread
            && thread.join().is_err()
        {
            warn!("the thread of the replicas ended by a panic");
        }
    }
}

impl WorkerState {
    fn run(&mut self, inbox: &Inbox<WorkerNews>, clock: &dyn Clock) {
        loop {
            let pause = self.next_look.unwrap_or(LOOK);
            let mut news = inbox.receive(clock, pause);
            if matches!(news, Receipt::Ended) {
                return;
            }
            // Only the newest orders count.
            while let Receipt::One(one) = news {
                match one {
                    WorkerNews::Orders(orders) => {
                        (self.orders, self.is_done) = (Some(orders), false);
                    }
                    WorkerNews::Look => {}
                    WorkerNews::Stop => return,
                }
                news = inbox.take();
            }
            let begun = clock.monotonic();
            // A replica that became unhealthy does not lead when the rest of the round runs.
            self.commons.notice_damage();
            self.look();
            let took = clock.monotonic().saturating_sub(begun);
            let pause = match self.next_look {
                Some(_) => PAUSE_A_SOON_LOOK,
                None => PAUSE_A_LOOK,
            };
            clock.sleep((took * pause).clamp(TOGETHER, LOOK));
        }
    }

    fn look(&mut self) {
        let Some(orders) = &self.orders else {
            return;
        };
        let mut keeper = self.keeper.lock();
        if !self.is_done || keeper.is_broken() {
            self.is_done = keeper.carry_out(orders);
        }
        let troubles = keeper.troubles();
        drop(keeper);
        let commons = &self.commons;
        commons.troubles.lock().clone_from(&troubles);
        commons.source.tidy();
        commons.checkpoints.tidy(commons.clock.monotonic());
        commons.tidy_loads();
        commons.notice_missed();
        let watch = self.watch.lock().clone();
        let may_steer = watch.as_ref().is_some_and(|watch| watch.may_steer());
        let next_look = match may_steer {
            _ if orders.is_from_memory => None,
            true => {
                commons.add_loads(&orders.replicas);
                commons.steer(&orders.replicas)
            }
            false => Some(LOOK_SOON),
        };
        let now = commons.clock.monotonic();
        self.soon_since = next_look.and(self.soon_since.or(Some(now)));
        let is_late = (self.soon_since).is_some_and(|since| now.saturating_sub(since) >= SOON_FOR);
        self.next_look = next_look.filter(|_| !is_late);
        let reports = commons.reports();
        commons.settling.look(&commons.host, orders, &reports);
        if let Some(watch) = watch {
            watch.replicas_stand(reports, troubles.into_values().collect());
        }
    }
}
