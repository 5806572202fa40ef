//! Answers consecutive GETs of one live table; the keys of a partition are read together.

use std::future::Future;
use std::pin::Pin;

use forebay_cluster::HostPort;
use forebay_replica::GroupId;

use super::super::ask::{PeerReplies, Requester, Unanswered, all};
use super::super::counts::RoutedCounts;
use super::super::frame::push_get;
use super::super::node::Cluster;
use super::super::place::moved_to;
use super::command_target::CommandTarget;
use super::key_spot::{LiveAt, LiveSpot};
use super::read::PartRead;
use crate::command::no_permission;
use crate::config::HIGH_WATER;
use crate::execute::Outcome;
use crate::gets::OwnedGets;
use crate::resp::OwnedArgs;
use crate::users::Verb;
use crate::work::{Done, Task, Work};

/// The most bytes of keys in one request; a single key may be longer.
const MOST_KEY_BYTES: usize = 1 << 20;

type PartReading<'a> = Pin<Box<dyn Future<Output = Result<PeerReplies, Unanswered>> + Send + 'a>>;

/// Keys of one partition.
struct GroupKeys {
    group: GroupId,
    /// The address to which the client is redirected for them.
    moved: Option<HostPort>,
    keys: OwnedArgs,
    count: usize,
}

/// A key's group, its place in the group, and its slot.
type KeySpot = (usize, usize, Option<u16>);

/// Answers some of the GETs, always including the first. `None` if their table is not a live table.
pub async fn answer(work: &Work, cluster: &Cluster, gets: &OwnedGets) -> Option<Done> {
    cluster.member().live().table(gets.table())?;
    let mut requester = Requester::new(work, cluster);
    let failed = |requester: &Requester<'_>, words: &str| {
        let (reply, outcome) = requester.fail(words);
        Some(Done::of(reply, outcome, None))
    };
    if !work.user.may(Verb::Read, gets.table()) {
        let stop = Unanswered::from(no_permission(&work.user, gets.table(), "read"));
        return failed(&requester, &stop.into_words());
    }
    loop {
        let why = match read_some(&requester, gets).await {
            Ok(done) => return Some(done),
            Err(why) => why,
        };
        if !requester.tries_again(&why).await {
            return failed(&requester, &why.into_words());
        }
    }
}

/// Answers some of the GETs by the partitions as they are known now.
async fn read_some(requester: &Requester<'_>, gets: &OwnedGets) -> Result<Done, Unanswered> {
    let live = requester.cluster.member().live();
    let (mut groups, mut spots, mut bytes) = (Vec::new(), Vec::<KeySpot>::new(), 0);
    for key in gets.keys().iter() {
        bytes += key.len();
        if bytes > MOST_KEY_BYTES && !spots.is_empty() {
            break;
        }
        let wire = [gets.table(), b":", key].concat();
        let Some(spot) = LiveSpot::of(&live, &wire) else {
            break;
        };
        spots.push(put(requester, &mut groups, &spot, key));
    }
    if spots.is_empty() {
        let words = "TRYAGAIN where the table's partitions are is not known here yet";
        return Err(Unanswered::Reply(words.to_owned()));
    }
    let read = groups.iter().filter(|group| group.moved.is_none());
    let works = read
        .map(|group| -> PartReading<'_> { Box::pin(read_group(requester, gets.table(), group)) });
    let mut read = all(works.collect()).await.into_iter();
    let answers = groups.iter().map(|group| match group.moved {
        Some(_) => None,
        None => read.next(),
    });
    let answers: Vec<_> = answers.collect();
    put_together(requester, &groups, &spots, &answers)
}

/// Adds a key to the keys of its partition.
fn put(
    requester: &Requester<'_>,
    groups: &mut Vec<GroupKeys>,
    spot: &LiveSpot,
    key: &[u8],
) -> KeySpot {
    let known = groups.iter().position(|known| known.group == spot.group);
    let index = known.unwrap_or_else(|| {
        let reads_follower = requester.reads_follower(spot.group);
        groups.push(GroupKeys {
            group: spot.group,
            moved: match requester.lead(spot, true, 0) {
                CommandTarget::Moved(address) if !reads_follower => Some(address),
                _ => None,
            },
            keys: OwnedArgs::default(),
            count: 0,
        });
        groups.len() - 1
    });
    let group = &mut groups[index];
    group.keys.push(key);
    group.count += 1;
    (index, group.count - 1, spot.slot)
}

async fn read_group(
    requester: &Requester<'_>,
    table: &[u8],
    group: &GroupKeys,
) -> Result<PeerReplies, Unanswered> {
    let keys = group.keys.borrow();
    let mut commands = Vec::new();
    keys.iter()
        .for_each(|key| push_get(&mut commands, table, key));
    let wire = |key: &[u8]| [table, b":", key].concat();
    let read = PartRead {
        requester,
        at: LiveAt::Keys(keys.iter().map(wire).collect()),
        may_move: false,
        task: Box::new(|| Task::Gets(OwnedGets::new(table, group.keys.clone()))),
        commands,
        counts: (group.count, group.count),
    };
    read.done().await
}

/// Returns the replies in order, up to the first that is missing.
fn put_together(
    requester: &Requester<'_>,
    groups: &[GroupKeys],
    spots: &[KeySpot],
    answers: &[Option<Result<PeerReplies, Unanswered>>],
) -> Result<Done, Unanswered> {
    let mut reply = requester.work.reply();
    let (mut answered, mut failed) = (0, 0);
    for (group, index, slot) in spots {
        let before = reply.len();
        if before >= HIGH_WATER {
            break;
        }
        match (&groups[*group].moved, &answers[*group]) {
            (Some(address), _) => reply.error(&moved_to(slot.unwrap_or(0), address)),
            (None, Some(Ok(replies))) => match replies.get(*index) {
                Some(one) => reply.append(one),
                None if answered > 0 => break,
                None => reply.error("ERR a node's reply is not what was asked for"),
            },
            // The partition was split in the meantime: the key is read again.
            (None, Some(Err(Unanswered::OtherMap(_)))) if answered > 0 => break,
            (None, Some(Err(why @ Unanswered::OtherMap(_)))) => return Err(why.clone()),
            (None, Some(Err(why))) => reply.error(&why.clone().into_words()),
            (None, None) => reply.error("ERR internal error: it was not read"),
        }
        answered += 1;
        failed += usize::from(reply.bytes().get(before) == Some(&b'-'));
        requester
            .cluster
            .counts
            .led(RoutedCounts::of(&reply.bytes()[before..]));
    }
    Ok(Done {
        answered,
        failed,
        ..Done::of(reply, Outcome::Answered, None)
    })
}
