//! Keys of one partition of a live table while a command or a MULTI changes them.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};

use forebay_engine::live::{Batch, Expiry, LiveTable, LockedKeys, MAX_VALUE_BYTES, Stored};
use forebay_engine::{Source, ValueKind};
use forebay_io::Clock;
use forebay_run::number::Number;
use forebay_run::operation::{DeltaKind, OperandError, Operation};
use forebay_run::times::Times;

use super::evaluation::Evaluation;
use super::float_text::{FLOAT64_DIGITS, check_float};
use super::value::{reply_value, text};
use crate::command::{Answer, CommandError};
use crate::resp::{Args, Reply};

/// The expiry "never", in commands and in the contents of a table.
pub const NEVER_MS: u64 = u64::MAX;
/// The expiry "never" in a table that gives a default TTL to records without an expiry.
const PERSISTENT_MS: u64 = u64::MAX - 1;

/// The state of a transaction on one partition. Nothing is written before the batch is.
#[derive(Debug)]
pub struct Txn<'t> {
    pub table: &'t LiveTable,
    clock: &'t dyn Clock,
    /// The values of keys after the commands so far, for keys that some command reads; sorted by
    /// key.
    held: Vec<HeldKey<'t>>,
    /// Reads the values that are not known yet.
    source: Option<ValueSource<'t>>,
    /// The places of the keys that the current command has read.
    read: RefCell<Vec<usize>>,
    /// The reason why a key could not be read.
    failed: OnceCell<CommandError>,
    /// Whether later commands may read the values.
    keeps: bool,
    pub batch: Batch,
}

/// Where the values of keys are read.
#[derive(Debug, Clone, Copy)]
enum ValueSource<'t> {
    /// The partition, which is locked.
    Locked(&'t LockedKeys<'t>),
    /// The newest state of a leader.
    Evaluation(&'t Evaluation<'t>),
}

/// A key that some command reads.
#[derive(Debug)]
struct HeldKey<'t> {
    key: &'t [u8],
    /// Empty until some command reads it.
    stored: OnceCell<Option<Stored>>,
    change: Change,
}

/// The write of a key when all commands have run: one operation, whatever they did.
#[derive(Debug, Default)]
enum Change {
    #[default]
    Nothing,
    /// The stored value, or its absence, as a whole.
    Whole(Times),
    /// Bytes appended to the old value, which may be long.
    Appended(Vec<u8>, Times),
}

/// A command in progress that changes keys.
pub struct Edit<'e, 't> {
    pub args: Args<'e>,
    pub txn: &'e mut Txn<'t>,
    pub reply: &'e mut Reply,
}

impl HeldKey<'_> {
    /// Adds a delta. REQUIRES: the stored value is known.
    fn add(&mut self, kind: DeltaKind, delta: &[u8], times: Times) -> Result<(), OperandError> {
        let expires_ms = times.expires_ms;
        match self.stored.get_mut() {
            Some(Some(stored)) => {
                kind.add_to(&mut stored.value, delta)?;
                stored.expires_ms = expires_ms;
            }
            _ => {
                let value = kind.value_of(delta)?;
                self.stored = OnceCell::from(Some(Stored { value, expires_ms }));
            }
        }
        self.change = match (std::mem::take(&mut self.change), kind) {
            (Change::Nothing, DeltaKind::Append) => Change::Appended(delta.to_vec(), times),
            (Change::Appended(mut bytes, _), DeltaKind::Append) => {
                bytes.extend_from_slice(delta);
                Change::Appended(bytes, times)
            }
            _ => Change::Whole(times),
        };
        Ok(())
    }
}

impl<'t> Txn<'t> {
    /// Creates a transaction for one command that reads nothing.
    pub fn blind(table: &'t LiveTable, clock: &'t dyn Clock) -> Self {
        Self {
            table,
            clock,
            held: Vec::new(),
            source: None,
            read: RefCell::default(),
            failed: OnceCell::new(),
            keeps: false,
            batch: Batch::new(),
        }
    }

    /// Creates a transaction for a command that reads one key with this value.
    pub fn holding(
        table: &'t LiveTable,
        clock: &'t dyn Clock,
        key: &'t [u8],
        stored: Option<Stored>,
    ) -> Self {
        let stored = OnceCell::from(stored);
        Self {
            held: vec![HeldKey {
                key,
                stored,
                change: Change::default(),
            }],
            ..Self::blind(table, clock)
        }
    }

