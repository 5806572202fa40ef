//! A cut of a group's partition in two, as an entry of its log.
//!
//! The left half goes on as this group. The right half becomes another one, which begins with the
//! same nodes: each voter has a peer of it, whose log begins where the entry is applied. So the
//! entry does something only where the group's voters are those that it names; else it does
//! nothing, on all replicas alike, and is asked for again.

use bytes::{BufMut, Bytes, BytesMut};

use crate::bytes_of::{CodecError, Reader, put_bytes};
use crate::ids::{GroupId, PeerId};
use crate::membership::Membership;

/// The longest place, and the most voters.
const MOST_PLACE_BYTES: usize = 1 << 20;
const MOST_PEERS: usize = 64;

/// See the module's text. As bytes: the place with its length (u32), partition u32, group u64,
/// planned_in u64, count u32, as often two peers (u64).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitEntry {
    /// Where the right half begins, as whoever has the partition encodes it.
    pub at: Bytes,
    /// What the right half is as a partition, and as a group.
    pub partition: u32,
    pub group: GroupId,
    /// From this revision on the catalog names the right half's replicas.
    pub planned_in: u64,
    /// The group's voters, rising, each with the peer of the new group that it comes to have.
    pub peers: Vec<(PeerId, PeerId)>,
}

impl SplitEntry {
    /// Whether these are the members that it is for.
    pub fn is_for(&self, members: &Membership) -> bool {
        let is_settled = !members.is_joint() && members.learners.is_empty();
        let voters = self.peers.iter().map(|(left, _)| left);
        is_settled && members.voters.iter().eq(voters)
    }

    /// The peer of the new group that a voter comes to have.
    pub fn peer_of(&self, voter: PeerId) -> Option<PeerId> {
        let mut peers = self.peers.iter();
        peers.find(|(left, _)| *left == voter).map(|(_, new)| *new)
    }

    /// The voters of the new group.
    pub fn founders(&self) -> Vec<PeerId> {
        let mut founders: Vec<_> = self.peers.iter().map(|(_, new)| *new).collect();
        founders.sort();
        founders
    }

    pub(crate) fn put(&self, out: &mut BytesMut) {
        put_bytes(out, &self.at);
        out.put_u32_le(self.partition);
        out.put_u64_le(self.group.0);
        out.put_u64_le(self.planned_in);
        out.put_u32_le(self.peers.len() as u32);
        for (left, new) in &self.peers {
            out.put_u64_le(left.0);
            out.put_u64_le(new.0);
        }
    }

    pub(crate) fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        let at = reader.bytes("place of a cut", MOST_PLACE_BYTES)?;
        let partition = reader.u32()?;
        let (group, planned_in) = (GroupId(reader.u64()?), reader.u64()?);
        let count = reader.count("peers of a new group", MOST_PEERS)?;
        let mut peers = Vec::new();
        for _ in 0..count {
            peers.push((PeerId(reader.u64()?), PeerId(reader.u64()?)));
        }
        Ok(Self {
            at,
            partition,
            group,
            planned_in,
            peers,
        })
    }
}
