//! Splits the partitions of a life's table, and moves them away and back.

use std::path::PathBuf;

use forebay_engine::live::LiveError;
use forebay_engine::{Bound, PartitionId, PartitionRange};
use forebay_io::sim::Rng;
use forebay_io::{Disk, replace_file};
use forebay_run::Order;

use crate::common::root;
use crate::live::life::{Life, keys};

impl Life {
    /// Returns a random split point within some partition; `None` if it is the beginning of a
    /// partition.
    fn split_point(&self, rng: &mut Rng) -> Option<(PartitionId, Bound)> {
        let keys = keys();
        let key = &keys[rng.below(keys.len() as u64) as usize];
        let at = match self.options.order {
            Order::Hashed => Bound::Slot(self.table.hasher().slot(key)),
            Order::Ordered => Bound::Key(key.clone()),
        };
        let partitions = self.table.partitions();
        let holds = |range: &&PartitionRange| range.bounds.holds(&at) && range.bounds.lower != at;
        let id = partitions.iter().find(holds)?.id;
        Some((id, at))
    }

    /// Splits a partition in two at some key.
    pub fn split(&mut self, rng: &mut Rng) -> Result<(), LiveError> {
        let Some((id, at)) = self.split_point(rng) else {
            return Ok(());
        };
        let before = self.table.partitions();
        let right = before.iter().map(|range| range.id.0).max().unwrap_or(0) + 1;
        self.table.split(id, &at, PartitionId(right))?;
        self.history.acknowledged();
        assert_eq!(self.table.partitions().len(), before.len() + 1);
        Ok(())
    }

    /// Releases a partition and installs it again, unchanged, with new names of its files.
    pub fn move_away_and_back(&mut self, rng: &mut Rng) {
        let partitions = self.table.partitions();
        let range = &partitions[rng.below(partitions.len() as u64) as usize];
        self.table.flush().unwrap();
        self.history.acknowledged();
        let runs = root().join("tables/t/runs");
        let (mut content, files) = loop {
            let content = self.table.content(range.id).unwrap();
            let read = |path: PathBuf| self.disk.read(&path);
            let files = content.runs.iter().map(|run| {
                let path = runs.join(format!("{}.run", run.id));
                Ok((read(path.clone())?, read(path.with_extension("ext")).ok()))
            });
            let files: std::io::Result<Vec<_>> = files.collect();
            // Merges may replace them meanwhile.
            if let Ok(files) = files
                && self.table.content(range.id).as_ref() == Some(&content)
            {
                break (content, files);
            }
        };
        self.table.release(range.id).unwrap();
        for (run, (bytes, extent)) in content.runs.iter_mut().zip(files) {
            let new = self.table.new_run();
            replace_file(&self.disk, &new.path, &bytes).unwrap();
            if let Some(extent) = extent {
                replace_file(&self.disk, &new.path.with_extension("ext"), &extent).unwrap();
            }
            run.id = new.id;
        }
        self.table.adopt(content).unwrap();
        assert_eq!(self.table.partitions(), partitions);
    }
}
