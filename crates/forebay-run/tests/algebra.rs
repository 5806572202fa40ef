//! The laws of the operation algebra: composition is associative, closed, and means "do the older,
//! then the newer".

use forebay_run::operation::{CowOperation, DeltaKind, Operation};
use forebay_run::times::Times;
use proptest::prelude::*;
use std::borrow::Cow;

fn operand(kind: DeltaKind) -> BoxedStrategy<Vec<u8>> {
    match kind {
        DeltaKind::Append => prop::collection::vec(any::<u8>(), 0..6).boxed(),
        // Whole numbers: their sums are exact, so that the laws hold to the bit.
        DeltaKind::AddF64 => (-1000i32..1000)
            .prop_map(|n| f64::from(n).to_le_bytes().to_vec())
            .boxed(),
        // Half of them near the limits, where saturation matters.
        _ => prop_oneof![any::<i64>(), -9i64..9, (0i64..9).prop_map(|n| i64::MAX - n)]
            .prop_map(|n| n.to_le_bytes().to_vec())
            .boxed(),
    }
}

fn kinds() -> impl Strategy<Value = DeltaKind> {
    use DeltaKind::{AddF64, AddI64, AddI64Saturating, Append, Max, Min};
    prop::sample::select(vec![AddI64, AddI64Saturating, AddF64, Append, Min, Max])
}

fn operation(kind: DeltaKind) -> BoxedStrategy<CowOperation<'static>> {
    let owned = || operand(kind).prop_map(Cow::<[u8]>::Owned);
    let plain = prop_oneof![
        owned().prop_map(CowOperation::Update),
        owned().prop_map(CowOperation::Insert),
        Just(CowOperation::Delete),
        owned().prop_map(CowOperation::Delta),
        (owned(), owned()).prop_map(|(value, delta)| CowOperation::InsertDelta { value, delta }),
    ];
    (plain, times())
        .prop_map(|(plain, times)| plain.with_times(times))
        .boxed()
}

/// Times close together, so that some expire before others are written; often none.
fn times() -> impl Strategy<Value = Times> {
    let both = (0u64..9, 0u64..9).prop_map(|(written_ms, expires_ms)| Times {
        written_ms,
        expires_ms,
    });
    let written = (0u64..9).prop_map(|written_ms| Times {
        written_ms,
        ..Times::NONE
    });
    prop_oneof![Just(Times::NONE), both, written]
}

fn expiry() -> impl Strategy<Value = u64> {
    prop_oneof![Just(u64::MAX), 0u64..9]
}

/// A value and its expiry, or none.
type Stored = Option<(Vec<u8>, u64)>;

fn stored(kind: DeltaKind) -> impl Strategy<Value = Stored> {
    prop::option::of((operand(kind), expiry()))
}

fn apply(operation: &Operation<'_>, before: &Stored, kind: DeltaKind) -> Stored {
    let before = before.as_ref().map(|(value, until)| (&value[..], *until));
    operation.apply(before, kind).expect("operands of the kind")
}

