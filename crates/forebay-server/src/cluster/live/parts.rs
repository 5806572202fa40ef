//! Answers commands on keys of one partition, and divides commands on keys of several.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use forebay_cluster::LivePlaces;
use forebay_replica::GroupId;

use super::super::ask::{Requester, Unanswered, all};
use super::super::elsewhere;
use super::super::frame::command as framed;
use super::super::split;
use super::key_spot::{CommandPart, LiveAt, LiveSpot, divide};
use super::leader_write::{MOST_EFFECT_BYTES, WriteCommands};
use super::read::{PartRead, last_of};
use super::watched_keys::framed_multi;
use super::write::PartWrite;
use crate::command::{COMMANDS, QueuedCommands, Run, Watches, split as split_key};
use crate::execute::Outcome;
use crate::resp::{Args, OwnedArgs, Reply};
use crate::work::Task;

type PartAnswer<'a> = Pin<Box<dyn Future<Output = Result<Bytes, Unanswered>> + Send + 'a>>;

/// Commands that one partition answers together.
pub struct PartitionCommands<'a> {
    requester: &'a Requester<'a>,
    commands: Vec<(usize, OwnedArgs)>,
    is_multi: bool,
    /// Watched keys of live tables of a cluster.
    watches: Watches,
}

/// How the parts of a reply are combined.
#[derive(Debug, Clone, Copy)]
enum Joined {
    Items,
    Sum,
    Done(fn(&mut Reply, i64)),
}

/// Answers a command on keys.
pub async fn answer(
    requester: &Requester<'_>,
    place: usize,
    args: &OwnedArgs,
) -> Result<(Reply, Outcome), Unanswered> {
    let live = requester.cluster.member().live();
    let command = &COMMANDS[place];
    let mut is_known = true;
    for at in command.key_places(args.borrow().len()) {
        let wire = args.borrow().get(at);
        is_known &= group_of(&live, wire).is_some() || !is_live(&live, wire);
    }
    if !is_known {
        let words = "where the table's partitions are is not known here yet";
        return Err(Unanswered::OtherMap(words.to_owned()));
    }
    let mut parts = divide(command, &args.borrow(), |wire| group_of(&live, wire));
    if parts.len() == 1 && parts.pop().is_some() {
        return PartitionCommands::one(requester, place, args.clone())
            .answer()
            .await;
    }
    if requester.is_last() {
        // By the sender's map, all keys were in one partition, which has been split since. The
        // sender then sends the parts separately.
        return Err(requester.not_leading());
    }
    let joined = match (command.run, command.name) {
        (Run::Many { done, .. }, _) => Joined::Done(done),
        (_, "mget") => Joined::Items,
        (_, "exists" | "touch") => Joined::Sum,
        _ => return Err(Unanswered::Reply(apart(&requester.name(place)))),
    };
    let works = parts.iter().map(|part| -> PartAnswer<'_> {
        let args = part.args.clone();
        Box::pin(async move {
            if part.group.is_none() {
                let (reply, _) = elsewhere::one(requester, place, &args).await?;
                return Ok(Bytes::from(reply.into_bytes()));
            }
            PartitionCommands::one(requester, place, args)
                .bytes(false)
                .await
        })
    });
    let answers = all(works.collect()).await;
    put_together(requester, joined, &parts, answers)
}

/// Refuses commands that are larger than any effect may be.
pub fn check_size<'a>(commands: impl Iterator<Item = Args<'a>>) -> Result<(), Unanswered> {
    let bytes = commands.map(|args| args.byte_len()).sum::<usize>();
    match bytes <= MOST_EFFECT_BYTES {
        true => Ok(()),
        false => Err(Unanswered::Reply(format!(
            "ERR a command of {bytes} bytes: a live table of a cluster takes commands of at most \
             {MOST_EFFECT_BYTES}",
        ))),
    }
}

fn is_live(live: &LivePlaces, wire: &[u8]) -> bool {
    split_key(wire).is_ok_and(|(table, _)| live.table(table).is_some())
}

fn group_of(live: &LivePlaces, wire: &[u8]) -> Option<GroupId> {
    LiveSpot::of(live, wire).map(|spot| spot.group)
}

fn apart(name: &str) -> String {
    format!(
        "CROSSSLOT {name} is atomic within one partition of one live table: give keys of a hashed table \
         that belong together one hashtag; in an ordered one a boundary is between its keys"
    )
}

