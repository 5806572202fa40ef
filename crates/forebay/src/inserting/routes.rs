//! Finds the node that leads the partition of a key, from the nodes' own answers.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_cluster::HostPort;
use forebay_engine::{Bound, TableName};
use forebay_io::Clock;
use forebay_run::Order;
use forebay_run::hash::KeyHasher;

use super::resp::{RespAnswer, push_command};
use super::wire::{Exchange, NodeCommands, WireFailure};

/// How long a node that did not answer is asked last.
const SUSPECT: Duration = Duration::from_secs(3);

/// The ranges of a table and their nodes at one moment, in the table's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowRoutes {
    /// For a hashed table, the hasher that finds a key's slot.
    hasher: Option<KeyHasher>,
    ranges: Vec<RouteRange>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct RouteRange {
    lower: Bound,
    /// The leader is first, if the asked node knows it.
    nodes: Vec<HostPort>,
}

impl RowRoutes {
    /// Returns the nodes of a key's partition, the leader first.
    pub fn nodes(&self, key: &[u8]) -> &[HostPort] {
        let bound = match &self.hasher {
            Some(hasher) => Bound::Slot(hasher.slot(key)),
            None => Bound::Key(key.to_vec()),
        };
        self.nodes_at(&bound)
    }

    /// Returns the nodes of the partition at a place in the table's order.
    pub fn nodes_at(&self, place: &Bound) -> &[HostPort] {
        let is_before = |range: &RouteRange| match (&range.lower, place) {
            (Bound::Slot(lower), Bound::Slot(slot)) => lower <= slot,
            (Bound::Key(lower), Bound::Key(key)) => lower <= key,
            _ => false,
        };
        let behind = self.ranges.partition_point(is_before);
        let range = self.ranges.get(behind.saturating_sub(1));
        range.map_or(&[], |range| &range.nodes)
    }
}

/// The routes that all senders share, and the nodes that did not answer.
pub struct SharedRoutes {
    table: TableName,
    order: Order,
    clock: Arc<dyn Clock>,
    known: Mutex<KnownRoutes>,
    /// Held while new routes are requested.
    asking: Mutex<()>,
}

struct KnownRoutes {
    /// How often routes were requested.
    number: u64,
    routes: Arc<RowRoutes>,
    nodes: Vec<HostPort>,
    suspects: BTreeMap<HostPort, Duration>,
}

impl SharedRoutes {
    /// Creates the routes. `nodes`: the addresses of some of the cluster's nodes.
    pub fn new(
        table: &TableName,
        order: Order,
        nodes: Vec<HostPort>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let hasher = match order {
            Order::Hashed => Some(KeyHasher::new(format!("{table}:").as_bytes())),
            Order::Ordered => None,
        };
        let ranges = Vec::new();
        Self {
            table: table.clone(),
            order,
            clock,
            known: Mutex::new(KnownRoutes {
                number: 0,
                routes: Arc::new(RowRoutes { hasher, ranges }),
                nodes,
                suspects: BTreeMap::new(),
            }),
            asking: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, KnownRoutes> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current routes and their number.
    pub fn now(&self) -> (u64, Arc<RowRoutes>) {
        let known = self.known();
        (known.number, Arc::clone(&known.routes))
    }

    pub fn suspect(&self, node: &HostPort) {
        let now = self.clock.monotonic();
        self.known().suspects.insert(node.clone(), now);
    }

    /// Returns the first node that has not failed recently, or the first of all.
    pub fn best<'n>(&self, nodes: &'n [HostPort]) -> Option<&'n HostPort> {
        let now = self.clock.monotonic();
        let known = self.known();
        let answers = |node: &&HostPort| {
            let since = known.suspects.get(node);
            since.is_none_or(|since| now.saturating_sub(*since) > SUSPECT)
        };
        nodes.iter().find(answers).or(nodes.first())
    }

