//! The cost as the paper defines it, and an exact solver for few partitions.

use forebay_plan::insert::{InsertItem, Limits, Machine, Problem, Siblings};

/// Returns a problem whose pieces have replicas: each with its insert and move cost, and its homes.
pub fn replicated(machines: Vec<Machine>, pieces: &[(f64, f64, Vec<u32>)]) -> Problem {
    let items = pieces.iter().flat_map(|(insert, moving, homes)| {
        homes.iter().map(|home| InsertItem {
            insert: *insert,
            moving: *moving,
            home: *home,
            pinned: false,
        })
    });
    let items: Vec<InsertItem> = items.collect();
    let limits = Limits {
        siblings: Siblings::new(pieces.iter().map(|piece| piece.2.len())),
        ..Limits::open(items.len(), machines.len())
    };
    Problem {
        items,
        machines,
        limits: Some(limits),
    }
}

/// The cost by the definition, machine after machine.
pub fn cost(problem: &Problem, dest: &[u32]) -> f64 {
    let items = || problem.items.iter().zip(dest);
    let (mut most_insert, mut most_move): (f64, f64) = (0.0, 0.0);
    for (index, machine) in problem.machines.iter().enumerate() {
        let index = index as u32;
        let insert = items()
            .filter(|(_, to)| **to == index)
            .map(|(item, _)| item.insert);
        let moved =
            items().filter(|(item, to)| item.home != **to && (item.home == index || **to == index));
        let insert = insert.sum::<f64>() + machine.insert_load;
        let moved = moved.map(|(item, _)| item.moving).sum::<f64>() + machine.move_load;
        most_insert = most_insert.max(insert / machine.insert_speed);
        most_move = most_move.max(moved / machine.move_speed);
    }
    most_insert + most_move
}

/// The least cost, by trying all assignments that can still be cheaper than the best one found.
pub fn exact(problem: &Problem) -> f64 {
    let mut order: Vec<usize> = (0..problem.items.len()).collect();
    order.sort_by(|&a, &b| problem.items[b].insert.total_cmp(&problem.items[a].insert));
    let machines = &problem.machines;
    let mut search = Exact {
        problem,
        order,
        placed: vec![None; problem.items.len()],
        insert: machines
            .iter()
            .map(|m| m.insert_load / m.insert_speed)
            .collect(),
        moving: machines
            .iter()
            .map(|m| m.move_load / m.move_speed)
            .collect(),
        best: cost(
            problem,
            &problem
                .items
                .iter()
                .map(|item| item.home)
                .collect::<Vec<_>>(),
        ),
    };
    search.place_from(0);
    search.best
}

struct Exact<'p> {
    problem: &'p Problem,
    order: Vec<usize>,
    /// The places of the earlier ones in the order.
    placed: Vec<Option<usize>>,
    insert: Vec<f64>,
    moving: Vec<f64>,
    best: f64,
}

impl Exact<'_> {
    fn place_from(&mut self, depth: usize) {
        let max = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let cost = max(&self.insert) + max(&self.moving);
        if cost >= self.best {
            return;
        }
        let Some(&index) = self.order.get(depth) else {
            self.best = cost;
            return;
        };
        let item = self.problem.items[index];
        let home = item.home as usize;
        for (to, machine) in self.problem.machines.iter().enumerate() {
            let may = machine.takes && self.problem.machines[home].gives && !item.pinned;
            let mut siblings = self.problem.siblings(index as u32);
            let meets = siblings.any(|other| self.placed[other as usize] == Some(to));
            if to != home && !may || meets {
                continue;
            }
            let kept = (self.insert[to], self.moving[to], self.moving[home]);
            self.insert[to] += item.insert / machine.insert_speed;
            if to != home {
                self.moving[to] += item.moving / machine.move_speed;
                self.moving[home] += item.moving / self.problem.machines[home].move_speed;
            }
            self.placed[index] = Some(to);
            self.place_from(depth + 1);
            self.placed[index] = None;
            (self.insert[to], self.moving[to], self.moving[home]) = kept;
        }
    }
}
