//! Turns the request into the partitions that the inserts use: checks them, and splits those that
//! would exceed the limit.

use super::holders::Holders;
use super::request::{Operation, PartitionSpec, Request, TableSpec};
use super::samples::TableSamples;
use super::split::{FILL_COUNTED, Samples, SplitRule, cut, fill_for_samples, samples_at_limit};
use crate::input::{InputError, amount, positive};
use crate::{Action, Key, Step};

/// A partition after the splits.
#[derive(Debug, Clone)]
pub struct Piece {
    pub table: Option<u32>,
    pub low: Option<Key>,
    pub high: Option<Key>,
    /// The partition that it was split from, or is.
    pub of: u32,
    pub existing: f64,
    pub new: f64,
    pub running: f64,
    pub pinned: bool,
    pub record_bytes: f64,
}

/// The partitions as given, numbered through all tables.
#[derive(Debug, Clone)]
pub struct Original {
    pub table: Option<u32>,
    pub low: Option<Key>,
    pub high: Option<Key>,
    pub home: Holders,
}

/// The result of the splits. Pieces keep the number of their partition; further ones follow at the
/// end.
#[derive(Debug, Clone, Default)]
pub struct Pieces {
    pub originals: Vec<Original>,
    pub pieces: Vec<Piece>,
    /// The split steps; `split_of[piece]` is the last one that the piece waits for.
    pub steps: Vec<Step>,
    pub split_of: Vec<Option<u32>>,
    pub tables: Vec<String>,
    /// Pieces that would exceed the limit, as their samples have too few distinct keys.
    pub oversize: Vec<u32>,
}

/// Checks the request's partitions or tables and splits them. `machines` are those of the region
/// with the most.
pub fn pieces(request: &Request, machines: usize, fineness: usize) -> Result<Pieces, InputError> {
    let limit = limit(request)?;
    let fill = match request.fill {
        None => None,
        Some(fill) if fill > 0.0 && fill <= 1.0 => Some(fill),
        Some(fill) => {
            let problem = format!("{fill} is not a part of the limit above 0 and up to 1");
            return Err(InputError::new("fill", problem));
        }
    };
    let mut out = Pieces::default();
    let samples = match (&request.partitions, &request.tables) {
        (Some(partitions), None) => from_partitions(request, partitions, &mut out)?,
        (None, Some(tables)) => from_tables(request, tables, &mut out)?,
        _ => {
            let problem = "give either partitions or tables";
            return Err(InputError::new("input", problem));
        }
    };
    if let (Some(limit), Operation::Insert) = (limit, request.operation) {
        let rule = SplitRule {
            limit: limit.records(request.record_bytes),
            fill: fill.unwrap_or(FILL_COUNTED),
            machines,
            fineness,
            new_total: {
                let pieces = out.pieces.iter();
                pieces.map(|piece| piece.new + piece.running).sum()
            },
        };
        split_all(&samples, (limit, rule), fill, &mut out)?;
    }
    out.split_of.resize(out.pieces.len(), None);
    Ok(out)
}

/// The limit of a partition's size.
#[derive(Debug, Clone, Copy)]
enum PieceLimit {
    Records(f64),
    Bytes(f64),
}

impl PieceLimit {
    /// Returns the limit in records of this size.
    fn records(self, record_bytes: f64) -> f64 {
        match self {
            Self::Records(records) => records,
            Self::Bytes(bytes) => bytes / record_bytes,
        }
    }
}

fn limit(request: &Request) -> Result<Option<PieceLimit>, InputError> {
    positive(request.record_bytes, || "record_bytes".into())?;
    match (request.pi, request.pi_bytes) {
        (None, None) => Ok(None),
        (Some(pi), None) => {
            positive(pi, || "pi".into()).map(|records| Some(PieceLimit::Records(records)))
        }
        (None, Some(bytes)) => {
            positive(bytes, || "pi_bytes".into()).map(|bytes| Some(PieceLimit::Bytes(bytes)))
        }
        _ => Err(InputError::new(
            "pi_bytes",
            "pi and pi_bytes are both given: leave one out",
        )),
    }
}

