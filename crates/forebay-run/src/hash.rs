//! Computes the sort hash of a key: the Redis slot in the top 14 bits, a fast hash in the 50 below.
//!
//! The slot is Redis Cluster's: CRC16 (XMODEM) modulo 16,384 over the *wire key* `table:key`, or
//! over the hashtag alone if the wire key has one. So any cluster client finds the node itself. The
//! low bits are XXH3-64 of the key, which spreads keys within their slot evenly.

use xxhash_rust::xxh3::xxh3_64;

/// Bits of a hash below the slot.
pub const HASH_BITS: u32 = 50;
/// The number of Redis Cluster slots.
pub const SLOTS: u32 = 1 << 14;

/// A hasher that computes hash64 for the keys of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyHasher {
    prefix: Vec<u8>,
    /// CRC16 of the prefix, from which every key's own continues.
    prefix_crc: u16,
}

impl KeyHasher {
    /// Returns a hasher. `prefix` precedes the key on the wire: the table's name and a colon. It
    /// must not contain braces; it may be empty.
    pub fn new(prefix: &[u8]) -> Self {
        Self {
            prefix: prefix.to_vec(),
            prefix_crc: crc16(0, prefix),
        }
    }

    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Returns the hash64 of `key`, its sort key in a hashed run.
    #[inline]
    pub fn hash64(&self, key: &[u8]) -> u64 {
        (u64::from(self.slot(key)) << HASH_BITS) | (xxh3_64(key) >> (64 - HASH_BITS))
    }

    /// Returns the Redis Cluster slot of the wire key.
    #[inline]
    pub fn slot(&self, key: &[u8]) -> u16 {
        let crc = match hashtag(key) {
            Some(tag) => crc16(0, tag),
            None => crc16(self.prefix_crc, key),
        };
        crc & (SLOTS as u16 - 1)
    }
}

/// Returns the slot part of a hash64.
#[inline]
pub fn slot_of(hash: u64) -> u16 {
    (hash >> HASH_BITS) as u16
}

/// Returns the least hash64 of a slot; `None` for `SLOTS` and above.
pub fn first_hash_of(slot: u32) -> Option<u64> {
    (slot < SLOTS).then(|| u64::from(slot) << HASH_BITS)
}

/// Returns the first eight bytes of `key`, big-endian, padded with zeros: in ordered runs,
/// comparisons begin with them.
#[inline]
pub fn key_head(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    short_head(key)
}

/// Returns the [`key_head`] of less than eight bytes. It makes two overlapping reads, because a
/// copy of so few bytes would wait.
#[inline]
fn short_head(key: &[u8]) -> u64 {
    let last_bits = |bits: u64| bits << (64 - 8 * key.len() as u32);
    if let (Some(first), Some(last)) = (key.first_chunk(), key.last_chunk()) {
        let last = u64::from(u32::from_be_bytes(*last));
        return u64::from(u32::from_be_bytes(*first)) << 32 | last_bits(last);
    }
    if let (Some(first), Some(last)) = (key.first_chunk(), key.last_chunk()) {
        let last = u64::from(u16::from_be_bytes(*last));
        return u64::from(u16::from_be_bytes(*first)) << 48 | last_bits(last);
    }
    key.first().map_or(0, |byte| u64::from(*byte) << 56)
}

/// Returns the bytes between the first `{` and the next `}`, unless they are empty.
#[inline]
fn hashtag(key: &[u8]) -> Option<&[u8]> {
    if holds(b'{', key) { braced(key) } else { None }
}

#[inline(never)]
fn braced(key: &[u8]) -> Option<&[u8]> {
    let place = |byte, bytes: &[u8]| bytes.iter().position(|&b| b == byte);
    let rest = &key[place(b'{', key)? + 1..];
    let close = place(b'}', rest)?;
    (close > 0).then(|| &rest[..close])
}

