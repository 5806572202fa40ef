//! Checks the homes in a request: each error names the path of the home.

use super::holders::Holders;
use super::request::Request;
use crate::input::InputError;

/// The most replicas of one partition: a request for more is a mistake.
const MOST_REPLICAS: usize = 32;

/// Returns the number of partitions of each table; `partitions` count as one table.
fn partition_counts(request: &Request) -> Vec<usize> {
    match (&request.tables, &request.partitions) {
        (Some(tables), _) => tables.iter().map(|table| table.home.len()).collect(),
        (None, partitions) => vec![partitions.as_ref().map_or(0, Vec::len)],
    }
}

/// Checks that a further region has a home for each partition of each table.
pub fn check_shape(
    request: &Request,
    homes: &[Vec<Holders>],
    path: &str,
) -> Result<(), InputError> {
    let wanted = partition_counts(request);
    let given: Vec<usize> = homes.iter().map(Vec::len).collect();
    if wanted == given {
        return Ok(());
    }
    let problem = format!(
        "lists of {given:?} homes for {wanted:?} partitions: one list for each table (one for \
         partitions), one home for each partition"
    );
    Err(InputError::new(format!("{path}.homes"), problem))
}

/// Checks the homes of all tables in a region; the request's own is number 0. Machines have to
/// exist and to be distinct for a partition. All partitions of a table have the same number of
/// replicas. `partitions` may be of several tables, so they may have different numbers.
pub fn check_homes(
    request: &Request,
    region: usize,
    homes: &[Holders],
    machines: usize,
) -> Result<(), InputError> {
    let mut rest = homes;
    for (table, count) in partition_counts(request).into_iter().enumerate() {
        let (own, others) = rest.split_at(count.min(rest.len()));
        rest = others;
        for (place, home) in own.iter().enumerate() {
            let path = || home_path(request, region, table, place);
            check_home(home, machines, &path)?;
            let (first, count) = (own[0].machines().len(), home.machines().len());
            if request.tables.is_some() && count != first {
                let problem = format!(
                    "{count} replicas, where the table's first partition has {first}: all have the \
                     same number"
                );
                return Err(InputError::new(path(), problem));
            }
        }
    }
    Ok(())
}

fn check_home(home: &Holders, count: usize, path: &dyn Fn() -> String) -> Result<(), InputError> {
    let machines = home.machines();
    if machines.is_empty() {
        let problem = "a partition is on at least one machine";
        return Err(InputError::new(path(), problem));
    }
    if machines.len() > MOST_REPLICAS {
        let problem = format!("{} replicas of {MOST_REPLICAS} at most", machines.len());
        return Err(InputError::new(path(), problem));
    }
    for (place, machine) in machines.iter().enumerate() {
        let problem = if *machine as usize >= count {
            format!("machine {machine} of {count}, which are numbered from 0")
        } else if machines[..place].contains(machine) {
            format!("machine {machine} twice: replicas are on distinct machines")
        } else {
            continue;
        };
        let path = match home {
            Holders::One(_) => path(),
            Holders::Each(_) => format!("{}[{place}]", path()),
        };
        return Err(InputError::new(path, problem));
    }
    Ok(())
}

/// Returns the path of a home's field.
fn home_path(request: &Request, region: usize, table: usize, place: usize) -> String {
    match (region, &request.tables) {
        (0, None) => format!("partitions[{place}].h"),
        (0, Some(_)) => format!("tables[{table}].home[{place}]"),
        _ => format!("regions[{}].homes[{table}][{place}]", region - 1),
    }
}
