//! Deletes ranges of keys, or all keys, of a live table.
//!
//! The command is proposed to each partition that the range touches. Each deletes its part at one
//! moment.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use forebay_cluster::{LivePlace, LivePlaces};
use forebay_engine::Bounds;
use forebay_run::Order;

use super::super::ask::{Requester, Unanswered, all};
use super::super::page::Spot;
use super::super::place::JUST_STARTED;
use super::super::split;
use super::LiveAnswer;
use super::leader_write::WriteCommands;
use super::parts::most_open;
use super::piece::{PartAsk, PartWanted};
use super::write::PartWrite;
use crate::command::{Command, DeleteRequest, batch_table, no_key_order, no_permission, no_table};
use crate::execute::Outcome;
use crate::resp::{Args, OwnedArgs, Reply};
use crate::users::Verb;

type PartDelete<'a> = Pin<Box<dyn Future<Output = Result<i64, Unanswered>> + Send + 'a>>;

/// Answers FLUSHDB or KV.DELRANGE.
pub async fn answer(
    requester: &Requester<'_>,
    command: &Command,
    live: &LivePlaces,
    args: &Args<'_>,
) -> LiveAnswer {
    let default = requester.work.shared.config.default_table.as_ref();
    let request = match DeleteRequest::parse(args, default) {
        Ok(request) => request,
        Err(stop) => return Some(Err(Unanswered::from(stop))),
    };
    // Only a user that may write to the table learns whether it exists.
    if !requester.work.user.may(Verb::Write, request.table) {
        let stop = no_permission(&requester.work.user, request.table, "write to");
        return Some(Err(Unanswered::from(stop)));
    }
    Some(match live.table(request.table) {
        Some(place) => delete(requester, &request, place, args).await,
        None if requester.tables.batch.get(request.table).is_some() => {
            Err(Unanswered::from(batch_table(command, request.table)))
        }
        None if requester.map.revision == 0 => Err(Unanswered::Reply(JUST_STARTED.to_owned())),
        None => Err(Unanswered::from(no_table(request.table))),
    })
}

async fn delete(
    requester: &Requester<'_>,
    request: &DeleteRequest<'_>,
    place: &LivePlace,
    args: &Args<'_>,
) -> Result<(Reply, Outcome), Unanswered> {
    if request.range.is_some() && place.order == Order::Hashed {
        return Err(Unanswered::from(no_key_order(request.table, "create")));
    }
    // Nodes may have different default tables.
    let args: OwnedArgs = match &request.range {
        None => [&b"FLUSHDB"[..], request.table].into_iter().collect(),
        Some(_) => args.to_owned(),
    };
    let is_touched = |bounds: &&Bounds| {
        let range = request.range.as_ref();
        range.is_none_or(|range| range.piece_within(bounds).is_some())
    };
    let routes = place.routes().iter().map(|route| &route.bounds);
    let works = routes.filter(is_touched).map(|bounds| -> PartDelete<'_> {
        Box::pin(delete_within(requester, request.table, bounds, &args))
    });
    let (mut deleted, mut failed) = (0, Vec::new());
    for answer in all(works.collect()).await {
        match answer {
            Ok(keys) => deleted += keys,
            Err(why) => failed.push(why),
        }
    }
    if let Some(why) = most_open(failed) {
        // Parts that were deleted are not deleted again.
        return Err(Unanswered::Reply(why.into_words()));
    }
    let mut reply = requester.work.reply();
    match request.is_counted {
        true => reply.int(deleted),
        false => reply.ok(),
    }
    Ok((reply, Outcome::Answered))
}

/// Deletes the range in the partitions that have it now: one, unless it was split in the meantime.
async fn delete_within(
    requester: &Requester<'_>,
    table: &[u8],
    bounds: &Bounds,
    args: &OwnedArgs,
) -> Result<i64, Unanswered> {
    let until = bounds.upper.as_ref().map(Spot::of);
    let (mut from, mut deleted) = (Spot::of(&bounds.lower), 0);
    loop {
        let ask = PartAsk {
            table: table.to_vec(),
            from,
            whole: None,
            wanted: PartWanted::Delete(args.clone()),
        };
        let reply = one(requester, &ask, args).await?;
        let (keys, end) = taken(&reply)?;
        deleted += keys;
        match end {
            Some(end) if until.as_ref().is_none_or(|until| end < *until) => from = end,
            _ => return Ok(deleted),
        }
    }
}

/// Proposes the command to one partition.
pub async fn one(
    requester: &Requester<'_>,
    ask: &PartAsk,
    args: &OwnedArgs,
) -> Result<Bytes, Unanswered> {
    let commands = WriteCommands::Delete {
        args: args.clone(),
        from: ask.from.clone(),
        framed: ask.command(),
    };
    let write = PartWrite {
        requester,
        at: ask.at(),
        commands: Arc::new(commands),
        slots: vec![None],
    };
    write.one().await
}

/// Returns how many keys a partition deleted, if the reply says so, and where the partition ends.
fn taken(reply: &[u8]) -> Result<(i64, Option<Spot>), Unanswered> {
    if let Some(words) = split::error(reply) {
        return Err(Unanswered::Reply(words));
    }
    let both = split::items(reply).filter(|both| both.len() == 2);
    let end = both
        .as_ref()
        .and_then(|both| split::bulk(&reply[both[1].clone()]));
    let (Some(both), Some(end)) = (&both, end) else {
        let words = "ERR a node's reply is not what was asked for";
        return Err(Unanswered::Reply(words.to_owned()));
    };
    let keys = split::integer(&reply[both[0].clone()]).unwrap_or(0);
    Ok((keys, Spot::parse_tagged(end)))
}
