//! Answers WATCH for keys of live tables of a cluster: reads their versions with permits.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;

use super::super::ask::{Requester, Unanswered, all};
use super::super::node::Cluster;
use super::super::split;
use super::key_spot::LiveSpot;
use super::parts::PartitionCommands;
use crate::command::{KeyVersion, find};
use crate::execute::Outcome;
use crate::resp::OwnedArgs;
use crate::work::{Done, Task, Work};

const GETV: &[u8] = b"kv.getv";

type KeyRead<'a> = Pin<Box<dyn Future<Output = Result<KeyVersion, Unanswered>> + Send + 'a>>;

/// Answers WATCH.
pub async fn answer(work: Work, cluster: &Cluster) -> Done {
    let read = patiently(&work, cluster).await;
    let mut reply = work.reply();
    let watches = match (read, work.task) {
        (Ok(versions), Task::Watch(ask)) => {
            reply.ok();
            ask.watches(&versions)
        }
        (Ok(_), _) => {
            reply.error("ERR internal error: it is answered otherwise");
            return Done::of(reply, Outcome::Failed, None);
        }
        (Err(why), _) => {
            reply.error(&why.into_words());
            return Done::of(reply, Outcome::Failed, None);
        }
    };
    Done {
        watches,
        ..Done::of(reply, Outcome::Answered, None)
    }
}

async fn patiently(work: &Work, cluster: &Cluster) -> Result<Vec<KeyVersion>, Unanswered> {
    let Task::Watch(ask) = &work.task else {
        return Ok(Vec::new());
    };
    let wires: Vec<Vec<u8>> = ask.wires().collect();
    let mut requester = Requester::new(work, cluster);
    loop {
        let why = match versions(&requester, &wires).await {
            Ok(versions) => return Ok(versions),
            Err(why) => why,
        };
        if !requester.tries_again(&why).await {
            return Err(why);
        }
    }
}

async fn versions(
    requester: &Requester<'_>,
    wires: &[Vec<u8>],
) -> Result<Vec<KeyVersion>, Unanswered> {
    let live = requester.cluster.member().live();
    let slots = wires.iter().map(|wire| LiveSpot::of(&live, wire)?.slot);
    let slots: HashSet<Option<u16>> = slots.collect();
    // A client is redirected for all of the keys, or for none.
    let may_move = slots.len() == 1 && !slots.contains(&None);
    let reads = wires.iter().map(|wire| -> KeyRead<'_> {
        Box::pin(async move { version(requester, wire, may_move).await })
    });
    all(reads.collect()).await.into_iter().collect()
}

async fn version(
    requester: &Requester<'_>,
    wire: &[u8],
    may_move: bool,
) -> Result<KeyVersion, Unanswered> {
    let garbled = || Unanswered::Reply("ERR a node's reply is not what was asked for".to_owned());
    let place = find(GETV).ok_or_else(garbled)?;
    let args: OwnedArgs = [GETV, wire].into_iter().collect();
    let reply = PartitionCommands::one(requester, place, args)
        .bytes(may_move)
        .await?;
    if let Some(words) = split::error(&reply) {
        return Err(Unanswered::Reply(words));
    }
    let items = split::items(&reply).ok_or_else(garbled)?;
    let first = items.into_iter().next().ok_or_else(garbled)?;
    let text = split::bulk(&reply[first]).ok_or_else(garbled)?;
    KeyVersion::parse(text).map_err(|_| garbled())
}
