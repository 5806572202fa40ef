//! Evaluates commands on this node's replica, which leads, and proposes their effects.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use forebay_cluster::local::LocalReplicas;
use forebay_engine::live::{LiveTable, Stored};
use forebay_engine::{PartitionId, Source};
use forebay_host::{Answer, Effect, EvaluationResult, ProposeOutcome};
use forebay_replica::{GroupId, Pending, Refusal};
use forebay_run::Order;
use tokio::sync::oneshot;

use super::super::page::Spot;
use crate::command::{
    COMMANDS, CommandError, DeleteRequest, Evaluation, QueuedCommands, no_key_order, split,
};
use crate::execute::View;
use crate::port::Port;
use crate::resp::{OwnedArgs, Reply};
use crate::shared::Shared;
use crate::table_view::TableView;

/// The most bytes of the effect of one command: it has to fit in an entry of the log.
pub const MOST_EFFECT_BYTES: usize = 24 << 20;

/// Commands on one partition that are evaluated and proposed together.
#[derive(Debug)]
pub enum WriteCommands {
    /// Each has a reply of its own.
    Each(Vec<(usize, OwnedArgs)>),
    Multi(QueuedCommands),
    /// A command that deletes a range of keys, from a place in the partition to its end.
    Delete {
        args: OwnedArgs,
        from: Spot,
        /// The request to another node.
        framed: Vec<u8>,
    },
}

/// Commands, and the replica that leads their partition.
#[derive(Debug, Clone)]
pub struct LeaderWrite {
    pub shared: Arc<Shared>,
    pub replicas: Arc<LocalReplicas>,
    pub table: LiveTable,
    pub partition: PartitionId,
    pub group: GroupId,
    pub commands: Arc<WriteCommands>,
    pub resp3: bool,
}

/// The answer to a proposal, once it is known.
pub type ProposalAnswer = oneshot::Receiver<Result<Answer, Refusal>>;

/// Commands that were proposed.
#[derive(Debug)]
pub struct EvaluatedWrite {
    replies: WriteReplies,
    answer: ProposalAnswer,
}

/// The replies to give once the proposal is applied.
#[derive(Debug)]
pub enum WriteReplies {
    Each(Vec<Bytes>),
    /// That of a deleted range, with the partition's end.
    Deleted {
        is_counted: bool,
        end: Vec<u8>,
    },
}

/// The reason why nothing was proposed.
#[derive(Debug)]
pub enum NotProposed {
    /// The replica does not lead.
    NotLeader,
    /// The partition lacks some of the keys.
    Elsewhere,
    /// Another attempt may succeed when this completes.
    Waits(oneshot::Receiver<()>),
    /// A thread that may wait for the device has to evaluate them.
    NotResident,
    /// The effect does not fit in an entry of the log.
    TooLarge(usize),
    /// This node cannot evaluate them now; the reason.
    Unable(String),
    /// A final error.
    Refused(String),
}

impl EvaluatedWrite {
    pub fn split(self) -> (ProposalAnswer, WriteReplies) {
        (self.answer, self.replies)
    }
}

impl WriteReplies {
    /// Returns the reply to each command.
    pub fn into_bytes(self, answer: Answer) -> Vec<Bytes> {
        let (is_counted, end) = match self {
            WriteReplies::Each(replies) => return replies,
            WriteReplies::Deleted { is_counted, end } => (is_counted, end),
        };
        let mut reply = Reply::new(false);
        reply.array(2);
        match (is_counted, answer) {
            (true, Answer::Count(keys)) => reply.int(i64::try_from(keys).unwrap_or(i64::MAX)),
            (true, _) => reply.int(0),
            (false, _) => reply.ok(),
        }
        reply.bulk(&end);
        vec![Bytes::from(reply.into_bytes())]
    }
}