/// Returns whether any of `bytes` is `byte`: eight per step. Every look-up calls this.
#[inline]
fn holds(byte: u8, bytes: &[u8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let (words, rest) = bytes.as_chunks::<8>();
    let mut zeros = 0;
    for word in words {
        let other = u64::from_ne_bytes(*word) ^ (ONES * u64::from(byte));
        zeros |= other.wrapping_sub(ONES) & !other & HIGH;
    }
    zeros != 0 || rest.contains(&byte)
}

/// Tables for eight bytes per step: `CRC16[i][b]` is the CRC of byte b followed by i zero bytes.
static CRC16: [[u16; 256]; 8] = crc16_tables();

const fn crc16_tables() -> [[u16; 256]; 8] {
    let mut tables = [[0u16; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 {
                (crc << 1) ^ 0x1021
            } else {
                crc << 1
            };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut step = 1;
    while step < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[step - 1][byte];
            tables[step][byte] = (before << 8) ^ tables[0][(before >> 8) as usize];
            byte += 1;
        }
        step += 1;
    }
    tables
}

/// CRC16 XMODEM (polynomial 0x1021), continued from `crc`.
#[inline]
pub fn crc16(mut crc: u16, bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let [high, low] = crc.to_be_bytes();
        // Operations that do not depend on the previous word come first.
        let rest = CRC16[5][usize::from(word[2])]
            ^ CRC16[4][usize::from(word[3])]
            ^ CRC16[3][usize::from(word[4])]
            ^ CRC16[2][usize::from(word[5])]
            ^ CRC16[1][usize::from(word[6])]
            ^ CRC16[0][usize::from(word[7])];
        crc = rest ^ CRC16[7][usize::from(word[0] ^ high)] ^ CRC16[6][usize::from(word[1] ^ low)];
    }
    for &byte in rest {
        crc = (crc << 8) ^ CRC16[0][usize::from((crc >> 8) as u8 ^ byte)];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_the_first_bytes_and_zeros_after_the_end() {
        let key: Vec<u8> = (0..12).map(|byte| 0x81 + 9 * byte).collect();
        for len in 0..=key.len() {
            let mut head = [0; 8];
            head[..len.min(8)].copy_from_slice(&key[..len.min(8)]);
            assert_eq!(key_head(&key[..len]), u64::from_be_bytes(head), "{len}");
        }
    }

    fn crc16_bitwise(mut crc: u16, bytes: &[u8]) -> u16 {
        for &byte in bytes {
            crc ^= u16::from(byte) << 8;
            for _ in 0..8 {
                crc = if crc & 0x8000 != 0 {
                    (crc << 1) ^ 0x1021
                } else {
                    crc << 1
                };
            }
        }
        crc
    }

    #[test]
    fn crc_matches_the_published_check_value_and_the_plain_definition() {
        assert_eq!(crc16(0, b"123456789"), 0x31C3);
        let bytes: Vec<u8> = (0..100u32).map(|i| (i * 37 + 11) as u8).collect();
        for start in 0..20 {
            for end in start..bytes.len() {
                assert_eq!(
                    crc16(7, &bytes[start..end]),
                    crc16_bitwise(7, &bytes[start..end])
                );
            }
        }
    }

    #[test]
    fn slots_are_those_of_redis() {
        // The answers of `CLUSTER KEYSLOT` in Redis 7.0.
        let bare = KeyHasher::new(b"");
        assert_eq!(bare.slot(b"foo"), 12182);
        assert_eq!(bare.slot(b"somekey"), 11058);
        assert_eq!(bare.slot(b"foo{hash_tag}"), 2515);
        assert_eq!(bare.slot(b"bar{hash_tag}"), 2515);
        assert_eq!(
            bare.slot(b"foo{}{bar}"),
            crc16_bitwise(0, b"foo{}{bar}") % 16384
        );
        assert_eq!(
            bare.slot(b"foo{{bar}}zap"),
            crc16_bitwise(0, b"{bar") % 16384
        );
        let table = KeyHasher::new(b"flights:");
        assert_eq!(table.slot(b"AA/0001"), bare.slot(b"flights:AA/0001"));
        assert_eq!(table.slot(b"{user1}x"), bare.slot(b"user1"));
    }

    #[test]
    fn the_slot_leads_the_hash() {
        let hasher = KeyHasher::new(b"t:");
        for i in 0..1000u32 {
            let key = i.to_le_bytes();
            assert_eq!(slot_of(hasher.hash64(&key)), hasher.slot(&key));
        }
        assert_eq!(first_hash_of(1), Some(1 << 50));
        assert_eq!(first_hash_of(SLOTS), None);
    }
}
