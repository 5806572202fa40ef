//! Answers commands for keys that this node lacks, by a redirect or by forwarding.

use forebay_cluster::NodeId;
use forebay_engine::TableName;

use super::ask::{PeerReplies, Requester, Unanswered, all};
use super::counts::RoutedCounts;
use super::frame::command;
use super::gather::DividedCommand;
use super::gets;
use super::live;
use super::node::Cluster;
use super::place::{KeyPlace, place_of};
use super::split;
use super::walk;
use crate::command::{COMMANDS, CommandError, QueuedCommands, no_permission, split as split_key};
use crate::execute::Outcome;
use crate::resp::{Args, OwnedArgs, Reply};
use crate::users::Verb;
use crate::work::{Done, Task, Work};

/// Redirects or forwards work that this node cannot answer.
pub async fn elsewhere(work: Work) -> Done {
    let shared = std::sync::Arc::clone(&work.shared);
    let Some(cluster) = &shared.cluster else {
        let mut reply = work.reply();
        reply.error("ERR this server is no part of a cluster");
        return Done::of(reply, Outcome::Failed, None);
    };
    let since = shared.store.clock().monotonic();
    let table = first_table(&work, cluster);
    let done = match &work.task {
        Task::Gets(collected) => match live::answer_gets(&work, cluster, collected).await {
            Some(done) => done,
            None => gets::answer(&work, cluster, collected).await,
        },
        Task::Writes(writes) => live::answer_writes(&work, cluster, writes).await,
        Task::Watch(_) => live::answer_watch(work, cluster).await,
        Task::One(..) | Task::Exec(_) | Task::Part(_) => {
            let (reply, outcome) = patiently(&work, cluster).await;
            cluster.counts.led(RoutedCounts::of(reply.bytes()));
            Done::of(reply, outcome, None)
        }
    };
    let time = shared.store.clock().monotonic().saturating_sub(since);
    cluster.counts.took(time, done.answered);
    Done {
        elsewhere: true,
        table,
        ..done
    }
}

/// Returns the table of the first key, for the metrics.
fn first_table(work: &Work, cluster: &Cluster) -> Option<TableName> {
    let name = match &work.task {
        Task::Gets(gets) => gets.table(),
        Task::One(place, args) => table_of(*place, args)?,
        Task::Writes(writes) => {
            let (place, args) = writes.commands.first()?;
            table_of(*place, args)?
        }
        Task::Part(ask) => &ask.table,
        Task::Exec(_) | Task::Watch(_) => return None,
    };
    let name = TableName::new(std::str::from_utf8(name).ok()?).ok()?;
    let is_known = cluster.map().table(&name).is_some();
    let is_live = || {
        cluster
            .member()
            .live()
            .table(name.as_str().as_bytes())
            .is_some()
    };
    (is_known || is_live()).then_some(name)
}

fn table_of(place: usize, args: &OwnedArgs) -> Option<&[u8]> {
    let args = args.borrow();
    let key = COMMANDS[place].key_places(args.len()).next()?;
    Some(split_key(args.get(key)).ok()?.0)
}

/// Tries to answer, and retries for a while if nodes have different maps or versions.
async fn patiently(work: &Work, cluster: &Cluster) -> (Reply, Outcome) {
    let mut requester = Requester::new(work, cluster);
    loop {
        let why = match once(&requester).await {
            Ok(done) => return done,
            Err(why) => why,
        };
        if !requester.tries_again(&why).await {
            return requester.fail(&why.into_words());
        }
    }
}

async fn once(requester: &Requester<'_>) -> Result<(Reply, Outcome), Unanswered> {
    if let Some(answered) = live::answer(requester).await {
        return answered;
    }
    match &requester.work.task {
        Task::One(place, args) => one(requester, *place, args).await,
        Task::Exec(queued) => exec(requester, queued).await,
        Task::Gets(_) | Task::Writes(_) | Task::Part(_) | Task::Watch(_) => {
            Ok(requester.fail("ERR internal error: it is answered otherwise"))
        }
    }
}

/// Returns the places of a command's keys. The user may read all of them.
fn places<'a>(
    requester: &'a Requester<'_>,
    place: usize,
    args: &Args<'a>,
) -> Result<Vec<KeyPlace<'a>>, CommandError> {
    let keys = COMMANDS[place].key_places(args.len());
    keys.map(|at| {
        let (table, _) = split_key(args.get(at))?;
        if !requester.work.user.may(Verb::Read, table) {
            return Err(no_permission(&requester.work.user, table, "read"));
        }
        let mut place = place_of(&requester.map, &requester.tables, args.get(at))?;
        place.is_here &= requester.reads_here(place.holders);
        Ok(place)
    })
    .collect()
}

