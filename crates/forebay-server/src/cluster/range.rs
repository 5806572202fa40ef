//! Answers KV.RANGE from the nodes that have parts of the range, in its order.

use forebay_cluster::{LivePlace, NodeId};
use forebay_engine::Bounds;
use forebay_run::Order;

use super::ask::{PeerReplies, Requester, Unanswered};
use super::coverage::{Coverage, Segment};
use super::frame::command;
use super::live::{PartAsk, PartWanted};
use super::page::{PageRequest, Spot};
use super::place::TablePlaces;
use super::split;
use crate::command::{
    RANGE_BYTES, RangePiece, RangeRequest, find_source, no_key_order, no_permission,
};
use crate::execute::Outcome;
use crate::port::Port;
use crate::resp::{Args, OwnedArgs, Reply};
use crate::users::Verb;

/// The records of a range that were found so far.
#[derive(Debug, Default)]
struct FoundRange {
    records: usize,
    /// Concatenated replies.
    items: Vec<u8>,
    next: Option<Vec<u8>>,
}

pub async fn answer(
    requester: &Requester<'_>,
    place: usize,
    args: &Args<'_>,
) -> Result<(Reply, Outcome), Unanswered> {
    let request = RangeRequest::parse(args)?;
    // Only a user that may read the table learns whether it exists.
    if !requester.work.user.may(Verb::Read, request.table) {
        let stop = no_permission(&requester.work.user, request.table, "read");
        return Err(Unanswered::from(stop));
    }
    let live = requester.cluster.member().live();
    if let Some(place) = live.table(request.table) {
        return of_live(requester, &request, place).await;
    }
    // A command does not wait for a table that the cluster does not have.
    TablePlaces::of(&requester.map, &requester.tables, request.table)?;
    let source = find_source(&requester.tables, &requester.work.user, request.table)?;
    let table = requester.map.table(source.table());
    let Some(table) = table.filter(|_| source.order() == Order::Ordered) else {
        let replies = requester.run_here(place, args.to_owned()).await;
        return Ok(requester.pass(replies.one()));
    };
    // Any port answers for ranges: the nodes are asked in turn, whatever port the client uses.
    let mut segments = Coverage::of(&requester.map, Port::Gateway).segments(table);
    if request.is_reverse() {
        segments.reverse();
    }
    let pieces = segments.iter().filter_map(|segment| {
        let (Spot::Key(lower), until) = (&segment.from, &segment.until) else {
            return None;
        };
        let upper = until.as_ref().map(|until| match until {
            Spot::Key(upper) => &upper[..],
            Spot::Hash(_) => &[],
        });
        Some((segment, request.piece(lower, upper)?))
    });
    let versions = requester.version_of(request.table);
    let mut found = FoundRange::default();
    for (segment, piece) in pieces {
        if found.is_full(&request) {
            found.next = Some(request.next_at(&piece));
            break;
        }
        ask(
            requester,
            (place, &request),
            (segment, &piece),
            &versions,
            &mut found,
        )
        .await?;
        if found.next.is_some() {
            break;
        }
    }
    Ok(found.reply(requester, request.parts()))
}

/// Answers KV.RANGE of a live table. Each partition is read with a permit of its leader.
async fn of_live(
    requester: &Requester<'_>,
    request: &RangeRequest<'_>,
    place: &LivePlace,
) -> Result<(Reply, Outcome), Unanswered> {
    if !requester.work.user.may(Verb::Read, request.table) {
        let stop = no_permission(&requester.work.user, request.table, "read");
        return Err(Unanswered::from(stop));
    }
    if place.order == Order::Hashed {
        return Err(Unanswered::from(no_key_order(request.table, "create")));
    }
    let mut bounds: Vec<&Bounds> = place.routes().iter().map(|route| &route.bounds).collect();
    if request.is_reverse() {
        bounds.reverse();
    }
    let pieces = bounds.into_iter().filter_map(|bounds| {
        let piece = request.piece_within(bounds)?;
        Some((bounds, piece))
    });
    let mut found = FoundRange::default();
    for (bounds, piece) in pieces {
        if found.is_full(request) {
            found.next = Some(request.next_at(&piece));
            break;
        }
        let args = request.args_of(&piece, request.limit() - found.records);
        let ask = PartAsk {
            table: request.table.to_vec(),
            from: Spot::of(&bounds.lower),
            whole: Some(bounds.clone()),
            wanted: PartWanted::Range(args),
        };
        let replies = requester.read_part(&ask).await?;
        found.add(replies.one(), request.parts())?;
        if found.next.is_some() {
            break;
        }
    }
    Ok(found.reply(requester, request.parts()))
}

