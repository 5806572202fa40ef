//! Computes counts and moments of numbers.

use serde::{Deserialize, Serialize};

/// The number of values processed side by side, so that the compiler can use wide registers.
const LANES: usize = 8;

/// Counts of the numbers of a column; spread, min and max cover the finite ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moments {
    pub zeros: u64,
    pub negative: u64,
    pub nan: u64,
    pub infinite: u64,
    pub finite: u64,
    /// `None` if the sums exceeded the range of a double.
    pub spread: Option<Spread>,
    /// Both are 0 if no value is finite.
    pub min: f64,
    pub max: f64,
}

/// The mean and the spread of numbers; all fields are 0 if there are no numbers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    pub mean: f64,
    /// The sum of the squared distances from the mean.
    pub squares: f64,
}

impl Default for Moments {
    fn default() -> Self {
        Self {
            zeros: 0,
            negative: 0,
            nan: 0,
            infinite: 0,
            finite: 0,
            spread: Some(Spread::default()),
            min: 0.0,
            max: 0.0,
        }
    }
}

/// Sums over every eighth number.
struct Lanes {
    zeros: [u64; LANES],
    negative: [u64; LANES],
    finite: [u64; LANES],
    sum: [f64; LANES],
    squares: [f64; LANES],
    min: [f64; LANES],
    max: [f64; LANES],
}

impl Moments {
    pub fn of(numbers: &[f64]) -> Self {
        let Some(pivot) = numbers.iter().find(|number| number.is_finite()) else {
            return Self::of_none_finite(numbers);
        };
        // Sums of distances from one of the numbers keep their precision if all numbers are far
        // from 0.
        let lanes = Lanes::of(numbers, *pivot);
        let finite = lanes.finite.iter().sum::<u64>();
        let (sum, squares) = (
            lanes.sum.iter().sum::<f64>(),
            lanes.squares.iter().sum::<f64>(),
        );
        let mean = sum / finite as f64;
        let mut moments = Self {
            zeros: lanes.zeros.iter().sum(),
            negative: lanes.negative.iter().sum(),
            finite,
            spread: Spread::known(pivot + mean, squares - sum * mean),
            min: lanes.min.into_iter().fold(f64::INFINITY, f64::min),
            max: lanes.max.into_iter().fold(f64::NEG_INFINITY, f64::max),
            nan: 0,
            infinite: 0,
        };
        if finite < numbers.len() as u64 {
            moments.nan = count(numbers, |number| number.is_nan());
            moments.infinite = count(numbers, |number| number.is_infinite());
        }
        moments
    }

    fn of_none_finite(numbers: &[f64]) -> Self {
        Self {
            nan: count(numbers, |number| number.is_nan()),
            infinite: count(numbers, |number| number.is_infinite()),
            negative: count(numbers, |number| number < 0.0),
            ..Self::default()
        }
    }

    pub fn merge(&mut self, other: &Self) {
        self.zeros += other.zeros;
        self.negative += other.negative;
        self.nan += other.nan;
        self.infinite += other.infinite;
        if other.finite == 0 {
            return;
        }
        if self.finite == 0 {
            (self.min, self.max) = (other.min, other.max);
            (self.finite, self.spread) = (other.finite, other.spread);
            return;
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        let (own, others) = (self.finite as f64, other.finite as f64);
        self.spread = self.spread.zip(other.spread).and_then(|(a, b)| {
            let (all, apart) = (own + others, b.mean - a.mean);
            let squares = a.squares + b.squares + apart * apart * (own / all) * others;
            Spread::known(a.mean + apart * (others / all), squares)
        });
        self.finite += other.finite;
    }

    /// Returns the standard deviation of all finite numbers, not of a sample of them.
    pub fn std(&self) -> Option<f64> {
        let spread = self.spread?;
        Some((spread.squares / self.finite.max(1) as f64).sqrt())
    }
}

impl Spread {
    fn known(mean: f64, squares: f64) -> Option<Self> {
        // Rounding may make this slightly negative.
        let is_known = mean.is_finite() && squares.is_finite();
        is_known.then_some(Self {
            mean,
            squares: squares.max(0.0),
        })
    }
}

impl Lanes {
    fn of(numbers: &[f64], pivot: f64) -> Self {
        let mut lanes = Self {
            zeros: [0; LANES],
            negative: [0; LANES],
            finite: [0; LANES],
            sum: [0.0; LANES],
            squares: [0.0; LANES],
            min: [f64::INFINITY; LANES],
            max: [f64::NEG_INFINITY; LANES],
        };
        let (whole, rest) = numbers.as_chunks::<LANES>();
        for chunk in whole {
            for (lane, number) in chunk.iter().enumerate() {
                lanes.add(lane, *number, pivot);
            }
        }
        for (lane, number) in rest.iter().enumerate() {
            lanes.add(lane, *number, pivot);
        }
        lanes
    }

    #[inline(always)]
    fn add(&mut self, lane: usize, number: f64, pivot: f64) {
        let finite = number.abs() < f64::INFINITY;
        let usual = if finite { number } else { pivot };
        let apart = usual - pivot;
        self.zeros[lane] += u64::from(number == 0.0);
        self.negative[lane] += u64::from(number < 0.0);
        self.finite[lane] += u64::from(finite);
        self.sum[lane] += apart;
        self.squares[lane] += apart * apart;
        self.min[lane] = if usual < self.min[lane] {
            usual
        } else {
            self.min[lane]
        };
        self.max[lane] = if usual > self.max[lane] {
            usual
        } else {
            self.max[lane]
        };
    }
}

fn count(numbers: &[f64], is: impl Fn(f64) -> bool) -> u64 {
    numbers.iter().filter(|number| is(**number)).count() as u64
}
