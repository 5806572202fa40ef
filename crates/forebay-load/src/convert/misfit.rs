//! Describes values that their new type does not hold.

use arrow_array::{Array, ArrayRef, StringArray};
use forebay_run::row::Kind;

use super::leaf::{Account, Leaf};
use super::{Converter, Loss, value};
use crate::near;
use crate::type_name::type_name;

/// The origin of values, for messages about them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Context {
    /// Texts are JSON content, in which numbers are not texts.
    pub json: bool,
    /// The value is within a map, whose places no path of `--column` can name.
    pub in_map: bool,
}

impl Converter {
    /// Describes what is wrong with the only value of `array`.
    pub(super) fn misfit(&self, leaf: &Leaf, array: &ArrayRef, shown: &str) -> String {
        let (path, to) = (&self.path, type_name(&self.to));
        let advice = self.advice(leaf, array).map_or(String::new(), |how| {
            format!(
                "; {} would make it {}",
                near::column_option(path, &format!("{to}:{how}")),
                how.outcome()
            )
        });
        let text = array.as_any().downcast_ref::<StringArray>();
        let text = text.filter(|_| self.place.json).map(|text| text.value(0));
        let number = text.filter(|text| value::is_number(text));
        let value = match number {
            Some(number) => format!("{number} (number)"),
            None => format!("{shown} ({})", type_name(&self.from)),
        };
        let fails = match leaf.from {
            Kind::Text if number.is_none() || !self.to.is_numeric() => {
                format!("does not read as {to}")
            }
            Kind::Time { .. } if self.from == self.to => "is no time of a day".to_owned(),
            _ => format!("{to} does not hold exactly"),
        };
        format!("the column '{path}' holds {value}, which {fails}{advice}")
    }

    /// Returns the word that would let the value through, if none was given.
    fn advice(&self, leaf: &Leaf, array: &ArrayRef) -> Option<Loss> {
        if leaf.loss != Loss::None || self.place.in_map {
            return None;
        }
        let less = match self.to.is_numeric() {
            true => [Loss::Round, Loss::Truncate],
            false => [Loss::Truncate, Loss::Round],
        };
        let mut words = less.into_iter().chain([Loss::Utc, Loss::Null]);
        words.find(|how| {
            let leaf = Leaf {
                loss: *how,
                ..leaf.clone()
            };
            let mut account = Account::default();
            how.suits(&self.to)
                && leaf.convert(array.as_ref(), &mut account).is_some()
                && account.misfits.is_empty()
        })
    }
}
