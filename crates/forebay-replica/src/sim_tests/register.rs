//! Checks linearizability of a key that is only set and read, with no value set twice.
//!
//! It needs no search, after Gibbons and Korach.
//!
//! A value's *zone* reaches from the first end to the last begin of the calls that set or saw it.
//! If it reaches forward, the key had that value all the time between. If it reaches backward, the
//! key had it at least at one moment between. So forward zones may not overlap, and no backward
//! zone may be within a forward one.

use std::collections::BTreeMap;

use super::linear::{Call, Verdict};
use super::model::{Answer, Op};

#[derive(Debug, Clone, Copy)]
struct Zone {
    set: u64,
    first_end: u64,
    last_begin: u64,
    is_seen: bool,
}

/// Returns `None` if the history has other operations.
pub fn check_register(history: &[Call]) -> Option<Verdict> {
    // The key starts without a value: that counts as set at 0, and all calls as one moment later
    // than they say.
    let nothing = Zone {
        set: 0,
        first_end: 0,
        last_begin: 0,
        is_seen: true,
    };
    let mut zones = BTreeMap::from([(None, nothing)]);
    for call in history {
        let end = call.end.map_or(u64::MAX, |(end, _)| end + 1);
        let zone = Zone {
            set: call.begin + 1,
            first_end: end,
            last_begin: call.begin + 1,
            is_seen: call.end.is_some(),
        };
        match call.op {
            Op::Get => {}
            Op::Set(value) if zones.insert(Some(value), zone).is_none() => {}
            _ => return None,
        }
    }
    for call in history {
        let Some((end, Answer::Value(value))) = call.end else {
            continue;
        };
        let (begin, end) = (call.begin + 1, end + 1);
        let Some(zone) = zones.get_mut(&value).filter(|zone| zone.set <= end) else {
            return Some(Verdict::Wrong);
        };
        zone.first_end = zone.first_end.min(end);
        zone.last_begin = zone.last_begin.max(begin);
        zone.is_seen = true;
    }
    // A call without an answer whose value no read saw had no effect.
    let zones: Vec<_> = zones.into_values().filter(|zone| zone.is_seen).collect();
    Some(match fit(&zones) {
        true => Verdict::Linearizable,
        false => Verdict::Wrong,
    })
}

fn fit(zones: &[Zone]) -> bool {
    let is_forward = |zone: &&Zone| zone.first_end < zone.last_begin;
    let mut forward: Vec<&Zone> = zones.iter().filter(is_forward).collect();
    forward.sort_by_key(|zone| zone.first_end);
    let overlap = |two: &[&Zone]| two[0].last_begin > two[1].first_end;
    if forward.windows(2).any(overlap) {
        return false;
    }
    zones.iter().filter(|zone| !is_forward(zone)).all(|zone| {
        // The last forward zone that begins before it.
        let before = forward.partition_point(|other| other.first_end < zone.last_begin);
        let other = before.checked_sub(1).map(|at| forward[at]);
        other.is_none_or(|other| zone.first_end >= other.last_begin)
    })
}
