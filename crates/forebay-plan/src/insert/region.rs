//! One region's machines and homes, checked, and its move/insert problem.

use std::collections::BTreeMap;

use super::holders::Holders;
use super::homes::{check_homes, check_shape};
use super::limits::{Limits, UnmetLimit};
use super::pieces::{Piece, Pieces};
use super::problem::{InsertItem, Machine, Problem};
use super::request::{MachineList, MachineSpec, Operation, Request};
use super::siblings::Siblings;
use crate::Node;
use crate::input::{InputError, amount, positive};

/// One region of a request: its machines, the homes of partitions, and the siblings in its problem.
#[derive(Debug, Clone)]
pub struct Region<'a> {
    pub name: Option<&'a str>,
    pub machines: Vec<MachineSpec>,
    /// The home of each partition as given, through all tables.
    pub homes: Vec<Holders>,
    /// The items of its problem that are replicas of one piece.
    pub siblings: Siblings,
}

/// The most replicas of pieces: a request for more is a mistake.
const MOST_ITEMS: usize = 20_000_000;

impl<'a> Region<'a> {
    /// Returns the region of the request's own machines and homes, then the further ones.
    pub fn all(request: &'a Request, pieces: &Pieces) -> Result<Vec<Self>, InputError> {
        let originals = pieces.originals.iter();
        let mut regions = vec![Self {
            name: None,
            machines: machines("machines", &request.machines)?,
            homes: originals.map(|original| original.home.clone()).collect(),
            siblings: Siblings::default(),
        }];
        for (index, region) in request.regions.iter().enumerate() {
            let path = format!("regions[{index}]");
            check_shape(request, &region.homes, &path)?;
            regions.push(Self {
                name: Some(&region.name),
                machines: machines(&format!("{path}.machines"), &region.machines)?,
                homes: region.homes.concat(),
                siblings: Siblings::default(),
            });
        }
        for (index, region) in regions.iter_mut().enumerate() {
            check_homes(request, index, &region.homes, region.machines.len())?;
            region.check_pinned(pieces)?;
            region.siblings = region.siblings_of(pieces)?;
        }
        Ok(regions)
    }

    fn siblings_of(&self, pieces: &Pieces) -> Result<Siblings, InputError> {
        let of_piece = |piece: &Piece| self.homes[piece.of as usize].machines().len();
        let counts = pieces.pieces.iter().map(of_piece);
        let items: usize = counts.clone().sum();
        if items > MOST_ITEMS && !pieces.steps.is_empty() {
            let problem = format!("there would be {items} replicas: the limit is too small");
            return Err(InputError::new("pi", problem));
        }
        Ok(Siblings::new(counts))
    }

    fn check_pinned(&self, pieces: &Pieces) -> Result<(), InputError> {
        for piece in pieces.pieces.iter().filter(|piece| piece.pinned) {
            let homes = self.homes[piece.of as usize].machines();
            let drained = |home: &&u32| self.machines[**home as usize].drain;
            if let Some(home) = homes.iter().find(drained) {
                let path = format!("partitions[{}].pinned", piece.of);
                let problem = format!("machine {home} is drained: leave one of both out");
                return Err(InputError::new(path, problem));
            }
        }
        Ok(())
    }

    /// Returns the replicas of all pieces, as the problem's items: the piece, and the machine of
    /// the replica.
    pub fn replicas(&self, pieces: &'a Pieces) -> impl Iterator<Item = (&'a Piece, u32)> {
        pieces.pieces.iter().flat_map(|piece| {
            let homes = self.homes[piece.of as usize].machines().iter();
            homes.map(move |home| (piece, *home))
        })
    }

    /// Returns the problem for the solver.
    pub fn problem(&self, request: &Request, pieces: &Pieces) -> Problem {
        let (move_price, handover_price) = (request.move_price, request.handover_price);
        Problem {
            limits: self.limits(request, pieces),
            ..self.priced(pieces, request.record_price(), move_price, handover_price)
        }
    }

    /// Returns the problem with costs in records, without prices.
    pub fn problem_in_records(&self, pieces: &Pieces) -> Problem {
        self.priced(pieces, 1.0, 1.0, 0.0)
    }

