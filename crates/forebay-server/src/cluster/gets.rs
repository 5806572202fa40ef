//! Answers consecutive GETs of one table whose keys are partly on other nodes.
//!
//! Each node is asked for all of its keys at once.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use forebay_cluster::NodeId;

use super::ask::{PeerReplies, Requester, Unanswered, all};
use super::counts::RoutedCounts;
use super::frame::push_get;
use super::node::Cluster;
use super::place::{KeyPlace, TablePlaces};
use crate::config::HIGH_WATER;
use crate::execute::Outcome;
use crate::gets::OwnedGets;
use crate::resp::{OwnedArgs, Reply};
use crate::work::{Done, Task, Work};

type AskedNode<'a> = Pin<Box<dyn Future<Output = Result<PeerReplies, Unanswered>> + Send + 'a>>;

/// The most bytes of keys in one request; a single key may be longer.
const FRAME_BYTES: usize = 1 << 20;

/// Keys of the same nodes.
struct NodeKeys<'m> {
    holders: &'m [NodeId],
    commands: Vec<u8>,
    count: usize,
}

/// The source of the answer to a key.
enum KeySource {
    /// This node answered at once: the range in its replies.
    Made(Range<usize>),
    Reply(String),
    /// This node has it and waits for the device: the index of the reply.
    Read(usize),
    /// Another node has it: the index of the reply among those of a group of keys.
    Asked {
        group: usize,
        index: usize,
    },
}

/// The steps that answer some GETs.
struct Plan<'m> {
    ways: Vec<KeySource>,
    made: Reply,
    /// Keys that a thread that may wait reads.
    read: OwnedArgs,
    groups: Vec<NodeKeys<'m>>,
}

/// The outcome of one attempt.
struct TryOutcome {
    done: Done,
    /// Nodes disagree about the first key.
    differ: Option<Unanswered>,
}

/// Answers some of the GETs, always including the first.
pub async fn answer(work: &Work, cluster: &Cluster, gets: &OwnedGets) -> Done {
    let mut requester = Requester::new(work, cluster);
    loop {
        let tried = answer_once(&requester, gets).await;
        let Some(differ) = tried.differ else {
            return tried.done;
        };
        if !requester.tries_again(&differ).await {
            let (reply, outcome) = requester.fail(&differ.into_words());
            return Done::of(reply, outcome, None);
        }
    }
}

async fn answer_once(requester: &Requester<'_>, gets: &OwnedGets) -> TryOutcome {
    let places = match TablePlaces::of(&requester.map, &requester.tables, gets.table()) {
        Ok(places) => places,
        Err(error) => {
            let (reply, outcome) = requester.fail(&Unanswered::from(error).into_words());
            return TryOutcome::of(Done::of(reply, outcome, None));
        }
    };
    let plan = Plan::of(requester, gets, &places);
    let mut works: Vec<AskedNode<'_>> = Vec::new();
    for group in &plan.groups {
        works.push(Box::pin(requester.ask(
            group.holders,
            &group.commands,
            group.count,
            "",
        )));
    }
    // The last reply, if there is any.
    let read = plan.read.borrow().len();
    if read > 0 {
        let task = Task::Gets(OwnedGets::new(gets.table(), plan.read.clone()));
        works.push(Box::pin(async move {
            Ok(requester.read_here(task, read).await)
        }));
    }
    let answers = all(works).await;
    put_together(requester, &plan, &answers)
}