fn history() -> impl Strategy<Value = (DeltaKind, Vec<CowOperation<'static>>, Stored)> {
    kinds().prop_flat_map(|kind| {
        let operations = prop::collection::vec(operation(kind), 3);
        (Just(kind), operations, stored(kind))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn composing_then_applying_is_applying_in_turn((kind, ops, base) in history()) {
        let (first, second) = (ops[0].borrow(), ops[1].borrow());
        let stepwise = apply(&second, &apply(&first, &base, kind), kind);
        let composed = second.after(&first, kind).unwrap();
        prop_assert_eq!(apply(&composed.borrow(), &base, kind), stepwise);
    }

    #[test]
    fn composition_is_associative((kind, ops, _) in history()) {
        let (a, b, c) = (ops[0].borrow(), ops[1].borrow(), ops[2].borrow());
        let left = c.after(&b.after(&a, kind).unwrap().borrow(), kind).unwrap();
        let right = c.after(&b, kind).unwrap().borrow().after(&a, kind).unwrap();
        prop_assert_eq!(left, right);
    }

    #[test]
    fn a_final_operation_hides_the_past((kind, ops, base) in history()) {
        let last = ops[0].borrow();
        if last.is_final() {
            prop_assert_eq!(apply(&last, &base, kind), apply(&last, &None, kind));
        }
    }
}

#[test]
fn the_papers_oddities_have_their_plain_meaning() {
    let (one, two) = (1i64.to_le_bytes(), 2i64.to_le_bytes());
    let kind = DeltaKind::AddI64;
    let after_delete = Operation::Delta(&two)
        .after(&Operation::Delete, kind)
        .unwrap();
    assert_eq!(after_delete.borrow(), Operation::Update(&two));
    let insert_delta = Operation::Delta(&two)
        .after(&Operation::Insert(&one), kind)
        .unwrap();
    let three = 3i64.to_le_bytes();
    assert_eq!(
        insert_delta.borrow(),
        Operation::InsertDelta {
            value: &three,
            delta: &two
        }
    );
    assert!(kind.add(b"short", &one).is_err());
    assert!(kind.check(b"short").is_err());
    assert!(DeltaKind::Append.check(b"short").is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// For any grouping of a long history into runs, the result is that of its steps.
    #[test]
    fn the_grouping_of_a_long_history_makes_no_difference(
        (kind, ops, base) in kinds().prop_flat_map(|kind| {
            let operations = prop::collection::vec(operation(kind), 1..12);
            (Just(kind), operations, stored(kind))
        }),
        now_ms in 0u64..9,
        cut in any::<prop::sample::Index>(),
    ) {
        let stepwise = ops.iter().fold(base.clone(), |value, operation| {
            apply(&operation.borrow(), &value, kind)
        });
        let compose = |ops: &[CowOperation<'static>]| {
            ops.iter().cloned().reduce(|older, newer| {
                newer.borrow().after(&older.borrow(), kind).unwrap()
            })
        };
        let whole = compose(&ops).unwrap();
        prop_assert_eq!(apply(&whole.borrow(), &base, kind), stepwise);
        let (older, newer) = ops.split_at(cut.index(ops.len()));
        if let (Some(older), Some(newer)) = (compose(older), compose(newer)) {
            let grouped = newer.borrow().after(&older.borrow(), kind).unwrap();
            prop_assert_eq!(&grouped, &whole);
        }
        // The value that a reader sees of a key without known older operations.
        let alone = apply(&whole.borrow(), &None, kind);
        let value = whole.borrow().value().map(|(value, until)| (value.to_vec(), until));
        prop_assert_eq!(&value, &alone);
        let seen = alone.filter(|(_, until)| now_ms < *until).map(|(value, _)| value);
        prop_assert_eq!(whole.into_value(|| now_ms).map(|value| value.into_owned()), seen);
    }
}

proptest! {
    /// Dropping expired records changes nothing for later readers and writers.
    #[test]
    fn records_that_expired_before_all_later_writes_can_be_dropped(
        (kind, ops) in kinds().prop_flat_map(|kind| {
            (Just(kind), prop::collection::vec((operation(kind), 0u64..4), 1..12))
        }),
        cut in any::<prop::sample::Index>(),
        later in 0u64..9,
    ) {
        // Time advances from operation to operation; deltas have the time of theirs.
        let mut now_ms = 0;
        let mut history = Vec::new();
        for (operation, step) in ops {
            now_ms += step;
            let times = operation.borrow().times();
            let written = Times { written_ms: now_ms, ..times };
            // If records expire, inserts are settled when they are written.
            if !matches!(operation.borrow().plain(), Operation::Insert(_) | Operation::InsertDelta { .. }) {
                history.push((now_ms, operation.with_times(written)));
            }
        }
        let (old, new) = history.split_at(cut.index(history.len() + 1));
        let expired_ms = new.first().map_or(now_ms, |(written, _)| *written);
        let run = |history: &[(u64, CowOperation<'static>)], before: Stored| {
            history.iter().fold(before, |value, (_, operation)| apply(&operation.borrow(), &value, kind))
        };
        let kept = run(old, None);
        let dropped = kept.clone().filter(|(_, until)| *until > expired_ms);
        let read = |stored: Stored| stored.filter(|(_, until)| now_ms.max(expired_ms) + later < *until);
        prop_assert_eq!(read(run(new, dropped)), read(run(new, kept)));
    }
}
