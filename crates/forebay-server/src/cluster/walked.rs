//! The tables that a walk over nodes covers, batch and live ones, with their segments and pages.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use forebay_cluster::{LivePlace, LivePlaces};
use forebay_engine::{Source, TableName, ValueKind, Version};
use forebay_run::Order;

use super::ask::{Requester, Unanswered, all};
use super::coverage::{Coverage, Segment};
use super::live::{PartAsk, PartWanted};
use super::page::{KeyPage, PageRequest, Spot};
use super::split;
use crate::command::{CommandError, Scope};
use crate::users::Verb;

/// A table that a walk covers.
#[derive(Debug, Clone, Copy)]
pub enum WalkedTable<'a> {
    Batch(&'a Arc<Version>),
    Live(&'a TableName, &'a LivePlace),
}

/// A partition of a live table with an upper bound of its number of keys.
#[derive(Debug, Clone)]
pub struct LiveRows<'a> {
    pub table: &'a TableName,
    pub from: Spot,
    pub rows: u64,
}

type RowsAnswer<'a> = Pin<Box<dyn Future<Output = Result<u64, Unanswered>> + Send + 'a>>;

impl<'a> WalkedTable<'a> {
    pub fn name(&self) -> &'a TableName {
        match self {
            Self::Batch(version) => version.table(),
            Self::Live(name, _) => name,
        }
    }

    pub fn kind(&self) -> &'a ValueKind {
        match self {
            Self::Batch(version) => &version.manifest().value,
            Self::Live(_, place) => &place.kind,
        }
    }

    fn order(&self) -> Order {
        match self {
            Self::Batch(version) => version.order(),
            Self::Live(_, place) => place.order,
        }
    }
}

impl Requester<'_> {
    pub fn scope(&self) -> Scope<'_> {
        Scope {
            tables: &self.tables,
            user: &self.work.user,
            shared: &self.work.shared,
        }
    }

    /// Returns the tables of the cluster that the user may read.
    pub fn walked<'a>(&'a self, live: &'a LivePlaces) -> Vec<WalkedTable<'a>> {
        let batch = self.batch_tables().into_iter().map(WalkedTable::Batch);
        let may = |name: &TableName| self.work.user.may(Verb::Read, name.as_str().as_bytes());
        let live = live.tables().filter(|(name, _)| may(name));
        let live = live.map(|(name, place)| WalkedTable::Live(name, place));
        batch.chain(live).collect()
    }

    pub fn batch_tables(&self) -> Vec<&Arc<Version>> {
        let tables = self.scope().readable().into_iter();
        let batch = tables.filter_map(|source| match source {
            Source::Batch(version) => Some(version),
            Source::Live(_) => None,
        });
        let known = |version: &&Arc<Version>| self.map.table(version.table()).is_some();
        batch.filter(known).collect()
    }

    /// Returns the covered parts of a table, in its order.
    pub fn segments(&self, coverage: &Coverage, table: &WalkedTable<'_>) -> Vec<Segment<'_>> {
        match table {
            WalkedTable::Batch(version) => {
                let table = self.map.table(version.table());
                table.map_or(Vec::new(), |table| coverage.segments(table))
            }
            WalkedTable::Live(_, place) => coverage.stretches(place.order),
        }
    }

    /// Returns a page of a segment, from this node or from a node that has it.
    pub async fn page(
        &self,
        table: &WalkedTable<'_>,
        segment: &Segment<'_>,
        from: Spot,
        count: usize,
    ) -> Result<KeyPage, Unanswered> {
        let request = PageRequest {
            table: table.name().as_str().as_bytes().to_vec(),
            from,
            until: segment.until.clone(),
            count,
        };
        let replies = match table {
            WalkedTable::Batch(version) => {
                if request.is_here(version) && self.reads_here(segment.holders) {
                    return read_here(request, Arc::clone(version)).await;
                }
                let versions = self.version_of(&request.table);
                let replies = self
                    .ask(segment.holders, &request.command(), 1, &versions)
                    .await?;
                if let Some(differ) = self.not_there(&replies, replies.one()) {
                    return Err(differ);
                }
                replies
            }
            WalkedTable::Live(..) => self.read_part(&PartAsk::page(request)).await?,
        };
        KeyPage::read(replies.one(), table.order()).ok_or_else(|| {
            let garbled = "ERR a node's reply is not what was asked for".to_owned();
            Unanswered::Reply(split::error(replies.one()).unwrap_or(garbled))
        })
    }

    /// Returns the partitions of live tables that begin in the covered ranges. Their leaders report
    /// the numbers of keys.
    pub async fn live_rows<'a>(
        &self,
        coverage: &Coverage,
        live: &'a LivePlaces,
    ) -> Result<Vec<LiveRows<'a>>, Unanswered> {
        let may = |name: &TableName| self.work.user.may(Verb::Read, name.as_str().as_bytes());
        let tables = live.tables().filter(|(name, _)| may(name));
        let routes = tables.flat_map(|(name, place)| {
            let routes = place.routes().iter().map(|route| &route.bounds.lower);
            let covered = routes.filter(|lower| coverage.covers(lower));
            covered.map(move |lower| (name, Spot::of(lower)))
        });
        let routes: Vec<(&TableName, Spot)> = routes.collect();
        let asked = routes.iter().map(|(name, from)| -> RowsAnswer<'_> {
            Box::pin(async move {
                let ask = PartAsk::new(name, from.clone(), PartWanted::Rows);
                let replies = self.read_part(&ask).await?;
                let rows = split::integer(replies.one()).unwrap_or(0);
                Ok(u64::try_from(rows).unwrap_or(0))
            })
        });
        let rows = all(asked.collect()).await.into_iter().zip(&routes);
        rows.map(|(rows, (table, from))| {
            let (rows, from) = (rows?, from.clone());
            Ok(LiveRows { table, from, rows })
        })
        .collect()
    }
}

async fn read_here(request: PageRequest, version: Arc<Version>) -> Result<KeyPage, Unanswered> {
    let read = tokio::task::spawn_blocking(move || request.read_here(&version)).await;
    let failed = "ERR internal error: see the server's log";
    match read {
        Ok(read) => Ok(read?),
        Err(_) => Err(Unanswered::from(CommandError::error(failed))),
    }
}