impl LeaderWrite {
    /// Evaluates the commands with these indexes, and proposes their effect. It waits for the
    /// device if it has to.
    pub fn propose(
        &self,
        chosen: &[usize],
    ) -> impl Future<Output = Result<EvaluatedWrite, NotProposed>> {
        let at_once = self.try_propose(chosen, false);
        let later = matches!(at_once, Err(NotProposed::NotResident)).then(|| {
            let (write, chosen) = (self.clone(), chosen.to_vec());
            tokio::task::spawn_blocking(move || {
                write.read_in(&chosen);
                write.try_propose(&chosen, true)
            })
        });
        async {
            match later {
                None => at_once,
                Some(later) => later.await.unwrap_or_else(|_| {
                    let words = "ERR internal error: see the server's log";
                    Err(NotProposed::Refused(words.to_owned()))
                }),
            }
        }
    }

    fn try_propose(&self, chosen: &[usize], may_wait: bool) -> Result<EvaluatedWrite, NotProposed> {
        let (done, answer) = oneshot::channel();
        let (wake, woken) = oneshot::channel();
        let mut replies = Err(NotProposed::NotLeader);
        let decide = |pending: &Pending<Stored>| match self.effect(chosen, pending, may_wait) {
            Ok((effect, given)) => {
                replies = Ok(given);
                // A requester that gave up gets nothing.
                EvaluationResult::Effect(effect, Box::new(move |answer| drop(done.send(answer))))
            }
            Err(Stop::Unknown) => EvaluationResult::Waits,
            Err(Stop::Because(why)) => {
                replies = Err(why);
                EvaluationResult::NoProposal
            }
        };
        let wake = Box::new(move || {
            let _ = wake.send(());
        });
        match self.replicas.host().evaluate(self.group, decide, wake) {
            ProposeOutcome::Waits => Err(NotProposed::Waits(woken)),
            ProposeOutcome::NotLeader => Err(NotProposed::NotLeader),
            ProposeOutcome::Proposed | ProposeOutcome::NotProposed => {
                let replies = replies?;
                Ok(EvaluatedWrite { replies, answer })
            }
        }
    }

    fn effect(
        &self,
        chosen: &[usize],
        pending: &Pending<Stored>,
        may_wait: bool,
    ) -> Result<(Effect, WriteReplies), Stop> {
        if let WriteCommands::Delete { args, from, .. } = &*self.commands {
            return self.deletion(args, from);
        }
        self.check_keys(chosen)?;
        // The partition's time never goes back.
        let time_ms = self.table.applied(self.partition)?.stamp_ms;
        let now_ms = self.shared.store.clock().unix_ms().max(time_ms);
        let evaluation = Evaluation::new(&self.table, now_ms, pending, may_wait);
        let replies = self.evaluate(chosen, &evaluation, may_wait);
        if evaluation.is_unknown() {
            return Err(Stop::Unknown);
        }
        let replies = replies?;
        let batch = evaluation.into_batch();
        match (batch.is_empty(), batch.bytes().len()) {
            // The replies may depend on what is pending, so they wait until that is applied.
            (true, _) => Ok((Effect::AdvanceTime, WriteReplies::Each(replies))),
            (false, bytes) if bytes > MOST_EFFECT_BYTES => {
                Err(Stop::Because(NotProposed::TooLarge(bytes)))
            }
            (false, _) => Ok((Effect::Operations(batch), WriteReplies::Each(replies))),
        }
    }

    fn evaluate(
        &self,
        chosen: &[usize],
        evaluation: &Evaluation<'_>,
        may_wait: bool,
    ) -> Result<Vec<Bytes>, CommandError> {
        let tables = TableView::of_one(&self.table);
        let view = View {
            tables: &tables,
            // Rights were checked.
            user: &self.shared.anyone,
            shared: &self.shared,
            may_wait,
            port: Port::Alone,
            evaluation: Some(evaluation),
            has_permit: false,
        };
        let mut reply = Reply::new(self.resp3);
        let ends = match &*self.commands {
            WriteCommands::Each(all) => {
                let commands: Vec<_> = chosen.iter().filter_map(|at| all.get(*at)).collect();
                view.evaluate_each(&commands, &mut reply)?
            }
            WriteCommands::Multi(queued) => {
                view.evaluate_multi(queued, &mut reply)?;
                vec![reply.len()]
            }
            WriteCommands::Delete { .. } => Vec::new(),
        };
        let (bytes, mut start) = (Bytes::from(reply.into_bytes()), 0);
        let each = ends.into_iter().map(|end| {
            let one = bytes.slice(start..end);
            start = end;
            one
        });
        Ok(each.collect())
    }

