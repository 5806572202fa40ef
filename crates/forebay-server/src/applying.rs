//! Applies decided proposals: runs their commands with the same result on every replica.

use bytes::Bytes;
use forebay_engine::live::LiveTable;
use forebay_host::StateError;

use crate::cluster::Spot;
use crate::command::{
    Answer, COMMANDS, CommandError, DeleteRequest, QueuedCommands, Run, Watches, find, split,
};
use crate::commits::Commits;
use crate::decision_clock::DecisionClock;
use crate::execute::View;
use crate::port::Port;
use crate::proposal::{NoProposal, ProposalHead, WireProposal};
use crate::proposed::RunsProposals;
use crate::resp::{Args, OwnedArgs, Reply};
use crate::shared::Shared;
use crate::table_view::TableView;

impl RunsProposals for Shared {
    fn run_proposal(
        &self,
        table: &LiveTable,
        stamp_ms: u64,
        operations: &[u8],
    ) -> Result<Bytes, StateError> {
        let mut reply = Reply::new(false);
        match WireProposal::parse(operations) {
            Ok(proposal) => run_proposal(self, table, stamp_ms, proposal, &mut reply)?,
            Err(NoProposal::Damaged) => reply.error("ERR the proposal is damaged, and did nothing"),
            Err(NoProposal::Newer(format)) => {
                let text = format!(
                    "the log has proposals of format {format}, which this program does not know: have \
                     all nodes run the same program"
                );
                return Err(StateError::Later(text));
            }
        }
        Ok(Bytes::from(reply.into_bytes()))
    }
}

fn run_proposal(
    shared: &Shared,
    table: &LiveTable,
    stamp_ms: u64,
    proposal: WireProposal,
    reply: &mut Reply,
) -> Result<(), StateError> {
    reply.set_resp3(proposal.resp3);
    let places = places(&proposal.commands)?;
    let (tables, decided) = (TableView::of_entry(table), DecisionClock { stamp_ms });
    let view = View {
        tables: &tables,
        user: &shared.anyone,
        shared,
        may_wait: true,
        port: Port::Alone,
        decided: Some(&decided),
        has_permit: false,
    };
    let answer = check_all(table, &places, &proposal)
        .and_then(|()| run_checked(&view, places, proposal, reply));
    match answer {
        Ok(()) => Ok(()),
        Err(CommandError::Error(text)) => {
            reply.truncate(0);
            reply.error(&text);
            Ok(())
        }
        Err(CommandError::Machine { passes: true, text }) => Err(StateError::Later(text)),
        Err(CommandError::Machine { text, .. }) => Err(StateError::Never(text)),
        Err(CommandError::Damaged(words)) => Err(StateError::Damaged(words)),
        Err(CommandError::NotHere(words)) => Err(StateError::Never(words)),
        Err(CommandError::NotResident | CommandError::Replicas) => Err(StateError::Later(
            "a decided command was asked to wait".to_owned(),
        )),
    }
}

fn run_checked(
    view: &View<'_>,
    places: Vec<usize>,
    proposal: WireProposal,
    reply: &mut Reply,
) -> Answer {
    // The log that has the entry makes it durable.
    let mut commits = Commits::default();
    if proposal.is_multi {
        let commands = places.into_iter().zip(proposal.commands);
        let watches = match &proposal.head {
            Some(ProposalHead::Watched(keys)) => Watches::of_versions(&keys.borrow())?,
            Some(ProposalHead::From(_)) | None => Watches::default(),
        };
        let queued = QueuedCommands::of(commands.collect()).watching(watches);
        return view.transaction(&queued, &mut None, reply, &mut commits);
    }
    let (Some(place), Some(args)) = (places.first(), proposal.commands.first()) else {
        return Err(CommandError::error("ERR the proposal has no command"));
    };
    let command = &COMMANDS[*place];
    if !matches!(proposal.head, Some(ProposalHead::From(_))) {
        return view.write(command, args.borrow(), reply, &mut commits).0;
    }
    let mut own = Reply::new(reply.is_resp3());
    view.write(command, args.borrow(), &mut own, &mut commits)
        .0?;
    // The partition's end. The requester may have assumed that the partition reaches further.
    let mut tables = view.tables.live.values();
    let bounds = tables.next().and_then(LiveTable::entry_bounds);
    let upper = bounds.and_then(|bounds| bounds.upper);
    reply.array(2);
    reply.append(own.bytes());
    reply.bulk(&upper.map_or_else(Default::default, |upper| Spot::of(&upper).tagged()));
    Ok(())
}

