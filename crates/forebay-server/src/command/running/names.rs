//! Resolves the table of a key on a server with a default table (`--default-table`).
//!
//! A wire key is `table:key`. With a default table T, a wire key that names no table is, as a
//! whole, a key of T. It names no table if it has no colon, or if the part before the first colon
//! is no table.
//!
//! That part is a table if it is T, or if it is in the store and the user may read or write it. A
//! table that cannot be opened at the moment counts, so that its keys do not go to T. A table that
//! the user may not see does not count, so that its existence stays hidden. `T:key` is always a key
//! of T, whatever the key contains.
//!
//! Commands get their keys with T's name prepended. The code that runs them handles only
//! `table:key`.

use forebay_engine::TableName;

use crate::command::Command;
use crate::glob;
use crate::resp::{Args, OwnedArgs};
use crate::shared::Shared;
use crate::table_view::TableView;
use crate::users::{User, Verb};

/// Resolves keys that name no table, by the server's default table and the user's rights.
#[derive(Clone, Copy)]
pub struct KeyNames<'a> {
    default: &'a TableName,
    tables: &'a TableView,
    user: &'a User,
    shared: &'a Shared,
}

/// How the keys of a walk are shown and matched against a pattern.
#[derive(Clone, Copy)]
pub struct ShownKeys<'a> {
    names: Option<KeyNames<'a>>,
    pattern: Option<&'a [u8]>,
    /// Whether the pattern begins with the default table's name and a colon: keys are then shown
    /// with it.
    in_full: bool,
}

impl<'a> KeyNames<'a> {
    /// Returns `None` if every key names its table.
    #[inline]
    pub fn of(shared: &'a Shared, tables: &'a TableView, user: &'a User) -> Option<Self> {
        let default = shared.config.default_table.as_ref()?;
        Some(Self {
            default,
            tables,
            user,
            shared,
        })
    }

    /// Returns whether a wire key begins with the name of its table.
    pub fn is_named(&self, wire: &[u8]) -> bool {
        let colon = wire.iter().position(|&byte| byte == b':');
        colon.is_some_and(|colon| self.is_table(&wire[..colon]))
    }

    /// Returns whether a table's key without the table's name means this key of this table.
    pub fn stands_alone(&self, table: &TableName, key: &[u8]) -> bool {
        table == self.default && !self.is_named(key)
    }

    fn is_table(&self, name: &[u8]) -> bool {
        let may = |verb| self.user.may(verb, name);
        name == self.default.as_str().as_bytes()
            || (may(Verb::Read) || may(Verb::Write))
                && (self.tables.get(name).is_some() || self.shared.is_unserved(name))
    }

    /// Returns the arguments with the default table's name prepended to keys that name no table.
    /// `None` if there are no such keys.
    pub fn complete(&self, command: &Command, args: &Args<'_>) -> Option<OwnedArgs> {
        let places = command.key_places(args.len());
        let mut unnamed = places.filter(|&place| !self.is_named(args.get(place)));
        let mut next = Some(unnamed.next()?);
        let mut completed = OwnedArgs::default();
        for (place, arg) in args.iter().enumerate() {
            if next == Some(place) {
                next = unnamed.next();
                completed.push(&self.full(arg));
            } else {
                completed.push(arg);
            }
        }
        Some(completed)
    }

    /// `T:key`.
    fn full(&self, key: &[u8]) -> Vec<u8> {
        [self.default.as_str().as_bytes(), b":", key].concat()
    }
}

impl<'a> ShownKeys<'a> {
    pub fn new(names: Option<KeyNames<'a>>, pattern: Option<&'a [u8]>) -> Self {
        let prefix = pattern.map(glob::literal_prefix).unwrap_or_default();
        let in_full = names.is_some_and(|names| prefix.starts_with(&names.full(b"")));
        Self {
            names,
            pattern,
            in_full,
        }
    }

    /// Returns the shortest name by which commands accept a key. `None` if it does not match the
    /// pattern.
    pub fn show(&self, table: &TableName, key: &[u8]) -> Option<Vec<u8>> {
        let bare = |names: &KeyNames<'_>| !self.in_full && names.stands_alone(table, key);
        let shown = match self.names.as_ref().is_some_and(bare) {
            true => key.to_vec(),
            false => wire_key(table, key),
        };
        let matches = |pattern| glob::matches(pattern, &shown);
        self.pattern.is_none_or(matches).then_some(shown)
    }

    /// Returns whether any key of the table could match the pattern's prefix.
    pub fn may_match(&self, table: &TableName) -> bool {
        let prefix = self.pattern.map(glob::literal_prefix).unwrap_or_default();
        match &self.names {
            // Its keys that look like another table's are shown in full.
            Some(names) if table == names.default => self.in_full || !names.is_named(prefix),
            _ => {
                let table = wire_key(table, b"");
                let common = prefix.len().min(table.len());
                prefix[..common] == table[..common]
            }
        }
    }
}

/// `table:key`.
pub fn wire_key(table: &TableName, key: &[u8]) -> Vec<u8> {
    [table.as_str().as_bytes(), b":", key].concat()
}