pub async fn one(
    requester: &Requester<'_>,
    place: usize,
    args: &OwnedArgs,
) -> Result<(Reply, Outcome), Unanswered> {
    if COMMANDS[place].is_of_all_tables() {
        return walk::answer(requester, place, args).await;
    }
    let args = args.borrow();
    let places = places(requester, place, &args)?;
    let Some(first) = places.first() else {
        let name = requester.name(place);
        return Ok(requester.fail(&format!("ERR {name} names no key")));
    };
    let is_one_slot = first.slot.is_some() && places.iter().all(|at| at.slot == first.slot);
    if is_one_slot && let Some(moved) = requester.moved(first) {
        return Ok(requester.fail(&moved));
    }
    if places.iter().all(|at| at.is_here) {
        // The key has arrived since, or could not be read.
        let replies = requester.run_at(None, place, args.to_owned(), "").await?;
        return Ok(requester.pass(replies.one()));
    }
    if places.iter().any(|at| at.is_here) || places.iter().any(|at| at.holders != first.holders) {
        return gather(requester, place, &args, &places).await;
    }
    let commands = command(args.iter());
    let replies = requester.ask(first.holders, &commands, 1, "").await?;
    match requester.not_there(&replies, replies.one()) {
        Some(differ) => Err(differ),
        None => Ok(requester.pass(replies.one())),
    }
}

/// Answers a command on keys of several nodes. Each node is asked for its keys, of the same
/// versions.
async fn gather(
    requester: &Requester<'_>,
    place: usize,
    args: &Args<'_>,
    places: &[KeyPlace<'_>],
) -> Result<(Reply, Outcome), Unanswered> {
    let Some(gathered) = DividedCommand::of(requester, place, args, places)? else {
        let name = requester.name(place);
        return Err(Unanswered::Reply(format!(
            "CROSSSLOT the keys of {name} lie at several nodes: give keys that belong together a hash tag"
        )));
    };
    let ask = |part: usize| gathered.ask(requester, part);
    let parts = all((0..gathered.parts()).map(ask).collect()).await;
    let parts: Vec<PeerReplies> = parts.into_iter().collect::<Result<_, _>>()?;
    gathered.put_together(requester, &parts)
}

/// Runs MULTI, the queued commands and EXEC on one node that has all of their keys.
async fn exec(
    requester: &Requester<'_>,
    queued: &QueuedCommands,
) -> Result<(Reply, Outcome), Unanswered> {
    let (mut common, mut are_here): (Option<Vec<NodeId>>, _) = (None, true);
    let mut commands = command([&b"MULTI"[..]].into_iter());
    for (place, args) in &queued.commands {
        let args = args.borrow();
        if COMMANDS[*place].is_of_all_tables() {
            let name = requester.name(*place);
            return Ok(requester.fail(&format!(
                "ERR {name} asks several nodes, and cannot be in a MULTI: give it by itself"
            )));
        }
        commands.extend(command(args.iter()));
        for at in places(requester, *place, &args)? {
            are_here &= at.is_here;
            let mut holders = at.holders.to_vec();
            holders.retain(|node| common.as_ref().is_none_or(|common| common.contains(node)));
            common = Some(holders);
        }
    }
    commands.extend(command([&b"EXEC"[..]].into_iter()));
    let common = common.unwrap_or_default();
    if common.is_empty() {
        return Ok(requester.fail(
            "CROSSSLOT no node has all keys of this MULTI: give keys that belong together a hash tag, or \
             read them one by one",
        ));
    }
    if are_here {
        // The keys have arrived since, or could not be read.
        let same = QueuedCommands::of(queued.commands.clone());
        let replies = requester.read_here(Task::Exec(same), 1).await;
        return match requester.not_there(&replies, replies.one()) {
            Some(differ) => Err(differ),
            None => Ok(requester.pass(replies.one())),
        };
    }
    let count = queued.commands.len() + 2;
    let replies = requester.ask(&common, &commands, count, "").await?;
    let Some(last) = replies.get(count - 1) else {
        return Ok(
            requester.fail("ERR this MULTI has more commands than another node takes at a time")
        );
    };
    if let Some(differ) = requester.not_there(&replies, last) {
        return Err(differ);
    }
    // The error of a refused command gives the reason; that of EXEC does not.
    let refused = (0..count - 1).filter_map(|at| replies.get(at));
    let refused = refused.filter_map(split::error).next();
    Ok(match refused {
        Some(words) => requester.fail(&words),
        None => requester.pass(last),
    })
}
