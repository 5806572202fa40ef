//! What is wrong with the catalog itself, as a node finds it.
//!
//! A catalog that is lost, or an old copy, says nothing: what it does not name might be removed. So
//! nothing is done by it, and operators are told.

use crate::catalog::RESTORE;
use crate::ids::ClusterId;
use crate::model::Head;

/// See the module's text.
#[derive(Debug)]
pub struct Alarm {
    cluster: ClusterId,
    /// The newest revision that was heard of, before this node started or since.
    newest: u64,
    /// As of when the catalog was asked: more may be heard of before it answers.
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

    /// Says that there was such a revision.
    pub fn expect(&mut self, revision: u64) {
        self.newest = self.newest.max(revision);
    }

    /// The catalog is asked for its head.
    pub fn look(&mut self) {
        self.asked = self.newest;
    }

    /// A catalog with an older one is an old copy.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Takes note of what is found there; returns whether that is another thing than before.
    pub fn note(&mut self, problem: Option<String>) -> bool {
        let is_new = self.problem != problem;
        self.problem = problem;
        is_new
    }

    /// What is wrong with a head that is there.
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

/// What is wrong with a catalog whose head is `found`.
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
    fn an_old_copy_and_another_clusters_catalog_are_told() {
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