impl<'a> PartitionCommands<'a> {
    pub fn one(requester: &'a Requester<'a>, place: usize, args: OwnedArgs) -> Self {
        Self {
            requester,
            commands: vec![(place, args)],
            is_multi: false,
            watches: Watches::default(),
        }
    }

    pub fn exec(requester: &'a Requester<'a>, queued: &QueuedCommands) -> Self {
        Self {
            requester,
            commands: queued.commands.clone(),
            is_multi: true,
            watches: queued.watches.replicated_only(),
        }
    }

    pub async fn answer(self) -> Result<(Reply, Outcome), Unanswered> {
        let requester = self.requester;
        // If the reply to EXEC redirected a client, it would send EXEC without its MULTI.
        let bytes = self.bytes(!self.is_multi).await?;
        Ok(requester.pass(&bytes))
    }

    fn args(&self) -> impl Iterator<Item = Args<'_>> + Clone {
        self.commands.iter().map(|(_, args)| args.borrow())
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        let keys = self.commands.iter().flat_map(|(place, args)| {
            let places = COMMANDS[*place].key_places(args.borrow().len());
            places.map(|at| args.borrow().get(at).to_vec())
        });
        keys.chain(self.watches.replicated_wires()).collect()
    }

    /// Returns the reply. If `may_move`, the client may be redirected to another node.
    pub async fn bytes(&self, may_move: bool) -> Result<Bytes, Unanswered> {
        let (live, keys) = (self.requester.cluster.member().live(), self.keys());
        let spots = keys.iter().map(|wire| LiveSpot::of(&live, wire));
        let spots: Option<Vec<LiveSpot>> = spots.collect();
        let first = spots
            .as_deref()
            .and_then(|spots| Some((spots, spots.first()?)));
        let Some((spots, first)) = first.filter(|_| !keys.is_empty()) else {
            let words =
                "CROSSSLOT a MULTI on keys of a live table of a cluster is on keys of it alone";
            return Err(Unanswered::Reply(words.to_owned()));
        };
        if spots.iter().any(|spot| spot.group != first.group) {
            return Err(Unanswered::Reply(match self.watches.is_empty() {
                true => apart("MULTI"),
                false => apart("MULTI with the keys that WATCH named"),
            }));
        }
        let may_move = may_move && spots.iter().all(|spot| spot.slot == first.slot);
        let writes = self
            .commands
            .iter()
            .any(|(place, _)| COMMANDS[*place].writes());
        match writes {
            true => self.write(spots, keys.clone(), may_move).await,
            false => self.read(keys, may_move).await,
        }
    }

    /// Returns the commands as clients send them, and the number of their replies.
    fn framed(&self) -> (Vec<u8>, usize) {
        if self.is_multi {
            return framed_multi(&self.commands, &self.watches);
        }
        let commands = self.args().flat_map(|args| framed(args.iter()));
        (commands.collect(), self.commands.len())
    }

    async fn write(
        &self,
        spots: &[LiveSpot],
        keys: Vec<Vec<u8>>,
        may_move: bool,
    ) -> Result<Bytes, Unanswered> {
        check_size(self.args())?;
        let commands = match self.is_multi {
            false => WriteCommands::Each(self.commands.clone()),
            true => WriteCommands::Multi(self.queued()),
        };
        let slot = spots.first().and_then(|spot| spot.slot);
        let write = PartWrite {
            requester: self.requester,
            at: LiveAt::Keys(keys),
            commands: Arc::new(commands),
            slots: vec![slot.filter(|_| may_move)],
        };
        write.one().await
    }

    fn queued(&self) -> QueuedCommands {
        let watches = self.watches.replicated_only();
        QueuedCommands::of(self.commands.clone()).watching(watches)
    }

    async fn read(&self, keys: Vec<Vec<u8>>, may_move: bool) -> Result<Bytes, Unanswered> {
        let (commands, count) = self.framed();
        let task = || match (self.is_multi, self.commands.first()) {
            (false, Some((place, args))) => Task::One(*place, args.clone()),
            _ => Task::Exec(self.queued()),
        };
        let counts = (1, count);
        let read = PartRead {
            requester: self.requester,
            at: LiveAt::Keys(keys),
            may_move,
            task: Box::new(task),
            commands,
            counts,
        };
        Ok(last_of(&read.done().await?, counts))
    }
}