/// Reads partitions, which have no samples.
fn from_partitions<'a>(
    request: &Request,
    partitions: &[PartitionSpec],
    out: &mut Pieces,
) -> Result<Vec<TableSamples<'a>>, InputError> {
    for (index, spec) in partitions.iter().enumerate() {
        let path = |field: &str| format!("partitions[{index}].{field}");
        let piece = Piece {
            table: None,
            low: None,
            high: None,
            of: index as u32,
            existing: amount(spec.e, || path("e"))?,
            new: amount(spec.n, || path("n"))?,
            running: amount(spec.running, || path("running"))?,
            pinned: spec.pinned,
            record_bytes: request.record_bytes,
        };
        if request.operation == Operation::Delete && piece.new > piece.existing {
            let problem = format!("{} records to delete of {}", piece.new, piece.existing);
            return Err(InputError::new(path("n"), problem));
        }
        out.pieces.push(piece);
        out.originals.push(Original {
            table: None,
            low: None,
            high: None,
            home: spec.h.clone(),
        });
    }
    Ok(Vec::new())
}

/// Reads tables, and returns the samples of each.
fn from_tables<'a>(
    request: &Request,
    tables: &'a [TableSpec],
    out: &mut Pieces,
) -> Result<Vec<TableSamples<'a>>, InputError> {
    let mut all = Vec::with_capacity(tables.len());
    for (index, table) in tables.iter().enumerate() {
        let name = table.name.clone();
        out.tables
            .push(name.unwrap_or_else(|| format!("table {index}")));
        let record_bytes = table.record_bytes.unwrap_or(request.record_bytes);
        let path = || format!("tables[{index}].record_bytes");
        positive(record_bytes, path)?;
        let samples = TableSamples::new(index, table)?;
        let ranges = ranges(index, table)?;
        for (place, ((low, high), home)) in ranges.into_iter().zip(&table.home).enumerate() {
            let (existing, new) = samples.of(place, low.as_ref(), high.as_ref());
            let existing = samples.existing_records(place, &existing);
            let mut changed = new.records();
            if request.operation == Operation::Delete {
                changed = changed.min(existing);
            }
            let table = Some(index as u32);
            out.pieces.push(Piece {
                table,
                low: low.clone(),
                high: high.clone(),
                of: out.originals.len() as u32,
                existing,
                new: changed,
                running: 0.0,
                pinned: false,
                record_bytes,
            });
            out.originals.push(Original {
                table,
                low,
                high,
                home: home.clone(),
            });
        }
        all.push(samples);
    }
    Ok(all)
}

type Range = (Option<Key>, Option<Key>);

/// Returns the partitions' ranges. The first and the last one are open, whatever keys are given as
/// the table's ends.
fn ranges(index: usize, table: &TableSpec) -> Result<Vec<Range>, InputError> {
    let (keys, count) = (&table.boundaries, table.home.len());
    let path = format!("tables[{index}].boundaries");
    if count == 0 {
        let problem = "a table has at least one partition, on some machine";
        return Err(InputError::new(format!("tables[{index}].home"), problem));
    }
    let inner = match keys.len() {
        len if len + 1 == count => &keys[..],
        len if len == count => &keys[1..],
        len if len == count + 1 => &keys[1..count],
        len => {
            let problem = format!(
                "{len} boundaries do not split a table into {count} partitions: give the {} between them",
                count - 1
            );
            return Err(InputError::new(path, problem));
        }
    };
    if let Some(place) = keys.windows(2).position(|pair| pair[0] >= pair[1]) {
        let problem = format!("{} does not come after {}", keys[place + 1], keys[place]);
        return Err(InputError::new(format!("{path}[{}]", place + 1), problem));
    }
    let lows = std::iter::once(None).chain(inner.iter().cloned().map(Some));
    let highs = inner.iter().cloned().map(Some).chain([None]);
    Ok(lows.zip(highs).collect())
}

fn split_all(
    samples: &[TableSamples],
    (limit, rule): (PieceLimit, SplitRule),
    fill: Option<f64>,
    out: &mut Pieces,
) -> Result<(), InputError> {
    if samples.is_empty() {
        return split_counted(rule, out);
    }
    let mut first = 0;
    for (table, samples) in samples.iter().enumerate() {
        let of_table = |original: &&Original| original.table == Some(table as u32);
        let partitions = out.originals[first..].iter().take_while(of_table).count();
        for place in 0..partitions {
            let limit = limit.records(out.pieces[first + place].record_bytes);
            let rule = SplitRule { limit, ..rule };
            split_sampled(samples, (first + place, place), rule, fill, out)?;
        }
        first += partitions;
    }
    Ok(())
}