    /// Refuses keys of other partitions.
    fn check_keys(&self, chosen: &[usize]) -> Result<(), Stop> {
        let is_here = |wire: &[u8]| {
            let key = split(wire).map(|(_, key)| key);
            key.is_ok_and(|key| self.table.partition_of(key) == Some(self.partition))
        };
        let mut are_here = true;
        self.for_each_key(chosen, |wire| are_here &= is_here(wire));
        if let WriteCommands::Multi(queued) = &*self.commands {
            are_here &= queued.watches.replicated_wires().all(|wire| is_here(&wire));
        }
        match are_here {
            true => Ok(()),
            false => Err(Stop::Because(NotProposed::Elsewhere)),
        }
    }

    fn for_each_key(&self, chosen: &[usize], mut take: impl FnMut(&[u8])) {
        let take_all = |(place, args): &(usize, OwnedArgs)| {
            let args = args.borrow();
            let places = COMMANDS[*place].key_places(args.len());
            places.for_each(|at| take(args.get(at)));
        };
        match &*self.commands {
            WriteCommands::Each(all) => {
                let chosen = chosen.iter().filter_map(|at| all.get(*at));
                chosen.for_each(take_all);
            }
            WriteCommands::Multi(queued) => queued.commands.iter().for_each(take_all),
            WriteCommands::Delete { .. } => {}
        }
    }

    /// Reads the pages of the keys into memory, while others evaluate.
    fn read_in(&self, chosen: &[usize]) {
        self.for_each_key(chosen, |wire| {
            if let Ok((_, key)) = split(wire) {
                // The evaluation meets an error again.
                let _ = self.table.stored(key, true);
            }
        });
    }

    /// Returns the effect of a command that deletes a range.
    fn deletion(&self, args: &OwnedArgs, from: &Spot) -> Result<(Effect, WriteReplies), Stop> {
        let args = args.borrow();
        let request = DeleteRequest::parse(&args, None)?;
        let mut partitions = self.table.partitions().into_iter();
        let partition = partitions.find(|partition| partition.id == self.partition);
        let bounds = partition.map(|partition| partition.bounds);
        let Some(bounds) = bounds.filter(|bounds| bounds.holds(&from.bound())) else {
            return Err(Stop::Because(NotProposed::Elsewhere));
        };
        let is_ordered = Source::Live(&self.table).order() == Order::Ordered;
        let effect = match &request.range {
            None => Effect::RemoveAll,
            Some(_) if !is_ordered => return Err(no_key_order(request.table, "create").into()),
            Some(range) if range.is_empty() => Effect::AdvanceTime,
            Some(range) => {
                let (start, end) = range.bounds();
                Effect::RemoveRange {
                    start: start.map(<[u8]>::to_vec),
                    end: end.map(<[u8]>::to_vec),
                    is_counted: request.is_counted,
                }
            }
        };
        let end = bounds.upper.map(|upper| Spot::of(&upper).tagged());
        Ok((
            effect,
            WriteReplies::Deleted {
                is_counted: request.is_counted,
                end: end.unwrap_or_default(),
            },
        ))
    }
}

/// The reason why commands have no effect that can be proposed.
enum Stop {
    /// A key's value depends on what is pending.
    Unknown,
    Because(NotProposed),
}

impl From<CommandError> for Stop {
    fn from(error: CommandError) -> Self {
        Self::Because(match error {
            CommandError::NotResident => NotProposed::NotResident,
            CommandError::NotHere(_) => NotProposed::Elsewhere,
            CommandError::Machine { passes: true, text } => NotProposed::Unable(text),
            CommandError::Damaged(words) => NotProposed::Unable(words),
            CommandError::Machine { text, .. } => NotProposed::Refused(text),
            CommandError::Error(text) => NotProposed::Refused(text.into_owned()),
            CommandError::Replicas => {
                NotProposed::Refused("ERR internal error: it asks for replicas".to_owned())
            }
        })
    }
}

impl From<forebay_engine::live::LiveError> for Stop {
    fn from(error: forebay_engine::live::LiveError) -> Self {
        CommandError::from(error).into()
    }
}
