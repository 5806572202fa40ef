//! The paper's workloads: the share of the requests that each partition gets.
//!
//! The range of a distribution goes from where 1e-7 of it is below to where 1e-7 is above. It is
//! divided into chunks of equal width, one for each partition. A partition's share is the
//! probability of its chunk. With these ends the shares are those of the paper's Table I. `zipf`
//! has no range: its shares are those of the ranks.

use serde::Serialize;
use statrs::distribution::{Beta, ContinuousCDF, Gamma, Normal};

use crate::{InputError, Random};

/// The probability beyond either end of the range.
const TAIL: f64 = 1e-7;

/// A distribution of requests over partitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "distribution", rename_all = "lowercase")]
pub enum Distribution {
    Uniform,
    Beta {
        alpha: f64,
        beta: f64,
    },
    Normal {
        mean: f64,
        deviation: f64,
    },
    /// The density shape * x^(shape - 1) on [0, 1].
    PowerLaw {
        shape: f64,
    },
    Gamma {
        shape: f64,
    },
    /// The partition of rank r gets r^-exponent.
    Zipf {
        exponent: f64,
    },
}

impl Distribution {
    /// Returns the share of each partition; they add up to 1.
    pub fn shares(&self, partitions: usize) -> Result<Vec<f64>, InputError> {
        if partitions == 0 {
            return Err(InputError::new("partitions", "0 have no load; at least 1"));
        }
        self.check()?;
        let mut shares = match *self {
            Self::Uniform => vec![1.0; partitions],
            Self::Zipf { exponent } => (1..=partitions)
                .map(|rank| (rank as f64).powf(-exponent))
                .collect(),
            Self::PowerLaw { shape } => {
                let end = |tail: f64| (tail.ln() / shape).exp();
                chunks(end(TAIL), end(1.0 - TAIL), partitions, &|x| {
                    // Below the range the probability is 0, not that of a negative number's power.
                    let below = x.max(0.0).powf(shape);
                    (below, 1.0 - below)
                })
            }
            Self::Beta { alpha, beta } => match Beta::new(alpha, beta) {
                Ok(beta) => ranged(&beta, 0.0, 1.0, partitions),
                Err(error) => return Err(InputError::new("alpha, beta", error.to_string())),
            },
            Self::Gamma { shape } => match Gamma::new(shape, 1.0) {
                // The tail above decreases as e^-x: far less than 1e-7 is left there.
                Ok(gamma) => ranged(&gamma, 0.0, 60.0 + 4.0 * shape, partitions),
                Err(error) => return Err(InputError::new("shape", error.to_string())),
            },
            // The chunks of a normal distribution do not depend on its mean and deviation.
            Self::Normal { .. } => ranged(&Normal::standard(), -40.0, 40.0, partitions),
        };
        let sum: f64 = shares.iter().sum();
        if !(sum.is_finite() && sum > 0.0) {
            let what = "with these parameters the shares cannot be computed in double precision";
            return Err(InputError::new("distribution", what));
        }
        for share in &mut shares {
            *share /= sum;
        }
        Ok(shares)
    }

    fn check(&self) -> Result<(), InputError> {
        let positive = |value: f64, path: &str| {
            if (1e-3..=1e4).contains(&value) {
                return Ok(());
            }
            let what = format!("{value} is outside of 0.001 to 10000");
            Err(InputError::new(path, what))
        };
        match *self {
            Self::Uniform => Ok(()),
            Self::Beta { alpha, beta } => positive(alpha, "alpha").and(positive(beta, "beta")),
            Self::Normal { mean, deviation } if mean.is_finite() => {
                positive(deviation, "deviation")
            }
            Self::Normal { mean, .. } => Err(InputError::new(
                "mean",
                format!("{mean} is not a finite number"),
            )),
            Self::PowerLaw { shape } | Self::Gamma { shape } => positive(shape, "shape"),
            Self::Zipf { exponent } if (0.0..=100.0).contains(&exponent) => Ok(()),
            Self::Zipf { exponent } => Err(InputError::new(
                "exponent",
                format!("{exponent} is outside of 0 to 100"),
            )),
        }
    }
}

/// Returns the chunks of a distribution, with its ends searched for between `low` and `high`.
fn ranged(
    distribution: &impl ContinuousCDF<f64, f64>,
    low: f64,
    high: f64,
    partitions: usize,
) -> Vec<f64> {
    let begin = bisect(low, high, |x| distribution.cdf(x) >= TAIL);
    let end = bisect(low, high, |x| distribution.sf(x) <= TAIL);
    chunks(begin, end, partitions, &|x| {
        (distribution.cdf(x), distribution.sf(x))
    })
}

/// Returns the least number for which `above` holds, as near as doubles allow.
fn bisect(mut low: f64, mut high: f64, above: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..200 {
        let middle = low.midpoint(high);
        if above(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// Returns the probabilities of equal chunks from those below and above each border. The smaller of
/// the two is the exact one.
fn chunks(
    begin: f64,
    end: f64,
    partitions: usize,
    probabilities: &dyn Fn(f64) -> (f64, f64),
) -> Vec<f64> {
    let width = (end - begin) / partitions as f64;
    let borders: Vec<(f64, f64)> = (0..=partitions)
        .map(|place| probabilities(begin + width * place as f64))
        .collect();
    borders
        .windows(2)
        .map(|pair| {
            let ((below, above), (next_below, next_above)) = (pair[0], pair[1]);
            let share = if below < 0.5 {
                next_below - below
            } else {
                above - next_above
            };
            share.max(0.0)
        })
        .collect()
}

/// A generator that draws requests one by one from partitions' shares.
#[derive(Debug)]
pub struct Stream {
    cumulated: Vec<f64>,
    random: Random,
}

impl Stream {
    pub fn new(shares: &[f64], seed: u64) -> Self {
        let mut sum = 0.0;
        let cumulated = shares
            .iter()
            .map(|share| {
                sum += share;
                sum
            })
            .collect();
        Self {
            cumulated,
            random: Random::new(seed),
        }
    }

    pub fn partitions(&self) -> usize {
        self.cumulated.len()
    }

    /// Draws the partition of the next request. Partitions without a share are never drawn.
    pub fn draw(&mut self) -> u32 {
        let whole = self.cumulated.last().copied().unwrap_or(0.0);
        let point = self.random.unit() * whole;
        let place = self.cumulated.partition_point(|&sum| sum <= point);
        // The product may round up to the total.
        place.min(self.cumulated.len().saturating_sub(1)) as u32
    }

    /// Draws `requests` requests, and returns their number for each partition.
    pub fn counts(&mut self, requests: u64) -> Vec<u64> {
        let mut counts = vec![0; self.cumulated.len()];
        for _ in 0..requests {
            counts[self.draw() as usize] += 1;
        }
        counts
    }
}
