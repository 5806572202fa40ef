//! Connections to other nodes' peer ports.
//!
//! Each connection has many requests in flight. Answers arrive in the order of the requests.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use forebay_cluster::HostPort;
use forebay_io::{Clock, Net, NetStream, within};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt, WriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::reach::AnswerTimes;
use super::split;

/// A connection with this many unsent bytes accepts no further requests into its buffer.
const FULL_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 64 << 10;
/// The longest line of an answer that is an error, or that gives the answer's length.
const LINE_BYTES: usize = 4 << 10;

/// The parameters of new connections.
#[derive(Debug, Clone)]
pub struct Dialer {
    pub net: Arc<dyn Net>,
    pub clock: Arc<dyn Clock>,
    /// Records the time of each answer.
    pub answered: Arc<AnswerTimes>,
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The most bytes of an answer.
    pub answer_bytes: usize,
}

/// A node's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerAnswer {
    Bytes(Bytes),
    /// An error text.
    Refused(String),
}

/// Connections of one kind to other nodes. Tasks of the runtime that makes the first request serve
/// them.
#[derive(Debug)]
pub struct Links {
    dialer: Dialer,
    /// The most connections to one node.
    most: usize,
    links: Mutex<BTreeMap<HostPort, Vec<Arc<Link>>>>,
}

/// A connection to another node.
#[derive(Debug)]
pub struct Link {
    questions: UnboundedSender<Question>,
    under_way: Arc<AtomicUsize>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Question {
    frame: Bytes,
    answer: oneshot::Sender<Result<PeerAnswer, AskFailure>>,
}

/// The reason why there is no answer.
#[derive(Debug)]
pub struct AskFailure {
    pub error: io::Error,
    /// Whether the request may have been sent and executed.
    pub was_sent: bool,
}

impl Links {
    pub fn new(dialer: Dialer, most: usize) -> Self {
        Self {
            dialer,
            most,
            links: Mutex::default(),
        }
    }

    /// Sends a frame and waits for the answer. If an idle connection turns out to be closed, it
    /// opens another.
    pub async fn ask(
        &self,
        peer: &HostPort,
        frame: Bytes,
        limit: Duration,
    ) -> io::Result<PeerAnswer> {
        let mut asked = within(&*self.dialer.clock, limit, async {
            let (link, is_new) = self.link(peer);
            let answered = link.ask(frame.clone()).await;
            match answered {
                Err(_) if !is_new => {
                    self.forget(peer, &link);
                    self.link(peer).0.ask(frame).await
                }
                answered => answered,
            }
        })
        .await;
        if asked.is_none() {
            let text = format!("no answer within {} ms", limit.as_millis());
            asked = Some(Err(io::Error::new(ErrorKind::TimedOut, text)));
        }
        let asked = asked.unwrap_or_else(|| Err(ErrorKind::TimedOut.into()));
        if asked.is_err() {
            // Other requests in flight on this connection end as they do; new requests use another
            // connection.
            self.links.lock().remove(peer);
        }
        asked
    }

    /// Sends a frame at most once and waits for the answer.
    pub async fn ask_once(
        &self,
        peer: &HostPort,
        frame: Bytes,
        limit: Duration,
    ) -> Result<PeerAnswer, AskFailure> {
        let link = self.link(peer).0;
        let asked = within(&*self.dialer.clock, limit, link.ask_once(frame)).await;
        let asked = asked.unwrap_or_else(|| {
            let text = format!("no answer within {} ms", limit.as_millis());
            Err(AskFailure {
                error: io::Error::new(ErrorKind::TimedOut, text),
                was_sent: true,
            })
        });
        if asked.is_err() {
            self.links.lock().remove(peer);
        }
        asked
    }

    /// Returns an idle connection, else a new one, else the one with the fewest requests; and
    /// whether it is new.
    fn link(&self, peer: &HostPort) -> (Arc<Link>, bool) {
        let mut links = self.links.lock();
        let links = links.entry(peer.clone()).or_default();
        links.retain(|link| !link.questions.is_closed());
        let under_way = |link: &Arc<Link>| link.under_way.load(Ordering::Relaxed);
        let least = links.iter().min_by_key(|link| under_way(link));
        match least {
            Some(least) if under_way(least) == 0 || links.len() >= self.most => {
                (Arc::clone(least), false)
            }
            _ => {
                let link = Arc::new(Link::open(self.dialer.clone(), peer.clone()));
                links.push(Arc::clone(&link));
                (link, true)
            }
        }
    }

