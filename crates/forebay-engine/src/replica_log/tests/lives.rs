//! Lives of a log in several processes, drawn from a seed: writes, trims, removals, full disks,
//! kills, clean stops and power cuts, each at every durability, and damages at the end.

use std::sync::Arc;

use forebay_io::Disk;
use forebay_io::sim::{Fault, HandClock, Rng, SeedCounts, SimDisk, all_hold};

use super::model::{Change, Model};
use super::*;

struct Life {
    rng: Rng,
    disk: SimDisk,
    clock: Arc<HandClock>,
    boot_id: u128,
    /// The log after each write, and the first write that a power cut may leave as the last one.
    models: Vec<Model>,
    durable: usize,
    /// The expected state: the boot, and whether it was stopped cleanly. None if a failed write may
    /// have changed it.
    state: Option<(Option<u128>, bool)>,
    /// Whether this process has written to the log; None where that may be.
    begun: Option<bool>,
    durability: Durability,
    counts: SeedCounts,
}

impl Life {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_insert(0) += 1;
    }

    fn model(&mut self) -> &mut Model {
        self.models.last_mut().unwrap()
    }

    fn options(&mut self) -> ReplicaLogOptions {
        let durability = MODES[self.rng.below(3) as usize];
        self.durability = durability;
        ReplicaLogOptions {
            boot_id: self.boot_id,
            ..options(durability, [1500, 6000, 20_000][self.rng.below(3) as usize])
        }
    }

    fn open(&self, options: ReplicaLogOptions) -> Result<(ReplicaLog, OpenedLog), ReplicaLogError> {
        let disk = Arc::new(self.disk.clone()) as Arc<dyn Disk>;
        ReplicaLog::open(disk, Arc::clone(&self.clock) as _, dir(), options)
    }

    /// Opens it, checks that it is one of the expected logs, and continues from that.
    fn begin(&mut self, options: ReplicaLogOptions) -> Result<ReplicaLog, String> {
        let (log, opened) = self.open(options).map_err(|error| error.to_string())?;
        let state = (opened.boot_then, opened.stopped_clean);
        if self.state.is_some_and(|expected| expected != state) {
            return Err(format!("it was {:?}, and says {state:?}", self.state));
        }
        (self.state, self.begun) = (Some(state), Some(false));
        let mut why = String::new();
        for model in self.models[self.durable..].iter().rev() {
            let Some(differs) = model.differs(&opened.groups, &log) else {
                self.models = vec![model.clone()];
                self.durable = 0;
                return Ok(log);
            };
            why = differs;
        }
        let last = self.models.len() - 1;
        Err(format!("none of {} to {last} fits: {why}", self.durable))
    }

    fn may_have_begun(&mut self) {
        if self.begun == Some(false) {
            (self.state, self.begun) = (None, None);
        }
    }

    fn write(&mut self, log: &ReplicaLog, fills_up: bool) -> Result<(), String> {
        let first = self.rng.below(4);
        let groups = match self.rng.below(5) {
            0 => first..4,
            _ => first..first + 1,
        };
        let mut model = self.model().clone();
        let mut changes = Vec::new();
        for group in groups {
            changes.push(Change::any(&mut self.rng, group, &model));
        }
        model.take(&changes);
        if fills_up && self.rng.below(3) == 0 {
            self.disk.plan(self.rng.below(3), Fault::Full);
        }
        let appended = append(log, &changes);
        self.disk.make_room();
        match appended {
            Ok(lsn) => {
                (self.state, self.begun) = (Some((Some(self.boot_id), false)), Some(true));
                self.models.push(model);
                self.count("writes");
                if self.rng.below(4) == 0 && self.durability == Durability::Sync {
                    log.wait_durable(lsn).map_err(|error| error.to_string())?;
                    self.durable = self.models.len() - 1;
                    self.count("acknowledged");
                }
                Ok(())
            }
            Err(ReplicaLogError::Log(LogError::Full { .. })) => {
                self.may_have_begun();
                self.count("writes without room");
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn remove(&mut self, log: &ReplicaLog, fills_up: bool) -> Result<(), String> {
        if fills_up && self.rng.below(3) == 0 {
            self.disk.plan(self.rng.below(6), Fault::Full);
        }
        let removed = log.remove_unneeded([0, 2000][self.rng.below(2) as usize]);
        self.disk.make_room();
        // What is written again may be the first write of this process.
        self.may_have_begun();
        match removed {
            Ok(removed) if removed.held_by.is_some() => self.count("held back"),
            Ok(removed) if removed.removed_bytes > 0 => {
                self.durable = self.models.len() - 1;
                self.count("removals");
            }
            Ok(_) => {}
            Err(ReplicaLogError::Log(LogError::Full { .. })) => {
                self.count("removals without room");
            }
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    fn step(&mut self, log: &ReplicaLog, fills_up: bool) -> Result<(), String> {
        let failed = |error: ReplicaLogError| error.to_string();
        match self.rng.below(14) {
            0 => {
                log.sync().map_err(failed)?;
                self.durable = self.models.len() - 1;
            }
            1 => self.remove(log, fills_up)?,
            2 | 3 => {
                let group = self.rng.below(5);
                let through = [self.rng.below(60), u64::MAX][self.rng.below(2) as usize];
                log.trim(group, through);
                self.model().trim(group, through);
            }
            4 => {
                let (group, index) = (self.rng.below(5), self.rng.below(60));
                match log.entries(group, index, 500) {
                    Ok(_) | Err(ReplicaLogError::NoGroup { .. }) => {}
                    Err(ReplicaLogError::Trimmed { .. }) => self.count("too early"),
                    Err(error) => return Err(error.to_string()),
                }
            }
            _ => self.write(log, fills_up)?,
        }
        Ok(())
    }

    fn process(&mut self) -> Result<(), String> {
        let options = self.options();
        let log = self.begin(options)?;
        let fills_up = self.rng.below(4) == 0;
        for _ in 0..self.rng.below(60) {
            self.step(&log, fills_up)?;
        }
        match self.rng.below(4) {
            0 => {
                log.close().map_err(|error| error.to_string())?;
                self.durable = self.models.len() - 1;
                self.state = match self.begun {
                    Some(true) => Some((Some(self.boot_id), true)),
                    // An earlier process of this boot may have written.
                    Some(false) => self
                        .state
                        .map(|(boot, is_clean)| (boot, is_clean || boot == Some(self.boot_id))),
                    None => None,
                };
                self.count("stops");
            }
            1 => {
                self.disk = self.disk.after_kill();
                self.durable = self.models.len() - 1;
                self.count("kills");
            }
            _ => {
                self.disk = self.disk.after_power_cut(self.rng.next_u64());
                self.boot_id += 1;
                self.count("power cuts");
            }
        }
        Ok(())
    }

    /// Any change of durable bytes is reported, or has no effect.
    fn damage(&mut self) -> Result<(), String> {
        let options = self.options();
        let log = self.begin(options.clone())?;
        log.close().map_err(|error| error.to_string())?;
        let model = self.model().clone();
        for _ in 0..20 {
            let files = self.disk.files();
            if files.is_empty() {
                break;
            }
            let path = &files[self.rng.below(files.len() as u64) as usize];
            let disk = self.disk.after_kill();
            let rng = &mut self.rng;
            disk.tamper(path, |bytes| {
                let at = rng.below(bytes.len() as u64 + 1) as usize;
                match (rng.below(3), bytes.get_mut(at)) {
                    (0, _) => bytes.truncate(at),
                    (_, Some(byte)) => *byte ^= 1 << rng.below(8),
                    _ => {}
                }
            });
            let whole = std::mem::replace(&mut self.disk, disk);
            let opened = self.open(options.clone());
            self.disk = whole;
            match opened {
                Ok((log, opened)) => {
                    if let Some(differs) = model.differs(&opened.groups, &log) {
                        let path = path.display();
                        return Err(format!("damage of {path} is not reported: {differs}"));
                    }
                    self.count("damages without effect");
                }
                Err(_) => self.count("damages reported"),
            }
        }
        Ok(())
    }
}

fn live(seed: u64) -> (Option<String>, SeedCounts) {
    let mut life = Life {
        rng: Rng(seed),
        disk: SimDisk::new(),
        clock: Arc::new(HandClock::waiting()),
        boot_id: 1,
        models: vec![Model::default()],
        durable: 0,
        state: Some((None, false)),
        begun: Some(false),
        durability: Durability::Sync,
        counts: SeedCounts::new(),
    };
    let mut problem = None;
    for process in 0..5 {
        if let Err(error) = life.process() {
            problem = Some(format!("process {process}: {error}"));
            break;
        }
    }
    if problem.is_none() {
        problem = life.damage().err();
    }
    life.clock.end();
    (problem, life.counts)
}

#[test]
fn any_life_of_a_log_keeps_its_promises() {
    all_hold(700, live);
}
