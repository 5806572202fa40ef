//! A split of a group's partition, as an entry of its log.
//!
//! The group keeps the keys before the first split point. Each child has a group of its own, which
//! starts on the same nodes. Each voter has a peer of it, whose log begins where the entry is
//! applied. So the entry takes effect only if the group's voters are those that it names. Otherwise
//! it does nothing on any replica, and the coordinator asks again.

use bytes::{BufMut, Bytes, BytesMut};

use crate::bytes_of::{CodecError, Reader, put_bytes};
use crate::ids::{GroupId, PeerId};
use crate::membership::Membership;

/// The longest split point, and the most children and voters.
const MOST_POINT_BYTES: usize = 1 << 20;
pub const MOST_CHILDREN: usize = 64;
const MOST_PEERS: usize = 64;

/// The children that a partition is split into. Encoding: planned_in u64; count u32, then that many
/// voters (u64); count u32, then that many children: its split point with its length (u32),
/// partition u32, group u64, and a peer (u64) for each voter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitEntry {
    /// The first catalog revision that names the children's replicas.
    pub planned_in: u64,
    /// The group's voters, ascending.
    pub voters: Vec<PeerId>,
    /// The children, ascending by split point; at least one.
    pub children: Vec<ChildGroup>,
}

/// A partition that a split makes, with its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildGroup {
    /// Its first key or slot, in the encoding of the partition's owner.
    pub from: Bytes,
    pub partition: u32,
    pub group: GroupId,
    /// The new peer of each voter, in the voters' order.
    pub peers: Vec<PeerId>,
}

impl SplitEntry {
    /// Returns whether these are the members that the split names.
    pub fn is_for(&self, members: &Membership) -> bool {
        let is_settled = !members.is_joint() && members.learners.is_empty();
        is_settled && members.voters == self.voters
    }

    /// Returns the new peers of a voter, one of each child.
    pub fn peers_of(&self, voter: PeerId) -> Option<impl Iterator<Item = PeerId>> {
        let place = self.voters.iter().position(|known| *known == voter)?;
        Some(self.children.iter().map(move |child| child.peers[place]))
    }

    pub(crate) fn put(&self, out: &mut BytesMut) {
        debug_assert!(
            !self.children.is_empty() && self.children.len() <= MOST_CHILDREN,
            "a split of {} children, which nobody reads",
            self.children.len()
        );
        out.put_u64_le(self.planned_in);
        put_peers(out, &self.voters);
        out.put_u32_le(self.children.len() as u32);
        for child in &self.children {
            debug_assert_eq!(child.peers.len(), self.voters.len(), "{self:?}");
            put_bytes(out, &child.from);
            out.put_u32_le(child.partition);
            out.put_u64_le(child.group.0);
            child.peers.iter().for_each(|peer| out.put_u64_le(peer.0));
        }
    }

    pub(crate) fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        let planned_in = reader.u64()?;
        let count = reader.count("voters of a split", MOST_PEERS)?;
        let voters = read_peers(reader, count)?;
        let mut children = Vec::new();
        for _ in 0..reader.count("children of a split", MOST_CHILDREN)? {
            children.push(ChildGroup {
                from: reader.bytes("split point", MOST_POINT_BYTES)?,
                partition: reader.u32()?,
                group: GroupId(reader.u64()?),
                peers: read_peers(reader, count)?,
            });
        }
        Ok(Self {
            planned_in,
            voters,
            children,
        })
    }
}

impl ChildGroup {
    /// Returns the voters of its group.
    pub fn founders(&self) -> Vec<PeerId> {
        let mut founders = self.peers.clone();
        founders.sort();
        founders
    }
}

fn put_peers(out: &mut BytesMut, peers: &[PeerId]) {
    out.put_u32_le(peers.len() as u32);
    peers.iter().for_each(|peer| out.put_u64_le(peer.0));
}

fn read_peers(reader: &mut Reader, count: usize) -> Result<Vec<PeerId>, CodecError> {
    (0..count).map(|_| Ok(PeerId(reader.u64()?))).collect()
}