    fn forget(&self, peer: &HostPort, gone: &Arc<Link>) {
        if let Some(links) = self.links.lock().get_mut(peer) {
            links.retain(|link| !Arc::ptr_eq(link, gone));
        }
    }
}

impl Link {
    // The only place where connections to other nodes become tasks.
    #[allow(clippy::disallowed_methods)]
    pub fn open(dialer: Dialer, peer: HostPort) -> Self {
        let (questions, mut asked) = unbounded_channel();
        let under_way = Arc::<AtomicUsize>::default();
        let task = tokio::spawn(async move {
            let mut waiting = VecDeque::new();
            let served = match dialer.dial(&peer).await {
                Ok(stream) => {
                    let served = dialer.serve(&peer, stream, &mut asked, &mut waiting);
                    served.await
                }
                Err(error) => Err(error),
            };
            asked.close();
            let error = served.err();
            let (kind, text) = match &error {
                Some(error) => (error.kind(), error.to_string()),
                None => (
                    ErrorKind::BrokenPipe,
                    "the connection was closed".to_owned(),
                ),
            };
            let failure = |was_sent| AskFailure {
                error: io::Error::new(kind, text.clone()),
                was_sent,
            };
            // A requester that gave up gets nothing.
            for answer in waiting {
                let _ = answer.send(Err(failure(true)));
            }
            while let Ok(Question { answer, .. }) = asked.try_recv() {
                let _ = answer.send(Err(failure(false)));
            }
        });
        Self {
            questions,
            under_way,
            task: task.abort_handle(),
        }
    }

    /// Ends the connection and all requests in flight.
    pub fn abandon(&self) {
        self.task.abort();
    }

    async fn ask(&self, frame: Bytes) -> io::Result<PeerAnswer> {
        self.ask_once(frame).await.map_err(|failure| failure.error)
    }

    async fn ask_once(&self, frame: Bytes) -> Result<PeerAnswer, AskFailure> {
        let gone = |was_sent| AskFailure {
            error: io::Error::from(ErrorKind::BrokenPipe),
            was_sent,
        };
        let _one = ActiveWork::new(&self.under_way);
        let answered = self.put(frame).ok_or_else(|| gone(false))?;
        answered.await.map_err(|_| gone(true))?
    }

    /// Queues a request after those in flight. Returns `None` if the connection is closed.
    pub fn put(&self, frame: Bytes) -> Option<oneshot::Receiver<Result<PeerAnswer, AskFailure>>> {
        let (answer, answered) = oneshot::channel();
        let sent = self.questions.send(Question { frame, answer });
        sent.ok().map(|()| answered)
    }
}

/// Counts a request, also if it is given up.
struct ActiveWork<'a>(&'a AtomicUsize);

impl<'a> ActiveWork<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for ActiveWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Dialer {
    async fn dial(&self, peer: &HostPort) -> io::Result<Box<dyn NetStream>> {
        let stream = self.net.connect(&peer.host, peer.port).await?;
        let Some(tls) = &self.tls else {
            return Ok(stream);
        };
        // Nodes are identified only by their certificates: any name will do.
        let name = ServerName::try_from("node").map_err(io::Error::other)?;
        let tls = TlsConnector::from(Arc::clone(tls));
        Ok(Box::new(tls.connect(name, stream).await?))
    }

    /// Sends requests and distributes answers until no requester is left.
    async fn serve(
        &self,
        peer: &HostPort,
        stream: Box<dyn NetStream>,
        asked: &mut UnboundedReceiver<Question>,
        waiting: &mut Requesters,
    ) -> io::Result<()> {
        let (mut reading, mut writing) = tokio::io::split(stream);
        let (mut input, mut output) = (BytesMut::with_capacity(READ_BYTES), BytesMut::new());
        let mut is_flushed = true;
        let answered = self.answered.of(peer);
        loop {
            tokio::select! {
                question = asked.recv(), if output.len() < FULL_BYTES => {
                    let mut next = question;
                    if next.is_none() {
                        return Ok(());
                    }
                    while let Some(question) = next {
                        // A request that was given up while the connection was made is not sent. It
                        // would run after the client had received an error about an uncertain
                        // outcome.
                        if !question.answer.is_closed() {
                            output.extend_from_slice(&question.frame);
                            waiting.push_back(question.answer);
                        }
                        next = asked.try_recv().ok().filter(|_| output.len() < FULL_BYTES);
                    }
                }
                flushed = send(&mut writing, &mut output), if !output.is_empty() || !is_flushed => {
                    is_flushed = flushed?;
                }
                read = reading.read_buf(&mut input) => {
                    if read? == 0 {
                        return Err(io::Error::new(ErrorKind::UnexpectedEof, "the node closed the connection"));
                    }
                    while let Some(answer) = take_answer(&mut input, self.answer_bytes)? {
                        answered.note(self.clock.monotonic());
                        let unasked = || invalid("an answer to no question");
                        let requester = waiting.pop_front().ok_or_else(unasked)?;
                        // A requester that gave up gets nothing.
                        let _ = requester.send(Ok(answer));
                    }
                    input.reserve(READ_BYTES);
                }
            }
        }
    }
}