impl<'m> Plan<'m> {
    fn of(requester: &Requester<'_>, gets: &OwnedGets, places: &TablePlaces<'m>) -> Self {
        let mut plan = Self {
            ways: Vec::new(),
            made: requester.work.reply(),
            read: OwnedArgs::default(),
            groups: Vec::new(),
        };
        let (view, mut bytes) = (requester.view(), 0);
        for (at, key) in gets.keys().iter().enumerate() {
            bytes += key.len();
            let is_full = bytes > FRAME_BYTES || plan.made.len() >= HIGH_WATER;
            if is_full && !plan.ways.is_empty() {
                break;
            }
            let (place, start) = (places.place(key), plan.made.len());
            let way = if place.is_here && requester.reads_here(place.holders) {
                if gets.answer_one(&view, at, &mut plan.made) {
                    KeySource::Made(start..plan.made.len())
                } else {
                    plan.read.push(key);
                    KeySource::Read(plan.read.borrow().len() - 1)
                }
            } else if let Some(moved) = requester.moved(&place) {
                KeySource::Reply(moved)
            } else {
                asked(&mut plan.groups, &place, gets.table(), key)
            };
            plan.ways.push(way);
        }
        plan
    }
}

/// Adds a key to the group of keys of the same nodes.
fn asked<'m>(
    groups: &mut Vec<NodeKeys<'m>>,
    place: &KeyPlace<'m>,
    table: &[u8],
    key: &[u8],
) -> KeySource {
    let known = groups
        .iter()
        .position(|group| group.holders == place.holders);
    let group = known.unwrap_or_else(|| {
        groups.push(NodeKeys {
            holders: place.holders,
            commands: Vec::new(),
            count: 0,
        });
        groups.len() - 1
    });
    let NodeKeys {
        commands, count, ..
    } = &mut groups[group];
    push_get(commands, table, key);
    *count += 1;
    KeySource::Asked {
        group,
        index: *count - 1,
    }
}

/// Returns the replies in order, up to the first that is missing.
fn put_together(
    requester: &Requester<'_>,
    plan: &Plan<'_>,
    answers: &[Result<PeerReplies, Unanswered>],
) -> TryOutcome {
    let mut reply = requester.work.reply();
    let (mut answered, mut failed) = (0, 0);
    let mut differ = None;
    for way in &plan.ways {
        if reply.len() >= HIGH_WATER {
            break;
        }
        let before = reply.len();
        let (group, index) = match way {
            KeySource::Made(range) => {
                reply.append(&plan.made.bytes()[range.clone()]);
                answered += 1;
                failed += usize::from(reply.bytes()[before] == b'-');
                continue;
            }
            KeySource::Read(index) => (plan.groups.len(), *index),
            KeySource::Asked { group, index } => (*group, *index),
            KeySource::Reply(words) => {
                reply.error(words);
                requester.cluster.counts.led(RoutedCounts::Redirected);
                (answered, failed) = (answered + 1, failed + 1);
                continue;
            }
        };
        match taken(requester, &answers[group], index, &mut reply) {
            Ok(true) => {}
            Ok(false) => break,
            Err(found) => {
                differ = Some(found);
                break;
            }
        }
        answered += 1;
        failed += usize::from(reply.bytes()[before] == b'-');
        if group < plan.groups.len() {
            requester
                .cluster
                .counts
                .led(RoutedCounts::of(&reply.bytes()[before..]));
        }
    }
    TryOutcome {
        // If it is the first, it is asked for again.
        differ: differ.filter(|_| answered == 0),
        done: Done {
            answered,
            failed,
            ..Done::of(reply, Outcome::Answered, None)
        },
    }
}

/// Takes one reply of another node. Returns `false` if the key must be asked for again.
fn taken(
    requester: &Requester<'_>,
    answer: &Result<PeerReplies, Unanswered>,
    index: usize,
    reply: &mut Reply,
) -> Result<bool, Unanswered> {
    match answer {
        Ok(replies) => match replies.get(index) {
            None => return Ok(false),
            Some(one) => match requester.not_there(replies, one) {
                None => reply.append(one),
                Some(differ) => return Err(differ),
            },
        },
        Err(Unanswered::Reply(words)) => reply.error(words),
        Err(differ) => return Err(differ.clone()),
    }
    Ok(true)
}

impl TryOutcome {
    fn of(done: Done) -> Self {
        Self { done, differ: None }
    }
}
