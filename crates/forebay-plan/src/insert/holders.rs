//! The machines that have a partition, as requests give them and plans name them.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// The machine of a partition without replicas, or the machines of its replicas, the primary first.
/// If a request gives a list, its plan gives a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Holders {
    One(u32),
    Each(Vec<u32>),
}

impl Default for Holders {
    fn default() -> Self {
        Self::One(0)
    }
}

impl From<u32> for Holders {
    fn from(machine: u32) -> Self {
        Self::One(machine)
    }
}

impl From<Vec<u32>> for Holders {
    fn from(machines: Vec<u32>) -> Self {
        Self::Each(machines)
    }
}

impl Holders {
    /// Returns the machines, the primary's first.
    pub fn machines(&self) -> &[u32] {
        match self {
            Self::One(machine) => std::slice::from_ref(machine),
            Self::Each(machines) => machines,
        }
    }

    /// Returns other machines in the same form. There are as many of both.
    pub fn like(&self, machines: &[u32]) -> Self {
        match (self, machines) {
            (Self::One(_), [machine]) => Self::One(*machine),
            _ => Self::Each(machines.to_vec()),
        }
    }
}

impl<'de> Deserialize<'de> for Holders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HoldersVisitor)
    }
}

struct HoldersVisitor;

impl<'de> Visitor<'de> for HoldersVisitor {
    type Value = Holders;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the number of a machine, or a list of them")
    }

    fn visit_u64<E: Error>(self, machine: u64) -> Result<Holders, E> {
        let machine = u32::try_from(machine);
        let machine = machine.map_err(|_| E::custom("there are not so many machines"))?;
        Ok(Holders::One(machine))
    }

    fn visit_i64<E: Error>(self, machine: i64) -> Result<Holders, E> {
        Err(E::custom(format_args!(
            "machine {machine}: they are numbered from 0"
        )))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Holders, A::Error> {
        let mut machines = Vec::new();
        while let Some(machine) = list.next_element()? {
            machines.push(machine);
        }
        Ok(Holders::Each(machines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_written_as_they_were_read() {
        let text = "[3,[0],[4,1,2]]";
        let read: Vec<Holders> = serde_json::from_str(text).expect("holders");
        assert_eq!(
            read,
            [
                Holders::One(3),
                Holders::Each(vec![0]),
                Holders::Each(vec![4, 1, 2])
            ]
        );
        assert_eq!(serde_json::to_string(&read).expect("JSON"), text);
        let moved = read.iter().map(|holders| holders.like(&[7]));
        assert_eq!(
            serde_json::to_string(&moved.collect::<Vec<_>>()).expect("JSON"),
            "[7,[7],[7]]"
        );
        for wrong in ["-1", "0.5", "\"a\"", "[[0]]", "[-1]", "5000000000", "null"] {
            assert!(serde_json::from_str::<Holders>(wrong).is_err(), "{wrong}");
        }
    }
}
