//! Compares two versions key by key.

use std::cmp::Ordering;
use std::sync::Arc;

use forebay_run::Order;
use forebay_run::scan::Direction;

use crate::error::ReadError;
use crate::figures::compare::{ColumnChange, Comparer};
use crate::figures::schema_change::SchemaChange;
use crate::tables::scan::VersionScan;
use crate::tables::version::Version;

/// The kind of a key's difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    Added,
    Removed,
    Changed,
}

/// An example of a key that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffSample {
    pub difference: Difference,
    pub key: Vec<u8>,
    /// The changed columns of a changed key.
    pub columns: Vec<ColumnChange>,
}

/// The counts of differences, and the first few examples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffReport {
    pub rows_before: u64,
    pub rows_after: u64,
    pub added: u64,
    pub removed: u64,
    /// Keys in both whose values differ in a column that both have.
    pub changed: u64,
    pub same: u64,
    /// For each column that both versions have, the number of rows in which it changed.
    pub columns: Vec<(String, u64)>,
    pub schema: SchemaChange,
    /// The first differences of each kind, in the order of the newer version.
    pub samples: Vec<DiffSample>,
}

/// A key of one version or of both, with its values.
enum Pair<'a> {
    Before(&'a [u8]),
    After(&'a [u8]),
    Both {
        key: &'a [u8],
        before: &'a [u8],
        after: &'a [u8],
    },
}

/// Compares two versions completely, key by key; `samples` limits the examples of each kind.
/// `advance` receives the number of rows passed, counted over both versions together.
pub fn diff(
    before: &Arc<Version>,
    after: &Arc<Version>,
    samples: usize,
    advance: &mut dyn FnMut(u64),
) -> Result<DiffReport, ReadError> {
    let comparer = Comparer::new(before.manifest(), after.manifest());
    let columns = comparer
        .columns
        .iter()
        .map(|column| (column.clone(), 0))
        .collect();
    let report = DiffReport {
        rows_before: before.manifest().rows(),
        rows_after: after.manifest().rows(),
        added: 0,
        removed: 0,
        changed: 0,
        same: 0,
        columns,
        schema: SchemaChange::between(before.manifest(), after.manifest()),
        samples: Vec::new(),
    };
    let mut tally = DiffTally {
        comparer,
        report,
        samples,
        changed: Vec::new(),
    };
    let mut visit = |pair: Pair<'_>| {
        advance(if matches!(pair, Pair::Both { .. }) {
            2
        } else {
            1
        });
        tally.add(&pair)
    };
    let one_order = before.order() == after.order()
        && (before.order() == Order::Ordered || before.hasher() == after.hasher());
    if one_order {
        merge(before, after, &mut visit)?;
    } else {
        look_up(before, after, &mut visit)?;
    }
    Ok(tally.report)
}

struct DiffTally<'a> {
    comparer: Comparer<'a>,
    report: DiffReport,
    samples: usize,
    changed: Vec<usize>,
}

impl DiffTally<'_> {
    fn add(&mut self, pair: &Pair<'_>) -> Result<(), ReadError> {
        match pair {
            Pair::Before(key) => {
                self.report.removed += 1;
                self.sample(self.report.removed, Difference::Removed, key, Vec::new());
            }
            Pair::After(key) => {
                self.report.added += 1;
                self.sample(self.report.added, Difference::Added, key, Vec::new());
            }
            Pair::Both { key, before, after } => self.add_both(key, before, after)?,
        }
        Ok(())
    }

    fn add_both(&mut self, key: &[u8], before: &[u8], after: &[u8]) -> Result<(), ReadError> {
        self.changed.clear();
        let changed = &mut self.changed;
        if !self
            .comparer
            .compare(key, before, after, |column| changed.push(column))?
        {
            self.report.same += 1;
            return Ok(());
        }
        self.report.changed += 1;
        for &column in &self.changed {
            self.report.columns[column].1 += 1;
        }
        if self.report.changed <= self.samples as u64 {
            let change = |&column: &usize| self.comparer.change(key, column, before, after);
            let columns = self.changed.iter().map(change).collect::<Result<_, _>>()?;
            self.sample(self.report.changed, Difference::Changed, key, columns);
        }
        Ok(())
    }

    fn sample(
        &mut self,
        number: u64,
        difference: Difference,
        key: &[u8],
        columns: Vec<ColumnChange>,
    ) {
        if number <= self.samples as u64 {
            self.report.samples.push(DiffSample {
                difference,
                key: key.to_vec(),
                columns,
            });
        }
    }
}

type DiffVisit<'a> = dyn FnMut(Pair<'_>) -> Result<(), ReadError> + 'a;

/// Walks both versions side by side, if they have the same order.
fn merge(
    before: &Arc<Version>,
    after: &Arc<Version>,
    visit: &mut DiffVisit<'_>,
) -> Result<(), ReadError> {
    let mut a = before.scan(Direction::Forward);
    let mut b = after.scan(Direction::Forward);
    let mut more = (a.advance()?, b.advance()?);
    loop {
        let place = |scan: &VersionScan| scan.hash();
        let order = match more {
            (false, false) => return Ok(()),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (true, true) => place(&a).cmp(&place(&b)).then_with(|| a.key().cmp(b.key())),
        };
        match order {
            Ordering::Less => visit(Pair::Before(a.key()))?,
            Ordering::Greater => visit(Pair::After(b.key()))?,
            Ordering::Equal => {
                visit(Pair::Both {
                    key: a.key(),
                    before: a.value(),
                    after: b.value(),
                })?;
            }
        }
        if order.is_le() {
            more.0 = a.advance()?;
        }
        if order.is_ge() {
            more.1 = b.advance()?;
        }
    }
}

/// Looks every key up in the other version, if the versions have different orders.
fn look_up(
    before: &Arc<Version>,
    after: &Arc<Version>,
    visit: &mut DiffVisit<'_>,
) -> Result<(), ReadError> {
    let mut scan = after.scan(Direction::Forward);
    while scan.advance()? {
        let (key, after) = (scan.key(), scan.value());
        match before.get(key)? {
            Some(before) => visit(Pair::Both {
                key,
                before: &before,
                after,
            })?,
            None => visit(Pair::After(key))?,
        }
    }
    let mut scan = before.scan(Direction::Forward);
    while scan.advance()? {
        if !after.exists(scan.key())? {
            visit(Pair::Before(scan.key()))?;
        }
    }
    Ok(())
}
