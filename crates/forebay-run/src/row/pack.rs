//! Encodings that rows and lists share: bits, ends of variable fields, trimmed integers.

use super::RowError;

/// Returns the bytes of a trimmed signed integer: 0 for zero.
#[inline]
pub(super) fn signed_bytes(value: i64) -> usize {
    if value == 0 {
        return 0;
    }
    (65 - (value ^ (value >> 63)).leading_zeros() as usize).div_ceil(8)
}

/// Returns the bytes of a trimmed unsigned integer: 0 for zero.
#[inline]
pub(super) fn unsigned_bytes(value: u64) -> usize {
    (64 - value.leading_zeros() as usize).div_ceil(8)
}

#[inline]
pub(super) fn push_signed(out: &mut Vec<u8>, value: i64) {
    let length = out.len() + signed_bytes(value);
    out.extend_from_slice(&value.to_le_bytes());
    out.truncate(length);
}

#[inline]
pub(super) fn push_unsigned(out: &mut Vec<u8>, value: u64) {
    let length = out.len() + unsigned_bytes(value);
    out.extend_from_slice(&value.to_le_bytes());
    out.truncate(length);
}

/// `value` is little-endian two's complement of any width.
pub(super) fn push_wide(out: &mut Vec<u8>, value: &[u8]) {
    let negative = value.last().is_some_and(|byte| byte & 0x80 != 0);
    let sign = if negative { 0xff } else { 0 };
    let mut length = value.len();
    while length > 0 && value[length - 1] == sign {
        let sign_kept = length > 1 && (value[length - 2] & 0x80 != 0) == negative;
        if !(sign_kept || (length == 1 && !negative)) {
            break;
        }
        length -= 1;
    }
    out.extend_from_slice(&value[..length]);
}

/// Restores a trimmed two's complement integer to N bytes.
#[inline]
pub(super) fn widen<const N: usize>(bytes: &[u8]) -> Result<[u8; N], RowError> {
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = if negative { [0xff; N] } else { [0; N] };
    let Some(target) = wide.get_mut(..bytes.len()) else {
        return Err(RowError::Width {
            got: bytes.len(),
            limit: N,
        });
    };
    target.copy_from_slice(bytes);
    Ok(wide)
}

#[inline]
pub(super) fn widen_unsigned(bytes: &[u8]) -> Result<u64, RowError> {
    let mut wide = [0; 8];
    let Some(target) = wide.get_mut(..bytes.len()) else {
        return Err(RowError::Width {
            got: bytes.len(),
            limit: 8,
        });
    };
    target.copy_from_slice(bytes);
    Ok(u64::from_le_bytes(wide))
}

/// Returns whether bit `index` is set; bits beyond the bytes are not.
#[inline]
pub(super) fn bit(bytes: &[u8], index: usize) -> bool {
    bytes
        .get(index / 8)
        .is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

#[inline]
pub(super) fn set_bit(bytes: &mut [u8], index: usize) {
    if let Some(byte) = bytes.get_mut(index / 8) {
        *byte |= 1 << (index % 8);
    }
}

/// Returns the code of the narrowest width that holds `end`: 0, 1, 2 for 1, 2, 4 bytes.
#[inline]
pub(super) fn width_code(end: usize) -> Option<u8> {
    match end {
        0..=0xff => Some(0),
        0x100..=0xffff => Some(1),
        0x1_0000..=0xffff_ffff => Some(2),
        _ => None,
    }
}

/// Appends ends in the width of `code`; REQUIRES: each fits it.
#[inline]
pub(super) fn push_ends(out: &mut Vec<u8>, code: u8, ends: &[usize]) {
    match code {
        0 => out.extend(ends.iter().map(|end| *end as u8)),
        1 => ends
            .iter()
            .for_each(|end| out.extend_from_slice(&(*end as u16).to_le_bytes())),
        _ => ends
            .iter()
            .for_each(|end| out.extend_from_slice(&(*end as u32).to_le_bytes())),
    }
}

/// The ends of `count` variable fields and their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields<'a> {
    /// All ends except the last one.
    ends: &'a [u8],
    width: usize,
    data: &'a [u8],
    count: usize,
}

impl<'a> Fields<'a> {
    /// Splits `bytes` into ends and data; fails if the ends alone do not fit.
    #[inline]
    pub fn new(bytes: &'a [u8], code: u8, count: usize) -> Result<Fields<'a>, RowError> {
        let width = 1_usize << code.min(2);
        let ends_bytes = count.saturating_sub(1).saturating_mul(width);
        let Some((ends, data)) = bytes.split_at_checked(ends_bytes) else {
            return Err(RowError::Field {
                end: ends_bytes,
                bytes: bytes.len(),
            });
        };
        Ok(Fields {
            ends,
            width,
            data,
            count,
        })
    }

    /// Returns the bytes of field `index`; REQUIRES: `index` < count, else they are empty.
    #[inline]
    pub fn get(&self, index: usize) -> Result<&'a [u8], RowError> {
        let start = if index == 0 { 0 } else { self.end(index - 1) };
        let end = self.end(index);
        self.data.get(start..end).ok_or(RowError::Field {
            end,
            bytes: self.data.len(),
        })
    }

    #[inline]
    fn end(&self, index: usize) -> usize {
        if index + 1 >= self.count {
            return self.data.len();
        }
        let at = index * self.width;
        let Some(bytes) = self.ends.get(at..at + self.width) else {
            return self.data.len();
        };
        match *bytes {
            [a] => usize::from(a),
            [a, b] => usize::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) as usize,
            _ => self.data.len(),
        }
    }
}

/// Appends an unsigned LEB128.
pub(super) fn push_leb128(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a LEB128 and returns it with the bytes after it; `None` if it is cut or over 63 bits.
pub(super) fn read_leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(9) {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}
