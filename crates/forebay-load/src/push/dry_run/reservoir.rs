//! Draws some of all rows, at random or at regular intervals, and keeps the first few.

use forebay_io::Random;

/// The bits of a place that hold the number of a row in its unit.
pub const ROW_BITS: u32 = 40;
/// The most bytes of keys and values that a sample holds.
const MOST_BYTES: usize = 64 << 20;

/// A row as it would be stored: a key, and an operation as its tag and payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledRow {
    /// Its place in the order of the sources.
    pub place: u64,
    pub key: Vec<u8>,
    pub tag: u8,
    pub payload: Vec<u8>,
}

/// The method of drawing rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drawing {
    /// Each row has the same chance.
    AtRandom,
    /// Every n-th row of each unit of the sources: the same rows at each reading.
    AtIntervals,
}

/// A sample of rows.
#[derive(Debug)]
pub struct Reservoir {
    drawing: Drawing,
    /// The interval between drawn rows, if rows are drawn at intervals.
    step: u64,
    most: usize,
    offered: u64,
    bytes: usize,
    rows: Vec<SampledRow>,
    /// The rows with the lowest places, in order.
    first: Vec<SampledRow>,
    most_first: usize,
}

impl Reservoir {
    /// Creates a sample of about `most` rows. If rows are drawn at intervals, it has at least half
    /// as many.
    pub fn new(drawing: Drawing, most: usize, most_first: usize) -> Self {
        Self {
            drawing,
            step: 1,
            most: most.max(1),
            offered: 0,
            bytes: 0,
            rows: Vec::new(),
            first: Vec::new(),
            most_first,
        }
    }

    /// Offers a row; `make` creates it if the sample takes it.
    pub fn offer(&mut self, place: u64, random: &dyn Random, make: impl Fn() -> SampledRow) {
        let is_full = self.first.len() >= self.most_first;
        if !is_full || self.first.last().is_some_and(|last| place < last.place) {
            let at = self.first.partition_point(|row| row.place < place);
            self.first.insert(at, make());
            self.first.truncate(self.most_first);
        }
        match self.drawing {
            Drawing::AtRandom => self.draw(random, make),
            Drawing::AtIntervals => self.take_nth(place, make),
        }
    }

    fn take_nth(&mut self, place: u64, make: impl Fn() -> SampledRow) {
        let row_of = |place: u64| place & ((1 << ROW_BITS) - 1);
        if !row_of(place).is_multiple_of(self.step) {
            return;
        }
        let row = make();
        self.bytes += row.len();
        self.rows.push(row);
        while (self.rows.len() > self.most || self.bytes > MOST_BYTES) && self.rows.len() > 1 {
            let step = self.step.saturating_mul(2);
            let before = self.rows.len();
            self.rows
                .retain(|row| row_of(row.place).is_multiple_of(step));
            self.bytes = self.rows.iter().map(SampledRow::len).sum();
            self.step = step;
            // There are as many units as rows: the first row of each stays.
            if self.rows.len() == before {
                break;
            }
        }
    }

    fn draw(&mut self, random: &dyn Random, make: impl Fn() -> SampledRow) {
        self.offered += 1;
        if self.rows.len() < self.most {
            let row = make();
            self.bytes += row.len();
            self.rows.push(row);
        } else if let Some(old) = self
            .rows
            .get_mut((random.next_u64() % self.offered) as usize)
        {
            let row = make();
            self.bytes = self.bytes + row.len() - old.len();
            *old = row;
        }
        while self.bytes > MOST_BYTES && self.rows.len() > 1 {
            let at = (random.next_u64() % self.rows.len() as u64) as usize;
            self.bytes -= self.rows.swap_remove(at).len();
            self.most = self.rows.len();
        }
    }

    /// Returns the sample in the order of the sources, and the first rows.
    pub fn finish(mut self) -> (Vec<SampledRow>, Vec<SampledRow>) {
        self.rows.sort_unstable_by_key(|row| row.place);
        (self.rows, self.first)
    }
}

impl SampledRow {
    fn len(&self) -> usize {
        self.key.len() + self.payload.len()
    }
}

#[cfg(test)]
mod tests {
    use forebay_io::SystemRandom;

    use super::*;

    fn row(place: u64, bytes: usize) -> SampledRow {
        SampledRow {
            place,
            key: vec![b'k'; bytes],
            tag: 0,
            payload: Vec::new(),
        }
    }

    #[test]
    fn a_small_source_is_its_own_sample_and_the_first_rows_are_the_first() {
        let mut reservoir = Reservoir::new(Drawing::AtRandom, 100, 3);
        for place in [8, 3, 5, 1, 9, 2] {
            reservoir.offer(place, &SystemRandom, || row(place, 1));
        }
        let (sample, first) = reservoir.finish();
        let places = |rows: &[SampledRow]| rows.iter().map(|row| row.place).collect::<Vec<_>>();
        assert_eq!(places(&sample), [1, 2, 3, 5, 8, 9]);
        assert_eq!(places(&first), [1, 2, 3]);
    }

    #[test]
    fn a_sample_of_many_rows_is_drawn_from_all_of_them() {
        let mut reservoir = Reservoir::new(Drawing::AtRandom, 1000, 5);
        (0..20_000).for_each(|place| reservoir.offer(place, &SystemRandom, || row(place, 1)));
        let (sample, _) = reservoir.finish();
        assert_eq!(sample.len(), 1000);
        let upper = sample.iter().filter(|row| row.place >= 10_000).count();
        assert!((350..650).contains(&upper), "{upper}");
    }

    #[test]
    fn rows_at_intervals_do_not_depend_on_their_order_of_arrival() {
        let sample = |places: &mut dyn Iterator<Item = u64>| {
            let mut reservoir = Reservoir::new(Drawing::AtIntervals, 100, 1);
            places.for_each(|place| reservoir.offer(place, &SystemRandom, || row(place, 1)));
            let (sample, _) = reservoir.finish();
            sample.iter().map(|row| row.place).collect::<Vec<u64>>()
        };
        let place = |number: u64| ((number / 1500) << ROW_BITS) | (number % 1500);
        let forward = sample(&mut (0..3000).map(place));
        assert_eq!(forward, sample(&mut (0..3000).rev().map(place)));
        // 3000 rows in two units: every 32nd of each.
        assert_eq!(forward.len(), 94);
        assert_eq!(forward[..3], [0, 32, 64]);
        assert_eq!(forward[47], 1 << ROW_BITS);
    }

    #[test]
    fn large_rows_make_a_smaller_sample() {
        let mut reservoir = Reservoir::new(Drawing::AtRandom, 1000, 5);
        (0..200).for_each(|place| reservoir.offer(place, &SystemRandom, || row(place, 1 << 20)));
        let (sample, first) = reservoir.finish();
        assert!(sample.len() <= 64 && sample.len() > 32, "{}", sample.len());
        assert_eq!(first.len(), 5);
    }
}
