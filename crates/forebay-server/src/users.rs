//! Users and their rights.
//!
//! The users file is JSON:
//!
//! ```json
//! {"users": [
//!   {"name": "shop", "password_sha256": "5e88...", "tables": ["scores", "flights*"], "verbs": ["read"]},
//!   {"name": "ops", "password_sha256": "9b71...", "tables": ["*"], "verbs": ["read", "admin"]}
//! ]}
//! ```
//!
//! `tables` are patterns as those of SCAN. `verbs` are `read`, `write`, `push` and `admin` (which
//! swaps by HTTP). A password is stored as the hex SHA-256 of its bytes, as in Redis's ACL files.
//! That is no slow hash: it protects long random passwords (`openssl rand -hex 32`), not those that
//! people think of. AUTH with only a password means the user `default`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_engine::TableName;
use forebay_io::Disk;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use thiserror::Error;

use crate::glob;

/// An operation on a table that a user may have the right to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    Read,
    Write,
    Push,
    Admin,
}

/// The users of a server.
#[derive(Debug, Default)]
pub struct Users {
    users: Vec<Arc<User>>,
}

/// A user and its rights.
#[derive(PartialEq, Eq)]
pub struct User {
    name: String,
    password_sha256: [u8; 32],
    /// Patterns of table names.
    tables: Vec<String>,
    verbs: Vec<Verb>,
    /// Whether it may read every table: the usual case, computed once.
    reads_all: bool,
    /// The only table that the patterns name.
    only_table: Option<TableName>,
}

/// The reason why a users file is invalid.
#[derive(Debug, Error)]
pub enum UsersError {
    #[error("cannot read the users file {}: {source}", path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the users file {} is not what it should be: {problem}", path.display())]
    Malformed { path: PathBuf, problem: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsersFile {
    users: Vec<UserEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserEntry {
    name: String,
    password_sha256: String,
    tables: Vec<String>,
    verbs: Vec<Verb>,
}

impl Users {
    /// Reads a users file. Refuses a file without users, because no client could log in.
    pub fn read(disk: &dyn Disk, path: &Path) -> Result<Self, UsersError> {
        let path = path.to_path_buf();
        match disk.read(&path) {
            Err(source) => Err(UsersError::Io { path, source }),
            Ok(bytes) => {
                Self::parse(&bytes).map_err(|problem| UsersError::Malformed { path, problem })
            }
        }
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let file: UsersFile = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let mut users: Vec<Arc<User>> = Vec::with_capacity(file.users.len());
        for entry in file.users {
            if entry.name.is_empty() || !entry.name.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!(
                    "{:?} is no user name: use visible ASCII",
                    entry.name
                ));
            }
            if users.iter().any(|user| user.name == entry.name) {
                return Err(format!("user {:?} is there twice", entry.name));
            }
            users.push(Arc::new(User::from_entry(entry)?));
        }
        if users.is_empty() {
            return Err("it names no user".to_owned());
        }
        Ok(Self { users })
    }

    pub fn iter(&self) -> impl Iterator<Item = &User> {
        self.users.iter().map(|user| &**user)
    }

    /// Returns the user of that name if the password is right. Takes the same time for every name
    /// and password of the same lengths.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let given = digest(&SHA256, password);
        let (mut found, mut place) = (Choice::from(0), 0u64);
        for (index, user) in self.users.iter().enumerate() {
            let right =
                user.name.as_bytes().ct_eq(name) & user.password_sha256.ct_eq(given.as_ref());
            found |= right;
            place.conditional_assign(&(index as u64), right);
        }
        bool::from(found).then(|| Arc::clone(&self.users[place as usize]))
    }

    /// Returns the user of that name, for a caller that has proved its password.
    pub fn named(&self, name: &str) -> Option<Arc<User>> {
        self.users.iter().find(|user| user.name == name).cloned()
    }

    /// Returns a user's current entry. `None` if it was removed or has another password.
    pub fn renewed(&self, user: &User) -> Option<Arc<User>> {
        let mut users = self.users.iter();
        let same = |known: &&Arc<User>| {
            known.name == user.name && known.password_sha256 == user.password_sha256
        };
        users.find(same).cloned()
    }
}

impl User {
    /// Returns the user of a server without a users file: only this machine reaches the server, and
    /// all clients may read and write.
    pub fn anyone() -> Self {
        Self {
            name: "default".to_owned(),
            password_sha256: [0; 32],
            tables: vec!["*".to_owned()],
            verbs: vec![Verb::Read, Verb::Write],
            reads_all: true,
            only_table: None,
        }
    }