/// Combines the replies of the parts. If some failed, returns the most uncertain error.
fn put_together(
    requester: &Requester<'_>,
    joined: Joined,
    parts: &[CommandPart],
    answers: Vec<Result<Bytes, Unanswered>>,
) -> Result<(Reply, Outcome), Unanswered> {
    let (mut replies, mut failed) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Ok(bytes) => match split::error(&bytes) {
                Some(words) => failed.push(Unanswered::Reply(words)),
                None => replies.push(bytes),
            },
            Err(why) => failed.push(why),
        }
    }
    if let Some(why) = most_open(failed) {
        // Parts that were written are not written again.
        return Err(match (joined, why) {
            (Joined::Done(_), why) => Unanswered::Reply(of_a_part(why.into_words(), &replies)),
            (_, why) => why,
        });
    }
    let mut reply = requester.work.reply();
    let garbled = || Unanswered::Reply("ERR a node's reply is not what was asked for".to_owned());
    match joined {
        Joined::Items => {
            let items = items(parts, &replies).ok_or_else(garbled)?;
            reply.array(items.len());
            items.iter().for_each(|item| reply.append(item));
        }
        Joined::Sum => {
            let counts = replies.iter().map(|bytes| split::integer(bytes));
            reply.int(counts.sum::<Option<i64>>().ok_or_else(garbled)?);
        }
        Joined::Done(done) => {
            let counts = replies.iter().map(|bytes| split::integer(bytes));
            done(&mut reply, counts.map(|count| count.unwrap_or(0)).sum());
        }
    }
    let limit = requester.work.shared.config.limits.reply_bytes;
    Ok(match reply.len() > limit {
        true => requester.fail(&format!(
            "ERR the reply is larger than {limit} bytes: ask for less at a time"
        )),
        false => (reply, Outcome::Answered),
    })
}

/// Returns the error of one part of a command whose other parts have these replies.
fn of_a_part(words: String, replies: &[Bytes]) -> String {
    match replies.is_empty() {
        true => words,
        false => words.replacen(
            "nothing was written",
            "a part was not written, others were",
            1,
        ),
    }
}

/// Returns the most uncertain error of several parts: one that leaves open what was written.
pub fn most_open(mut failed: Vec<Unanswered>) -> Option<Unanswered> {
    let is_uncertain = |why: &Unanswered| match why {
        Unanswered::Reply(words) => words.starts_with("UNCERTAIN "),
        _ => false,
    };
    let at = failed.iter().position(is_uncertain).unwrap_or(0);
    (at < failed.len()).then(|| failed.swap_remove(at))
}

/// Returns one item per key, in the order of the keys.
fn items(parts: &[CommandPart], replies: &[Bytes]) -> Option<Vec<Bytes>> {
    let count = parts.iter().map(|part| part.keys.len()).sum();
    let mut items = vec![Bytes::new(); count];
    for (part, reply) in parts.iter().zip(replies) {
        let each = split::items(reply)?;
        if each.len() != part.keys.len() {
            return None;
        }
        for (key, range) in part.keys.iter().zip(each) {
            *items.get_mut(*key)? = reply.slice(range);
        }
    }
    Some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(group: u64, keys: &[usize]) -> CommandPart {
        CommandPart {
            group: Some(GroupId(group)),
            args: OwnedArgs::default(),
            keys: keys.to_vec(),
        }
    }

    #[test]
    fn the_error_of_a_part_does_not_speak_for_the_others() {
        let words = || "TRYAGAIN nothing was written: no leader".to_owned();
        assert_eq!(of_a_part(words(), &[]), words());
        let one = [Bytes::from_static(b":1\r\n")];
        let of_part = of_a_part(words(), &one);
        assert_eq!(
            of_part,
            "TRYAGAIN a part was not written, others were: no leader"
        );
    }

    #[test]
    fn items_are_in_the_order_of_their_keys() {
        let parts = [part(1, &[0, 2]), part(2, &[1])];
        let replies = [&b"*2\r\n:1\r\n:3\r\n"[..], b"*1\r\n:2\r\n"].map(Bytes::from_static);
        let found = items(&parts, &replies).unwrap();
        assert_eq!(found.concat(), b":1\r\n:2\r\n:3\r\n");
        let short = [&b"*1\r\n:1\r\n"[..], b"*1\r\n:2\r\n"].map(Bytes::from_static);
        assert_eq!(items(&parts, &short), None);
    }
}