    /// Requests the routes again, unless another thread does so or has done so since the routes
    /// `seen`. An error if no node answers.
    pub fn renew(&self, seen: u64, exchange: &mut dyn Exchange) -> Result<(), WireFailure> {
        let asking = match self.asking.try_lock() {
            Ok(asking) => asking,
            Err(_) => return Ok(()),
        };
        if self.known().number != seen {
            return Ok(());
        }
        let ranges = self.ask(exchange)?;
        let mut known = self.known();
        let more: BTreeSet<&HostPort> = ranges.iter().flat_map(|range| &range.nodes).collect();
        let more: Vec<HostPort> = more.into_iter().cloned().collect();
        for node in more {
            if !known.nodes.contains(&node) {
                known.nodes.push(node);
            }
        }
        let hasher = known.routes.hasher.clone();
        known.routes = Arc::new(RowRoutes { hasher, ranges });
        known.number += 1;
        drop((known, asking));
        Ok(())
    }

    /// Asks one node of each partition: only its own nodes know its leader for certain.
    fn ask(&self, exchange: &mut dyn Exchange) -> Result<Vec<RouteRange>, WireFailure> {
        let mut left = self.known().nodes.clone();
        let mut failure = WireFailure::Unreached("no node is known".to_owned());
        let mut reported = None;
        while let Some(node) = self.best(&left).cloned() {
            left.retain(|other| *other != node);
            match self.ask_node(&node, exchange) {
                Ok(ranges) => {
                    reported = Some((node, ranges));
                    break;
                }
                Err(refused @ WireFailure::Refused(_)) => return Err(refused),
                Err(other) => failure = other,
            }
        }
        let (node, mut ranges) = reported.ok_or(failure)?;
        let mut asked = BTreeSet::from([node]);
        loop {
            let by_itself = |range: &&RouteRange| range.nodes.iter().any(|n| asked.contains(n));
            let unsure = ranges.iter().find(|range| !by_itself(range));
            let Some(node) = unsure.and_then(|range| range.nodes.first()).cloned() else {
                return Ok(ranges);
            };
            if let Ok(others) = self.ask_node(&node, exchange) {
                for range in &mut ranges {
                    let same = others.iter().find(|other| other.lower == range.lower);
                    let same = same.filter(|other| other.nodes.contains(&node));
                    if let Some(same) = same {
                        range.nodes.clone_from(&same.nodes);
                    }
                }
            }
            asked.insert(node);
        }
    }

    fn ask_node(
        &self,
        node: &HostPort,
        exchange: &mut dyn Exchange,
    ) -> Result<Vec<RouteRange>, WireFailure> {
        let mut bytes = Vec::new();
        push_command(&mut bytes, &[b"KV.MAP", self.table.as_str().as_bytes()]);
        let commands = NodeCommands {
            node: node.clone(),
            bytes,
            count: 1,
        };
        let answers = exchange.exchange(&[commands]).pop();
        let answers = answers.unwrap_or_else(|| Ok(Vec::new()));
        let answers = answers.inspect_err(|_| self.suspect(node))?;
        let unclear = |words: &str| WireFailure::Unreached(format!("{node}: {words}"));
        match answers.first() {
            Some(RespAnswer::Error(words))
                if words.starts_with("NOPERM ") || words.starts_with("NOAUTH ") =>
            {
                Err(WireFailure::Refused(format!("{node}: {words}")))
            }
            Some(RespAnswer::Error(words)) => Err(unclear(words)),
            Some(answer) => self
                .ranges(answer)
                .ok_or_else(|| unclear("KV.MAP answers something other than ranges")),
            None => Err(unclear("KV.MAP answers nothing")),
        }
    }

    fn ranges(&self, answer: &RespAnswer) -> Option<Vec<RouteRange>> {
        let RespAnswer::Array(ranges) = answer else {
            return None;
        };
        let range = |range: &RespAnswer| {
            let RespAnswer::Array(parts) = range else {
                return None;
            };
            let [lower, _, RespAnswer::Array(nodes)] = &parts[..] else {
                return None;
            };
            let lower = match (self.order, lower) {
                (Order::Hashed, RespAnswer::Int(slot)) => Bound::Slot(u16::try_from(*slot).ok()?),
                (Order::Ordered, RespAnswer::Bulk(key)) => Bound::Key(key.clone()),
                _ => return None,
            };
            let node = |node: &RespAnswer| match node {
                RespAnswer::Bulk(text) => HostPort::from_str(std::str::from_utf8(text).ok()?).ok(),
                _ => None,
            };
            let nodes = nodes.iter().map(node).collect::<Option<_>>()?;
            Some(RouteRange { lower, nodes })
        };
        ranges.iter().map(range).collect()
    }
}
