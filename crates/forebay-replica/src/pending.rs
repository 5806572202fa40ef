//! The effects of proposals that a leader has evaluated and not applied yet.

use std::collections::HashMap;

use crate::ids::RequestId;

/// The values of keys after the proposals of a leader that are not applied yet. A command is
/// evaluated on these and, for other keys, on the applied state.
#[derive(Debug)]
pub struct Pending<V> {
    /// The basis of all of them.
    basis: u64,
    keys: HashMap<Vec<u8>, PendingKey<V>>,
    /// The keys of each proposal.
    proposals: HashMap<RequestId, Vec<Vec<u8>>>,
}

#[derive(Debug)]
struct PendingKey<V> {
    /// The last proposal that changes the key.
    request: RequestId,
    value: PendingValue<V>,
}

/// The value of a key once a proposal is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PendingValue<V> {
    Present(V),
    Absent,
    /// It depends on a value that was not read. A command that reads the key waits.
    Unknown,
}

impl<V> Default for Pending<V> {
    fn default() -> Self {
        Self {
            basis: 0,
            keys: HashMap::new(),
            proposals: HashMap::new(),
        }
    }
}

impl<V> Pending<V> {
    /// Prepares for evaluations on a basis. Effects on an earlier one are applied or refused by
    /// now. REQUIRES: the entries up to the basis's index are applied.
    pub fn begin(&mut self, basis: u64) {
        if self.basis != basis {
            self.clear();
            self.basis = basis;
        }
    }

    /// Returns a key's value; `None` if no pending proposal changes it.
    pub fn get(&self, key: &[u8]) -> Option<&PendingValue<V>> {
        self.keys.get(key).map(|pending| &pending.value)
    }

    /// Adds the effect of a proposal on a key.
    pub fn set(&mut self, request: RequestId, key: &[u8], value: PendingValue<V>) {
        let changed = PendingKey { request, value };
        match self.keys.get_mut(key) {
            Some(pending) => *pending = changed,
            None => drop(self.keys.insert(key.to_vec(), changed)),
        }
        self.proposals
            .entry(request)
            .or_default()
            .push(key.to_vec());
    }

    /// Drops the effects of a proposal that was applied.
    pub fn applied(&mut self, request: RequestId) {
        for key in self.proposals.remove(&request).unwrap_or_default() {
            let is_last = |pending: &PendingKey<V>| pending.request == request;
            if self.keys.get(&key).is_some_and(is_last) {
                self.keys.remove(&key);
            }
        }
    }

    pub fn clear(&mut self) {
        self.keys.clear();
        self.proposals.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PendingValue::{Absent, Present};

    #[test]
    fn a_key_has_the_value_of_the_last_proposal_until_that_is_applied() {
        let mut pending = Pending::default();
        pending.begin(1);
        pending.set(RequestId(1), b"a", Present(1));
        pending.set(RequestId(1), b"b", Present(2));
        pending.set(RequestId(2), b"a", Absent);
        assert_eq!(pending.get(b"a"), Some(&Absent));
        pending.applied(RequestId(1));
        assert_eq!(
            (pending.get(b"a"), pending.get(b"b")),
            (Some(&Absent), None)
        );
        pending.applied(RequestId(2));
        assert!(pending.is_empty());
    }

    #[test]
    fn another_basis_begins_without_effects() {
        let mut pending = Pending::default();
        pending.begin(1);
        pending.set(RequestId(1), b"a", Present(1));
        pending.begin(1);
        assert!(!pending.is_empty());
        pending.begin(2);
        assert!(pending.is_empty());
        // A late notice of the earlier one changes nothing.
        pending.set(RequestId(2), b"a", Present(2));
        pending.applied(RequestId(1));
        assert_eq!(pending.get(b"a"), Some(&Present(2)));
    }
}
