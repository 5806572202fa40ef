//! Keys of one partition of a live table while a command, or a MULTI, changes them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use forebay_engine::ValueKind;
use forebay_engine::live::{Batch, LiveTable};
use forebay_run::operation::DeltaKind;

use super::string::text;
use super::{Answer, Stop};
use crate::resp::{Args, Reply};
use forebay_engine::Source;

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub value: Vec<u8>,
}

/// See the module's text. Nothing is written before the batch is.
#[derive(Debug)]
pub struct Txn<'t> {
    pub table: &'t LiveTable,
    /// What keys hold after the commands so far, as far as somebody may ask.
    held: BTreeMap<Vec<u8>, Option<Stored>>,
    /// Whether later commands may ask.
    keeps: bool,
    pub batch: Batch,
}

/// A command that changes keys, under way.
pub struct Edit<'e, 't> {
    pub args: Args<'e>,
    pub txn: &'e mut Txn<'t>,
    pub reply: &'e mut Reply,
}

impl<'t> Txn<'t> {
    /// For one command that looks at nothing.
    pub fn blind(table: &'t LiveTable) -> Self {
        Self {
            table,
            held: BTreeMap::new(),
            keeps: false,
            batch: Batch::new(),
        }
    }

    /// For commands that look at these keys, which hold these values.
    pub fn holding(table: &'t LiveTable, keys: &[&[u8]], values: &[Option<Vec<u8>>]) -> Self {
        let stored = |value: &Option<Vec<u8>>| value.clone().map(|value| Stored { value });
        let held = keys.iter().zip(values);
        Self {
            held: held
                .map(|(key, value)| (key.to_vec(), stored(value)))
                .collect(),
            keeps: true,
            ..Self::blind(table)
        }
    }

    /// What a key holds. REQUIRES: the key is one of those that the transaction looks at.
    pub fn get(&self, key: &[u8]) -> Option<&Stored> {
        self.held.get(key).and_then(Option::as_ref)
    }

    pub fn set(&mut self, key: &[u8], value: Vec<u8>) {
        self.batch.update(key, &value);
        if self.keeps {
            self.held.insert(key.to_vec(), Some(Stored { value }));
        }
    }

    pub fn delete(&mut self, key: &[u8]) {
        self.batch.delete(key);
        if self.keeps {
            self.held.insert(key.to_vec(), None);
        }
    }

    /// Adds by the table's kind of deltas.
    pub fn delta(&mut self, key: &[u8], delta: &[u8]) -> Answer {
        self.batch.delta(key, delta);
        if let (true, Some(kind)) = (self.keeps, self.table.options().delta) {
            let value = match self.get(key) {
                Some(stored) => kind.add(&stored.value, delta),
                None => kind.value_of(delta),
            };
            let value = value.map_err(|error| Stop::error(format!("ERR {error}")))?;
            self.held.insert(key.to_vec(), Some(Stored { value }));
        }
        Ok(())
    }
}

impl<'e, 't> Edit<'e, 't> {
    pub fn source(&self) -> Source<'t> {
        Source::Live(self.txn.table)
    }

    /// The key that an argument names, which is of the transaction's table.
    pub fn key_at(&self, place: usize) -> &'e [u8] {
        let wire = self.args.get(place);
        let colon = wire.iter().position(|&byte| byte == b':');
        colon.map_or(&[], |colon| &wire[colon + 1..])
    }

    /// The first key.
    pub fn key(&self) -> &'e [u8] {
        self.key_at(1)
    }

    pub fn old(&self) -> Option<&Stored> {
        self.txn.get(self.key())
    }

    /// What GET gives of the first key.
    pub fn old_text(&self) -> Result<Option<Vec<u8>>, Stop> {
        let value = |stored: &Stored| {
            text(self.source(), Cow::Borrowed(&stored.value)).map(Cow::into_owned)
        };
        self.old().map(value).transpose()
    }

    /// Replies with what GET gives of the first key.
    pub fn reply_old(&mut self) -> Answer {
        match self.old_text()? {
            Some(text) => self.reply.bulk(&text),
            None => self.reply.null(),
        }
        Ok(())
    }

    /// The kind of the table's deltas, if it joins bytes.
    pub fn joins(&self) -> bool {
        self.txn.table.options().delta == Some(DeltaKind::Append)
    }

    /// What a value as the wire has it is stored as.
    pub fn encode(&self, text: &[u8]) -> Result<Vec<u8>, Stop> {
        let source = self.source();
        match (source.kind(), source.number()) {
            (ValueKind::Bytes { .. } | ValueKind::Number { .. }, None) => Ok(text.to_vec()),
            (ValueKind::Bytes { .. } | ValueKind::Number { .. }, Some(number)) => {
                Ok(number.parse(text)?.to_vec())
            }
            (ValueKind::Row, _) => Err(Stop::error(format!(
                "WRONGTYPE table '{}' holds rows: HSET changes their columns",
                source.table()
            ))),
            (ValueKind::List { .. }, _) => Err(Stop::error(format!(
                "WRONGTYPE table '{}' holds lists: RPUSH and LPUSH add to them",
                source.table()
            ))),
        }
    }
}