/// Returns the places of the commands in the command table. A command that is not in it comes from
/// a newer program, which can run it.
fn places(commands: &[OwnedArgs]) -> Result<Vec<usize>, StateError> {
    let place = |args: &OwnedArgs| {
        let name = args.borrow().get(0);
        find(name).ok_or_else(|| {
            StateError::Later(format!(
                "the log has a command '{}', which this program does not know: have all nodes run the \
                 same program",
                crate::command::shown(name)
            ))
        })
    };
    commands.iter().map(place).collect()
}

/// Refuses commands that could differ between replicas. No correct node proposes them.
fn check_all(table: &LiveTable, places: &[usize], proposal: &WireProposal) -> Answer {
    for (place, args) in places.iter().zip(&proposal.commands) {
        let args = args.borrow();
        check_proposed(*place, &args, proposal.is_multi)?;
        let command = &COMMANDS[*place];
        if matches!(command.run, Run::RangeDelete(_)) {
            check_range_delete(table, &args, proposal.head.as_ref())?;
        }
        for at in command.key_places(args.len()) {
            check_place(table, args.get(at))?;
        }
    }
    match &proposal.head {
        Some(ProposalHead::Watched(keys)) => {
            let mut keys = keys.borrow().iter().step_by(2);
            keys.try_for_each(|key| check_place(table, key))
        }
        Some(ProposalHead::From(_)) | None => Ok(()),
    }
}

/// Refuses a key of another partition.
fn check_place(table: &LiveTable, wire: &[u8]) -> Answer {
    let (named, key) = split(wire)?;
    let is_of_it = named == table.name().as_str().as_bytes();
    // For an empty key, the write itself gives a better error.
    match is_of_it && (key.is_empty() || table.is_of_entry(key)) {
        true => Ok(()),
        false => Err(other_partition()),
    }
}

/// The reply to a proposal to a partition that was split or never had the key. Nothing was written.
const OTHER_PARTITION: &str =
    "TRYAGAIN the key is in another partition than the one that it was proposed to";

fn other_partition() -> CommandError {
    CommandError::error(OTHER_PARTITION)
}

/// Returns whether a reply is `OTHER_PARTITION`: nothing was written.
pub fn is_elsewhere(reply: &[u8]) -> bool {
    let words = reply.strip_prefix(b"-");
    words.is_some_and(|words| words.starts_with(OTHER_PARTITION.as_bytes()))
}

/// Refuses to delete a range of another table, or from a place outside the partition.
fn check_range_delete(table: &LiveTable, args: &Args<'_>, head: Option<&ProposalHead>) -> Answer {
    let named = DeleteRequest::parse(args, None)?.table;
    let place = match head {
        Some(ProposalHead::From(place)) => Spot::parse_tagged(place.borrow().get(0)),
        Some(ProposalHead::Watched(_)) | None => None,
    };
    let bounds = place.zip(table.entry_bounds());
    let is_there = bounds.is_some_and(|(place, bounds)| bounds.holds(&place.bound()));
    match is_there && named == table.name().as_str().as_bytes() {
        true => Ok(()),
        false => Err(other_partition()),
    }
}

/// Checks that a command has the same result on all replicas. Only such commands may be proposed.
pub fn check_proposed(place: usize, args: &Args<'_>, is_multi: bool) -> Answer {
    let command = &COMMANDS[place];
    if !command.takes(args.len()) {
        return Err(command.arity_error());
    }
    let name = || command.name.to_uppercase();
    match command.run {
        Run::Edit { .. } | Run::Many { .. } | Run::Together(_) => Ok(()),
        Run::Read(_) | Run::Session(_) if is_multi && command.is_of_no_table() => Ok(()),
        Run::Read(_) if is_multi && command.name == "hrandfield" => {
            Err(CommandError::error(format!(
                "ERR {} cannot be in a MULTI that writes to a live table of a cluster: each replica \
                 would draw others",
                name()
            )))
        }
        Run::Read(_) if is_multi && command.keys.first > 0 => Ok(()),
        Run::RangeDelete(_) if !is_multi => Ok(()),
        _ => Err(CommandError::error(format!(
            "ERR {} cannot be in a MULTI that writes, which is for commands on keys",
            name()
        ))),
    }
}