    fn priced(
        &self,
        pieces: &Pieces,
        record_price: f64,
        move_price: f64,
        handover_price: f64,
    ) -> Problem {
        let machine = |(spec, zone): (&MachineSpec, Option<u32>)| Machine {
            zone,
            insert_speed: spec.capacity,
            move_speed: spec.move_capacity.unwrap_or(spec.capacity),
            insert_load: spec.insert_load * record_price,
            move_load: spec.move_load * move_price,
            takes: spec.takes && !spec.drain,
            gives: spec.gives,
        };
        let zoned = self.machines.iter().zip(zones(&self.machines));
        let machines: Vec<Machine> = zoned.map(machine).collect();
        let takers = machines.iter().filter(|machine| machine.takes).count();
        let items = self.replicas(pieces).map(|(piece, home)| InsertItem {
            insert: (piece.new + piece.running) * record_price,
            moving: piece.existing * move_price + handover_price,
            home,
            pinned: piece.pinned || self.is_everywhere(piece, takers),
        });
        Problem {
            items: items.collect(),
            machines,
            limits: None,
        }
    }

    /// Returns whether a piece has a replica on each of the machines that take partitions: then
    /// none of them can move.
    fn is_everywhere(&self, piece: &Piece, takers: usize) -> bool {
        let homes = self.homes[piece.of as usize].machines();
        let takes = |home: &&u32| {
            let spec = &self.machines[**home as usize];
            spec.takes && !spec.drain
        };
        homes.len() > 1 && homes.iter().filter(takes).count() == takers
    }

    /// Returns the plan's limits besides its cost, if any.
    fn limits(&self, request: &Request, pieces: &Pieces) -> Option<Limits> {
        let room = |spec: &MachineSpec| spec.storage_bytes.or(request.storage_bytes);
        let room = self
            .machines
            .iter()
            .map(|spec| room(spec).unwrap_or(f64::INFINITY));
        let room: Vec<f64> = room.collect();
        let has_room_limits = room.iter().any(|room| room.is_finite());
        let drained: Vec<bool> = self.machines.iter().map(|spec| spec.drain).collect();
        let bytes_count = has_room_limits || request.max_moved_bytes.is_some();
        if !bytes_count && !drained.contains(&true) && self.siblings.is_empty() {
            return None;
        }
        let added = |piece: &Piece| match request.operation {
            Operation::Insert => piece.new + piece.running,
            Operation::Update | Operation::Delete => piece.running,
        };
        let each = |of: &dyn Fn(&Piece) -> f64| {
            let replicas = self.replicas(pieces);
            replicas
                .map(|(piece, _)| of(piece) * piece.record_bytes)
                .collect::<Vec<f64>>()
        };
        Some(Limits {
            bytes: each(&|piece| piece.existing),
            grown: each(&|piece| piece.existing + added(piece)),
            room,
            has_room_limits,
            max_moved: request.max_moved_bytes.unwrap_or(f64::INFINITY),
            drained,
            siblings: self.siblings.clone(),
        })
    }

    /// Returns the error for a limit that no plan was found for.
    pub fn refusal(&self, request: &Request, index: usize, unmet: UnmetLimit) -> InputError {
        let list = match index {
            0 => "machines".to_owned(),
            _ => format!("regions[{}].machines", index - 1),
        };
        let machine_path = |machine: u32| format!("{list}[{machine}]");
        match unmet {
            UnmetLimit::Room {
                machine,
                bytes,
                room,
            } => {
                let own = self.machines[machine as usize].storage_bytes.is_some();
                let path = match own {
                    true => format!("{}.storage_bytes", machine_path(machine)),
                    false => "storage_bytes".to_owned(),
                };
                let problem = format!(
                    "machine {machine} would hold {bytes} bytes of {room} after the inserts, and no \
                     plan was found that keeps all limits: add machines or storage, or allow more moves"
                );
                InputError::new(path, problem)
            }
            UnmetLimit::Moved { bytes, limit } => {
                let problem = format!(
                    "draining the machines moves {bytes} bytes of {limit}: allow as many, or drain fewer"
                );
                InputError::new("max_moved_bytes", problem)
            }
            UnmetLimit::Drained { machine } => {
                let problem = match self.siblings.is_empty() {
                    true => "no other machine takes its partitions: let one take, or add one",
                    false => {
                        "some partition has no other machine that takes and holds no replica of \
                         it: let one take, or add one"
                    }
                };
                InputError::new(format!("{}.drain", machine_path(machine)), problem)
            }
            UnmetLimit::Order { machine } => {
                let problem = format!(
                    "moves to machine {machine} wait for its own moves to full machines: leave more \
                     room on one machine (storage_bytes is {} here)",
                    self.machines[machine as usize]
                        .storage_bytes
                        .or(request.storage_bytes)
                        .unwrap_or(f64::INFINITY)
                );
                InputError::new(format!("{}.storage_bytes", machine_path(machine)), problem)
            }
        }
    }

