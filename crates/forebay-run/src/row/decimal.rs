//! Formats integers and decimals exactly as text.

pub(super) fn write_int(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    write_uint(value.unsigned_abs(), out);
}

pub(super) fn write_uint(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends `value` times 10^-scale: `12.340` for 12340 at scale 3, `1200` for 12 at scale -2.
pub fn write_decimal(value: i128, scale: i8, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 40];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    while rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    place_point(value < 0, &digits[at..], scale, out);
}

/// Does [`write_decimal`] for a 256-bit value, little-endian two's complement.
pub fn write_decimal256(value: &[u8; 32], scale: i8, out: &mut Vec<u8>) {
    let negative = value[31] & 0x80 != 0;
    let mut limbs = [0_u32; 8];
    for (limb, bytes) in limbs.iter_mut().zip(value.chunks_exact(4)) {
        *limb = bytes
            .iter()
            .rev()
            .fold(0, |all, byte| all << 8 | u32::from(*byte));
    }
    if negative {
        negate(&mut limbs);
    }
    let mut digits = [0_u8; 81];
    let mut at = digits.len();
    while limbs.iter().any(|limb| *limb != 0) {
        let mut group = divide(&mut limbs, 1_000_000_000);
        for _ in 0..9 {
            at -= 1;
            digits[at] = b'0' + (group % 10) as u8;
            group /= 10;
        }
    }
    let zeroes = digits[at..]
        .iter()
        .take_while(|digit| **digit == b'0')
        .count();
    place_point(negative, &digits[at + zeroes..], scale, out);
}

/// `digits` has no leading zeroes; it is empty for zero.
fn place_point(negative: bool, digits: &[u8], scale: i8, out: &mut Vec<u8>) {
    if negative {
        out.push(b'-');
    }
    if scale <= 0 {
        out.extend_from_slice(if digits.is_empty() { b"0" } else { digits });
        let zeroes = if digits.is_empty() {
            0
        } else {
            usize::from(scale.unsigned_abs())
        };
        out.resize(out.len() + zeroes, b'0');
        return;
    }
    let after = scale.unsigned_abs() as usize;
    let before = digits.len().saturating_sub(after);
    out.extend_from_slice(if before == 0 { b"0" } else { &digits[..before] });
    out.push(b'.');
    out.resize(out.len() + after - (digits.len() - before), b'0');
    out.extend_from_slice(&digits[before..]);
}

fn negate(limbs: &mut [u32; 8]) {
    let mut carry = true;
    for limb in limbs {
        let (value, over) = (!*limb).overflowing_add(u32::from(carry));
        (*limb, carry) = (value, over);
    }
}

/// Divides in place and returns the remainder; limbs are little-endian.
fn divide(limbs: &mut [u32; 8], by: u32) -> u32 {
    let mut rest = 0_u64;
    for limb in limbs.iter_mut().rev() {
        let all = rest << 32 | u64::from(*limb);
        *limb = (all / u64::from(by)) as u32;
        rest = all % u64::from(by);
    }
    rest as u32
}
