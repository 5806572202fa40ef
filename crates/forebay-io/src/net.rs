//! The network: listening ports, and incoming and outgoing connections.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};

/// A network with listening ports and connections.
pub trait Net: Debug + Send + Sync + 'static {
    /// Listens at the address; port 0 takes any free one. Clients can connect once it returns.
    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>>;

    /// Connects to a port of a host, by name or address. REQUIRES: it is polled in the runtime that
    /// will use the connection, with tokio's I/O.
    fn connect(&self, host: &str, port: u16) -> Connecting;
}

/// A connection attempt in progress.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn NetStream>>> + Send>>;

/// A port that listens, until it is dropped.
pub trait Listener: Debug + Send {
    fn address(&self) -> io::Result<SocketAddr>;
    /// Polls for a connection. REQUIRES: it is one runtime, with tokio's I/O, that polls.
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Box<dyn Arrival>>>;
}

impl dyn Listener {
    /// Returns the next connection. Cancelling it loses nothing.
    pub async fn accept(&mut self) -> io::Result<Box<dyn Arrival>> {
        poll_fn(|context| self.poll_accept(context)).await
    }
}

/// An incoming connection that belongs to no runtime yet. Dropping it closes it.
pub trait Arrival: Debug + Send {
    /// Returns the client's address.
    fn peer(&self) -> SocketAddr;
    /// Returns the address that the client connected to.
    fn local(&self) -> io::Result<SocketAddr>;
    /// Opens the connection. REQUIRES: it is called in the runtime that will serve it.
    fn open(self: Box<Self>) -> io::Result<Box<dyn NetStream>>;
    /// Sends as much of the text as possible at once, and closes.
    fn refuse(self: Box<Self>, words: &[u8]);
}

/// The byte stream of a connection, in both directions.
pub trait NetStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> NetStream for S {}