    /// Returns the machines as the plan's executor sees them.
    pub fn nodes(&self, request: &Request) -> Vec<Node> {
        let node = |spec: &MachineSpec| Node {
            alive: true,
            bytes_per_second: spec.bytes_per_second.or(request.bytes_per_second),
            max_transfers: spec.max_transfers.unwrap_or(request.max_transfers),
        };
        self.machines.iter().map(node).collect()
    }

    /// Returns the records that each machine inserts a second, if given.
    pub fn insert_rates(&self, request: &Request) -> Option<Vec<f64>> {
        let rate = |spec: &MachineSpec| {
            let common = request.records_per_second.map(|rate| rate * spec.capacity);
            spec.records_per_second.or(common)
        };
        self.machines.iter().map(rate).collect()
    }
}

impl Request {
    pub fn record_price(&self) -> f64 {
        self.record_price.unwrap_or(self.operation.record_price())
    }

    /// Checks the prices and rates that hold for all regions.
    pub fn check(&self) -> Result<(), InputError> {
        amount(self.move_price, || "move_price".into())?;
        amount(self.handover_price, || "handover_price".into())?;
        if let Some(price) = self.record_price {
            amount(price, || "record_price".into())?;
        }
        for (field, rate) in [
            ("bytes_per_second", self.bytes_per_second),
            ("records_per_second", self.records_per_second),
        ] {
            if let Some(rate) = rate {
                positive(rate, || field.into())?;
            }
        }
        if let Some(bytes) = self.storage_bytes {
            positive(bytes, || "storage_bytes".into())?;
        }
        if let Some(bytes) = self.max_moved_bytes {
            amount(bytes, || "max_moved_bytes".into())?;
        }
        at_least_one("max_transfers", self.max_transfers)
    }

    /// Returns the number of machines of the region with the most.
    pub fn most_machines(&self) -> usize {
        let lists = self.regions.iter().map(|region| &region.machines);
        let counts = lists.chain([&self.machines]).map(|list| match list {
            MachineList::Count(count) => *count,
            MachineList::Each(each) => each.len(),
        });
        counts.max().unwrap_or(1).max(1)
    }
}

/// Returns the zones of machines, numbered by their names.
fn zones(machines: &[MachineSpec]) -> Vec<Option<u32>> {
    let mut numbers = BTreeMap::new();
    let mut zones = Vec::with_capacity(machines.len());
    for spec in machines {
        let next = numbers.len() as u32;
        let number = |name| *numbers.entry(name).or_insert(next);
        zones.push(spec.zone.as_deref().map(number));
    }
    zones
}

fn at_least_one(path: &str, count: u32) -> Result<(), InputError> {
    if count > 0 {
        return Ok(());
    }
    Err(InputError::new(
        path,
        "0 transfers at once would never move anything",
    ))
}

fn machines(path: &str, list: &MachineList) -> Result<Vec<MachineSpec>, InputError> {
    let each = match list {
        MachineList::Count(0) => &[],
        MachineList::Count(count) => return Ok(vec![MachineSpec::default(); *count]),
        MachineList::Each(each) => each.as_slice(),
    };
    if each.is_empty() {
        return Err(InputError::new(
            path,
            "there has to be at least one machine",
        ));
    }
    for (index, spec) in each.iter().enumerate() {
        let path = |field: &str| format!("{path}[{index}].{field}");
        positive(spec.capacity, || path("capacity"))?;
        amount(spec.insert_load, || path("insert_load"))?;
        amount(spec.move_load, || path("move_load"))?;
        for (field, rate) in [
            ("move_capacity", spec.move_capacity),
            ("bytes_per_second", spec.bytes_per_second),
            ("records_per_second", spec.records_per_second),
            ("storage_bytes", spec.storage_bytes),
        ] {
            if let Some(rate) = rate {
                positive(rate, || path(field))?;
            }
        }
        if spec.drain && !spec.gives {
            let problem = "a machine that gives nothing cannot be drained: leave one of both out";
            return Err(InputError::new(path("drain"), problem));
        }
        at_least_one(&path("max_transfers"), spec.max_transfers.unwrap_or(1))?;
    }
    Ok(each.to_vec())
}
