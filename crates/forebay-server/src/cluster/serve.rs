//! Serves the peer port, whose commands exist on no other port.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use forebay_cluster::local::LocalReplicas;
use forebay_engine::TableName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::ask::Unanswered;
use super::elsewhere::elsewhere;
use super::frame::{
    CONTROL, COPY, DAMAGED, FETCH, FORWARD, ForwardHeader, GROUPS, PING, check_format,
};
use super::live::{PartAsk, parse_watched};
use super::node::{Cluster, PeerIdentity};
use super::page::PageRequest;
use crate::client::Client;
use crate::command::{CommandError, Watches, no_permission, no_table};
use crate::config::HIGH_WATER;
use crate::execute::settle;
use crate::pipeline::{Next, Pipeline};
use crate::resp::{Args, Parser, Reply, RequestLimits};
use crate::shared::Shared;
use crate::table_view::TableView;
use crate::users::{User, Verb};
use crate::work::Task;

const READ_BYTES: usize = 64 << 10;
/// The most bytes of a frame beside its commands or its message.
const HEADER_BYTES: usize = 64 << 10;
const MOST_ARGUMENTS: usize = 16;
/// The largest frame of replicas' messages: 8 MiB of them, or a larger one with an entry of 32 MiB
/// after others.
const MOST_GROUPS_BYTES: usize = 64 << 20;

/// A connection from another node.
pub struct PeerConnection<S> {
    pub stream: S,
    pub shared: Arc<Shared>,
    pub worker: usize,
    pub client: Arc<Client>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> PeerConnection<S> {
    /// Serves until the other node or the server ends the connection.
    pub async fn serve(mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let Some(cluster) = &shared.cluster else {
            return Ok(());
        };
        let mut pipeline = Pipeline::new(&shared, self.worker, Arc::clone(&self.client));
        let limits = frame_limits(&shared);
        let (mut parser, mut input) = (Parser::default(), BytesMut::with_capacity(READ_BYTES));
        let mut out = Reply::new(false);
        loop {
            match parser.advance(&input, &limits) {
                Ok(Some(len)) => {
                    let args = parser.args(&input[..len]);
                    answer(cluster, &shared, &mut pipeline, &args, &mut out).await;
                    // The rest begins a command.
                    let _ = input.split_to(len);
                    if out.len() >= HIGH_WATER {
                        self.send(&mut out).await?;
                    }
                }
                Ok(None) => {
                    self.send(&mut out).await?;
                    if shared.is_stopping() && input.is_empty() {
                        return self.stream.shutdown().await;
                    }
                    self.client.idle.store(input.is_empty(), Ordering::Relaxed);
                    input.reserve(READ_BYTES);
                    if self.stream.read_buf(&mut input).await? == 0 {
                        return Ok(());
                    }
                    self.client.idle.store(false, Ordering::Relaxed);
                }
                Err(error) => {
                    out.error(&format!("ERR {error}"));
                    self.send(&mut out).await?;
                    return self.stream.shutdown().await;
                }
            }
        }
    }

    async fn send(&mut self, out: &mut Reply) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let now = self.shared.now_ms();
        self.client.writing_ms.store(now, Ordering::Relaxed);
        self.stream.write_all(out.bytes()).await?;
        self.stream.flush().await?;
        self.client.writing_ms.store(0, Ordering::Relaxed);
        out.clear(2 * HIGH_WATER);
        Ok(())
    }
}

fn frame_limits(shared: &Shared) -> RequestLimits {
    let commands = shared.config.limits.request.command_bytes;
    let bytes = commands.max(MOST_GROUPS_BYTES) + HEADER_BYTES;
    RequestLimits {
        bulk_bytes: bytes,
        arguments: MOST_ARGUMENTS,
        command_bytes: bytes + HEADER_BYTES,
    }
}

async fn answer(
    cluster: &Cluster,
    shared: &Arc<Shared>,
    pipeline: &mut Pipeline,
    args: &Args<'_>,
    out: &mut Reply,
) {
    let answered = if args.is(0, FORWARD) {
        match forwarded(cluster, shared, pipeline, args).await {
            Ok(()) => {
                out.bulk(pipeline.reply.bytes());
                pipeline.reply.clear(2 * HIGH_WATER);
                return;
            }
            Err(problem) => Err(problem),
        }
    } else if args.is(0, CONTROL) {
        control(cluster, args).await
    } else if args.is(0, FETCH) {
        fetch(cluster, args).await
    } else if args.is(0, GROUPS) {
        groups(cluster, args)
    } else if args.is(0, COPY) {
        copy(cluster, args).await
    } else if args.is(0, PING) {
        Ok(Bytes::new())
    } else {
        Err("ERR the peer port is for other nodes: clients use the ordinary port".to_owned())
    };
    match answered {
        Ok(bytes) => out.bulk(&bytes),
        Err(problem) => out.error(&problem),
    }
}

