//! One connection of the network in memory: the server's side is polled, the client's blocks.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Wire;

/// How long a test waits before it considers the server stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// The state that both sides share.
#[derive(Debug)]
pub(super) struct Line {
    state: Mutex<LineState>,
    changed: Condvar,
}

#[derive(Debug)]
struct LineState {
    wire: Wire,
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    /// Bytes that the server has read.
    carried: u64,
    /// The server had a piece, and other connections run before the next one.
    rests: bool,
    broken: bool,
    /// Nothing gets through.
    stalled: bool,
    /// The client sends no more.
    client_closed: bool,
    server_closed: bool,
    /// The client is gone.
    client_gone: bool,
    server_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The waker of a client's side that is polled.
    dialer: Option<Waker>,
}

/// The client's side. Its calls block, at most for a minute. Dropping it closes the connection.
#[derive(Debug)]
pub struct SimClient {
    line: Arc<Line>,
}

/// A client's side that is polled, for clients in a runtime.
#[derive(Debug)]
pub(super) struct SimDialed {
    client: SimClient,
}

/// The server's side.
#[derive(Debug)]
pub(super) struct SimStream {
    line: Arc<Line>,
}

impl Line {
    pub fn new(wire: Wire) -> Arc<Self> {
        let state = LineState {
            wire,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            carried: 0,
            rests: false,
            broken: false,
            stalled: false,
            client_closed: false,
            server_closed: false,
            client_gone: false,
            server_gone: false,
            reader: None,
            writer: None,
            dialer: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut LineState) -> T) -> T {
        let mut state = self.lock();
        let given = change(&mut state);
        state.dialer.take().into_iter().for_each(Waker::wake);
        drop(state);
        self.changed.notify_all();
        given
    }

    /// Stops all traffic: what is sent is lost, and neither side learns of the other's end.
    pub fn stall(&self) {
        self.change(|state| state.stalled = true);
    }

    /// Ends the connection for both sides.
    pub fn reset(&self) {
        self.change(|state| {
            state.broken = true;
            state.to_client.clear();
            state.wake();
        });
    }

    fn wait(&self, what: impl Fn(&LineState) -> bool) -> io::Result<MutexGuard<'_, LineState>> {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), PATIENCE, |state| !what(state));
        let (state, outcome) = waited.unwrap_or_else(PoisonError::into_inner);
        if outcome.timed_out() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(state)
    }
}

