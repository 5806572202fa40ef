//! Tests of limits and their findings.

use forebay_engine::{Altered, NullShare, SchemaChange};
use forebay_run::row::{Column, Kind, Schema};

use super::*;

fn comparison() -> Comparison {
    Comparison {
        rows_before: 1000,
        rows_after: 700,
        rows_are_exact: true,
        bytes_before: 0,
        bytes_after: 10,
        bytes_are_exact: true,
        lost: Share {
            looked_at: 100,
            found: 31,
        },
        new: Share::default(),
        changed: Share {
            looked_at: 100,
            found: 100,
        },
        nulls: vec![
            NullShare {
                column: "a".into(),
                before: Some(0.1),
                after: Some(0.5),
            },
            NullShare {
                column: "b".into(),
                before: Some(0.1),
                after: Some(0.1),
            },
            NullShare {
                column: "new".into(),
                before: None,
                after: Some(1.0),
            },
        ],
        profiles: Vec::new(),
        schema: SchemaChange::default(),
    }
}

fn outcome(limit: &str) -> Vec<(String, bool)> {
    let findings = check(&[limit.parse().unwrap()], &comparison());
    findings
        .into_iter()
        .map(|finding| (finding.seen, finding.passed))
        .collect()
}

#[test]
fn limits_report_the_figures_they_saw() {
    assert_eq!(
        outcome("rows>-20%"),
        [("rows 1000 to 700 (-30%)".into(), false)]
    );
    assert_eq!(
        outcome("rows > -30.5%"),
        [("rows 1000 to 700 (-30%)".into(), true)]
    );
    assert!(!outcome("bytes<1000%")[0].1);
    assert!(!outcome("lost<30%")[0].1);
    assert!(outcome("new<1%")[0].1);
    assert!(!outcome("changed<100%")[0].1);
    assert_eq!(
        outcome("nulls<10%"),
        [("nulls of a from 10% to 50%".into(), false)]
    );
    assert!(outcome("nulls<41%").is_empty());
    assert_eq!(
        outcome("nulls(b)<11%"),
        [("10% of b are null".into(), true)]
    );
    assert!(!outcome("nulls(gone)<11%")[0].1);
}

#[test]
fn limits_replace_the_default_of_their_kind() {
    let given: Vec<Limit> = [
        "rows>-50%",
        "rows<10%",
        "column-gone(a)=report",
        "column-new = hold",
    ]
    .map(|text| text.parse().unwrap())
    .into();
    let texts: Vec<String> = limits(&given).iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "bytes>-30%",
            "lost<20%",
            "nulls<10%",
            "zeros<20%",
            "negative<50%",
            "nan<0.1%",
            "inf<0.1%",
            "common<30%",
            "shift<20%",
            "std>-60%",
            "std<200%",
            "distinct>-80%",
            "column-gone=hold",
            "type-changed=hold",
            "type-widened=report",
            "value-kind=hold",
            "key-template=hold",
            "order-lost=hold",
            "order-gained=report",
            "rows>-50%",
            "rows<10%",
            "column-gone(a)=report",
            "column-new=hold"
        ]
    );
}

#[test]
fn limits_replace_those_given_before_for_the_same() {
    let given = [
        "mean(a)<10%",
        "mean(b)<5%",
        "column-gone(a)=hold",
        "rows>-50%",
        "mean(a)<20%",
        "mean(a)>-5%",
        "column-gone(a)=report",
        "rows>-60%",
    ];
    let given: Vec<Limit> = given.map(|text| text.parse().unwrap()).into();
    let texts: Vec<String> = limits(&given).iter().map(ToString::to_string).collect();
    assert_eq!(
        texts[texts.len() - 5..],
        [
            "mean(b)<5%",
            "mean(a)<20%",
            "mean(a)>-5%",
            "column-gone(a)=report",
            "rows>-60%"
        ]
    );
    assert!(!texts.contains(&"rows>-20%".to_owned()), "{texts:?}");
}

#[test]
fn invalid_limits_are_refused_with_examples() {
    for text in [
        "",
        "rows",
        "rows>",
        "rows>-20",
        "rows>x%",
        "cats<1%",
        "nulls(<1%",
        "p101(a)<1%",
        "mean()<1%",
        "rows>inf%",
        "column-gone",
        "column-gone=keep",
        "column-gone()=hold",
        "order-lost(a)=hold",
        "columns=hold",
        "nulls=hold",
    ] {
        let error = text.parse::<Limit>().unwrap_err().to_string();
        assert!(
            error.contains("rows>-20%") && error.contains("column-gone=report"),
            "{error}"
        );
    }
}

