//! Splits partitions that would exceed the limit, before anything is inserted.

use crate::Key;

/// The rule for splits: the limit of partitions, and the size of pieces.
#[derive(Debug, Clone, Copy)]
pub struct SplitRule {
    /// The most records a partition may have.
    pub limit: f64,
    /// The part of the limit that pieces aim at.
    pub fill: f64,
    pub machines: usize,
    /// The factor by which a hot range gets more pieces.
    pub fineness: usize,
    /// All new records, of all tables.
    pub new_total: f64,
}

/// The fill for counts that are known, and the least and most for those that are estimated.
pub const FILL_COUNTED: f64 = 0.9;
const FILL_LEAST: f64 = 0.5;
const FILL_MOST: f64 = 0.95;
/// The standard deviations of its estimate by which a piece may exceed its target.
const DEVIATIONS: f64 = 3.5;
/// With more samples a piece than this, the fill stays the same.
const MOST_SAMPLES: f64 = 1e12;

/// Returns the fill at which hardly a piece exceeds the limit, by the samples that a piece at the
/// limit has. An estimate from k samples is off by 1 / sqrt(k) of itself.
pub fn fill_for_samples(at_limit: f64) -> f64 {
    let at_limit = at_limit.clamp(1.0, MOST_SAMPLES);
    // The k at which k and so many deviations are the samples of a piece at the limit.
    let root = 0.5 * ((DEVIATIONS * DEVIATIONS + 4.0 * at_limit).sqrt() - DEVIATIONS);
    (root * root / at_limit).clamp(FILL_LEAST, FILL_MOST)
}

/// Returns the samples that a piece at the limit has. Both kinds have the same parts of it as of
/// the whole partition. A sample counts for less the more records it stands for.
///
/// The variance of an estimate from random samples of weight w is w times the records. If samples
/// are at even distances, a count between two keys is off by less than one distance at either end.
/// Its variance is a sixth of the square.
pub fn samples_at_limit(limit: f64, existing: &Samples, new: &Samples) -> f64 {
    let total = existing.records() + new.records();
    if total <= 0.0 {
        return 0.0;
    }
    let weight = |samples: &Samples| {
        let part = samples.records() / total;
        match samples.gap {
            None => samples.weight * part,
            Some(gap) => gap * part.min(gap / (6.0 * limit)),
        }
    };
    limit / (weight(existing) + weight(new))
}

/// The least part of the limit for pieces of a hot range that is split only to give each machine
/// one.
const SMALLEST_PIECE: f64 = 0.01;

impl SplitRule {
    /// Returns the number of pieces of a partition: 1 if it stays within the limit. A hot range
    /// (half of all new records, or more pieces than machines) gets a multiple of the machines.
    pub fn pieces(&self, existing: f64, new: f64) -> usize {
        let total = existing + new;
        if total <= self.limit {
            return 1;
        }
        // Rounding errors do not add a piece.
        let pieces = (total / (self.limit * self.fill) - 1e-9).ceil().max(2.0) as usize;
        let small = total / (self.machines as f64) < SMALLEST_PIECE * self.limit;
        let hot = new > 0.0 && new >= 0.5 * self.new_total && !small;
        if !hot && pieces < self.machines {
            return pieces;
        }
        let even = pieces.div_ceil(self.machines).saturating_mul(self.machines);
        // Pieces do not become small only to be finer.
        let most = (total / (SMALLEST_PIECE * self.limit)) as usize;
        let finer = even.saturating_mul(self.fineness).min(most);
        (finer / self.machines * self.machines).max(even).max(2)
    }
}

/// Samples of one kind, sorted, and how many records each stands for.
#[derive(Debug, Clone, Copy)]
pub struct Samples<'a> {
    pub keys: &'a [Key],
    pub weight: f64,
    /// The records between two neighbours, if samples are at even distances.
    pub gap: Option<f64>,
}

