//! A network in memory for tests.
//!
//! Tests connect by [`SimNet::connect`], and choose with a [`Wire`] how the connection carries its
//! bytes. Servers that a test cuts off from each other, or kills, have hosts of their own, each
//! with its view of the network ([`SimNet::of_host`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use super::Rng;
use super::line::{Line, SimClient, SimDialed, SimStream};
use crate::{Arrival, Connecting, Listener, Net, NetStream};

const FIRST_FREE_PORT: u16 = 40_000;

/// A network in memory. Clones share the network.
#[derive(Debug, Default, Clone)]
pub struct SimNet {
    state: Arc<Mutex<NetState>>,
    /// The host that makes connections. `None`: the host that is connected to.
    host: Option<IpAddr>,
}

#[derive(Debug, Default)]
struct NetState {
    ports: BTreeMap<SocketAddr, Port>,
    ports_given: u16,
    listeners: u64,
    clients: u16,
    /// Pairs of hosts between which nothing gets through.
    cuts: BTreeSet<HostPair>,
    dead: BTreeSet<IpAddr>,
    lines: Vec<(HostPair, Weak<Line>)>,
}

/// Two hosts, the smaller one first.
type HostPair = [IpAddr; 2];

fn pair(one: IpAddr, other: IpAddr) -> HostPair {
    [one.min(other), one.max(other)]
}

#[derive(Debug, Default)]
struct Port {
    /// The number of its listener among all.
    listener: u64,
    waiting: VecDeque<SimArrival>,
    /// How many tries to accept fail first.
    failures: u32,
    waker: Option<Waker>,
}

/// How a connection carries bytes. The default: all available bytes, at once.
#[derive(Debug, Clone)]
pub struct Wire {
    pub(super) pieces: Option<(Rng, u64)>,
    pub(super) breaks_after: u64,
    pub(super) room: usize,
}

#[derive(Debug)]
struct SimListener {
    number: u64,
    address: SocketAddr,
    net: SimNet,
}

#[derive(Debug)]
struct SimArrival {
    stream: SimStream,
    peer: SocketAddr,
    local: SocketAddr,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            pieces: None,
            breaks_after: u64::MAX,
            room: usize::MAX,
        }
    }
}

impl Wire {
    /// Makes the server read and write pieces of 1 to `longest` bytes, each in a separate call. One
    /// seed gives one sequence of lengths.
    pub fn in_pieces(mut self, seed: u64, longest: u64) -> Self {
        self.pieces = Some((Rng(seed), longest.max(1)));
        self
    }

    /// Resets the connection once the server has read this many bytes.
    pub fn breaking_after(mut self, bytes: u64) -> Self {
        self.breaks_after = bytes;
        self
    }

    /// Makes the server wait while this many bytes are on their way to the client.
    pub fn with_room(mut self, bytes: usize) -> Self {
        self.room = bytes;
        self
    }

    pub(super) fn piece(&mut self) -> usize {
        match &mut self.pieces {
            Some((rng, longest)) => 1 + rng.below(*longest) as usize,
            None => usize::MAX,
        }
    }
}

impl SimNet {
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, NetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects a client of a test, whose calls block.
    pub fn connect(&self, address: SocketAddr, wire: Wire) -> io::Result<SimClient> {
        self.line(address, wire).map(SimClient::new)
    }

    /// Returns a host's view of the network: [`SimNet::cut`] and [`SimNet::kill`] work by hosts.
    #[must_use]
    pub fn of_host(&self, host: IpAddr) -> Self {
        Self {
            state: Arc::clone(&self.state),
            host: Some(host),
        }
    }

    /// Cuts two hosts off from each other: what is sent is lost, and connecting never ends.
    pub fn cut(&self, one: IpAddr, other: IpAddr) {
        let cut = pair(one, other);
        let mut state = self.state();
        state.cuts.insert(cut);
        let lines = state.lines_of(|pair| *pair == cut);
        drop(state);
        lines.iter().for_each(|line| line.stall());
    }

    /// Ends all cuts. The earlier connections are over.
    pub fn heal(&self) {
        let mut state = self.state();
        let cuts = std::mem::take(&mut state.cuts);
        let lines = state.lines_of(|pair| cuts.contains(pair));
        drop(state);
        lines.iter().for_each(|line| line.reset());
    }

