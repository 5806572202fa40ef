use forebay_engine::PartitionId;

use super::super::place::tests::{carts, cluster};
use super::*;

const WIDE: BalanceBounds = BalanceBounds {
    most_copies: 20,
    most_bytes: u64::MAX,
};

/// Six nodes hold the table. The partitions that the first node leads have most of the load.
fn skewed() -> (Model, Survey) {
    cluster(6, 6, |at| match at % 6 {
        0 => 60_000,
        _ => 6000,
    })
}

fn balance(
    model: &Model,
    survey: &Survey,
    bounds: BalanceBounds,
) -> Result<BalanceProposal, String> {
    let known = KnownLoad {
        summaries: &Summaries::new(),
        reads: &BatchReads::new(),
        survey,
    };
    propose_balance(model, known, &carts(), bounds)
}

#[test]
fn the_load_peak_names_its_node_and_table() {
    let (model, survey) = skewed();
    let peak = LoadPeak::of(&model, &BatchReads::new(), &survey).unwrap();
    assert_eq!((peak.node, &peak.table), (NodeId(0), &carts()));
    assert_eq!(
        (peak.load, peak.mean),
        (180_000.0, (180_000.0 + 13.0 * 6000.0) / 6.0)
    );
    assert!((peak.ratio() - 4.186).abs() < 0.01);
    let words = peak.words(&model);
    assert_eq!(
        words,
        "node n0 has 4.2 x the mean load, most of it by table carts"
    );
    let (model, survey) = cluster(3, 3, |_| 0);
    assert_eq!(
        LoadPeak::of(&model, &BatchReads::new(), &survey).map(|peak| peak.ratio()),
        Some(1.0)
    );
    assert_eq!(
        LoadPeak::of(&Model::default(), &BatchReads::new(), &Survey::new()),
        None
    );
}

#[test]
fn balancing_moves_leaders_and_copies_no_more_than_allowed() {
    let (model, survey) = skewed();
    let none = BalanceBounds {
        most_copies: 20,
        most_bytes: 0,
    };
    let made = balance(&model, &survey, none).unwrap();
    assert!(made.plan.copies.is_empty());
    assert!(
        made.words.contains("n0 4.2 x") && made.words.contains("copied: 0"),
        "{}",
        made.words
    );
    let few = BalanceBounds {
        most_copies: 20,
        most_bytes: 2 << 20,
    };
    let made = balance(&model, &survey, few).unwrap();
    let copied: u64 = made
        .plan
        .batches
        .iter()
        .map(|batch| batch.copied_bytes)
        .sum();
    assert!(copied <= 2 << 20);
}

#[test]
fn a_plan_that_is_not_worthwhile_is_refused_with_a_reason() {
    let (model, survey) = cluster(6, 6, |_| 6000);
    let why = balance(&model, &survey, WIDE).unwrap_err();
    assert!(why.contains("makes it 10% less"), "{why}");
    // One partition has all of the load.
    let (model, survey) = cluster(6, 6, |at| if at == 0 { 60_000 } else { 0 });
    let why = balance(&model, &survey, WIDE).unwrap_err();
    assert!(why.contains("too hot for any node: 1"), "{why}");
    let mut unsurveyed = survey;
    unsurveyed
        .get_mut(&carts())
        .unwrap()
        .remove(&PartitionId(3));
    assert!(balance(&model, &unsurveyed, WIDE).is_err());
}