type Requesters = VecDeque<oneshot::Sender<Result<PeerAnswer, AskFailure>>>;

/// Sends some of the buffered bytes. Returns whether all are sent.
async fn send(
    writing: &mut WriteHalf<Box<dyn NetStream>>,
    output: &mut BytesMut,
) -> io::Result<bool> {
    if output.is_empty() {
        writing.flush().await?;
        return Ok(true);
    }
    match writing.write_buf(output).await? {
        0 => Err(ErrorKind::WriteZero.into()),
        _ => Ok(false),
    }
}

/// Returns the next answer if it is complete.
fn take_answer(input: &mut BytesMut, most: usize) -> io::Result<Option<PeerAnswer>> {
    let Some((kind, text, start)) = split::line(input, 0) else {
        let is_long = input.len() > LINE_BYTES;
        return if is_long {
            Err(invalid("a line without an end"))
        } else {
            Ok(None)
        };
    };
    match kind {
        b'-' => {
            let text = String::from_utf8_lossy(text).into_owned();
            input.advance(start);
            Ok(Some(PeerAnswer::Refused(text)))
        }
        b'$' => {
            let len = std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.parse().ok());
            let len: usize = len.ok_or_else(|| invalid("no length"))?;
            if len > most {
                let text = format!("an answer of {len} bytes: at most {most} are taken");
                return Err(invalid(&text));
            }
            if input.len() < start + len + 2 {
                input.reserve(start + len + 2 - input.len());
                return Ok(None);
            }
            input.advance(start);
            let answer = input.split_to(len).freeze();
            input.advance(2);
            Ok(Some(PeerAnswer::Bytes(answer)))
        }
        _ => Err(invalid("what it sends is no answer of a node")),
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use forebay_io::{Connecting, Listener};
    use tokio::io::DuplexStream;

    use super::*;

    /// Connections that are established when the test says so.
    #[derive(Debug)]
    struct LateNet(Mutex<Option<oneshot::Receiver<DuplexStream>>>);

    impl Net for LateNet {
        fn listen(&self, _: SocketAddr) -> io::Result<Box<dyn Listener>> {
            Err(ErrorKind::Unsupported.into())
        }

        fn connect(&self, _: &str, _: u16) -> Connecting {
            let made = self.0.lock().take();
            Box::pin(async {
                let made = made.ok_or(ErrorKind::ConnectionRefused)?;
                let stream = made.await.map_err(io::Error::other)?;
                Ok(Box::new(stream) as Box<dyn NetStream>)
            })
        }
    }

    #[test]
    fn a_request_cancelled_before_the_connection_is_not_sent() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(async {
            let (made, making) = oneshot::channel();
            let dialer = Dialer {
                net: Arc::new(LateNet(Mutex::new(Some(making)))),
                clock: Arc::new(forebay_io::SystemClock),
                answered: Arc::default(),
                tls: None,
                answer_bytes: 100,
            };
            let link = Link::open(dialer, HostPort::new("n1", 1));
            drop(link.put(Bytes::from_static(b"given up")));
            let _waits = link.put(Bytes::from_static(b"waited for"));
            let (mut far, near) = tokio::io::duplex(100);
            made.send(near).expect("the link waits for a connection");
            let mut came = [0; 10];
            far.read_exact(&mut came).await.expect("a question");
            assert_eq!(&came, b"waited for");
        });
    }
}
