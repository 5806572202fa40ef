//! Random changes to good inputs, for the short runs: the changes that files and streams suffer,
//! and the numbers that break arithmetic.

use forebay_io::sim::Rng;

/// Words that lie at the edges of what lengths and offsets can be.
const EDGES: [u64; 8] = [
    0,
    1,
    0x7F,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    u64::MAX / 2,
    u64::MAX,
];

/// Applies one to four random changes.
pub fn mutate(data: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=rng.below(4) {
        change(data, rng);
    }
}

fn change(data: &mut Vec<u8>, rng: &mut Rng) {
    if data.is_empty() {
        data.push(rng.next_u64() as u8);
    }
    let at = place(data.len(), rng);
    let len = (1 + rng.below(16) as usize).min(data.len() - at);
    match rng.below(8) {
        0 => data[at] ^= 1 << rng.below(8),
        1 => data[at] = rng.next_u64() as u8,
        2 => data.truncate(at),
        3 => drop(data.drain(at..at + len)),
        4 => {
            let copy = data[at..at + len].to_vec();
            let to = place(data.len(), rng);
            data.splice(to..to, copy);
        }
        5 => {
            let edge = EDGES[rng.below(EDGES.len() as u64) as usize].to_le_bytes();
            let len = [1, 2, 4, 8][rng.below(4) as usize].min(data.len() - at);
            data[at..at + len].copy_from_slice(&edge[..len]);
        }
        6 => {
            let number = EDGES[rng.below(EDGES.len() as u64) as usize].to_string();
            data.splice(at..at + len.min(2), number.into_bytes());
        }
        _ => {
            let other = place(data.len(), rng);
            data.swap(at, other);
        }
    }
}

/// A place in the data; every other time near its end, where footers are.
fn place(len: usize, rng: &mut Rng) -> usize {
    let window = if rng.below(2) == 0 { len } else { len.min(512) };
    len - 1 - rng.below(window as u64) as usize
}