impl<'a> Samples<'a> {
    /// Returns the samples of a partition.
    pub fn within(&self, low: Option<&Key>, high: Option<&Key>) -> Samples<'a> {
        let start = low.map_or(0, |low| self.keys.partition_point(|key| key < low));
        let end = high.map_or(self.keys.len(), |high| {
            self.keys.partition_point(|key| key < high)
        });
        Samples {
            keys: &self.keys[start..end.max(start)],
            ..*self
        }
    }

    pub fn records(&self) -> f64 {
        self.keys.len() as f64 * self.weight
    }

    /// Returns the records of a part of the partition that ends at `end`. Between two samples at
    /// even distances, records are evenly distributed. After the last sample of a partition without
    /// an end, they are where that sample is.
    pub fn records_between(&self, low: Option<&Key>, high: Option<&Key>, end: Option<&Key>) -> f64 {
        if self.gap != Some(self.weight) {
            return self.within(low, high).records();
        }
        let below = |key: &Key| self.records_below(key, end);
        let until = high.map_or(self.records(), below);
        (until - low.map_or(0.0, below)).max(0.0)
    }

    fn records_below(&self, key: &Key, end: Option<&Key>) -> f64 {
        let begun = self.keys.partition_point(|sample| sample < key);
        let Some(last) = begun.checked_sub(1) else {
            return 0.0;
        };
        let next = self.keys.get(begun).or(end);
        let part = next.map_or(1.0, |next| self.keys[last].part_below(key, next));
        (last as f64 + part) * self.weight
    }
}

