//! The network: ports that listen, and connections, those that come in and those that go out.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};

/// Where ports are.
pub trait Net: Debug + Send + Sync + 'static {
    /// Listens at the address; port 0 takes any free one. From then on clients can connect.
    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>>;

    /// Connects to a port of a host, a name or an address. REQUIRES: it is polled in the runtime
    /// that is to use the connection, with tokio's I/O.
    fn connect(&self, host: &str, port: u16) -> Connecting;
}

/// A connection that is being made.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn NetStream>>> + Send>>;

/// A port that listens, until it is dropped.
pub trait Listener: Debug + Send {
    fn address(&self) -> io::Result<SocketAddr>;
    /// REQUIRES: it is one runtime, with tokio's I/O, that polls.
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Box<dyn Arrival>>>;
}

impl dyn Listener {
    /// The next connection. Nothing is lost when it is given up halfway.
    pub async fn accept(&mut self) -> io::Result<Box<dyn Arrival>> {
        poll_fn(|context| self.poll_accept(context)).await
    }
}

/// A connection that came in and belongs to no runtime yet. Dropping it closes it.
pub trait Arrival: Debug + Send {
    /// The client's address.
    fn peer(&self) -> SocketAddr;
    /// The address that the client connected to.
    fn local(&self) -> io::Result<SocketAddr>;
    /// Takes the connection over. REQUIRES: it is called in the runtime that is to serve it.
    fn open(self: Box<Self>) -> io::Result<Box<dyn NetStream>>;
    /// Sends as much of the words as goes at once, and closes.
    fn refuse(self: Box<Self>, words: &[u8]);
}

/// The bytes of a connection, both ways.
pub trait NetStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> NetStream for S {}