#[test]
fn limits_that_bound_nothing_are_refused_with_valid_ones() {
    let refused = |text: &str| text.parse::<Limit>().unwrap_err().to_string();
    for text in [
        "mean(c)<-20%",
        "rows<-20%",
        "rows<0%",
        "shift<0%",
        "std(c)<-1e-9%",
    ] {
        let error = refused(text);
        assert!(
            error.contains("rows>-20%") && error.contains("0% after <"),
            "{error}"
        );
    }
    for text in ["nulls<0%", "lost<-5%", "nan(c)<0%", "changed<0%"] {
        let error = refused(text);
        assert!(
            error.contains("0% after <") && !error.contains("rows"),
            "{error}"
        );
    }
    for text in ["nulls(c)>100%", "changed>100%", "new>120%"] {
        assert!(refused(text).contains("end at 100%"), "{text}");
    }
    // These disable a limit, or demand a change.
    for text in [
        "lost<101%",
        "rows>-101%",
        "changed>1%",
        "rows>0%",
        "mean(c)>-150%",
    ] {
        assert!(text.parse::<Limit>().is_ok(), "{text}");
    }
}

#[test]
fn proposed_limits_can_be_given() {
    let mut seen = comparison();
    seen.changed.found = 0;
    (seen.nulls[1].after, seen.nulls[2].after) = (Some(0.0), Some(0.0));
    for (limit, remedy) in [
        ("changed>5%", None),
        ("nulls(b)>5%", None),
        ("rows>20%", Some("rows>-31%")),
    ] {
        let found = check(&[limit.parse().unwrap()], &seen);
        assert_eq!(
            (found[0].passed, found[0].remedy.as_deref()),
            (false, remedy)
        );
    }
    for column in ["", "a\nb", "a\0"] {
        let mut odd = comparison();
        odd.nulls[0].column = column.to_owned();
        let found = check(&["nulls<10%".parse().unwrap()], &odd);
        assert_eq!(
            (found[0].passed, &found[0].remedy),
            (false, &None),
            "{column:?}"
        );
        assert!(!found[0].seen.contains(char::is_control), "{found:?}");
        let found = held_by(&[], &[alteration(Altered::ColumnGone, Some(column))]);
        assert_eq!((found[0].1, &found[0].2), (false, &None), "{column:?}");
    }
}

fn alteration(what: Altered, column: Option<&str>) -> Alteration {
    Alteration {
        what,
        column: column.map(str::to_owned),
        before: Some("text".to_owned()),
        after: Some("int64".to_owned()),
    }
}

/// The schema's findings: limit, whether it passed, remedy.
fn held_by(given: &[&str], alterations: &[Alteration]) -> Vec<(String, bool, Option<String>)> {
    let given: Vec<Limit> = given.iter().map(|text| text.parse().unwrap()).collect();
    let seen = Comparison {
        rows_after: 1000,
        bytes_after: 0,
        lost: Share::default(),
        nulls: Vec::new(),
        schema: SchemaChange {
            alterations: alterations.to_vec(),
        },
        ..comparison()
    };
    let found = check(&limits(&given), &seen).into_iter();
    let found = found.filter(|finding| finding.limit.contains('='));
    found
        .map(|finding| {
            assert!(finding.reported && !finding.seen.is_empty());
            (finding.limit, finding.passed, finding.remedy)
        })
        .collect()
}

#[test]
fn schema_changes_that_readers_would_notice_are_held_by_default() {
    let column = Some("price.vat");
    for (what, column, holds) in [
        (Altered::ColumnGone, column, true),
        (Altered::ColumnNew, column, false),
        (Altered::TypeChanged, column, true),
        (Altered::TypeWidened, column, false),
        (Altered::ValueKind, None, true),
        (Altered::KeyTemplate, None, true),
        (Altered::OrderLost, None, true),
        (Altered::OrderGained, None, false),
    ] {
        let found = held_by(&[], &[alteration(what, column)]);
        let action = if holds { "hold" } else { "report" };
        let limit = format!("{}={action}", what.word());
        let remedy = column.map_or(what.word().to_owned(), |c| format!("{}({c})", what.word()));
        let remedy = holds.then(|| format!("{remedy}=report"));
        assert_eq!(found, [(limit, !holds, remedy.clone())]);
        // The suggested limit lets it pass.
        if let Some(remedy) = remedy {
            let found = held_by(&[&remedy], &[alteration(what, column)]);
            assert_eq!(found, [(remedy, true, None)]);
        }
    }
    assert_eq!(held_by(&[], &[]), []);
}

