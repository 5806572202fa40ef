//! Commands that walk through tables, where live tables of the cluster are among these: they are
//! refused, as no node has all of such a table.

use forebay_cluster::LivePlaces;
use forebay_engine::TableName;

use super::super::ask::{Asker, Unanswered};
use super::Answered;
use crate::applying::check_proposed;
use crate::command::{COMMANDS, RangeRequest, Run};
use crate::glob;
use crate::resp::Args;
use crate::users::Verb;

/// The error, where a live table lies in the command's way.
pub fn refused(asker: &Asker<'_>, live: &LivePlaces, place: usize, args: &Args<'_>) -> Answered {
    let command = &COMMANDS[place];
    if matches!(command.run, Run::RangeDelete(_)) {
        let stop = check_proposed(place, args, false).err()?;
        return Some(Err(Unanswered::from(stop)));
    }
    let names = || {
        let names = live.tables().map(|(name, _)| name);
        names.filter(|name| asker.work.user.may(Verb::Read, name.as_str().as_bytes()))
    };
    let default = asker.work.shared.config.default_table.as_ref();
    let lies_in_way = |name: &&TableName| match command.name {
        "scan" => pattern_of(args).is_none_or(|pattern| may_match(pattern, name, default)),
        "keys" => may_match(args.get(1), name, default),
        "kv.range" => {
            let request = RangeRequest::parse(args);
            request.is_ok_and(|request| request.table == name.as_str().as_bytes())
        }
        _ => true,
    };
    let table = names().find(lies_in_way)?;
    let instead = match command.name {
        "scan" | "keys" => ": give a pattern that begins with another table's name and a colon",
        _ => "",
    };
    Some(Err(Unanswered::Told(format!(
        "ERR {} of a live table of a cluster is not supported yet, and table '{table}' is one{instead}",
        asker.name(place)
    ))))
}

/// The pattern of a SCAN.
fn pattern_of<'a>(args: &Args<'a>) -> Option<&'a [u8]> {
    let at = (2..args.len())
        .step_by(2)
        .find(|at| args.is(*at, "match"))?;
    Some(args.get(at + 1))
}

/// Whether a pattern may mean keys of a table.
fn may_match(pattern: &[u8], table: &TableName, default: Option<&TableName>) -> bool {
    let (prefix, wire) = (glob::literal_prefix(pattern), format!("{table}:"));
    let common = prefix.len().min(wire.len());
    default == Some(table) || prefix[..common] == wire.as_bytes()[..common]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::OwnedArgs;

    #[test]
    fn a_table_lies_in_the_way_of_patterns_that_may_name_its_keys() {
        let table = TableName::new("cart").unwrap();
        for pattern in ["*", "c*", "cart:*", "cart:7", "?art:1", "cart", ""] {
            assert!(may_match(pattern.as_bytes(), &table, None), "{pattern}");
        }
        for pattern in ["words:*", "carts:*", "b*"] {
            assert!(!may_match(pattern.as_bytes(), &table, None), "{pattern}");
            assert!(may_match(pattern.as_bytes(), &table, Some(&table)));
        }
        let args: OwnedArgs = ["SCAN", "0", "COUNT", "5", "MATCH", "a*"].iter().collect();
        assert_eq!(pattern_of(&args.borrow()), Some(&b"a*"[..]));
    }
}
