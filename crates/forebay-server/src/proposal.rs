//! The encoding of proposed commands in a partition's log.
//!
//! A proposal is a format byte, a byte of flags, a head in RESP if the flags say so, then the
//! commands in RESP: one, or those of a MULTI. The head of a command that deletes a range is a
//! place in the table's order: the partition that has it applies its part. The head of a MULTI has
//! the versions that the watched keys must have.
//!
//! Proposals that are not commands begin with 2 (loads) and other numbers, which no format of
//! commands uses (`forebay-host`).
//!
//! The effect of the commands of a format never changes. A change that would make replicas of two
//! programs differ requires another format.

use bytes::Bytes;

use crate::resp::{Args, OwnedArgs, Parser, Reply, RequestLimits};

const FORMAT: u8 = 1;
const RESP3: u8 = 1;
const MULTI: u8 = 2;
const FROM: u8 = 4;
const WATCHED: u8 = 8;
/// The format and the flags.
const HEAD_BYTES: usize = 2;
/// The usual size of an argument beside its bytes.
const LENGTH_BYTES: usize = 9;
/// The largest proposal, which fits in an entry of the log.
pub const MOST_PROPOSAL_BYTES: usize = 24 << 20;
/// The limits of any proposal, independent of this machine's configuration.
const LIMITS: RequestLimits = RequestLimits {
    bulk_bytes: MOST_PROPOSAL_BYTES,
    arguments: MOST_PROPOSAL_BYTES,
    command_bytes: MOST_PROPOSAL_BYTES,
};

/// A decoded proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireProposal {
    /// Whether the requester speaks RESP3.
    pub resp3: bool,
    /// Whether the commands are those of a MULTI.
    pub is_multi: bool,
    pub head: Option<ProposalHead>,
    pub commands: Vec<OwnedArgs>,
}

/// The head of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposalHead {
    /// For a command that deletes a range: a place in the partition, as one argument.
    From(OwnedArgs),
    /// For a MULTI: keys, each followed by its version.
    Watched(OwnedArgs),
}

/// The reason why a proposal was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoProposal {
    /// It comes from a newer program.
    Newer(u8),
    Damaged,
}

impl WireProposal {
    /// Encodes commands.
    pub fn encode<'a>(
        resp3: bool,
        is_multi: bool,
        head: Option<&'a ProposalHead>,
        commands: impl Iterator<Item = Args<'a>> + Clone,
    ) -> Bytes {
        let bytes = commands
            .clone()
            .map(|args| args.byte_len() + (args.len() + 1) * LENGTH_BYTES);
        let mut out = Reply::with_capacity(HEAD_BYTES + bytes.sum::<usize>());
        let flags = if resp3 { RESP3 } else { 0 } | if is_multi { MULTI } else { 0 };
        let (flag, head) = match head {
            None => (0, None),
            Some(ProposalHead::From(place)) => (FROM, Some(place.borrow())),
            Some(ProposalHead::Watched(keys)) => (WATCHED, Some(keys.borrow())),
        };
        out.append(&[FORMAT, flags | flag]);
        for args in head.into_iter().chain(commands) {
            out.array(args.len());
            args.iter().for_each(|arg| out.bulk(arg));
        }
        Bytes::from(out.into_bytes())
    }

    /// Returns the command of a proposal of one command without a head, as clients send it.
    pub fn command_of(proposal: &Bytes) -> Bytes {
        proposal.slice(HEAD_BYTES.min(proposal.len())..)
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, NoProposal> {
        let (format, flags, mut rest) = match bytes {
            [format, flags, rest @ ..] => (*format, *flags, rest),
            _ => return Err(NoProposal::Damaged),
        };
        if format != FORMAT {
            return Err(NoProposal::Newer(format));
        }
        let is_known = flags & !(RESP3 | MULTI | FROM | WATCHED) == 0;
        if !is_known || rest.len() > MOST_PROPOSAL_BYTES {
            return Err(NoProposal::Damaged);
        }
        let mut commands = Vec::new();
        while !rest.is_empty() {
            let mut parser = Parser::default();
            // Inline commands are for people.
            let is_array = rest.first() == Some(&b'*');
            let parsed = parser.advance(rest, &LIMITS);
            let (true, Ok(Some(len))) = (is_array, parsed) else {
                return Err(NoProposal::Damaged);
            };
            let args = parser.args(rest);
            if args.is_empty() {
                return Err(NoProposal::Damaged);
            }
            commands.push(args.to_owned());
            rest = &rest[len..];
        }
        let is_multi = flags & MULTI != 0;
        let head = ProposalHead::take(flags, is_multi, &mut commands)?;
        match commands.is_empty() || (!is_multi && commands.len() > 1) {
            true => Err(NoProposal::Damaged),
            false => Ok(Self {
                resp3: flags & RESP3 != 0,
                is_multi,
                head,
                commands,
            }),
        }
    }
}