/// Adds the records of a piece.
async fn ask(
    requester: &Requester<'_>,
    (place, request): (usize, &RangeRequest<'_>),
    (segment, piece): (&Segment<'_>, &RangePiece),
    versions: &str,
    found: &mut FoundRange,
) -> Result<(), Unanswered> {
    let args = request.args_of(piece, request.limit() - found.records);
    let whole = PageRequest {
        table: request.table.to_vec(),
        from: segment.from.clone(),
        until: segment.until.clone(),
        count: 1,
    };
    let is_here = requester.tables.batch.get(request.table);
    let is_here = is_here.is_some_and(|version| whole.is_here(version))
        && requester.reads_here(segment.holders);
    let replies = requester
        .run_at((!is_here).then_some(segment.holders), place, args, versions)
        .await?;
    found.add(replies.one(), request.parts())
}

impl FoundRange {
    fn is_full(&self, request: &RangeRequest<'_>) -> bool {
        self.records >= request.limit() || self.items.len() >= RANGE_BYTES
    }

    fn add(&mut self, reply: &[u8], parts: usize) -> Result<(), Unanswered> {
        let garbled =
            || Unanswered::Reply("ERR a node's reply is not what was asked for".to_owned());
        if let Some(words) = split::error(reply) {
            return Err(Unanswered::Reply(words));
        }
        let both = split::items(reply).filter(|both| both.len() == 2);
        let both = both.ok_or_else(garbled)?;
        let list = &reply[both[1].clone()];
        let items = split::items(list).ok_or_else(garbled)?;
        self.records += items.len() / parts.max(1);
        if let (Some(first), Some(last)) = (items.first(), items.last()) {
            self.items.extend_from_slice(&list[first.start..last.end]);
        }
        self.next = split::bulk(&reply[both[0].clone()]).map(<[u8]>::to_vec);
        Ok(())
    }

    fn reply(self, requester: &Requester<'_>, parts: usize) -> (Reply, Outcome) {
        let mut reply = Reply::new(requester.work.resp3);
        reply.array(2);
        match &self.next {
            Some(next) => reply.bulk(next),
            None => reply.null(),
        }
        reply.array(self.records * parts);
        reply.append(&self.items);
        requester.pass(reply.bytes())
    }
}

impl Requester<'_> {
    /// Returns the version by which a table is read, as in a frame.
    pub fn version_of(&self, table: &[u8]) -> String {
        let read = self.read_of(table);
        read.map_or(String::new(), |(table, version)| {
            format!("{table} {version}")
        })
    }

    /// Runs a command on the first of these nodes that answers, or on this node.
    pub async fn run_at(
        &self,
        holders: Option<&[NodeId]>,
        place: usize,
        args: OwnedArgs,
        versions: &str,
    ) -> Result<PeerReplies, Unanswered> {
        let replies = match holders {
            None => self.run_here(place, args).await,
            Some(holders) => {
                let commands = command(args.borrow().iter());
                self.ask(holders, &commands, 1, versions).await?
            }
        };
        match self.not_there(&replies, replies.one()) {
            Some(differ) => Err(differ),
            None => Ok(replies),
        }
    }
}
