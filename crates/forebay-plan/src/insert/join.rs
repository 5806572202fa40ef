//! Joins neighbouring pieces of one partition that have the same assignment.
//!
//! What remains are the splits that a move needs.

use super::carried::holders;
use super::holders::Holders;
use super::pieces::{Piece, Pieces, add_pieces};
use super::region::Region;

/// The assignments of all replicas, a list for each region.
pub type Assignments = Vec<Vec<u32>>;

/// Returns the joined pieces, and the assignments of their replicas. REQUIRES: pieces were split at
/// keys.
pub fn join(pieces: &Pieces, regions: &[Region<'_>], dests: &Assignments) -> (Pieces, Assignments) {
    let places: Vec<Vec<Holders>> = regions
        .iter()
        .zip(dests)
        .map(|(region, dest)| holders(region, pieces, dest))
        .collect();
    let lie_alike =
        |a: usize, b: usize| places.iter().all(|of_region| of_region[a] == of_region[b]);
    let mut joined = Pieces {
        originals: pieces.originals.clone(),
        tables: pieces.tables.clone(),
        ..Pieces::default()
    };
    // The first old piece of each new one.
    let mut firsts = Vec::with_capacity(pieces.originals.len());
    let mut further = Vec::new();
    for of in in_key_order(pieces) {
        let groups = of.chunk_by(|&a, &b| lie_alike(a, b));
        let mut groups = groups.map(|group| (group[0], together(&pieces.pieces, group)));
        if let Some((first, piece)) = groups.next() {
            firsts.push(first);
            joined.pieces.push(piece);
        }
        further.push(groups.collect::<Vec<_>>());
    }
    for (index, rights) in further.into_iter().enumerate() {
        firsts.extend(rights.iter().map(|(first, _)| *first));
        let rights = rights.into_iter();
        let rights = rights.map(|(_, piece)| (piece.low.clone(), piece));
        add_pieces(&mut joined, index, rights.collect());
    }
    joined.split_of.resize(joined.pieces.len(), None);
    let of_new = |of_region: &Vec<Holders>| {
        let lists = firsts.iter().map(|first| of_region[*first].machines());
        lists.flatten().copied().collect()
    };
    let dests = places.iter().map(of_new).collect();
    (joined, dests)
}

/// Returns the numbers of the pieces of each partition, by their keys. The first has the
/// partition's own number. Further ones were added after all partitions, one partition's after
/// another's.
fn in_key_order(pieces: &Pieces) -> Vec<Vec<usize>> {
    let count = pieces.originals.len();
    let mut orders: Vec<Vec<usize>> = (0..count).map(|of| vec![of]).collect();
    for (number, piece) in pieces.pieces.iter().enumerate().skip(count) {
        orders[piece.of as usize].push(number);
    }
    orders
}

fn together(pieces: &[Piece], group: &[usize]) -> Piece {
    let mut whole = pieces[group[0]].clone();
    for &next in &group[1..] {
        let next = &pieces[next];
        debug_assert_eq!(whole.high, next.low, "pieces are not neighbours");
        whole.high.clone_from(&next.high);
        whole.existing += next.existing;
        whole.new += next.new;
        whole.running += next.running;
    }
    whole
}