impl ProposalHead {
    /// Takes the head from a proposal if the flags say that it has one.
    fn take(
        flags: u8,
        is_multi: bool,
        commands: &mut Vec<OwnedArgs>,
    ) -> Result<Option<Self>, NoProposal> {
        let kind = flags & (FROM | WATCHED);
        if kind == 0 {
            return Ok(None);
        }
        if commands.is_empty() {
            return Err(NoProposal::Damaged);
        }
        let args = commands.remove(0);
        let count = args.borrow().len();
        match (kind, is_multi, count) {
            (FROM, false, 1) => Ok(Some(Self::From(args))),
            (WATCHED, true, 2..) if count.is_multiple_of(2) => Ok(Some(Self::Watched(args))),
            _ => Err(NoProposal::Damaged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn commands_are_read_as_they_are_written(
            commands in proptest::collection::vec(
                proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..5), 1..5),
            resp3: bool,
            head: bool,
        ) {
            let commands: Vec<OwnedArgs> = commands.iter().map(|args| args.iter().collect()).collect();
            let is_multi = commands.len() > 1;
            let of_head = |args: &[&str]| args.iter().collect::<OwnedArgs>();
            let head = head.then(|| match is_multi {
                false => ProposalHead::From(of_head(&["ka"])),
                true => ProposalHead::Watched(of_head(&["t:a", "0", "t:b", "1"])),
            });
            let proposal = WireProposal { resp3, is_multi, head, commands };
            let args = proposal.commands.iter().map(OwnedArgs::borrow);
            let bytes = WireProposal::encode(resp3, is_multi, proposal.head.as_ref(), args);
            prop_assert_eq!(WireProposal::parse(&bytes), Ok(proposal));
            for cut in 2..bytes.len() {
                let parsed = WireProposal::parse(&bytes[..cut]);
                prop_assert!(parsed.is_err() || is_multi, "{}", cut);
            }
        }

        #[test]
        fn garbage_is_refused_or_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = WireProposal::parse(&bytes);
            bytes.splice(0..0, [FORMAT, RESP3, b'*']);
            let _ = WireProposal::parse(&bytes);
        }

        #[test]
        fn garbage_of_the_right_letters_as_well(text in "[*$:0-9\r\nGET-]{0,40}") {
            let bytes = [&[FORMAT, MULTI][..], text.as_bytes()].concat();
            let _ = WireProposal::parse(&bytes);
        }
    }

    #[test]
    fn another_format_is_a_newer_one() {
        assert_eq!(WireProposal::parse(&[9, 0, 1]), Err(NoProposal::Newer(9)));
        for bytes in [
            &b""[..],
            &[FORMAT],
            &[FORMAT, 0],
            &[FORMAT, 16, b'*'],
            b"\x01\x04*1\r\n$1\r\na\r\n",
            b"\x01\x04*2\r\n$1\r\na\r\n$1\r\nb\r\n*1\r\n$4\r\nPING\r\n",
            b"\x01\x06*1\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n",
            b"\x01\x08*2\r\n$1\r\na\r\n$1\r\nb\r\n*1\r\n$4\r\nPING\r\n",
            b"\x01\x0a*1\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n",
            b"\x01\x0e*2\r\n$1\r\na\r\n$1\r\nb\r\n*1\r\n$4\r\nPING\r\n",
            b"\x01\0PING\r\n",
        ] {
            assert_eq!(WireProposal::parse(bytes), Err(NoProposal::Damaged));
        }
    }
}