#[test]
fn the_last_limit_of_the_longest_path_decides() {
    let gone = |column| [alteration(Altered::ColumnGone, Some(column))];
    let given = [
        "column-gone(price)=report",
        "column-gone(price.vat)=hold",
        "column-gone(tags[])=report",
        "type-changed=report",
    ];
    let passed = |column| held_by(&given, &gone(column))[0].1;
    assert!(passed("price") && passed("price.net") && passed("tags[].name"));
    assert!(!passed("price.vat") && !passed("prices") && !passed("tags") && !passed("b"));
    let twice = ["column-gone(a)=hold", "column-gone(a)=report"];
    assert!(held_by(&twice, &gone("a"))[0].1);
    let all = held_by(&["column-gone=report"], &gone("a"));
    assert!(all[0].1);
}

#[test]
fn the_remedy_of_a_number_is_a_limit_that_it_passes() {
    for limit in [
        "rows>-20%",
        "rows>-30%",
        "lost<30.5%",
        "lost<31%",
        "nulls<10%",
    ] {
        let found = check(&[limit.parse().unwrap()], &comparison());
        let held: Vec<&Finding> = found.iter().filter(|finding| !finding.passed).collect();
        assert_eq!(held.len(), 1, "{limit}");
        let remedy = held[0].remedy.clone().unwrap();
        let now = check(&[remedy.parse().unwrap()], &comparison());
        assert!(
            now.iter().all(|finding| finding.passed),
            "{limit}: {remedy}"
        );
    }
    // A change from zero has no percentage.
    let found = check(&["bytes<1000%".parse().unwrap()], &comparison());
    assert_eq!((found[0].passed, &found[0].remedy), (false, &None));
}

#[test]
fn no_remedy_switches_a_limit_off() {
    let mut gone = comparison();
    (gone.rows_after, gone.lost.found) = (0, 100);
    gone.nulls[0].after = Some(1.0);
    for limit in [
        "rows>-20%",
        "lost<20%",
        "changed<5%",
        "nulls<10%",
        "nulls(a)<10%",
    ] {
        let found = check(&[limit.parse().unwrap()], &gone);
        assert_eq!(
            (found[0].passed, &found[0].remedy),
            (false, &None),
            "{limit}"
        );
    }
}

#[test]
fn limits_of_the_schema_for_columns_of_no_version_are_refused() {
    let int = |name: &str| Column::new(name, Kind::Int32, true);
    let list = |item: Column| Kind::List {
        item: Box::new(item),
        length: None,
    };
    let both = || {
        let item = Kind::Struct {
            fields: Schema::new(vec![int("x")]),
        };
        let item = Column::new("item", item, true);
        vec![int("id"), Column::new("tags", list(item), true)]
    };
    let serving = Schema::new([both(), vec![int("note")]].concat());
    let rows = Schema::new([both(), vec![int("fresh")]].concat());
    let refused = |limit: &str, serving: Option<&Schema>| {
        let limits = [limit.parse::<Limit>().unwrap()];
        let error = check_paths(&limits, &rows, serving).err();
        error.map(|error| error.to_string())
    };
    for fine in [
        "column-new(fresh)=hold",
        "column-gone(note)=report",
        // The column was dropped a night before.
        "column-gone(before)=report",
        "type-changed(note)=report",
        "type-changed(fresh)=report",
        "type-widened(tags[])=hold",
        "column-gone=report",
        "mean(nope)<5%",
    ] {
        assert_eq!(refused(fine, Some(&serving)), None, "{fine}");
    }
    for (limit, says) in [
        ("column-new(zz)=hold", "which the rows do not have"),
        ("column-new(note)=hold", "which the rows do not have"),
        (
            "type-changed(tags[].y)=report",
            "which neither the rows nor the version that serves have",
        ),
    ] {
        let error = refused(limit, Some(&serving)).unwrap();
        assert!(error.contains(limit) && error.contains(says), "{error}");
    }
    assert!(refused("type-changed(note)=report", None).is_some());
}