/// Splits one partition, given with its place in its table, if it would exceed the limit.
fn split_sampled(
    samples: &TableSamples,
    (index, place): (usize, usize),
    rule: SplitRule,
    fill: Option<f64>,
    out: &mut Pieces,
) -> Result<(), InputError> {
    let whole = &out.pieces[index];
    if whole.existing + whole.new <= rule.limit {
        return Ok(());
    }
    let (low, high) = (whole.low.as_ref(), whole.high.as_ref());
    let (existing, new) = samples.of(place, low, high);
    let by_samples = || fill_for_samples(samples_at_limit(rule.limit, &existing, &new));
    let fill = fill.unwrap_or_else(by_samples);
    let count = SplitRule { fill, ..rule }.pieces(whole.existing, whole.new);
    check_count(out.pieces.len().saturating_add(count))?;
    split_by_samples(out, index, count, existing, new, rule.limit);
    Ok(())
}

/// Splits partitions of which only counts are known.
fn split_counted(rule: SplitRule, out: &mut Pieces) -> Result<(), InputError> {
    let pieces = out.pieces.iter();
    let counts = pieces.map(|piece| rule.pieces(piece.existing, piece.new + piece.running));
    let counts: Vec<usize> = counts.collect();
    // Check before any is made: so many would not fit the memory.
    let sum = counts
        .iter()
        .fold(0usize, |sum, count| sum.saturating_add(*count));
    check_count(sum)?;
    for (index, count) in counts.into_iter().enumerate() {
        split_evenly(out, index, count);
    }
    Ok(())
}

/// The most pieces: a request for more is a mistake.
const MOST_PIECES: usize = 5_000_000;

fn check_count(count: usize) -> Result<(), InputError> {
    if count <= MOST_PIECES {
        return Ok(());
    }
    let problem = format!("there would be {count} pieces or more: the limit is too small");
    Err(InputError::new("pi", problem))
}

/// Splits a partition of which only counts are known. The executor of the split chooses the keys.
fn split_evenly(out: &mut Pieces, index: usize, count: usize) {
    if count < 2 {
        return;
    }
    let part = {
        let piece = &mut out.pieces[index];
        for amount in [&mut piece.existing, &mut piece.new, &mut piece.running] {
            *amount /= count as f64;
        }
        piece.clone()
    };
    let cuts = (1..count).map(|_| (None, part.clone()));
    add_pieces(out, index, cuts.collect());
}

/// Splits a partition at some of its samples into `count` pieces, or fewer.
fn split_by_samples(
    out: &mut Pieces,
    index: usize,
    count: usize,
    existing: Samples,
    new: Samples,
    limit: f64,
) {
    let whole = out.pieces[index].clone();
    let (low, high) = (whole.low.as_ref(), whole.high.as_ref());
    let cuts = cut(existing, new, low, count);
    if cuts.is_empty() {
        out.oversize.push(index as u32);
        return;
    }
    let end = high;
    let piece = |low: Option<&Key>, high: Option<&Key>| Piece {
        low: low.cloned(),
        high: high.cloned(),
        existing: existing.records_between(low, high, end),
        new: new.within(low, high).records(),
        ..whole.clone()
    };
    let highs = cuts.iter().skip(1).map(Some).chain([high]);
    let rights: Vec<(Option<Key>, Piece)> = cuts
        .iter()
        .zip(highs)
        .map(|(cut, high)| (Some(cut.clone()), piece(Some(cut), high)))
        .collect();
    out.pieces[index] = piece(low, cuts.first().or(high));
    let first = out.pieces.len();
    add_pieces(out, index, rights);
    let fresh = std::iter::once(index).chain(first..out.pieces.len());
    let over = fresh.filter(|&piece| out.pieces[piece].existing + out.pieces[piece].new > limit);
    let over: Vec<u32> = over.map(|piece| piece as u32).collect();
    out.oversize.extend(over);
}

/// Adds the pieces that are split off one after the other, each from the right end of the rest.
pub(super) fn add_pieces(out: &mut Pieces, index: usize, rights: Vec<(Option<Key>, Piece)>) {
    let mut rest: f64 = rights.iter().map(|(_, piece)| piece.existing).sum();
    let mut cut_from = index as u32;
    out.split_of.resize(out.pieces.len(), None);
    for (at, piece) in rights {
        let right = out.pieces.len() as u32;
        let number = out.steps.len() as u32;
        let mut step = Step::new(
            Action::Split {
                partition: cut_from,
                at,
                right,
            },
            rest,
            rest * piece.record_bytes,
        );
        step.after = out.split_of[cut_from as usize].into_iter().collect();
        rest = (rest - piece.existing).max(0.0);
        out.split_of[cut_from as usize] = Some(number);
        out.split_of.push(Some(number));
        out.steps.push(step);
        out.pieces.push(piece);
        cut_from = right;
    }
}
