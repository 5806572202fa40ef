//! A network in memory. Tests connect by [`SimNet::connect`], and say by a [`Wire`] how the
//! connection carries its bytes.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::Dice;
use super::line::{Line, SimClient, SimDialed, SimStream};
use crate::{Arrival, Connecting, Listener, Net, NetStream};

const FIRST_FREE_PORT: u16 = 40_000;

/// See the module's text. Clones share the network.
#[derive(Debug, Default, Clone)]
pub struct SimNet {
    state: Arc<Mutex<NetState>>,
}

#[derive(Debug, Default)]
struct NetState {
    ports: BTreeMap<SocketAddr, Port>,
    ports_given: u16,
    clients: u16,
}

#[derive(Debug, Default)]
struct Port {
    waiting: VecDeque<SimArrival>,
    /// So many tries to accept fail first.
    failures: u32,
    waker: Option<Waker>,
}

/// How a connection carries bytes. The usual one: all that there is, at once.
#[derive(Debug, Clone)]
pub struct Wire {
    pub(super) pieces: Option<(Dice, u64)>,
    pub(super) breaks_after: u64,
    pub(super) room: usize,
}

#[derive(Debug)]
struct SimListener {
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
    /// What the server reads and writes goes in pieces of 1 to `longest` bytes, each a call of its
    /// own. One seed gives one sequence of lengths.
    pub fn in_pieces(mut self, seed: u64, longest: u64) -> Self {
        self.pieces = Some((Dice(seed), longest.max(1)));
        self
    }

    /// The connection is reset once the server has read so many bytes.
    pub fn breaking_after(mut self, bytes: u64) -> Self {
        self.breaks_after = bytes;
        self
    }

    /// The server has to wait while so many bytes are on their way to the client.
    pub fn with_room(mut self, bytes: usize) -> Self {
        self.room = bytes;
        self
    }

    pub(super) fn piece(&mut self) -> usize {
        match &mut self.pieces {
            Some((dice, longest)) => 1 + dice.below(*longest) as usize,
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

    fn line(&self, address: SocketAddr, wire: Wire) -> io::Result<Arc<Line>> {
        let mut state = self.state();
        state.clients += 1;
        let peer = SocketAddr::new(address.ip(), state.clients);
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let port = state.ports.get_mut(&address).ok_or_else(refused)?;
        let line = Line::new(wire);
        port.waiting.push_back(SimArrival {
            stream: SimStream::new(&line),
            peer,
            local: address,
        });
        port.waker.take().into_iter().for_each(Waker::wake);
        Ok(line)
    }

    /// Lets the next `count` tries to accept a connection fail, as for want of file descriptors.
    pub fn fail_accept(&self, address: SocketAddr, count: u32) {
        if let Some(port) = self.state().ports.get_mut(&address) {
            port.failures = count;
        }
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
        state.ports.insert(address, Port::default());
        let net = self.clone();
        Ok(Box::new(SimListener { address, net }))
    }

    /// Hosts are addresses here.
    fn connect(&self, host: &str, port: u16) -> Connecting {
        let unknown = |_| io::Error::from(io::ErrorKind::NotFound);
        let address = host.parse::<IpAddr>().map_err(unknown);
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
        let port = self.net.state().ports.remove(&self.address);
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
