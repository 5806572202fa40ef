//! GETs of one table that follow each other, of which some are at other nodes: each node is asked
//! for all of its keys at once.

use forebay_cluster::NodeId;

use super::ask::{Asker, PeerReplies, Unanswered, all};
use super::counts::Led;
use super::frame::push_get;
use super::node::Cluster;
use super::place::{KeyPlace, TablePlaces};
use crate::config::HIGH_WATER;
use crate::execute::Outcome;
use crate::gets::{GET, OwnedGets};
use crate::resp::Reply;
use crate::work::{Done, Work};

/// Of the keys that are asked for at a time; one may be longer.
const FRAME_BYTES: usize = 1 << 20;

/// Keys of the same nodes.
struct NodeKeys<'m> {
    holders: &'m [NodeId],
    commands: Vec<u8>,
    count: usize,
}

/// How the answer to a key is to be had.
enum KeyWay {
    Here,
    Told(String),
    /// The reply at that place of a group's.
    Asked {
        group: usize,
        index: usize,
    },
}

/// What one try came to.
struct Tried {
    done: Done,
    /// Nodes disagree about the first key.
    differ: Option<Unanswered>,
}

/// Answers some of them, the first in any case.
pub async fn answer(work: &Work, cluster: &Cluster, gets: &OwnedGets) -> Done {
    let mut asker = Asker::new(work, cluster);
    let mut tried = answer_once(&asker, gets).await;
    if let Some(why) = &tried.differ {
        asker.again(why).await;
        tried = answer_once(&asker, gets).await;
    }
    match tried.differ {
        None if tried.done.answered == 0 => first_here(&asker, gets).await,
        None => tried.done,
        Some(differ) => {
            let (reply, outcome) = asker.fail(&differ.into_words());
            Done::of(reply, outcome, None)
        }
    }
}

/// The first key, which came here meanwhile and has to wait for the device.
async fn first_here(asker: &Asker<'_>, gets: &OwnedGets) -> Done {
    let wire = [gets.table(), b":", gets.keys().get(0)].concat();
    let args = [&b"GET"[..], &wire].into_iter().collect();
    let replies = asker.run_here(GET, args).await;
    let (reply, outcome) = asker.pass(replies.one());
    Done::of(reply, outcome, None)
}

async fn answer_once(asker: &Asker<'_>, gets: &OwnedGets) -> Tried {
    let places = match TablePlaces::of(&asker.map, &asker.tables, gets.table()) {
        Ok(places) => places,
        Err(error) => {
            let (reply, outcome) = asker.fail(&Unanswered::from(error).into_words());
            return Tried::of(Done::of(reply, outcome, None));
        }
    };
    let (mut ways, mut groups) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for key in gets.keys().iter() {
        bytes += key.len();
        if bytes > FRAME_BYTES && !ways.is_empty() {
            break;
        }
        let place = places.place(key);
        ways.push(match asker.moved(&place) {
            _ if place.is_here => KeyWay::Here,
            Some(moved) => KeyWay::Told(moved),
            None => asked(&mut groups, &place, gets.table(), key),
        });
    }
    let asking = groups.iter().map(|group| {
        let asking = asker.ask(group.holders, &group.commands, group.count, "");
        Box::pin(asking) as std::pin::Pin<Box<dyn Future<Output = _> + Send + '_>>
    });
    let answers = all(asking.collect()).await;
    put_together(asker, gets, &ways, &answers)
}

/// Puts a key to those of the same nodes.
fn asked<'m>(
    groups: &mut Vec<NodeKeys<'m>>,
    place: &KeyPlace<'m>,
    table: &[u8],
    key: &[u8],
) -> KeyWay {
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
    KeyWay::Asked {
        group,
        index: *count - 1,
    }
}

/// The replies in order, up to the first that is not there yet.
fn put_together(
    asker: &Asker<'_>,
    gets: &OwnedGets,
    ways: &[KeyWay],
    answers: &[Result<PeerReplies, Unanswered>],
) -> Tried {
    let mut reply = asker.work.reply();
    let (mut answered, mut failed) = (0, 0);
    let mut differ = None;
    for (at, way) in ways.iter().enumerate() {
        if reply.len() >= HIGH_WATER {
            break;
        }
        let before = reply.len();
        match way {
            KeyWay::Here => {
                if !answer_here(asker, gets, at, &mut reply) {
                    break;
                }
            }
            KeyWay::Told(words) => reply.error(words),
            KeyWay::Asked { group, index } => match &answers[*group] {
                Ok(replies) => match replies.get(*index) {
                    None => break,
                    Some(one) => match asker.not_there(replies, one) {
                        None => reply.append(one),
                        found => {
                            differ = found;
                            break;
                        }
                    },
                },
                Err(Unanswered::Told(words)) => reply.error(words),
                Err(found) => {
                    differ = Some(found.clone());
                    break;
                }
            },
        }
        answered += 1;
        failed += usize::from(reply.bytes()[before] == b'-');
        if !matches!(way, KeyWay::Here) {
            asker.cluster.counts.led(Led::of(&reply.bytes()[before..]));
        }
    }
    Tried {
        // It is asked again when it is the first.
        differ: differ.filter(|_| answered == 0),
        done: Done {
            answered,
            failed,
            ..Done::of(reply, Outcome::Answered, None)
        },
    }
}

/// Whether what is here could be read without waiting.
fn answer_here(asker: &Asker<'_>, gets: &OwnedGets, at: usize, reply: &mut Reply) -> bool {
    let view = asker.view();
    gets.answer_one(&view, at, reply)
}

impl Tried {
    fn of(done: Done) -> Self {
        Self { done, differ: None }
    }
}