/// Returns keys that split a partition into at most `pieces` of equal size after the insert, by the
/// samples. There are fewer if samples have too few distinct keys. `low` is the partition's least
/// key: a split at it would leave nothing below it.
pub fn cut(existing: Samples, new: Samples, low: Option<&Key>, pieces: usize) -> Vec<Key> {
    let total = existing.records() + new.records();
    let target = |piece: usize| total * piece as f64 / pieces as f64;
    let (mut at_existing, mut at_new) = (0, 0);
    let (mut sum, mut piece) = (0.0, 1);
    let mut cuts: Vec<Key> = Vec::new();
    // Steps from one distinct key to the next: `sum` records are below `key`.
    while piece < pieces {
        let candidates = [existing.keys.get(at_existing), new.keys.get(at_new)];
        let Some(key) = candidates.into_iter().flatten().min() else {
            break;
        };
        let same = |samples: &Samples, at: usize| {
            samples.keys[at..]
                .iter()
                .take_while(|other| *other == key)
                .count()
        };
        let (more_existing, more_new) = (same(&existing, at_existing), same(&new, at_new));
        let group = more_existing as f64 * existing.weight + more_new as f64 * new.weight;
        // Split below this key or below the next one: whichever is nearer to the target.
        while piece < pieces && sum + 0.5 * group >= target(piece) {
            let first = low.is_some_and(|low| key <= low) || sum <= 0.0;
            if !first && cuts.last() != Some(key) {
                cuts.push(key.clone());
            }
            piece += 1;
        }
        sum += group;
        at_existing += more_existing;
        at_new += more_new;
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    fn rule(limit: f64, fill: f64, machines: usize) -> SplitRule {
        SplitRule {
            limit,
            fill,
            machines,
            fineness: 1,
            new_total: 1e9,
        }
    }

    fn weighted(keys: &[Key], weight: f64) -> Samples<'_> {
        Samples {
            keys,
            weight,
            gap: None,
        }
    }

    fn keys(numbers: impl IntoIterator<Item = i128>) -> Vec<Key> {
        numbers.into_iter().map(Key::Integer).collect()
    }

    #[test]
    fn pieces_are_rounded_up_below_the_limit() {
        assert_eq!(rule(100.0, 1.0, 100).pieces(50.0, 50.0), 1);
        assert_eq!(rule(100.0, 1.0, 100).pieces(50.0, 51.0), 2);
        assert_eq!(rule(100.0, 1.0, 100).pieces(0.0, 300.0), 3);
        assert_eq!(rule(100.0, 0.8, 100).pieces(0.0, 300.0), 4);
        assert_eq!(rule(0.1, 1.0, 100).pieces(0.0, 0.3), 3);
        assert_eq!(rule(100.0, 1.0, 1).pieces(0.0, 101.0), 2);
    }

    #[test]
    fn a_hot_range_gets_a_multiple_of_the_machines() {
        assert_eq!(rule(100.0, 1.0, 4).pieces(0.0, 500.0), 8);
        let hot = SplitRule {
            new_total: 300.0,
            ..rule(100.0, 1.0, 7)
        };
        assert_eq!(hot.pieces(0.0, 200.0), 7);
        assert_eq!(hot.pieces(0.0, 149.0), 2);
        let many = SplitRule {
            machines: 1000,
            ..hot
        };
        assert_eq!(many.pieces(0.0, 200.0), 2);
    }

    #[test]
    fn split_points_are_even_by_samples_of_both_kinds() {
        let (existing, new) = (keys(0..100), keys((100..300).step_by(2)));
        let existing = weighted(&existing, 1.0);
        let new = weighted(&new, 3.0);
        assert_eq!(cut(existing, new, None, 4), keys([100, 166, 234]));
        assert_eq!(new.within(None, Some(&Key::Integer(103))).records(), 6.0);
    }

    #[test]
    fn records_lie_evenly_between_samples_at_even_distances() {
        let marks = keys([0, 100, 200]);
        let quantiles = Samples {
            gap: Some(30.0),
            ..weighted(&marks, 30.0)
        };
        let (end, key) = (Key::Integer(300), Key::Integer);
        let between = |low: i128, high: i128| {
            quantiles.records_between(Some(&key(low)), Some(&key(high)), Some(&end))
        };
        assert_eq!(between(0, 50), 15.0);
        assert_eq!(between(50, 250), 60.0);
        assert_eq!(between(110, 120), 3.0);
        let whole = quantiles.records_between(None, None, Some(&end));
        assert_eq!(whole, 90.0);
        let open = |low: i128| quantiles.records_between(Some(&key(low)), None, None);
        assert_eq!((open(200), open(201)), (30.0, 0.0));
        // Random samples each stand for their weight.
        let random = weighted(&marks, 30.0);
        let part = random.records_between(Some(&key(50)), Some(&key(250)), Some(&end));
        assert_eq!(part, 60.0);
    }

    #[test]
    fn one_key_cannot_be_split() {
        let same = keys([5; 50]);
        let samples = weighted(&same, 1.0);
        let none = weighted(&[], 1.0);
        assert_eq!(cut(samples, none, Some(&Key::Integer(5)), 4), []);
        assert_eq!(cut(none, none, None, 4), []);
        let mixed = keys([1, 5, 5, 5, 5, 5, 5, 9]);
        let samples = weighted(&mixed, 1.0);
        assert_eq!(cut(samples, none, None, 4), keys([5, 9]));
    }

    #[test]
    fn a_piece_has_the_more_samples_the_less_each_stands_for() {
        let (few, many) = (keys(0..15), keys(0..3000));
        let none = weighted(&[], 1.0);
        let at_limit = |existing: &Samples, new: &Samples| samples_at_limit(1e6, existing, new);
        // Alone, they count as many as the limit has of their weight.
        assert!((at_limit(&none, &weighted(&many, 1000.0)) - 1000.0).abs() < 1e-6);
        assert!((at_limit(&weighted(&few, 1e5), &none) - 10.0).abs() < 1e-6);
        // Random samples of half of the records count by their share.
        let both = at_limit(&weighted(&few, 1e5), &weighted(&many, 500.0));
        assert!(
            (both - 1e6 / (0.5 * 1e5 + 0.5 * 500.0)).abs() < 1e-6,
            "{both}"
        );
        // Quantiles are off by a distance at most, which is a hundred times less in this case.
        let quantiles = Samples {
            gap: Some(6e4),
            ..weighted(&few, 6e4)
        };
        let both = at_limit(&quantiles, &weighted(&many, 100.0));
        assert!((1000.0..2000.0).contains(&both), "{both}");
        assert!(fill_for_samples(both) > 0.88);
        assert_eq!(at_limit(&none, &none), 0.0);
        assert_eq!(fill_for_samples(0.0), FILL_LEAST);
        assert_eq!(fill_for_samples(f64::INFINITY), FILL_MOST);
    }

    /// The paper's boundaries aim at the limit itself and exceed it half of the time.
    #[test]
    fn the_fill_for_samples_keeps_pieces_within_the_limit() {
        let (limit, fraction) = (10_000.0, 0.01);
        let mut random = Random::new(11);
        let mut all: Vec<u64> = (0..1_000_000).map(|_| random.next_u64() >> 20).collect();
        all.sort_unstable();
        let sampled = all.iter().filter(|_| random.unit() < fraction);
        let sampled = keys(sampled.map(|&key| i128::from(key)));
        let samples = weighted(&sampled, 1.0 / fraction);
        let none = weighted(&[], 1.0);
        let exceeding = |fill: f64| {
            let pieces = rule(limit, fill, 10_000).pieces(samples.records(), 0.0);
            let mut cuts = cut(samples, none, None, pieces);
            cuts.push(Key::Integer(i128::MAX));
            let (mut start, mut over) = (0, 0);
            for key in &cuts {
                let end = all.partition_point(|&k| Key::Integer(k.into()) < *key);
                over += usize::from((end - start) as f64 > limit);
                start = end;
            }
            over as f64 / cuts.len() as f64
        };
        assert!(exceeding(1.0) > 0.4, "{}", exceeding(1.0));
        let fill = fill_for_samples(limit * fraction);
        assert!(exceeding(fill) < 0.01, "{} at {fill}", exceeding(fill));
    }
}
