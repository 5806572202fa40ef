//! Inserts rows into a live table of a running cluster one by one, through its serving path.
//!
//! This is the Planned Bulk paper's own way of inserting, and its baselines.
//!
//! | module | what |
//! | --- | --- |
//! | `resp` | commands and answers |
//! | `wire` | connections to nodes |
//! | `routes` | which node leads the partition of a key |
//! | `verdict` | the meaning of an answer to a write |
//! | `batch` | the rows of one request |
//! | `insertion` | the state that all clients share |
//! | `sender` | sends until all of a request is acknowledged |
//! | `pieces` | assigns rows to clients |
//! | `clients` | the threads that send |
//! | `error` | why an insert ended, and what is known |
//!
//! The rows are staged (`forebay_load::load::StagedRows`): read, encoded, sorted, complete. Then
//! clients send them, each one request at a time. Every row is a `KV.WRITE`, with the bytes that a
//! run of the same row would have.

mod batch;
mod clients;
mod error;
mod insertion;
mod pieces;
mod resp;
mod routes;
mod sender;
mod verdict;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use forebay_cluster::HostPort;
use forebay_engine::{PartitionRange, TableName};
use forebay_io::{Clock, OsNet};
use forebay_load::load::StagedRows;
use forebay_load::progress::{Progress, Unit};
use forebay_load::sort::Arrangement;

use crate::nodes::login::NodeLogin;

pub use clients::InsertEnd;
pub use error::InsertError;
pub use insertion::InsertTotals;

use clients::Clients;
use insertion::Insertion;
use pieces::PieceQueue;
use resp::push_command;
use routes::SharedRoutes;
use sender::knows_writes;
use wire::{Dial, Exchange, NodeCommands, Wire, WireFailure};

/// A way of adding rows to a table of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsertWay {
    Runs,
    Rows,
}

/// The order in which rows are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOrder {
    Sorted,
    Random,
    Source,
}

/// The pieces of a client. With fewer, a client could run out of work before the others.
const PIECES_OF_CLIENT: usize = 4;

/// The options for sending rows.
#[derive(Debug, Clone)]
pub struct InsertOptions {
    pub arrangement: Arrangement,
    /// The number of clients that send at a time.
    pub clients: usize,
    /// The rows of a request, each of which is a separate write.
    pub batch_rows: usize,
    pub login: Arc<NodeLogin>,
    /// How long no row may be written before the insert fails.
    pub patience: Duration,
    pub rate_bytes: Option<u64>,
    pub has_deltas: bool,
}

/// Inserts all rows. Returns what was written, and how many rows had the key of another. `up` are
/// the available nodes.
pub fn insert_rows(
    rows: &mut StagedRows,
    partitions: Vec<PartitionRange>,
    (table, up): (&TableName, Vec<HostPort>),
    options: &InsertOptions,
    (clock, progress): (&Arc<dyn Clock>, &dyn Progress),
) -> Result<(InsertTotals, u64), InsertEnd> {
    let dial = Dial {
        net: Arc::new(OsNet),
        clock: Arc::clone(clock),
        login: Arc::clone(&options.login),
    };
    let routes = SharedRoutes::new(table, rows.options().order, up.clone(), Arc::clone(clock));
    let insertion = Insertion::new(
        table,
        routes,
        (Arc::clone(clock), progress),
        (options.rate_bytes, options.patience),
        (rows.rows(), options.has_deltas),
    );
    check_nodes(&insertion, &dial, &up)?;
    progress.stage("inserting", Some(rows.rows()), Unit::Rows);
    let pieces = rows.pieces(partitions, options.clients * PIECES_OF_CLIENT);
    let clients = Clients {
        insertion: &insertion,
        rows,
        pieces: &pieces,
        dial: &dial,
        count: options.clients,
        batch_rows: options.batch_rows,
    };
    let duplicates = match options.arrangement {
        Arrangement::AsTheyCame => clients.as_they_came()?,
        arrangement => {
            let (_, routes) = insertion.routes.now();
            let routes = (arrangement == Arrangement::ByKey).then_some(&*routes);
            clients.by_pieces(&PieceQueue::new(&pieces, routes))?
        }
    };
    Ok((insertion.totals(), duplicates))
}

/// Checks, before anything is sent, whether all nodes that answer support row writes, and where the
/// partitions are.
fn check_nodes(insertion: &Insertion<'_>, dial: &Dial, up: &[HostPort]) -> Result<(), InsertEnd> {
    let no_routes = |words: String| InsertError::NoRoutes { words };
    let wire = Wire::new(dial.clone());
    let mut wire = wire.map_err(|error| no_routes(error.to_string()))?;
    let mut bytes = Vec::new();
    push_command(&mut bytes, &[b"COMMAND", b"INFO", b"kv.write"]);
    let ask = |node: &HostPort| NodeCommands {
        node: node.clone(),
        bytes: bytes.clone(),
        count: 1,
    };
    let asked: Vec<NodeCommands> = up.iter().map(ask).collect();
    let inserted = || insertion.inserted();
    for (node, answers) in up.iter().zip(wire.exchange(&asked)) {
        match answers {
            Ok(answers) if answers.first().is_some_and(knows_writes) => {}
            Ok(_) => {
                let node = node.to_string();
                return Err(InsertError::OldProgram { node }.into());
            }
            Err(WireFailure::Refused(words)) => {
                let inserted = inserted();
                return Err(InsertError::NotLetIn { words, inserted }.into());
            }
            Err(WireFailure::Unreached(_) | WireFailure::Broken(..)) => {
                insertion.routes.suspect(node);
            }
        }
    }
    let renewed = insertion.routes.renew(0, &mut wire);
    renewed.map_err(|failure| {
        let sent = match failure {
            WireFailure::Refused(words) => InsertError::NotLetIn {
                words,
                inserted: inserted(),
            },
            WireFailure::Unreached(words) | WireFailure::Broken(_, words) => no_routes(words),
        };
        sent.into()
    })
}
