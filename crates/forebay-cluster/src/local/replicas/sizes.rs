//! About how much the partitions here hold, as their leaders tell. It is looked at now and then:
//! who plans needs no exact number.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_engine::live::PartitionSize;
use forebay_replica::GroupId;
use parking_lot::Mutex;

use super::commons::ReplicaCommons;

/// A partition is looked at again after so long.
const AGAIN: Duration = Duration::from_secs(10);

/// What was seen of groups, and when.
#[derive(Debug, Default)]
pub struct SizesSeen(Mutex<BTreeMap<GroupId, (Duration, PartitionSize)>>);

impl SizesSeen {
    pub fn forget(&self, group: GroupId) {
        self.0.lock().remove(&group);
    }
}

impl ReplicaCommons {
    /// Of a replica that runs here.
    pub fn size_of(&self, group: GroupId) -> Option<PartitionSize> {
        let now = self.clock.monotonic();
        let known = self.sizes.0.lock().get(&group).cloned();
        if let Some((at, size)) = &known
            && now.saturating_sub(*at) < AGAIN
        {
            return Some(size.clone());
        }
        let running = self.running.lock();
        let replica = running.get(&group)?;
        let (name, partition) = (replica.table.clone(), replica.partition);
        drop(running);
        let table = self.tables.load().get(&name)?.clone();
        let size = table.size_of(partition, known.as_ref().map(|(_, size)| size))?;
        self.sizes.0.lock().insert(group, (now, size.clone()));
        Some(size)
    }
}
