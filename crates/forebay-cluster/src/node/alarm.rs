//! Problems of the catalog itself, as a node detects them.
//!
//! A lost catalog, or an old copy of one, is no basis for actions: acting on it could remove data
//! that it does not name. So the node does nothing by such a catalog, and operators see an alarm.

use crate::catalog::RESTORE;
use crate::ids::ClusterId;
use crate::model::Head;

/// A detector of a lost, damaged or outdated catalog.
#[derive(Debug)]
pub struct Alarm {
    cluster: ClusterId,
    /// The newest revision that this node knows of, from before its start or since.
    newest: u64,
    /// The value of `newest` when the node asked the catalog. It may rise before the answer
    /// arrives.
    asked: u64,
    problem: Option<String>,
}

impl Alarm {
    pub fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            newest: 0,
            asked: 0,
            problem: None,
        }
    }

    /// Records that such a revision existed.
    pub fn expect(&mut self, revision: u64) {
        self.newest = self.newest.max(revision);
    }

    /// Records that the node asks the catalog for its head.
    pub fn look(&mut self) {
        self.asked = self.newest;
    }

    /// Returns the newest known revision. A catalog with an older one is an old copy.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Records the problem found; returns whether it differs from the previous one.
    pub fn note(&mut self, problem: Option<String>) -> bool {
        let is_new = self.problem != problem;
        self.problem = problem;
        is_new
    }

    /// Returns the problem of an existing head.
    pub fn of(&self, head: &Head) -> Option<String> {
        if head.cluster != self.cluster {
            return Some(format!(
                "the store has the catalog of cluster {}, and this is a node of cluster {}",
                head.cluster, self.cluster
            ));
        }
        (head.revision < self.asked).then(|| older(head.revision, self.asked))
    }
}

/// Describes the problem of a catalog whose head is `found`.
pub fn older(found: u64, newest: u64) -> String {
    format!(
        "the catalog in the store is an old copy, of revision {found}, and revision {newest} is known: nothing is \
         changed or removed by it; {RESTORE}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_copy_and_another_clusters_catalog_are_reported() {
        let head = |cluster, revision| Head {
            revision,
            ..Head::first(ClusterId(cluster), 1)
        };
        let mut alarm = Alarm::new(ClusterId(1));
        assert_eq!(alarm.of(&head(1, 0)), None);
        alarm.expect(7);
        alarm.expect(3);
        assert_eq!(alarm.of(&head(1, 6)), None);
        alarm.look();
        assert_eq!(alarm.of(&head(1, 7)), None);
        let old = alarm.of(&head(1, 6)).unwrap();
        assert!(old.contains("revision 6") && old.contains("forebay cluster restore"));
        assert!(alarm.of(&head(2, 9)).unwrap().contains("cluster"));
        assert!(alarm.note(Some(old.clone())) && !alarm.note(Some(old)));
        assert!(alarm.note(None) && alarm.problem().is_none());
    }
}
