use forebay_engine::live::LiveDraft;
use forebay_engine::{Bound, Bounds, PartitionId, TableName, seal_text};
use forebay_replica::GroupId;
use forebay_run::Order;

use super::*;
use crate::ids::{ClusterId, NodeId};
use crate::model::{
    EndedLoad, FORMAT_OF_LIVE, GroupEntry, LayoutName, LiveEntry, PeerState, Replication,
    TableEntry, live_replicas,
};

#[test]
fn documents_of_all_formats_are_read() {
    for format in FORMATS[0]..=FORMATS[1] {
        let bytes = written(format, "text").unwrap();
        assert_eq!(parsed_as("a", &bytes), Ok((format, "text".to_owned())));
    }
    // A document of a program that did not record its version.
    let bytes = seal_text(b"{\"forebay_document\":1,\"content\":7}".to_vec());
    assert_eq!(parsed::<u64>("a", &bytes), Ok(7));
}

#[test]
fn the_error_for_a_newer_document_names_the_program_that_wrote_it() {
    let newer = format!(
        "{{\"forebay_document\":{},\"program\":\"9.8.7\",\"content\":{{\"unknown\":1}}}}",
        NEWEST_FORMAT + 1
    );
    let refused = parsed::<Head>("head", &seal_text(newer.into_bytes())).unwrap_err();
    let text = refused.to_string();
    let found = format!("format {}", NEWEST_FORMAT + 1);
    assert!(
        text.contains(&found) && text.contains("forebay 9.8.7"),
        "{text}"
    );
    let read = format!("1 to {NEWEST_FORMAT}");
    assert!(text.contains(&read), "{text}");
}

#[test]
fn a_format_that_never_existed_is_damage() {
    let bytes = written(0, "text").unwrap();
    let refused = parsed::<String>("a", &bytes);
    assert!(
        matches!(refused, Err(ModelError::Damaged { .. })),
        "{refused:?}"
    );
}

/// Otherwise a node of the previous program version could not read it.
#[test]
fn a_model_without_plans_or_live_tables_needs_no_later_format() {
    let mut count = 0;
    let next_name = || {
        count += 1;
        DocRef::new(&count.to_string())
    };
    let (documents, roots) = Model::default().write(1, next_name).unwrap();
    assert_eq!(roots.keys().collect::<Vec<_>>(), ["work"]);
    for bytes in documents.values() {
        let text = String::from_utf8(bytes.clone()).unwrap();
        for field in [
            "plan",
            "before",
            "replicas_held",
            "rebalances",
            "drained",
            "next_group",
        ] {
            assert!(!text.contains(field), "{field} in {text}");
        }
    }
    let head = Head {
        roots,
        ..Head::first(ClusterId(1), 1)
    };
    let read = Model::read(&head, &documents, &Model::default());
    assert_eq!(read, Ok(Model::default()));
}

#[test]
fn groups_are_read_back_and_only_changed_pages_are_written() {
    let table = TableName::new("carts").unwrap();
    let nodes = [NodeId(1), NodeId(2), NodeId(3)];
    let groups: Vec<GroupEntry> = (0..100)
        .map(|at| {
            let bounds = Bounds {
                lower: Bound::Slot(at),
                upper: (at < 99).then_some(Bound::Slot(at + 1)),
            };
            let (group, partition) = (GroupId(u64::from(at)), PartitionId(u32::from(at)));
            GroupEntry::founded(group, partition, bounds, &nodes, 1)
        })
        .collect();
    let mut entry = TableEntry::new(Order::Hashed, LayoutName::Table(table.clone()), 3);
    entry.live = Some(Box::new(LiveEntry {
        options: LiveDraft::hashed().options,
        replication: Replication::Leader,
        last_load: EndedLoad::default(),
    }));
    let mut model = Model::default();
    model.put_table(&table, entry);
    model
        .groups
        .insert(table.clone(), TableGroups::new(&groups));
    let mut count = 0;
    let mut next_name = || {
        count += 1;
        DocRef::new(&count.to_string())
    };
    let (documents, roots) = model.write(FORMAT_OF_LIVE, &mut next_name).unwrap();
    let head = Head {
        roots,
        ..Head::first(ClusterId(1), 1)
    };
    assert!(!model.is_changed(&head));
    let read = Model::read(&head, &documents, &Model::default()).unwrap();
    assert_eq!(read, model);
    assert_eq!(read.references().len(), documents.len());
    let mut changed = groups[3].clone();
    changed.peers[1].state = PeerState::Leaving;
    model.put_group(&table, changed);
    assert!(model.is_changed(&head));
    let (again, roots) = model.write(FORMAT_OF_LIVE, &mut next_name).unwrap();
    assert_eq!(again.len(), 2, "a page and the root");
    let head = Head {
        roots,
        ..head.clone()
    };
    assert_eq!(Model::read(&head, &again, &read), Ok(model.clone()));
    model.remove_table(&table);
    assert!(model.groups.is_empty());
}

#[test]
fn replica_counts_other_than_1_3_and_5_are_refused() {
    for count in [1, 3, 5] {
        assert_eq!(live_replicas(count), Ok(count));
    }
    for count in [2, 4] {
        let words = live_replicas(count).unwrap_err();
        assert!(
            words.contains("majority") && words.contains("1, 3 or 5"),
            "{words}"
        );
    }
    assert!(live_replicas(0).is_err() && live_replicas(7).is_err());
}
