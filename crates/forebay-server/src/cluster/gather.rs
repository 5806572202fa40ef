//! Answers commands that read several keys from several nodes: MGET, EXISTS, TOUCH.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use forebay_cluster::NodeId;

use super::ask::{PeerReplies, Requester, Unanswered};
use super::frame::command;
use super::place::KeyPlace;
use super::split;
use crate::command::{COMMANDS, split as split_key};
use crate::execute::Outcome;
use crate::resp::{Args, OwnedArgs, Reply};

/// How the parts of an answer are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One item per key.
    Items,
    Sum,
}

/// A command, divided by node.
#[derive(Debug)]
pub struct DividedCommand<'m> {
    kind: Kind,
    place: usize,
    /// The versions that all parts read, as in a frame.
    versions: String,
    parts: Vec<Part<'m>>,
    /// For each key, its part and its place in the part.
    keys: Vec<(usize, usize)>,
}

/// The keys that one node is asked for.
#[derive(Debug)]
struct Part<'m> {
    /// The nodes to ask; `None` if this node has the keys.
    holders: Option<&'m [NodeId]>,
    args: OwnedArgs,
    count: usize,
}

type NodeQuestion<'a> = Pin<Box<dyn Future<Output = Result<PeerReplies, Unanswered>> + Send + 'a>>;

impl<'m> DividedCommand<'m> {
    /// Divides a command. `None` for commands that require all keys on one node.
    pub fn of(
        requester: &Requester<'_>,
        place: usize,
        args: &Args<'_>,
        places: &[KeyPlace<'m>],
    ) -> Result<Option<Self>, Unanswered> {
        let kind = match COMMANDS[place].name {
            "mget" => Kind::Items,
            "exists" | "touch" => Kind::Sum,
            _ => return Ok(None),
        };
        let mut gathered = Self {
            kind,
            place,
            versions: String::new(),
            parts: Vec::new(),
            keys: Vec::new(),
        };
        let mut versions = BTreeMap::new();
        for (at, wire) in places.iter().zip(args.skip(1).iter()) {
            let (table, _) = split_key(wire)?;
            if let Some((table, version)) = requester.read_of(table) {
                versions.insert(table, version);
            }
            gathered.add(at, args.get(0), wire);
        }
        let each = versions
            .iter()
            .map(|(table, version)| format!("{table} {version}"));
        gathered.versions = each.collect::<Vec<_>>().join(" ");
        Ok(Some(gathered))
    }

    fn add(&mut self, at: &KeyPlace<'m>, name: &[u8], wire: &[u8]) {
        let holders = (!at.is_here).then_some(at.holders);
        let known = self.parts.iter().position(|part| part.holders == holders);
        let index = known.unwrap_or_else(|| {
            self.parts.push(Part {
                holders,
                args: [name].into_iter().collect(),
                count: 0,
            });
            self.parts.len() - 1
        });
        let part = &mut self.parts[index];
        part.args.push(wire);
        self.keys.push((index, part.count));
        part.count += 1;
    }

    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Requests the reply to one part.
    pub fn ask<'a>(&'a self, requester: &'a Requester<'_>, part: usize) -> NodeQuestion<'a> {
        let Part { holders, args, .. } = &self.parts[part];
        Box::pin(async move {
            let Some(holders) = *holders else {
                return checked(
                    requester,
                    requester.run_here(self.place, args.clone()).await,
                );
            };
            let commands = command(args.borrow().iter());
            let replies = requester.ask(holders, &commands, 1, &self.versions).await?;
            checked(requester, replies)
        })
    }

    /// Combines the replies of the parts.
    pub fn put_together(
        &self,
        requester: &Requester<'_>,
        parts: &[PeerReplies],
    ) -> Result<(Reply, Outcome), Unanswered> {
        let garbled =
            || Unanswered::Reply("ERR a node's reply is not what was asked for".to_owned());
        let mut reply = requester.work.reply();
        if self.kind == Kind::Sum {
            let counts = parts.iter().map(|part| split::integer(part.one()));
            let sum = counts.sum::<Option<i64>>().ok_or_else(garbled)?;
            reply.int(sum);
            return Ok((reply, Outcome::Answered));
        }
        let items: Option<Vec<_>> = parts.iter().map(|part| split::items(part.one())).collect();
        let items = items.ok_or_else(garbled)?;
        let limit = requester.work.shared.config.limits.reply_bytes;
        reply.array(self.keys.len());
        for (part, index) in &self.keys {
            let item = items[*part].get(*index).ok_or_else(garbled)?;
            reply.append(&parts[*part].one()[item.clone()]);
            if reply.len() > limit {
                return Ok(requester.fail(&format!(
                    "ERR the reply is larger than {limit} bytes: ask for less at a time"
                )));
            }
        }
        Ok((reply, Outcome::Answered))
    }
}

/// Returns the reply to a part unless it is an error.
fn checked(requester: &Requester<'_>, replies: PeerReplies) -> Result<PeerReplies, Unanswered> {
    if let Some(differ) = requester.not_there(&replies, replies.one()) {
        return Err(differ);
    }
    match split::error(replies.one()) {
        Some(words) => Err(Unanswered::Reply(words)),
        None => Ok(replies),
    }
}
