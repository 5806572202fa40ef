//! The laws of the operation algebra: composition is associative, closed, and means "do the older,
//! then the newer".

use forebay_run::operation::{CowOperation, DeltaKind, Operation};
use proptest::prelude::*;
use std::borrow::Cow;

fn operand(kind: DeltaKind) -> BoxedStrategy<Vec<u8>> {
    match kind {
        DeltaKind::Append => prop::collection::vec(any::<u8>(), 0..6).boxed(),
        // Whole numbers: their sums are exact, so that the laws hold to the bit.
        DeltaKind::AddF64 => (-1000i32..1000)
            .prop_map(|n| f64::from(n).to_le_bytes().to_vec())
            .boxed(),
        // Half of them near the limits, where saturating shows.
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
    prop_oneof![
        owned().prop_map(CowOperation::Update),
        owned().prop_map(CowOperation::Insert),
        Just(CowOperation::Delete),
        owned().prop_map(CowOperation::Delta),
        (owned(), owned()).prop_map(|(value, delta)| CowOperation::InsertDelta { value, delta }),
    ]
    .boxed()
}

fn history() -> impl Strategy<Value = (DeltaKind, Vec<CowOperation<'static>>, Option<Vec<u8>>)> {
    kinds().prop_flat_map(|kind| {
        let operations = prop::collection::vec(operation(kind), 3);
        (Just(kind), operations, prop::option::of(operand(kind)))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn composing_then_applying_is_applying_in_turn((kind, ops, base) in history()) {
        let (first, second) = (ops[0].borrow(), ops[1].borrow());
        let between = first.apply(base.as_deref(), kind).unwrap();
        let stepwise = second.apply(between.as_deref(), kind).unwrap();
        let composed = second.after(&first, kind).unwrap();
        prop_assert_eq!(composed.borrow().apply(base.as_deref(), kind).unwrap(), stepwise);
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
            let with = last.apply(base.as_deref(), kind).unwrap();
            prop_assert_eq!(with, last.apply(None, kind).unwrap());
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

    /// However a long history is grouped into runs, what comes of it is what its steps come to.
    #[test]
    fn long_histories_come_to_the_same_however_they_are_grouped(
        (kind, ops, base) in kinds().prop_flat_map(|kind| {
            let operations = prop::collection::vec(operation(kind), 1..12);
            (Just(kind), operations, prop::option::of(operand(kind)))
        }),
        cut in any::<prop::sample::Index>(),
    ) {
        let stepwise = ops.iter().fold(base.clone(), |value, operation| {
            operation.borrow().apply(value.as_deref(), kind).unwrap()
        });
        let compose = |ops: &[CowOperation<'static>]| {
            ops.iter().cloned().reduce(|older, newer| {
                newer.borrow().after(&older.borrow(), kind).unwrap()
            })
        };
        let whole = compose(&ops).unwrap();
        prop_assert_eq!(whole.borrow().apply(base.as_deref(), kind).unwrap(), stepwise);
        let (older, newer) = ops.split_at(cut.index(ops.len()));
        if let (Some(older), Some(newer)) = (compose(older), compose(newer)) {
            let grouped = newer.borrow().after(&older.borrow(), kind).unwrap();
            prop_assert_eq!(&grouped, &whole);
        }
        // What a reader sees of a key that nothing older is known of.
        let alone = whole.borrow().apply(None, kind).unwrap();
        prop_assert_eq!(whole.into_value().map(|value| value.into_owned()), alone);
    }
}
