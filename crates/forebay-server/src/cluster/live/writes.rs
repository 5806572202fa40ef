//! Answers consecutive commands that write one key each.
//!
//! The commands of a partition are proposed together.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use forebay_replica::GroupId;

use super::super::ask::{Requester, Unanswered, all};
use super::super::counts::RoutedCounts;
use super::super::node::Cluster;
use super::check;
use super::key_spot::{LiveAt, LiveSpot};
use super::parts::check_size;
use super::write::{PartWrite, WriteItem};
use crate::command::COMMANDS;
use crate::execute::Outcome;
use crate::proposal::WireProposal;
use crate::resp::OwnedArgs;
use crate::work::{Done, OwnedWrites, Work};

type Answers = Vec<Result<Bytes, Unanswered>>;
type PartWriting<'a> = Pin<Box<dyn Future<Output = Answers> + Send + 'a>>;

/// The commands that are proposed to one partition, and their indexes.
struct GroupWrites<'a> {
    group: GroupId,
    write: PartWrite<'a>,
    commands: Vec<usize>,
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
    let (mut answers, mut groups) = (Vec::new(), Vec::<GroupWrites<'_>>::new());
    for number in numbers {
        let (place, args) = &writes.commands[*number];
        if let Err(refused) = put(requester, &mut groups, *number, *place, args) {
            answers.push((*number, Err(refused)));
        }
    }
    let works = groups
        .iter()
        .map(|group| -> PartWriting<'_> { Box::pin(group.write.done()) });
    let written = all(works.collect()).await;
    for (group, written) in groups.iter().zip(written) {
        answers.extend(group.commands.iter().copied().zip(written));
    }
    answers
}

/// Adds a command to those of its partition, or returns why it is refused.
fn put<'a>(
    requester: &'a Requester<'a>,
    groups: &mut Vec<GroupWrites<'a>>,
    number: usize,
    place: usize,
    args: &OwnedArgs,
) -> Result<(), Unanswered> {
    let live = requester.cluster.member().live();
    check(
        requester,
        &live,
        &[(place, args.borrow())],
        super::Multi::No,
    )?;
    let mut keys = COMMANDS[place].key_places(args.borrow().len());
    let wire = keys.next().map(|at| args.borrow().get(at).to_vec());
    let wire = wire.unwrap_or_default();
    let spot = LiveSpot::of(&live, &wire).ok_or_else(|| {
        let words =
            "TRYAGAIN nothing was written: where the table's partitions are is not known here yet";
        Unanswered::Reply(words.to_owned())
    })?;
    let one = std::iter::once(args.borrow());
    let proposal = check_size(WireProposal::encode(requester.work.resp3, false, None, one))?;
    let item = WriteItem {
        slot: spot.slot,
        commands: WireProposal::command_of(&proposal),
        proposal,
        count: 1,
    };
    let known = groups.iter().position(|known| known.group == spot.group);
    let index = known.unwrap_or_else(|| {
        let write = PartWrite {
            requester,
            at: LiveAt::Keys(Vec::new()),
            items: Vec::new(),
        };
        groups.push(GroupWrites {
            group: spot.group,
            write,
            commands: Vec::new(),
        });
        groups.len() - 1
    });
    if let LiveAt::Keys(keys) = &mut groups[index].write.at {
        keys.push(wire);
    }
    groups[index].write.items.push(item);
    groups[index].commands.push(number);
    Ok(())
}
