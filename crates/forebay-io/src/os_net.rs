//! The machine's own network.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::task::{Context, Poll, ready};

use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::{TcpListener, TcpStream};

use crate::{Arrival, Connecting, Listener, Net, NetStream};

/// The TCP network. Small replies are sent at once (TCP_NODELAY).
#[derive(Debug, Default, Clone, Copy)]
pub struct OsNet;

#[derive(Debug)]
enum OsListener {
    Bound(StdListener),
    /// Registered with the runtime that polled it first.
    Polled(TcpListener),
}

/// How long the other end may leave sent data unacknowledged before the connection is dropped.
/// Otherwise the system would resend it indefinitely, even after the sender is gone. A command
/// could then be done long after its client was informed that its outcome is unknown.
const UNTAKEN_MS: u32 = 5000;

#[derive(Debug)]
struct OsArrival {
    stream: StdStream,
    peer: SocketAddr,
}

impl Net for OsNet {
    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        let listener = StdListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Box::new(OsListener::Bound(listener)))
    }

    fn connect(&self, host: &str, port: u16) -> Connecting {
        let host = host.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect((&*host, port)).await?;
            stream.set_nodelay(true)?;
            set_tcp_user_timeout(&stream, UNTAKEN_MS)?;
            Ok(Box::new(stream) as Box<dyn NetStream>)
        })
    }
}

impl OsListener {
    /// Registers with the runtime. If that fails, the port still listens, and the next call tries
    /// again.
    fn polled(&mut self) -> io::Result<&mut TcpListener> {
        if let OsListener::Bound(bound) = self {
            let listener = TcpListener::from_std(bound.try_clone()?)?;
            *self = OsListener::Polled(listener);
        }
        match self {
            OsListener::Polled(listener) => Ok(listener),
            OsListener::Bound(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Listener for OsListener {
    fn address(&self) -> io::Result<SocketAddr> {
        match self {
            OsListener::Bound(listener) => listener.local_addr(),
            OsListener::Polled(listener) => listener.local_addr(),
        }
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Box<dyn Arrival>>> {
        let (stream, peer) = ready!(self.polled()?.poll_accept(context))?;
        let stream = stream.into_std()?;
        Poll::Ready(Ok(Box::new(OsArrival { stream, peer })))
    }
}

impl Arrival for OsArrival {
    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn local(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    fn open(self: Box<Self>) -> io::Result<Box<dyn NetStream>> {
        self.stream.set_nodelay(true)?;
        Ok(Box::new(TcpStream::from_std(self.stream)?))
    }

    fn refuse(mut self: Box<Self>, words: &[u8]) {
        // A refused client may not even read it.
        let _ = self.stream.write(words);
    }
}
