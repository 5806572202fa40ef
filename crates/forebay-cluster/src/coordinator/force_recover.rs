//! Force-recovery of partitions that have lost their majority for good.
//!
//! An operator accepts the loss of the writes that only the lost replicas had. Of the replicas that
//! answer, the most complete one founds a new group alone, and the old group no longer exists. If
//! another replica of the old group returns, no catalog names it: its node removes it, and its
//! messages belong to a group that no node has.

use forebay_engine::{PartitionId, TableName};
use forebay_replica::GroupId;

use super::Step;
use crate::lost_majority::LostPartition;
use crate::model::{GroupEntry, fresh_id};

impl Step<'_> {
    /// Recovers these partitions. Refuses, and changes nothing, unless all of them have lost their
    /// majority.
    pub fn force_recover(
        &mut self,
        table: &TableName,
        partitions: &[PartitionId],
    ) -> Result<(), String> {
        let Some(groups) = self.model.groups.get(table) else {
            return Err(format!("the cluster has no live table {table}"));
        };
        let mut successors = Vec::new();
        let mut next = fresh_id(self.model.work.next_group, self.term);
        for id in partitions {
            let mut all = groups.all();
            let group = all.find(|group| group.partition == *id);
            let group = group.ok_or_else(|| format!("table {table} has no partition {id}"))?;
            let successor = self.successor(table, group, GroupId(next))?;
            successors.push((group.group, successor));
            next += 1;
        }
        self.model.work.edit().next_group = next;
        for (group, successor) in successors {
            self.model.replace_group(table, group, successor);
        }
        Ok(())
    }

    fn successor(
        &self,
        table: &TableName,
        group: &GroupEntry,
        next: GroupId,
    ) -> Result<GroupEntry, String> {
        let id = group.partition;
        let lost = LostPartition::of(&self.model, self.groups, table, group);
        let lost = lost.ok_or_else(|| {
            format!(
                "partition {id} of table {table}: a majority of its replicas is on nodes that are up, or were a \
                 moment ago, and nothing is lost: wait until it has a leader (forebay cluster status)"
            )
        })?;
        if !lost.waits_for.is_empty() {
            let nodes: Vec<&str> = lost.waits_for.iter().map(String::as_str).collect();
            let nodes = nodes.join(", ");
            return Err(format!(
                "partition {id} of table {table}: there is no report of the replica on {nodes} \
                 yet: ask again in some seconds; if that lasts, read the log there; or stop that \
                 node, and its replica counts as lost"
            ));
        }
        let best = lost
            .remaining
            .first()
            .and_then(|best| group.peer(best.peer));
        let best = best.ok_or_else(|| {
            format!(
                "partition {id} of table {table}: no replica of it answers, so there is nothing to \
                 continue from: start one of the nodes that have it ({}), or drop the table",
                lost.words()
            )
        })?;
        Ok(group.succeed(next, *best, self.term))
    }
}
