//! Which keys come in which order: computed, not read, so that the input takes no memory.

/// A bijection of u64 that looks random (splitmix64's finish), so that keys are distinct.
fn mix(number: u64) -> u64 {
    let mut z = number
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const SEED: u64 = 0x5eed_0f0f_2009_0916;

/// The key that is written as number `number`.
#[inline]
pub fn key_of(number: u64) -> u64 {
    mix(number ^ SEED)
}

/// The value that goes with a key.
#[inline]
pub fn value_of(key: u64) -> u64 {
    mix(key)
}

/// The numbers of keys to ask for: `gets` random ones of the first `written`.
pub fn asked(gets: u64, written: u64) -> impl Iterator<Item = u64> {
    (0..gets).map(move |get| ((u128::from(mix(!get)) * u128::from(written)) >> 64) as u64)
}

/// `count` draws from a Zipf distribution of `keys` ranks with exponent `s`, each rank as its key.
pub fn zipf_keys(count: u64, keys: u64, s: f64) -> Vec<u64> {
    let mut sum = 0.0;
    let cumulated: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += (rank as f64).powf(-s);
            sum
        })
        .collect();
    (0..count)
        .map(|draw| {
            let at = mix(draw ^ SEED) as f64 / u64::MAX as f64 * sum;
            key_of(cumulated.partition_point(|&upto| upto < at) as u64)
        })
        .collect()
}
