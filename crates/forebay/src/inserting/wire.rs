//! Connections to the nodes' client ports.
//!
//! A failed exchange says whether it is known that nothing was sent.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use forebay_cluster::HostPort;
use forebay_io::{Clock, Net, NetStream, within};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;

use super::resp::{RespAnswer, parse, push_command};
use crate::nodes::login::NodeLogin;

/// The time to connect to a node before it is avoided.
const CONNECT: Duration = Duration::from_secs(2);
/// The time without an answer after which a node is avoided. Its commands may have been done. Nodes
/// give up after five seconds.
const ANSWER: Duration = Duration::from_secs(15);
const READ_BYTES: usize = 16 << 10;

/// Commands for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCommands {
    pub node: HostPort,
    pub bytes: Vec<u8>,
    pub count: usize,
}

/// Why commands have no answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireFailure {
    /// Nothing was sent.
    Unreached(String),
    /// Some or all may have been done; the earlier ones have these answers.
    Broken(Vec<RespAnswer>, String),
    /// The node refuses this login.
    Refused(String),
}

pub type NodeAnswers = Result<Vec<RespAnswer>, WireFailure>;

/// An executor of commands on nodes.
pub trait Exchange {
    /// Sends commands to several nodes at once. Returns the answers of each, in the same order.
    fn exchange(&mut self, commands: &[NodeCommands]) -> Vec<NodeAnswers>;
}

/// How to connect to nodes.
#[derive(Debug, Clone)]
pub struct Dial {
    pub net: Arc<dyn Net>,
    pub clock: Arc<dyn Clock>,
    pub login: Arc<NodeLogin>,
}

/// The connections of one thread, one to each node.
pub struct Wire {
    dial: Dial,
    runtime: Runtime,
    open: HashMap<HostPort, NodeConnection>,
}

struct NodeConnection {
    stream: Box<dyn NetStream>,
    /// Received bytes that are no complete answer yet.
    input: Vec<u8>,
}

impl Wire {
    pub fn new(dial: Dial) -> io::Result<Self> {
        Ok(Self {
            dial,
            runtime: Builder::new_current_thread().enable_all().build()?,
            open: HashMap::new(),
        })
    }
}

impl Exchange for Wire {
    fn exchange(&mut self, commands: &[NodeCommands]) -> Vec<NodeAnswers> {
        let mut sent = Vec::with_capacity(commands.len());
        let (dial, open) = (&self.dial, &mut self.open);
        self.runtime.block_on(async {
            // All nodes have their commands before the first answer is awaited.
            for one in commands {
                sent.push(send(dial, open.remove(&one.node), one).await);
            }
            let mut answers = Vec::with_capacity(commands.len());
            for (one, sent) in commands.iter().zip(sent) {
                answers.push(match sent {
                    Err(failure) => Err(failure),
                    Ok(mut connection) => {
                        let answered = connection.answers(dial, one).await;
                        if answered.is_ok() {
                            open.insert(one.node.clone(), connection);
                        }
                        answered
                    }
                });
            }
            answers
        })
    }
}

/// Sends over the existing connection, or a new one.
async fn send(
    dial: &Dial,
    open: Option<NodeConnection>,
    commands: &NodeCommands,
) -> Result<NodeConnection, WireFailure> {
    let node = &commands.node;
    let open = match open {
        Some(open) => open.if_sound(dial).await,
        None => None,
    };
    let mut connection = match open {
        Some(open) => open,
        None => NodeConnection::open(dial, node).await?,
    };
    let sent = within(&*dial.clock, ANSWER, async {
        connection.stream.write_all(&commands.bytes).await?;
        connection.stream.flush().await
    });
    match sent.await {
        Some(Ok(())) => Ok(connection),
        Some(Err(error)) => Err(broken(node, Vec::new(), &error)),
        None => Err(broken(node, Vec::new(), &late())),
    }
}

fn broken(node: &HostPort, answers: Vec<RespAnswer>, error: &io::Error) -> WireFailure {
    WireFailure::Broken(answers, format!("{node}: {error}"))
}

fn late() -> io::Error {
    let seconds = ANSWER.as_secs();
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("no answer within {seconds} s"),
    )
}

impl NodeConnection {
    async fn open(dial: &Dial, node: &HostPort) -> Result<Self, WireFailure> {
        let unreached = |error: io::Error| WireFailure::Unreached(format!("{node}: {error}"));
        let dialled = within(&*dial.clock, CONNECT, connect(dial, node)).await;
        let stream = dialled.unwrap_or_else(|| {
            let seconds = CONNECT.as_secs();
            let text = format!("no connection within {seconds} s");
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        });
        let mut connection = Self {
            stream: stream.map_err(unreached)?,
            input: Vec::new(),
        };
        let Some((user, password)) = &dial.login.user else {
            return Ok(connection);
        };
        let mut bytes = Vec::new();
        push_command(&mut bytes, &[b"AUTH", user.as_bytes(), password.as_bytes()]);
        let sent = connection.stream.write_all(&bytes).await;
        sent.map_err(unreached)?;
        let auth = NodeCommands {
            node: node.clone(),
            bytes,
            count: 1,
        };
        match connection.answers(dial, &auth).await {
            Ok(answers) => match answers.first() {
                Some(RespAnswer::Error(words)) => {
                    Err(WireFailure::Refused(format!("{node}: {words}")))
                }
                _ => Ok(connection),
            },
            Err(WireFailure::Broken(_, words)) => Err(WireFailure::Unreached(words)),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the connection, unless the other side is seen to have closed it.
    async fn if_sound(mut self, dial: &Dial) -> Option<Self> {
        // Lets the runtime notice what has happened to the connection.
        tokio::task::yield_now().await;
        let more = within(&*dial.clock, Duration::ZERO, self.more()).await;
        more.is_none().then_some(self)
    }

    async fn answers(&mut self, dial: &Dial, commands: &NodeCommands) -> NodeAnswers {
        let (node, mut answers) = (&commands.node, Vec::with_capacity(commands.count));
        let mut start = 0;
        while answers.len() < commands.count {
            match parse(&self.input[start..]) {
                Err(garbled) => {
                    let words = format!("{node}: {garbled}");
                    return Err(WireFailure::Broken(answers, words));
                }
                Ok(Some((answer, length))) => {
                    answers.push(answer);
                    start += length;
                }
                Ok(None) => {
                    self.input.drain(..start);
                    start = 0;
                    match within(&*dial.clock, ANSWER, self.more()).await {
                        Some(Ok(())) => {}
                        Some(Err(error)) => return Err(broken(node, answers, &error)),
                        None => return Err(broken(node, answers, &late())),
                    }
                }
            }
        }
        self.input.drain(..start);
        Ok(answers)
    }

    async fn more(&mut self) -> io::Result<()> {
        self.input.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "it closed the connection",
            )),
            _ => Ok(()),
        }
    }
}

async fn connect(dial: &Dial, node: &HostPort) -> io::Result<Box<dyn NetStream>> {
    let stream = dial.net.connect(&node.host, node.port).await?;
    let Some(tls) = &dial.login.tls else {
        return Ok(stream);
    };
    let name = ServerName::try_from(node.host.clone()).map_err(io::Error::other)?;
    let tls = TlsConnector::from(Arc::clone(tls));
    Ok(Box::new(tls.connect(name, stream).await?))
}
