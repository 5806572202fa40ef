//! Keys that share a whole hash64, through all code that uses hashes.
//!
//! XXH3 of eight bytes is a bijection, so it can be inverted. Of the 16,384 keys whose hashes agree
//! in the upper 50 bits, several have the same slot.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use crate::common::{self, Rows, name, push, read_all, store_on};
use forebay_engine::diff;
use forebay_io::sim::SimDisk;
use forebay_run::Order;
use forebay_run::hash::KeyHasher;
use xxhash_rust::xxh3::xxh3_64;

const MULTIPLIER: u64 = 0x9FB2_1C65_1E98_DF25;

/// Inverts the mixing of XXH3 for the hash `hash` of an eight-byte input.
fn unmix(hash: u64) -> u64 {
    // By Newton's method: each step doubles the bits that are right.
    let inverse = (0..6).fold(MULTIPLIER, |x, _| {
        x.wrapping_mul(2u64.wrapping_sub(MULTIPLIER.wrapping_mul(x)))
    });
    let mut h = hash ^ (hash >> 28) ^ (hash >> 56);
    h = h.wrapping_mul(inverse);
    h ^= (h >> 35) + 8;
    h = h.wrapping_mul(inverse);
    // x ^ rotl(x, 49) ^ rotl(x, 24) is the identity when done 64 times.
    (0..63).fold(h, |h, _| h ^ h.rotate_left(49) ^ h.rotate_left(24))
}

/// Returns the eight bytes with that XXH3.
fn key_of(hash: u64) -> [u8; 8] {
    let known = *b"8 bytes.";
    let word = |key: [u8; 8]| u64::from_le_bytes(key).rotate_left(32);
    let flip = unmix(xxh3_64(&known)) ^ word(known);
    (unmix(hash) ^ flip).rotate_left(32).to_le_bytes()
}

/// Returns keys of table "t" in groups of three and more with one hash64.
fn colliding() -> Vec<Vec<u8>> {
    let hasher = KeyHasher::new(b"t:");
    let mut keys = Vec::new();
    for upper in [1u64 << 20, 77 << 30] {
        let mut groups: BTreeMap<u64, Vec<[u8; 8]>> = BTreeMap::new();
        for low in 0..1 << 14 {
            let key = key_of(upper << 14 | low);
            groups.entry(hasher.hash64(&key)).or_default().push(key);
        }
        let shared = groups.into_values().filter(|group| group.len() > 2);
        keys.extend(shared.take(40).flatten().map(|key| key.to_vec()));
    }
    keys
}

#[test]
fn keys_with_one_hash_are_distinguished_and_stay_in_one_partition() {
    let keys = colliding();
    assert!(keys.len() >= 240, "{}", keys.len());
    let mut rows: Rows = common::rows(1, 200);
    rows.extend(keys.iter().map(|key| (key.clone(), key.repeat(60))));
    let store = store_on(&SimDisk::new(), 1);
    push(&store, "t", Order::Hashed, &rows, 4).unwrap();
    let table = store.table(&name("t")).unwrap();
    let version = table.open_version(1).unwrap();

    assert_eq!(read_all(&version), rows);
    for key in &keys {
        assert_eq!(version.get(key).unwrap().as_deref(), Some(&rows[key][..]));
    }
    version
        .get_many(&keys, |at, value| {
            assert_eq!(value.unwrap(), rows[&keys[at]])
        })
        .unwrap();
    // One key of each group goes, another changes.
    let mut next = rows.clone();
    let hasher = KeyHasher::new(b"t:");
    let mut groups: BTreeMap<u64, Vec<&Vec<u8>>> = BTreeMap::new();
    keys.iter()
        .for_each(|key| groups.entry(hasher.hash64(key)).or_default().push(key));
    for group in groups.values() {
        next.remove(group[1]);
        next.insert(group[2].clone(), b"other".to_vec());
    }
    push(&store, "t", Order::Hashed, &next, 2).unwrap();
    let report = diff(&version, &table.open_version(2).unwrap(), 0, &mut |_| {}).unwrap();
    let count = groups.len() as u64;
    assert_eq!(
        (report.added, report.removed, report.changed),
        (0, count, count)
    );
}
