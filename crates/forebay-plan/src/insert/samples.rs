//! The samples of a table: sorted, with the number of records that each of them stands for.

use super::request::TableSpec;
use super::split::Samples;
use crate::Key;
use crate::input::{InputError, amount};

/// The samples of both kinds.
#[derive(Debug, Clone)]
pub struct TableSamples<'a> {
    existing: Vec<Key>,
    new: Vec<Key>,
    existing_weight: SampleWeight<'a>,
    new_weight: f64,
}

/// The number of records that existing samples stand for.
#[derive(Debug, Clone, Copy)]
enum SampleWeight<'a> {
    /// The same number of records each.
    Same(f64),
    /// An even share of their partition's records each; these are the counts.
    Counted(&'a [f64]),
}

impl<'a> TableSamples<'a> {
    /// Checks and returns the samples of table `index`.
    pub fn new(index: usize, table: &'a TableSpec) -> Result<Self, InputError> {
        check_keys(index, table)?;
        let mut existing = table.existing_samples.clone();
        let mut new = table.new_samples.clone();
        existing.sort_unstable();
        new.sort_unstable();
        if u32::try_from(existing.len() + new.len()).is_err() {
            let path = format!("tables[{index}].new_samples");
            return Err(InputError::new(path, "more than 4 billion samples"));
        }
        check_weights(index, table)?;
        let fraction = |own: Option<f64>| own.or(table.sample_fraction).unwrap_or(1.0);
        Ok(Self {
            existing_weight: match &table.existing {
                Some(counts) => SampleWeight::Counted(counts),
                None => SampleWeight::Same(1.0 / fraction(table.existing_fraction)),
            },
            new_weight: match table.new_records {
                Some(records) => records / new.len().max(1) as f64,
                None => 1.0 / fraction(table.new_fraction),
            },
            existing,
            new,
        })
    }

    /// Returns the existing and the new samples of the partition at a place of the table.
    ///
    /// Existing records of which only the count is known are distributed as the new ones are.
    pub fn of(
        &self,
        place: usize,
        low: Option<&Key>,
        high: Option<&Key>,
    ) -> (Samples<'_>, Samples<'_>) {
        let each = |keys, weight| Samples {
            keys,
            weight,
            gap: None,
        };
        let new = each(&self.new, self.new_weight).within(low, high);
        let existing = each(&self.existing, 1.0).within(low, high);
        let existing = match self.existing_weight {
            SampleWeight::Same(weight) => Samples { weight, ..existing },
            SampleWeight::Counted(counts) => {
                let records = counts.get(place).copied().unwrap_or(0.0);
                let keys = match existing.keys {
                    [] => new.keys,
                    keys => keys,
                };
                Samples {
                    keys,
                    weight: records / keys.len().max(1) as f64,
                    gap: Some(records / existing.keys.len().max(1) as f64),
                }
            }
        };
        (existing, new)
    }

    /// Returns the existing records of the partition at a place, which has these samples.
    pub fn existing_records(&self, place: usize, samples: &Samples) -> f64 {
        match self.existing_weight {
            SampleWeight::Same(_) => samples.records(),
            // -0 becomes 0.
            SampleWeight::Counted(counts) => counts.get(place).map_or(0.0, |count| count + 0.0),
        }
    }
}

/// Checks that all keys of a table are numbers, or all are strings or bytes.
fn check_keys(index: usize, table: &TableSpec) -> Result<(), InputError> {
    let lists = [
        ("boundaries", &table.boundaries),
        ("existing_samples", &table.existing_samples),
        ("new_samples", &table.new_samples),
    ];
    let all = lists.iter().flat_map(|(field, keys)| {
        keys.iter()
            .enumerate()
            .map(move |(place, key)| (field, place, key))
    });
    let mut first = None;
    for (field, place, key) in all {
        let text = *first.get_or_insert(key.is_text());
        if key.is_text() != text {
            let path = format!("tables[{index}].{field}[{place}]");
            let problem = format!("{key}: a table's keys are all numbers, or all strings or bytes");
            return Err(InputError::new(path, problem));
        }
    }
    Ok(())
}

/// Checks the counts and the sampled parts: each kind has one of both.
fn check_weights(index: usize, table: &TableSpec) -> Result<(), InputError> {
    let path = |field: &str| format!("tables[{index}].{field}");
    let both = |count: &str, fraction: &str| {
        let problem = format!("{count} and {fraction} are both given: leave one out");
        Err(InputError::new(path(fraction), problem))
    };
    if let Some(counts) = &table.existing {
        if table.existing_fraction.is_some() {
            return both("existing", "existing_fraction");
        }
        let partitions = table.home.len();
        if counts.len() != partitions {
            let problem = format!("{} counts for {partitions} partitions", counts.len());
            return Err(InputError::new(path("existing"), problem));
        }
        for (place, &count) in counts.iter().enumerate() {
            amount(count, || path(&format!("existing[{place}]")))?;
        }
    }
    if let Some(records) = table.new_records {
        if table.new_fraction.is_some() {
            return both("new_records", "new_fraction");
        }
        amount(records, || path("new_records"))?;
        if records > 0.0 && table.new_samples.is_empty() {
            let problem = format!("{records} records without new_samples: nobody knows where");
            return Err(InputError::new(path("new_records"), problem));
        }
        if table.existing.is_some() && table.sample_fraction.is_some() {
            let problem = "existing and new_records give all counts: leave it out";
            return Err(InputError::new(path("sample_fraction"), problem));
        }
    }
    for (field, fraction) in [
        ("sample_fraction", table.sample_fraction),
        ("existing_fraction", table.existing_fraction),
        ("new_fraction", table.new_fraction),
    ] {
        if fraction.is_some_and(|part| !(part > 0.0 && part <= 1.0)) {
            let value = fraction.unwrap_or_default();
            let problem = format!("{value} is not a part above 0 and up to 1");
            return Err(InputError::new(path(field), problem));
        }
    }
    Ok(())
}
