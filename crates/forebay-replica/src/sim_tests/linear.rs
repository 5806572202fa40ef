//! Checks whether a history of one key is linearizable.
//!
//! It is if its calls can be put in an order in which a single map would have answered the same.
//! Each call is between its begin and its end there.
//!
//! The check is a search, after Wing and Gong: the next call is one that began before any other
//! remaining call ended. What was tried (which calls are done, and the value then) is not tried
//! again. A call without an answer may be at any place after its begin, or at none. Histories that
//! only set and get need no search ([`check_register`]).

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use xxhash_rust::xxh3::Xxh3Default;

use super::model::{Answer, Op};
use super::register::check_register;

#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub op: Op,
    pub begin: u64,
    /// The time and content of the answer; `None`: it may have happened or not.
    pub end: Option<(u64, Answer)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Linearizable,
    Wrong,
    /// There are too many possible orders.
    Undecided,
}

/// The most steps of the search.
const MOST_STEPS: usize = 2_000_000;

type Done = (Box<[u64]>, Option<i64>);

struct Search {
    calls: Vec<Call>,
    done: Box<[u64]>,
    answered_left: usize,
    tried: HashSet<Done, BuildHasherDefault<Xxh3Default>>,
    steps: usize,
}

pub fn check(history: &[Call]) -> Verdict {
    if let Some(verdict) = check_register(history) {
        return verdict;
    }
    let mut calls = history.to_vec();
    calls.sort_by_key(|call| call.begin);
    let answered_left = calls.iter().filter(|call| call.end.is_some()).count();
    let words = calls.len().div_ceil(64);
    let mut search = Search {
        calls,
        done: vec![0; words].into(),
        answered_left,
        tried: HashSet::default(),
        steps: 0,
    };
    match search.search_from(None, 0) {
        true => Verdict::Linearizable,
        false if search.steps > MOST_STEPS => Verdict::Undecided,
        false => Verdict::Wrong,
    }
}

impl Search {
    fn is_done(&self, at: usize) -> bool {
        self.done[at / 64] & (1 << (at % 64)) != 0
    }

    /// Returns whether the remaining calls can follow. Those before `first` are done.
    fn search_from(&mut self, value: Option<i64>, mut first: usize) -> bool {
        if self.answered_left == 0 {
            return true;
        }
        self.steps += 1;
        if self.steps > MOST_STEPS || !self.tried.insert((self.done.clone(), value)) {
            return false;
        }
        while first < self.calls.len() && self.is_done(first) {
            first += 1;
        }
        let mut bound = u64::MAX;
        let mut next = Vec::new();
        for at in first..self.calls.len() {
            let call = &self.calls[at];
            if call.begin > bound {
                break;
            }
            if !self.is_done(at) {
                bound = bound.min(call.end.map_or(u64::MAX, |(end, _)| end));
                next.push(at);
            }
        }
        // Try answered calls first: a call without an answer is seldom needed.
        next.sort_by_key(|at| self.calls[*at].end.map_or(u64::MAX, |(end, _)| end));
        next.into_iter().any(|at| self.try_next(at, value, first))
    }