/// Runs commands of another node through the pipeline.
async fn forwarded(
    cluster: &Cluster,
    shared: &Arc<Shared>,
    pipeline: &mut Pipeline,
    args: &Args<'_>,
) -> Result<(), String> {
    let (header, commands) = ForwardHeader::parse(args).map_err(wrong)?;
    check_cluster(cluster, &header)?;
    check_node(cluster, &pipeline.session.client, &header)?;
    let user = user_of(shared, header.user)?;
    let pinned = pinned(shared, header.versions)?;
    let order = |table: &[u8]| {
        let tables = pinned.as_ref()?;
        tables.batch.get(table).map(|version| version.order())
    };
    if let Some(request) = PageRequest::parse(commands, order) {
        let asked = (user, header.resp3, pinned);
        return page(shared, pipeline, asked, request).await;
    }
    if let Some(task) = asked_of_part(commands) {
        let task = task.map_err(|stop| Unanswered::from(stop).into_words())?;
        pipeline.begin(b"", Arc::clone(&user), header.resp3, None);
        let work = pipeline.work(task, &shared.tables(), user);
        pipeline.reply.append_all(elsewhere(work).await.replies);
        return Ok(());
    }
    let (watches, commands) = match parse_watched(commands) {
        Some(watched) => watched.map_err(|stop| Unanswered::from(stop).into_words())?,
        None => (Watches::default(), commands),
    };
    pipeline.begin(commands, user, header.resp3, pinned);
    pipeline.session.watches = watches;
    // If it would flush, the other node asks again for the rest.
    while let Next::Wait(wait) = pipeline.advance() {
        pipeline.resume(wait.end().await);
    }
    // The connection may be idle for long, and a table in use cannot be removed.
    pipeline.pinned = None;
    match pipeline.reply.is_empty() {
        true => Err(wrong("no whole command came".to_owned())),
        false => Ok(()),
    }
}

/// Parses a request about a partition of a live table as a whole. `None` if the commands are
/// others.
fn asked_of_part(commands: &[u8]) -> Option<Result<Task, CommandError>> {
    let limits = RequestLimits {
        bulk_bytes: commands.len(),
        arguments: commands.len(),
        command_bytes: commands.len(),
    };
    let mut parser = Parser::default();
    let len = parser.advance(commands, &limits).ok()??;
    let ask = PartAsk::parse(&parser.args(&commands[..len]))?;
    Some(ask.map(|ask| Task::Part(Box::new(ask))))
}

/// Answers a part of a walk.
async fn page(
    shared: &Arc<Shared>,
    pipeline: &mut Pipeline,
    (user, resp3, pinned): (Arc<User>, bool, Option<TableView>),
    request: Result<PageRequest, CommandError>,
) -> Result<(), String> {
    pipeline.begin(b"", Arc::clone(&user), resp3, None);
    let read = move || {
        let request = request?;
        let tables = pinned
            .as_ref()
            .and_then(|tables| tables.batch.get(&request.table));
        match tables {
            _ if !user.may(Verb::Read, &request.table) => {
                Err(no_permission(&user, &request.table, "read"))
            }
            Some(version) => request.read_here(version),
            None => Err(no_table(&request.table)),
        }
    };
    let read = tokio::task::spawn_blocking(read).await;
    let read = read.map_err(|_| wrong("internal error: see the server's log".to_owned()))?;
    match read {
        Ok(page) => page.write(&mut pipeline.reply),
        Err(CommandError::NotHere(words)) => pipeline.reply.error(&shared.not_here(&words)),
        Err(CommandError::Damaged(words)) => {
            shared.notify_damage(&words);
            pipeline.reply.error(&format!("{DAMAGED} {words}"));
        }
        Err(error) => {
            settle(Err(error), 0, &mut pipeline.reply);
        }
    }
    Ok(())
}

fn wrong(problem: String) -> String {
    format!("ERR {problem}")
}