impl LineState {
    fn wake(&mut self) {
        let wakers = [self.reader.take(), self.writer.take()];
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    fn read(&mut self, context: &Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = self.wire.breaks_after - self.carried;
        self.broken |= left == 0;
        if self.broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if self.to_server.is_empty() && self.client_closed && !self.stalled {
            return Poll::Ready(Ok(()));
        }
        if self.to_server.is_empty() || self.stalled {
            self.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        self.rests = !self.rests;
        if !self.rests {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let piece = self.wire.piece().min(out.remaining());
        let piece = piece.min(usize::try_from(left).unwrap_or(usize::MAX));
        let piece = piece.min(self.to_server.len());
        let bytes: Vec<u8> = self.to_server.drain(..piece).collect();
        out.put_slice(&bytes);
        self.carried += piece as u64;
        Poll::Ready(Ok(()))
    }

    fn write(&mut self, context: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if self.stalled {
            return Poll::Ready(Ok(bytes.len()));
        }
        if self.client_gone || self.server_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = self.wire.room.saturating_sub(self.to_client.len());
        if room == 0 {
            self.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let piece = self.wire.piece().min(room).min(bytes.len());
        self.to_client.extend(&bytes[..piece]);
        Poll::Ready(Ok(piece))
    }
}

impl SimClient {
    pub(super) fn new(line: Arc<Line>) -> Self {
        Self { line }
    }

    /// Waits until the server can send no more before the client reads.
    pub fn until_full(&self) -> io::Result<()> {
        self.line.wait(|state| state.writer.is_some()).map(drop)
    }

    /// Waits until the server has closed the connection.
    pub fn until_ended(&self) -> io::Result<()> {
        self.line.wait(|state| state.server_gone).map(drop)
    }

    /// Sends no more, like a client whose last bytes are on their way.
    pub fn close(&self) {
        self.line.change(|state| {
            state.client_closed = true;
            state.wake();
        });
    }
}

impl Read for SimClient {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let there = |state: &LineState| {
            let has_some = !state.to_client.is_empty() || state.server_closed;
            state.broken || (has_some && !state.stalled)
        };
        let mut state = self.line.wait(there)?;
        if state.to_client.is_empty() && state.broken {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let read = state.to_client.read(out)?;
        state.wake();
        Ok(read)
    }
}

impl Write for SimClient {
    /// Accepts all bytes at once.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.change(|state| {
            if state.stalled && !state.broken {
                return Ok(bytes.len());
            }
            if state.broken || state.server_gone || state.client_closed {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            state.to_server.extend(bytes);
            state.wake();
            Ok(bytes.len())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SimClient {
    fn drop(&mut self) {
        self.line.change(|state| {
            state.client_closed = true;
            state.client_gone = true;
            state.wake();
        });
    }
}

impl SimDialed {
    pub fn new(line: Arc<Line>) -> Self {
        let client = SimClient::new(line);
        Self { client }
    }
}

impl AsyncRead for SimDialed {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.client.line.lock();
        if state.to_client.is_empty() || state.stalled {
            if state.broken {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            if state.server_closed && !state.stalled {
                return Poll::Ready(Ok(()));
            }
            state.dialer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = out.remaining().min(state.to_client.len());
        let bytes: Vec<u8> = state.to_client.drain(..count).collect();
        out.put_slice(&bytes);
        state.wake();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimDialed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(self.client.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.client.close();
        Poll::Ready(Ok(()))
    }
}

impl SimStream {
    pub fn new(line: &Arc<Line>) -> Self {
        let line = Arc::clone(line);
        Self { line }
    }

    /// Sends without waiting for room.
    pub fn send(&self, bytes: &[u8]) {
        self.line.change(|state| state.to_client.extend(bytes));
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.line.change(|state| state.read(context, out))
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.line.change(|state| state.write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.line.change(|state| state.server_closed = true);
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.line.change(|state| {
            state.server_closed = true;
            state.server_gone = true;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(wire: Wire) -> (SimClient, SimStream) {
        let line = Line::new(wire);
        let stream = SimStream::new(&line);
        (SimClient::new(line), stream)
    }

    /// Makes one call of read; `None` if it must wait.
    fn read(stream: &mut SimStream) -> Option<io::Result<Vec<u8>>> {
        let mut space = [0; 100];
        let mut out = ReadBuf::new(&mut space);
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(stream).poll_read(&mut context, &mut out) {
            Poll::Ready(read) => Some(read.map(|()| out.filled().to_vec())),
            Poll::Pending => None,
        }
    }

    fn write(stream: &mut SimStream, bytes: &[u8]) -> Option<io::Result<usize>> {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(stream).poll_write(&mut context, bytes) {
            Poll::Ready(written) => Some(written),
            Poll::Pending => None,
        }
    }

    fn pieces(seed: u64) -> Vec<Vec<u8>> {
        let (mut client, mut stream) = stream(Wire::default().in_pieces(seed, 9));
        client.write_all(&[b'a'; 100]).unwrap();
        client.close();
        let mut pieces = Vec::new();
        loop {
            match read(&mut stream).map(Result::unwrap) {
                Some(piece) if piece.is_empty() => return pieces,
                Some(piece) => pieces.push(piece),
                None => {}
            }
        }
    }

    #[test]
    fn one_seed_gives_one_sequence_of_pieces() {
        assert_eq!(pieces(7), pieces(7));
        assert_ne!(pieces(7), pieces(8));
        assert!(pieces(7).iter().all(|piece| piece.len() <= 9));
        assert_eq!(pieces(7).concat().len(), 100);
    }

    #[test]
    fn a_broken_connection_delivers_the_bytes_it_carried() {
        let (mut client, mut stream) = stream(Wire::default().breaking_after(3));
        client.write_all(b"four").unwrap();
        assert_eq!(read(&mut stream).unwrap().unwrap(), b"fou");
        assert_eq!(write(&mut stream, b"answer").unwrap().unwrap(), 6);
        assert!(read(&mut stream).unwrap().is_err());
        assert!(write(&mut stream, b"more").unwrap().is_err());
        let mut answer = Vec::new();
        let outcome = client.read_to_end(&mut answer);
        let kind = outcome.map_err(|error| error.kind());
        assert_eq!(
            (kind, &answer[..]),
            (Err(io::ErrorKind::ConnectionReset), &b"answer"[..])
        );
    }

    #[test]
    fn the_server_waits_for_room() {
        let (mut client, mut stream) = stream(Wire::default().with_room(4));
        assert_eq!(write(&mut stream, b"answer").unwrap().unwrap(), 4);
        assert!(write(&mut stream, b"er").is_none());
        client.until_full().unwrap();
        client.read_exact(&mut [0]).unwrap();
        assert_eq!(write(&mut stream, b"er").unwrap().unwrap(), 1);
        drop(client);
        assert!(write(&mut stream, b"r").unwrap().is_err());
        assert!(read(&mut stream).unwrap().unwrap().is_empty());
    }
}
