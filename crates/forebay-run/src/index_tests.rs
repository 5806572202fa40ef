use super::*;
use forebay_io::sim::Rng;

/// Returns the pages of `hash` by the plain definition, over the pages' full first hashes.
fn plain_pages(first_hashes: &[u64], hash: u64) -> Option<usize> {
    first_hashes
        .partition_point(|&first| first <= hash)
        .checked_sub(1)
}

fn check(mut first_hashes: Vec<u64>, probes: &[u64]) {
    first_hashes.sort_unstable();
    let mut builder = HashIndexBuilder::default();
    for &hash in &first_hashes {
        builder.add(hash);
    }
    let last = first_hashes.last().copied().unwrap_or(0);
    let built = builder.finish(last);
    let index = HashIndex::decode(&built.encode(), first_hashes.len()).unwrap();
    assert_eq!(index, built);
    for &hash in probes.iter().chain(&first_hashes) {
        if hash > last {
            continue;
        }
        let Some(page) = plain_pages(&first_hashes, hash) else {
            continue;
        };
        let pages = index.pages(hash);
        assert!(
            pages.contains(&page),
            "{hash:x}: page {page} not in {pages:?}"
        );
        assert!(pages.len() <= 2 || first_hashes[pages.start + 1] >> 18 == hash >> 18);
        let from = index.first_page(hash);
        assert!(from <= page, "{hash:x}: scan from {from}, page {page}");
    }
}

#[test]
fn every_hash_finds_its_page() {
    let mut rng = Rng(1);
    for pages in [1usize, 2, 3, 50, 5000] {
        let firsts: Vec<u64> = (0..pages).map(|_| rng.next_u64()).collect();
        let probes: Vec<u64> = (0..2000).map(|_| rng.next_u64()).collect();
        check(firsts, &probes);
    }
}

#[test]
fn a_slot_that_holds_all_and_equal_hashes_are_found_too() {
    let mut rng = Rng(2);
    let slot = 77u64 << HASH_BITS;
    let hashes = |rng: &mut Rng, n: usize, bits: u32| -> Vec<u64> {
        (0..n)
            .map(|_| slot | (rng.next_u64() & ((1u64 << bits) - 1)))
            .collect()
    };
    // Evenly spread, then all in the lowest millionth of the slot, then all the same.
    for bits in [50, 30, 12, 0] {
        let mut firsts = hashes(&mut rng, 3000, bits);
        firsts.sort_unstable();
        let probes = hashes(&mut rng, 1000, bits);
        let mut builder = HashIndexBuilder::default();
        firsts.iter().for_each(|&hash| builder.add(hash));
        let index = builder.finish(slot | 5);
        for hash in probes {
            if let Some(page) = plain_pages(&firsts, hash) {
                assert!(index.pages(hash).contains(&page));
            }
            assert!(index.first_page(hash) <= plain_pages(&firsts, hash).unwrap_or(0));
        }
    }
}

#[test]
fn damaged_hash_indexes_are_refused() {
    let mut builder = HashIndexBuilder::default();
    (0..100u64).for_each(|i| builder.add(i << 52));
    let good = builder.finish(u64::MAX).encode();
    assert!(HashIndex::decode(&good, 100).is_ok());
    assert!(HashIndex::decode(&good, 99).is_err());
    for cut in 0..good.len() {
        assert!(HashIndex::decode(&good[..cut], 100).is_err());
    }
}

#[test]
fn separators_find_the_page_of_every_key() {
    let mut keys: Vec<Vec<u8>> = (0..5000u32)
        .map(|i| format!("common/{}/{:x}", i % 7, i.wrapping_mul(2_654_435_761)).into_bytes())
        .collect();
    keys.push(b"common/".to_vec());
    keys.sort_unstable();
    let pages: Vec<&[Vec<u8>]> = keys.chunks(13).collect();
    let mut builder = KeyIndex::default();
    builder.add(b"");
    for pair in pages.windows(2) {
        let (before, after) = (pair[0].last().unwrap(), &pair[1][0]);
        let between = separator(before, after);
        assert!(before.as_slice() < between && between <= after.as_slice());
        builder.add(between);
    }
    let built = builder.finish();
    let index = KeyIndex::decode(&built.encode(), pages.len()).unwrap();
    for (number, page) in pages.iter().enumerate() {
        for key in *page {
            assert_eq!(index.page(key), number, "{}", String::from_utf8_lossy(key));
        }
    }
    assert_eq!(index.page(b""), 0);
    assert_eq!(index.page(b"a"), 0);
    assert_eq!(index.page(b"z"), pages.len() - 1);
    let encoded = built.encode();
    for cut in 0..encoded.len() {
        assert!(KeyIndex::decode(&encoded[..cut], pages.len()).is_err());
    }
}
