//! Answers consecutive commands that write one key each.
//!
//! The commands of a partition are proposed together.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use forebay_replica::GroupId;

use super::super::ask::{Requester, Unanswered, all};
use super::super::counts::RoutedCounts;
use super::super::node::Cluster;
use super::check;
use super::key_spot::{LiveAt, LiveSpot};
use super::leader_write::WriteCommands;
use super::parts::check_size;
use super::write::PartWrite;
use crate::command::COMMANDS;
use crate::execute::Outcome;
use crate::resp::OwnedArgs;
use crate::work::{Done, OwnedWrites, Work};

type Answers = Vec<(usize, Result<Bytes, Unanswered>)>;
type PartWriting<'a> = Pin<Box<dyn Future<Output = Answers> + Send + 'a>>;

/// The commands that are proposed to one partition, with their keys and indexes.
struct GroupWrites {
    group: GroupId,
    commands: Vec<(usize, OwnedArgs)>,
    keys: Vec<Vec<u8>>,
    slots: Vec<Option<u16>>,
    numbers: Vec<usize>,
}

/// Answers all commands in their order.
pub async fn answer(work: &Work, cluster: &Cluster, writes: &OwnedWrites) -> Done {
    let mut requester = Requester::new(work, cluster);
    let mut answers: Vec<Option<Result<Bytes, Unanswered>>> = vec![None; writes.commands.len()];
    let mut left: Vec<usize> = (0..writes.commands.len()).collect();
    loop {
        for (number, answer) in propose(&requester, writes, &left).await {
            answers[number] = Some(answer);
        }
        // Proposals to a partition that had just been split were not written.
        let is_apart =
            |number: &usize| matches!(answers[*number], Some(Err(Unanswered::OtherMap(_))));
        left.retain(is_apart);
        let why = left.first().and_then(|number| answers[*number].clone());
        let Some(Err(why)) = why else { break };
        if !requester.tries_again(&why).await {
            break;
        }
    }
    let (mut reply, mut failures) = (work.reply(), Vec::new());
    for (number, answer) in answers.into_iter().enumerate() {
        let before = reply.len();
        match answer {
            Some(Ok(bytes)) => reply.append(&bytes),
            Some(Err(why)) => reply.error(&why.into_words()),
            None => reply.error("ERR internal error: it was not proposed"),
        }
        let one = &reply.bytes()[before..];
        cluster.counts.led(RoutedCounts::of(one));
        if one.first() == Some(&b'-') {
            failures.push(number);
        }
    }
    Done {
        answered: writes.commands.len(),
        failed: failures.len(),
        failures,
        ..Done::of(reply, Outcome::Answered, None)
    }
}

/// Proposes the commands with these indexes. Returns an answer for each.
async fn propose(
    requester: &Requester<'_>,
    writes: &OwnedWrites,
    numbers: &[usize],
) -> Vec<(usize, Result<Bytes, Unanswered>)> {
    let (mut answers, mut groups) = (Vec::new(), Vec::<GroupWrites>::new());
    for number in numbers {
        if let Err(refused) = put(requester, &mut groups, *number, &writes.commands[*number]) {
            answers.push((*number, Err(refused)));
        }
    }
    let works = groups.into_iter().map(|group| -> PartWriting<'_> {
        let write = PartWrite {
            requester,
            at: LiveAt::Keys(group.keys),
            commands: Arc::new(WriteCommands::Each(group.commands)),
            slots: group.slots,
        };
        Box::pin(async move {
            let answers = write.done().await;
            group.numbers.into_iter().zip(answers).collect()
        })
    });
    answers.extend(all(works.collect()).await.into_iter().flatten());
    answers
}

/// Adds a command to those of its partition, or returns why it is refused.
fn put(
    requester: &Requester<'_>,
    groups: &mut Vec<GroupWrites>,
    number: usize,
    command: &(usize, OwnedArgs),
) -> Result<(), Unanswered> {
    let live = requester.cluster.member().live();
    let (place, args) = (command.0, command.1.borrow());
    check(requester, &live, &[(place, args)], super::Multi::No)?;
    check_size(std::iter::once(args))?;
    let mut keys = COMMANDS[place].key_places(args.len());
    let wire = keys.next().map(|at| args.get(at).to_vec());
    let wire = wire.unwrap_or_default();
    let spot = LiveSpot::of(&live, &wire).ok_or_else(|| {
        let words =
            "TRYAGAIN nothing was written: where the table's partitions are is not known here yet";
        Unanswered::Reply(words.to_owned())
    })?;
    let known = groups.iter().position(|known| known.group == spot.group);
    let index = known.unwrap_or_else(|| {
        groups.push(GroupWrites {
            group: spot.group,
            commands: Vec::new(),
            keys: Vec::new(),
            slots: Vec::new(),
            numbers: Vec::new(),
        });
        groups.len() - 1
    });
    let group = &mut groups[index];
    group.commands.push(command.clone());
    group.keys.push(wire);
    group.slots.push(spot.slot);
    group.numbers.push(number);
    Ok(())
}