    /// Creates a transaction for commands that read these keys.
    pub fn reading(
        table: &'t LiveTable,
        clock: &'t dyn Clock,
        keys: &[&'t [u8]],
        locked: &'t LockedKeys<'t>,
    ) -> Self {
        Self {
            held: Self::held_keys(keys),
            source: Some(ValueSource::Locked(locked)),
            ..Self::blind(table, clock)
        }
    }

    /// Creates a transaction for commands that read these keys, on the newest state of a leader.
    pub fn evaluating(evaluation: &'t Evaluation<'t>, keys: &[&'t [u8]]) -> Self {
        Self {
            held: Self::held_keys(keys),
            source: Some(ValueSource::Evaluation(evaluation)),
            ..Self::blind(evaluation.table(), evaluation.clock())
        }
    }

    fn held_keys(keys: &[&'t [u8]]) -> Vec<HeldKey<'t>> {
        let held = keys.iter().map(|key| HeldKey {
            key,
            stored: OnceCell::new(),
            change: Change::default(),
        });
        let mut held: Vec<_> = held.collect();
        held.sort_unstable_by_key(|held| held.key);
        held.dedup_by_key(|held| held.key);
        held
    }

    /// Sets whether several commands follow each other: each then sees the effects of the previous
    /// ones.
    #[must_use]
    pub fn of_several(mut self, keeps: bool) -> Self {
        self.keeps = keeps;
        self
    }

    pub fn now_ms(&self) -> u64 {
        self.clock.unix_ms()
    }

    fn place(&self, key: &[u8]) -> Option<usize> {
        self.held.binary_search_by_key(&key, |held| held.key).ok()
    }

    /// Returns a key's value, kept until the command ends: see [`Txn::end_command`]. REQUIRES: the
    /// key is one of those that the transaction reads.
    pub fn get(&self, key: &[u8]) -> Option<&Stored> {
        let place = self.place(key)?;
        let held = &self.held[place];
        let read = || match self.read_stored(key) {
            Ok(stored) => {
                self.read.borrow_mut().push(place);
                stored
            }
            Err(stop) => {
                // The first error is reported.
                let _ = self.failed.set(stop);
                None
            }
        };
        held.stored.get_or_init(read).as_ref()
    }

    /// Returns a key's value without keeping it. REQUIRES: as [`Txn::get`].
    pub fn look(&self, key: &[u8]) -> Result<Option<Stored>, CommandError> {
        let known = self.place(key).map(|place| &self.held[place].stored);
        match known.and_then(OnceCell::get) {
            Some(stored) => Ok(stored.clone()),
            None => self.read_stored(key),
        }
    }

    fn read_stored(&self, key: &[u8]) -> Result<Option<Stored>, CommandError> {
        match self.source {
            Some(ValueSource::Locked(locked)) => {
                locked.stored(key)?.ok_or(CommandError::NotResident)
            }
            Some(ValueSource::Evaluation(evaluation)) => evaluation.stored(key),
            None => Ok(None),
        }
    }

    /// Releases the values that a command read and did not change, so that those of many commands
    /// are not held together. Returns an error if a key could not be read.
    pub fn end_command(&mut self) -> Answer {
        for place in self.read.get_mut().drain(..) {
            let held = &mut self.held[place];
            if matches!(held.change, Change::Nothing) {
                held.stored = OnceCell::new();
            }
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Refuses an operation that the table cannot store. A single command's write is checked by the
    /// engine; of several commands only the wrong one is to fail.
    fn check(&self, key: &[u8], operation: Operation<'_>) -> Answer {
        let is_evaluated = matches!(self.source, Some(ValueSource::Evaluation(_)));
        match self.keeps || is_evaluated {
            true => Ok(self.table.check(key, operation)?),
            false => Ok(()),
        }
    }

    /// Returns the expiry of a key that a command sets without an expiry.
    fn fresh_ms(&self) -> u64 {
        match self.table.options().expiry {
            Expiry::AfterMs(ms) => self.now_ms().saturating_add(ms).min(PERSISTENT_MS),
            Expiry::PerRecord | Expiry::Never => NEVER_MS,
        }
    }

    /// Sets a key to a value with the table's default expiry.
    pub fn set(&mut self, key: &[u8], value: Vec<u8>) -> Answer {
        self.set_until(key, value, self.fresh_ms())
    }

    /// Sets a key to a new form of its value; its expiry stays.
    pub fn rewrite(&mut self, key: &[u8], value: Vec<u8>) -> Answer {
        self.set_until(key, value, self.kept_ms(key))
    }

    /// Appends bytes to the value of a key that the transaction reads; its expiry stays.
    pub fn extend(&mut self, key: &[u8], more: &[u8]) -> Answer {
        let times = self.times(self.kept_ms(key))?;
        let held = self.held_key(key);
        let held = held.map(|held| (&mut held.change, held.stored.get_mut()));
        let Some((change, Some(Some(stored)))) = held else {
            return self.set(key, more.to_vec());
        };
        check_length(stored.value.len() + more.len())?;
        stored.value.extend_from_slice(more);
        *change = Change::Whole(times);
        Ok(())
    }

    /// Returns the expiry of a key that exists, or the table's default.
    pub fn kept_ms(&self, key: &[u8]) -> u64 {
        let stored = self.get(key);
        stored.map_or_else(|| self.fresh_ms(), |stored| stored.expires_ms)
    }

    /// Sets a key to a value that expires at a future moment, or never.
    pub fn set_until(&mut self, key: &[u8], value: Vec<u8>, expires_ms: u64) -> Answer {
        check_length(value.len())?;
        let times = self.times(expires_ms)?;
        self.check(key, Operation::Update(&value).with_times(times))?;
        match self.held_key(key) {
            Some(held) => {
                let expires_ms = times.expires_ms;
                held.stored = OnceCell::from(Some(Stored { value, expires_ms }));
                held.change = Change::Whole(times);
            }
            None => self
                .batch
                .push(key, Operation::Update(&value).with_times(times)),
        }
        Ok(())
    }

    pub fn delete(&mut self, key: &[u8]) {
        match self.held_key(key) {
            Some(held) => {
                held.stored = OnceCell::from(None);
                held.change = Change::Whole(Times::NONE);
            }
            None => self.batch.delete(key),
        }
    }

    /// Writes a record; without `expires_ms` it has the table's default expiry.
    pub fn write(
        &mut self,
        key: &[u8],
        operation: Operation<'_>,
        expires_ms: Option<u64>,
    ) -> Answer {
        let expires_ms = expires_ms.unwrap_or_else(|| self.fresh_ms());
        let (value, delta) = match operation {
            Operation::Delete => {
                self.delete(key);
                return Ok(());
            }
            Operation::Update(value) => return self.set_until(key, value.to_vec(), expires_ms),
            Operation::Delta(delta) => return self.delta_until(key, delta, expires_ms),
            Operation::Insert(value) => (value, None),
            Operation::InsertDelta { value, delta } => (value, Some(delta)),
            Operation::Timed(_) => return Err(CommandError::syntax()),
        };
        if self.place(key).is_none() {
            // The old value is not read.
            check_length(value.len())?;
            let operation = operation.with_times(self.times(expires_ms)?);
            self.check(key, operation)?;
            self.batch.push(key, operation);
            return Ok(());
        }
        match (self.get(key).is_some(), delta) {
            (false, _) => self.set_until(key, value.to_vec(), expires_ms),
            (true, Some(delta)) => self.delta_until(key, delta, expires_ms),
            (true, None) => Ok(()),
        }
    }

    fn held_key(&mut self, key: &[u8]) -> Option<&mut HeldKey<'t>> {
        let place = self.place(key)?;
        Some(&mut self.held[place])
    }

    /// Returns the batch of all commands' writes.
    pub fn into_batch(mut self) -> Batch {
        for held in &self.held {
            match (&held.change, held.stored.get().and_then(Option::as_ref)) {
                (Change::Nothing, _) => {}
                (Change::Whole(times), Some(stored)) => {
                    let update = Operation::Update(&stored.value).with_times(*times);
                    self.batch.push(held.key, update);
                }
                (Change::Whole(_), None) => self.batch.delete(held.key),
                (Change::Appended(bytes, times), _) => {
                    let delta = Operation::Delta(bytes).with_times(*times);
                    self.batch.push(held.key, delta);
                }
            }
        }
        self.batch
    }

    /// Adds by the table's kind of deltas. The sum expires at a future moment, or never.
    fn delta_until(&mut self, key: &[u8], delta: &[u8], expires_ms: u64) -> Answer {
        let Some(kind) = self.table.options().delta else {
            let table = self.table.name();
            return Err(CommandError::error(format!(
                "ERR table '{table}' was made without a kind of deltas: 'forebay create --delta ...' \
                 gives one"
            )));
        };
        let before = self.get(key).map_or(0, |stored| stored.value.len());
        if kind == DeltaKind::Append {
            check_length(before + delta.len())?;
        }
        let times = self.times(expires_ms)?;
        self.check(key, Operation::Delta(delta).with_times(times))?;
        let keeps = self.keeps;
        match self.held_key(key) {
            Some(held) if keeps || matches!(held.change, Change::Whole(_)) => {
                let added = held.add(kind, delta, times);
                added.map_err(|error| CommandError::error(format!("ERR {error}")))
            }
            _ => {
                self.batch
                    .push(key, Operation::Delta(delta).with_times(times));
                Ok(())
            }
        }
    }

    /// Adds to a key without reading it: the sum has the table's default expiry.
    pub fn delta(&mut self, key: &[u8], delta: &[u8]) -> Answer {
        self.delta_until(key, delta, self.fresh_ms())
    }

    /// Adds to a key; its expiry stays.
    pub fn delta_on(&mut self, key: &[u8], delta: &[u8]) -> Answer {
        self.delta_until(key, delta, self.kept_ms(key))
    }

    /// Converts an expiry to the form that the table takes.
    fn times(&self, expires_ms: u64) -> Result<Times, CommandError> {
        match (self.table.options().expiry, expires_ms) {
            (Expiry::Never, NEVER_MS) => Ok(Times::NONE),
            (Expiry::Never, _) => Err(self.no_expiry()),
            (Expiry::AfterMs(_), NEVER_MS) => Ok(Times::until(PERSISTENT_MS)),
            (_, moment_ms) => Ok(Times::until(moment_ms)),
        }
    }

    /// Returns the error for a table whose keys cannot expire.
    pub fn no_expiry(&self) -> CommandError {
        let table = self.table.name();
        CommandError::error(format!(
            "ERR keys of table '{table}' do not expire, as it was made: 'forebay create --ttl per-key' \
             makes one whose keys can"
        ))
    }
}

/// Parses a text as the nearest float.
pub fn number(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns whether a stored expiry means never.
pub fn is_never(expires_ms: u64) -> bool {
    expires_ms >= PERSISTENT_MS
}

fn check_length(bytes: usize) -> Answer {
    if bytes <= MAX_VALUE_BYTES {
        return Ok(());
    }
    Err(CommandError::error(format!(
        "ERR a value of {bytes} bytes: values have at most {MAX_VALUE_BYTES}"
    )))
}

impl<'e, 't> Edit<'e, 't> {
    pub fn source(&self) -> Source<'t> {
        Source::Live(self.txn.table)
    }

    /// Returns the key in an argument, which is of the transaction's table.
    pub fn key_at(&self, place: usize) -> &'e [u8] {
        let wire = self.args.get(place);
        let colon = wire.iter().position(|&byte| byte == b':');
        colon.map_or(&[], |colon| &wire[colon + 1..])
    }

    /// Returns the first key.
    pub fn key(&self) -> &'e [u8] {
        self.key_at(1)
    }

    pub fn old(&self) -> Option<&Stored> {
        self.txn.get(self.key())
    }

    /// Returns a copy of the first key's value; empty if it has none.
    pub fn old_bytes(&self) -> Vec<u8> {
        self.old()
            .map_or_else(Vec::new, |stored| stored.value.clone())
    }

    /// Returns the first key's value as GET gives it.
    pub fn old_text(&self) -> Result<Option<Cow<'_, [u8]>>, CommandError> {
        let value = |stored| text(self.source(), Cow::Borrowed(stored));
        self.old().map(|stored| value(&stored.value)).transpose()
    }

    /// Replies with the first key's value as GET gives it.
    pub fn reply_old(&mut self) -> Answer {
        let stored = self.txn.get(self.key()).map(|stored| &stored.value[..]);
        reply_value(self.reply, Source::Live(self.txn.table), stored)
    }

    /// Returns whether the table's deltas join bytes.
    pub fn joins(&self) -> bool {
        self.txn.table.options().delta == Some(DeltaKind::Append)
    }

    /// Returns the stored form of a client's value. Refuses a number that would be stored as
    /// another one.
    pub fn encode(&self, text: &[u8]) -> Result<Vec<u8>, CommandError> {
        if self.source().number() == Some(Number::F64) {
            check_float(text, number(text), FLOAT64_DIGITS, "")?;
        }
        self.encode_made(text)
    }

    /// Returns the stored form of a value that the server computed.
    pub fn encode_made(&self, text: &[u8]) -> Result<Vec<u8>, CommandError> {
        let source = self.source();
        match (source.kind(), source.number()) {
            (ValueKind::Bytes { .. } | ValueKind::Number { .. }, None) => Ok(text.to_vec()),
            (ValueKind::Bytes { .. } | ValueKind::Number { .. }, Some(number)) => {
                Ok(number.parse(text)?.to_vec())
            }
            (ValueKind::Row, _) => Err(CommandError::error(format!(
                "WRONGTYPE table '{}' holds rows: HSET changes their columns",
                source.table()
            ))),
            (ValueKind::List { .. }, _) => Err(CommandError::error(format!(
                "WRONGTYPE table '{}' holds lists: RPUSH and LPUSH add to them",
                source.table()
            ))),
        }
    }
}