    fn try_next(&mut self, at: usize, value: Option<i64>, first: usize) -> bool {
        let Call { op, end, .. } = self.calls[at];
        let (after, answer) = op.apply(value);
        let (is_answered, fits) = (
            end.is_some(),
            end.is_none_or(|(_, reported)| reported == answer),
        );
        // A call without an answer that changes nothing need not have happened.
        if !fits || (!is_answered && after == value) {
            return false;
        }
        self.done[at / 64] |= 1 << (at % 64);
        self.answered_left -= usize::from(is_answered);
        let works = self.search_from(after, first);
        self.done[at / 64] &= !(1 << (at % 64));
        self.answered_left += usize::from(is_answered);
        works
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(op: Op, begin: u64, end: u64, answer: Answer) -> Call {
        let end = Some((end, answer));
        Call { op, begin, end }
    }

    fn got(begin: u64, end: u64, value: Option<i64>) -> Call {
        call(Op::Get, begin, end, Answer::Value(value))
    }

    fn set(begin: u64, end: u64, value: i64) -> Call {
        call(Op::Set(value), begin, end, Answer::Done(true))
    }

    fn uncertain(op: Op, begin: u64) -> Call {
        let end = None;
        Call { op, begin, end }
    }

    #[track_caller]
    fn is(verdict: Verdict, history: &[Call]) {
        assert_eq!(check(history), verdict);
    }

    #[test]
    fn good_histories_are_linearizable() {
        let good = Verdict::Linearizable;
        is(good, &[]);
        is(
            good,
            &[
                set(0, 10, 1),
                got(2, 4, None),
                got(5, 6, Some(1)),
                got(11, 12, Some(1)),
            ],
        );
        let add = |begin, end, sum| call(Op::Add(1), begin, end, Answer::Value(Some(sum)));
        is(good, &[add(0, 9, 2), add(1, 8, 1), add(10, 12, 3)]);
        let absent =
            |begin, done| call(Op::SetIfAbsent(begin as i64), begin, 20, Answer::Done(done));
        is(
            good,
            &[absent(0, false), absent(1, true), got(21, 22, Some(1))],
        );
    }

    #[test]
    fn an_uncertain_call_may_take_effect_at_any_later_time_or_never() {
        let good = Verdict::Linearizable;
        is(
            good,
            &[
                uncertain(Op::Set(1), 0),
                got(5, 6, None),
                got(7, 8, Some(1)),
            ],
        );
        is(
            good,
            &[uncertain(Op::Set(1), 0), got(5, 6, None), got(7, 8, None)],
        );
        is(
            good,
            &[
                uncertain(Op::Add(2), 0),
                uncertain(Op::Add(3), 1),
                got(5, 6, Some(3)),
            ],
        );
        let history = [
            uncertain(Op::Set(1), 0),
            got(5, 6, Some(1)),
            got(7, 8, None),
        ];
        is(Verdict::Wrong, &history);
        is(
            Verdict::Wrong,
            &[uncertain(Op::Set(1), 5), got(1, 2, Some(1))],
        );
    }

    #[test]
    fn bad_histories_are_found() {
        let wrong = Verdict::Wrong;
        // A lost write.
        is(wrong, &[set(0, 1, 1), got(2, 3, None)]);
        // A stale read.
        is(wrong, &[set(0, 1, 1), set(2, 3, 2), got(4, 5, Some(1))]);
        // Two reads that go back.
        is(
            wrong,
            &[
                set(0, 1, 1),
                set(2, 9, 2),
                got(3, 4, Some(2)),
                got(5, 6, Some(1)),
            ],
        );
        // A doubled delta.
        let add = call(Op::Add(1), 0, 1, Answer::Value(Some(1)));
        is(wrong, &[add, got(2, 3, Some(2))]);
        is(wrong, &[uncertain(Op::Add(1), 0), got(2, 3, Some(2))]);
        // A write that was refused, and is not in the history, is seen.
        is(wrong, &[got(2, 3, Some(7))]);
        // Two that both were the first.
        let first = |begin| call(Op::SetIfAbsent(1), begin, begin + 5, Answer::Done(true));
        is(wrong, &[first(0), first(1)]);
        let swap = |to| call(Op::CompareAndSet(1, to), 2, 9, Answer::Done(true));
        is(wrong, &[set(0, 1, 1), swap(2), swap(3)]);
    }

    #[test]
    fn a_long_history_is_decided() {
        let delete = call(Op::Delete, 0, 0, Answer::Done(true));
        let mut history = vec![delete];
        for at in 0..300_i64 {
            let begin = at as u64 * 10;
            history.push(set(begin, begin + 15, at));
            history.push(got(begin + 16, begin + 17, Some(at)));
        }
        history.extend((0..5).map(|at| uncertain(Op::Set(1000 + at), at as u64 * 500)));
        is(Verdict::Linearizable, &history);
        history.push(got(9000, 9001, Some(5)));
        is(Verdict::Wrong, &history);
    }
}