fn check_cluster(cluster: &Cluster, header: &ForwardHeader<'_>) -> Result<(), String> {
    let own = cluster.map().cluster;
    match header.cluster == own {
        true => Ok(()),
        false => Err(format!(
            "ERR this node is of cluster {own}, and who asks of cluster {}: two nodes have one address",
            header.cluster
        )),
    }
}

/// Refuses a removed node. Without certificates, a node is taken to be what it claims.
fn check_node(
    cluster: &Cluster,
    client: &Client,
    header: &ForwardHeader<'_>,
) -> Result<(), String> {
    let &ForwardHeader { node, revision, .. } = header;
    if cluster.config.peer_tls.is_none() {
        *client.node.lock() = Some(PeerIdentity::Said { node, revision });
    }
    match cluster.is_of_removed_node(client) {
        false => Ok(()),
        true => Err(format!(
            "ERR node {node} was removed from the cluster: stop it, or have it join again as a new node"
        )),
    }
}

/// Returns this node's user of that name, whose rights may differ on this node.
fn user_of(shared: &Shared, name: &str) -> Result<Arc<User>, String> {
    let secrets = shared.secrets.load();
    let Some(users) = &secrets.users else {
        return Ok(Arc::clone(&shared.anyone));
    };
    let unknown = || {
        format!(
            "NOPERM user '{name}' is not in the users file of the node that has the key: give all nodes \
             the same"
        )
    };
    users.named(name).ok_or_else(unknown)
}

/// Returns the tables with the versions that the requester names. `None` for the serving versions.
fn pinned(shared: &Shared, versions: &str) -> Result<Option<TableView>, String> {
    if versions.is_empty() {
        return Ok(None);
    }
    let tables = shared.tables().keep();
    let (mut others, mut words) = (Vec::new(), versions.split(' '));
    while let (Some(table), Some(number)) = (words.next(), words.next()) {
        let serves = tables.batch.get(table.as_bytes());
        let serves = serves.map(|version| version.version());
        let wanted = number.parse::<u64>().ok();
        if wanted.is_some() && serves == wanted {
            continue;
        }
        let open = wanted.and_then(|wanted| tables.batch.at(table.as_bytes(), wanted));
        others.push(Arc::clone(open.ok_or_else(|| {
            let serves = serves.map_or("none".to_owned(), |serves| serves.to_string());
            format!(
                "NOVERSION version {number} of table {table} is asked for, which is not open here: {serves} \
                 serves"
            )
        })?));
    }
    Ok(Some(match others.is_empty() {
        true => tables,
        false => tables.with(&others),
    }))
}

async fn control(cluster: &Cluster, args: &Args<'_>) -> Result<Bytes, String> {
    check_format(args, 3).map_err(wrong)?;
    let message = Bytes::copy_from_slice(args.get(2));
    let answered = cluster.member().answer(message).await;
    answered.map_err(|error| format!("ERR {error}"))
}

fn replicas_of(cluster: &Cluster) -> Result<Arc<LocalReplicas>, String> {
    let replicas = cluster.member().replicas();
    replicas.ok_or_else(|| wrong("this node runs no replicas".to_owned()))
}

/// Passes messages to this node's replicas without waiting for their effects.
fn groups(cluster: &Cluster, args: &Args<'_>) -> Result<Bytes, String> {
    check_format(args, 3).map_err(wrong)?;
    let received = replicas_of(cluster)?.receive(Bytes::copy_from_slice(args.get(2)));
    received
        .map(|()| Bytes::new())
        .map_err(|error| format!("ERR {error}"))
}

async fn copy(cluster: &Cluster, args: &Args<'_>) -> Result<Bytes, String> {
    check_format(args, 3).map_err(wrong)?;
    let message = Bytes::copy_from_slice(args.get(2));
    let answered = replicas_of(cluster)?.answer_copy(message).await;
    answered.map_err(|error| format!("ERR {error}"))
}

async fn fetch(cluster: &Cluster, args: &Args<'_>) -> Result<Bytes, String> {
    check_format(args, 6).map_err(wrong)?;
    let text =
        |index| std::str::from_utf8(args.get(index)).map_err(|_| wrong("no text".to_owned()));
    let number = |index| {
        let number = text(index)?.parse::<u64>();
        number.map_err(|_| wrong(format!("argument {index} is no number")))
    };
    let table = TableName::new(text(2)?).map_err(|error| format!("ERR {error}"))?;
    let range = number(4)?..number(5)?;
    let fetched = cluster.member().fetch(&table, text(3)?, range).await;
    fetched.map_err(|error| format!("ERR {error}"))
}