    fn from_entry(entry: UserEntry) -> Result<Self, String> {
        let name = entry.name;
        let password_sha256 = from_hex(&entry.password_sha256).ok_or_else(|| {
            format!("password_sha256 of user {name:?} is not 64 hex digits: `printf %s PASSWORD | sha256sum`")
        })?;
        let reads_all =
            entry.verbs.contains(&Verb::Read) && entry.tables.iter().any(|table| table == "*");
        Ok(Self {
            name,
            password_sha256,
            only_table: match &entry.tables[..] {
                [table] => TableName::new(table).ok(),
                _ => None,
            },
            tables: entry.tables,
            verbs: entry.verbs,
            reads_all,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the patterns of table names.
    pub fn tables(&self) -> &[String] {
        &self.tables
    }

    /// Returns the only table that this user may access, if it is bound to one.
    pub fn only_table(&self) -> Option<&TableName> {
        self.only_table.as_ref()
    }

    /// Returns whether this user may read every table.
    pub fn reads_all(&self) -> bool {
        self.reads_all
    }

    pub fn verbs(&self) -> &[Verb] {
        &self.verbs
    }

    /// Returns whether this user may do that to that table.
    #[inline]
    pub fn may(&self, verb: Verb, table: &[u8]) -> bool {
        (self.reads_all && verb == Verb::Read) || self.may_by_patterns(verb, table)
    }

    fn may_by_patterns(&self, verb: Verb, table: &[u8]) -> bool {
        let matches = |pattern: &String| glob::matches(pattern.as_bytes(), table);
        self.verbs.contains(&verb) && self.tables.iter().any(matches)
    }
}

impl std::fmt::Debug for User {
    /// Formats the user without the hash.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .field("tables", &self.tables)
            .field("verbs", &self.verbs)
            .finish_non_exhaustive()
    }
}

/// A bearer token. It does not appear in logs.
pub struct Token(String);

impl Token {
    pub fn new(token: String) -> Self {
        Self(token)
    }

    pub fn is(&self, given: &[u8]) -> bool {
        same_secret(given, self.0.as_bytes())
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Returns whether two secrets are equal, in a time that does not depend on where they differ.
fn same_secret(given: &[u8], expected: &[u8]) -> bool {
    let (given, expected) = (digest(&SHA256, given), digest(&SHA256, expected));
    given.as_ref().ct_eq(expected.as_ref()).into()
}

fn from_hex(digits: &str) -> Option<[u8; 32]> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if pairs.len() != 32 || !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    let mut bytes = [0; 32];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of "password".
    const HASH: &str = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";

    fn users() -> Users {
        let text = format!(
            r#"{{"users": [
              {{"name": "shop", "password_sha256": "{HASH}", "tables": ["flights*"], "verbs": ["read"]}},
              {{"name": "ops", "password_sha256": "{HASH}", "tables": ["*"], "verbs": ["read", "admin"]}}
            ]}}"#
        );
        Users::parse(text.as_bytes()).expect("parsed")
    }

    #[test]
    fn the_right_password_and_no_other() {
        let users = users();
        let shop = users.authenticate(b"shop", b"password").expect("let in");
        assert_eq!(shop.name(), "shop");
        assert_eq!(
            users
                .authenticate(b"ops", b"password")
                .expect("let in")
                .name(),
            "ops"
        );
        assert_eq!(users.authenticate(b"shop", b"Password"), None);
        assert_eq!(users.authenticate(b"shop", b""), None);
        assert_eq!(users.authenticate(b"nobody", b"password"), None);
    }

    #[test]
    fn tables_and_verbs() {
        let users = users();
        let shop = users.authenticate(b"shop", b"password").expect("let in");
        assert!(shop.may(Verb::Read, b"flights") && shop.may(Verb::Read, b"flights_2026"));
        assert!(!shop.may(Verb::Read, b"scores") && !shop.may(Verb::Admin, b"flights"));
        let ops = users.authenticate(b"ops", b"password").expect("let in");
        assert!(ops.may(Verb::Read, b"scores") && ops.may(Verb::Admin, b"scores"));
        assert!(!ops.may(Verb::Push, b"scores"));
    }

    #[test]
    fn malformed_files_are_refused_with_a_reason() {
        let entry = |name: &str, hash: &str| {
            format!(
                r#"{{"name":"{name}","password_sha256":"{hash}","tables":[],"verbs":["read"]}}"#
            )
        };
        let twice = format!("{},{}", entry("a", HASH), entry("a", HASH));
        for (users, word) in [
            (entry("a", "12"), "64 hex"),
            (entry("a b", HASH), "visible"),
            (twice, "twice"),
            (String::new(), "no user"),
            (r#"{"name":"a"}"#.to_owned(), "password_sha256"),
        ] {
            let text = format!(r#"{{"users":[{users}]}}"#);
            let problem = Users::parse(text.as_bytes()).expect_err("refused");
            assert!(problem.contains(word), "{problem}");
        }
        assert!(same_secret(b"a", b"a") && !same_secret(b"a", b"b"));
    }
}