    /// Ends a host's connections and listening ports, as when its process dies. Until
    /// [`SimNet::revive`] it can neither connect nor listen.
    pub fn kill(&self, host: IpAddr) {
        let mut state = self.state();
        state.dead.insert(host);
        let ports = std::mem::take(&mut state.ports);
        let (gone, stay) = ports.into_iter().partition(|(at, _)| at.ip() == host);
        state.ports = stay;
        let lines = state.lines_of(|pair| pair.contains(&host));
        drop(state);
        lines.iter().for_each(|line| line.reset());
        let gone: BTreeMap<SocketAddr, Port> = gone;
        drop(gone);
    }

    pub fn revive(&self, host: IpAddr) {
        self.state().dead.remove(&host);
    }

    fn line(&self, address: SocketAddr, wire: Wire) -> io::Result<Arc<Line>> {
        let mut state = self.state();
        state.clients = state.clients.wrapping_add(1);
        let peer = SocketAddr::new(self.host.unwrap_or(address.ip()), state.clients);
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        if state.dead.contains(&peer.ip()) {
            return Err(refused());
        }
        let line = Line::new(wire);
        let between = (pair(peer.ip(), address.ip()), Arc::downgrade(&line));
        let port = state.ports.get_mut(&address).ok_or_else(refused)?;
        port.waiting.push_back(SimArrival {
            stream: SimStream::new(&line),
            peer,
            local: address,
        });
        port.waker.take().into_iter().for_each(Waker::wake);
        state.lines.retain(|(_, line)| line.strong_count() > 0);
        state.lines.push(between);
        Ok(line)
    }

    fn is_cut_off(&self, from: IpAddr) -> bool {
        let to = |host| self.state().cuts.contains(&pair(host, from));
        self.host.is_some_and(to)
    }

    /// Makes the next `count` tries to accept a connection fail, as for lack of file descriptors.
    pub fn fail_accept(&self, address: SocketAddr, count: u32) {
        if let Some(port) = self.state().ports.get_mut(&address) {
            port.failures = count;
        }
    }
}

impl NetState {
    fn lines_of(&self, is_meant: impl Fn(&HostPair) -> bool) -> Vec<Arc<Line>> {
        let lines = self.lines.iter().filter(|(pair, _)| is_meant(pair));
        lines.filter_map(|(_, line)| line.upgrade()).collect()
    }
}

impl Net for SimNet {
    fn listen(&self, mut address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        let mut state = self.state();
        if address.port() == 0 {
            address.set_port(FIRST_FREE_PORT + state.ports_given);
            state.ports_given += 1;
        }
        if state.ports.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        if state.dead.contains(&address.ip()) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        state.listeners += 1;
        let number = state.listeners;
        let port = Port {
            listener: number,
            ..Port::default()
        };
        state.ports.insert(address, port);
        let net = self.clone();
        Ok(Box::new(SimListener {
            number,
            address,
            net,
        }))
    }

    /// Connects; hosts are addresses.
    fn connect(&self, host: &str, port: u16) -> Connecting {
        let unknown = |_| io::Error::from(io::ErrorKind::NotFound);
        let address = host.parse::<IpAddr>().map_err(unknown);
        if matches!(&address, Ok(address) if self.is_cut_off(*address)) {
            return Box::pin(std::future::pending());
        }
        let line =
            address.and_then(|address| self.line(SocketAddr::new(address, port), Wire::default()));
        let dialed = line.map(|line| Box::new(SimDialed::new(line)) as Box<dyn NetStream>);
        Box::pin(async { dialed })
    }
}

impl Listener for SimListener {
    fn address(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Box<dyn Arrival>>> {
        let mut state = self.net.state();
        let Some(port) = state.ports.get_mut(&self.address) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if port.waiting.is_empty() {
            port.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        if port.failures > 0 {
            port.failures -= 1;
            let error = io::Error::other("simulated want of file descriptors");
            return Poll::Ready(Err(error));
        }
        match port.waiting.pop_front() {
            Some(arrival) => Poll::Ready(Ok(Box::new(arrival))),
            None => Poll::Pending,
        }
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let mut state = self.net.state();
        let has_it = |port: &Port| port.listener == self.number;
        let is_its = state.ports.get(&self.address).is_some_and(has_it);
        let port = is_its.then(|| state.ports.remove(&self.address));
        drop(state);
        drop(port);
    }
}

impl Arrival for SimArrival {
    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn local(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn open(self: Box<Self>) -> io::Result<Box<dyn NetStream>> {
        Ok(Box::new(self.stream))
    }

    fn refuse(self: Box<Self>, words: &[u8]) {
        self.stream.send(words);
    }
}
