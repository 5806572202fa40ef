//! Tests of catalog formats, and of catalogs that are old copies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::Bound;
use forebay_engine::live::LiveDraft;

use crate::catalog::SeenTag;
use crate::coordinator::{CommitOutcome, Coordinator, CoordinatorAction, CoordinatorEvent};
use crate::ids::{ClusterId, HostPort, NodeId, NodeName, Zone};
use crate::message::{Beat, BeatReply, Introduction};
use crate::model::{
    EndedLoad, FORMATS, Head, LiveEntry, Model, MovePlan, NEWEST_FORMAT, NodeEntry, NodeState,
    Outcome, PlanGoal, Replication, RequestId,
};
use crate::request::Request;
use crate::time::Now;

const NOW: Now = Now {
    monotonic: Duration::from_secs(100),
    unix_ms: 1_700_000_000_000,
};

fn node(name: &str, formats: [u64; 2]) -> NodeEntry {
    NodeEntry {
        id: NodeId(u32::from(name.as_bytes()[1])),
        name: NodeName::new(name).unwrap(),
        zone: Zone::new("z").unwrap(),
        incarnation: 1,
        state: NodeState::Left { since_unix_ms: 1 },
        paused_until_unix_ms: None,
        listen: HostPort::new("127.0.0.1", 7000),
        class_ports: Vec::new(),
        peer: HostPort::new("127.0.0.1", 7001),
        http: None,
        cut_off_ms: None,
        formats,
        program: "0.9.9".to_owned(),
        key: None,
    }
}

/// A coordinator of a catalog of format 1, after its first commit.
struct LedCatalog {
    coordinator: Coordinator,
    writes: u64,
}

impl LedCatalog {
    fn new(nodes: Vec<NodeEntry>) -> Self {
        let mut model = Model::default();
        for node in nodes {
            model.work.edit().next_node = model.work.next_node.max(node.id.0 + 1);
            model.put_node(node);
        }
        let head = Head {
            forebay_head: 1,
            ..Head::first(ClusterId(1), 1)
        };
        let (coordinator, _) =
            Coordinator::new(NOW, 7, crate::coordinator::CoordinatorSettings::default());
        let mut led = Self {
            coordinator,
            writes: 0,
        };
        let loaded = CoordinatorEvent::Loaded {
            head: Box::new(head),
            seen: SeenTag("0".to_owned()),
            model: Box::new(model),
        };
        led.handle(loaded);
        led
    }

    fn load(&mut self, revision: u64) -> Option<Head> {
        let head = Head {
            revision,
            ..Head::first(ClusterId(1), 1)
        };
        self.handle(CoordinatorEvent::Loaded {
            head: Box::new(head),
            seen: SeenTag("copy".to_owned()),
            model: Box::new(Model::default()),
        })
    }

    /// A heartbeat of a node that knows this revision.
    fn beat(&mut self, revision: u64, formats: [u64; 2]) -> Vec<CoordinatorAction> {
        let NodeEntry {
            name,
            zone,
            listen,
            peer,
            program,
            ..
        } = node("n1", formats);
        let who = Introduction {
            name,
            zone,
            incarnation: 1,
            listen,
            class_ports: Vec::new(),
            peer,
            http: None,
            cut_off_ms: None,
            formats,
            program,
            key: None,
        };
        let beat = Box::new(Beat {
            cluster: ClusterId(1),
            who,
            seq: 1,
            revision,
            serves: 0,
            holds: 0,
            rollouts: BTreeMap::new(),
            moving: None,
            leaving: false,
            free_bytes: None,
            fetched_bytes_per_s: None,
            problems: Vec::new(),
            suspects: BTreeSet::new(),
            groups: Vec::new(),
            groups_left: 0,
            reads: Vec::new(),
            leaders_known: crate::message::LeadersMark::default(),
        });
        let event = CoordinatorEvent::Beat { token: 5, beat };
        self.coordinator.handle(NOW, event)
    }

    /// Commits each write immediately. Returns the last written head.
    fn handle(&mut self, event: CoordinatorEvent) -> Option<Head> {
        let mut events = vec![event];
        let mut last = None;
        while let Some(event) = events.pop() {
            for action in self.coordinator.handle(NOW, event) {
                let CoordinatorAction::Commit { head, .. } = action else {
                    continue;
                };
                self.writes += 1;
                events.push(CoordinatorEvent::Wrote {
                    stamp: head.stamp,
                    outcome: CommitOutcome::Done(SeenTag(self.writes.to_string())),
                });
                last = Some(*head);
            }
        }
        last
    }

    fn ask(&mut self, name: &str, request: Request) -> (Head, Outcome) {
        let id = RequestId(name.to_owned());
        let requests = BTreeMap::from([(id.clone(), request)]);
        let head = self.handle(CoordinatorEvent::Requests(requests)).unwrap();
        let (_, model) = self.coordinator.standing().unwrap();
        (head, model.work.answers[&id].outcome.clone())
    }
}

fn plan() -> Request {
    Request::Rebalance {
        plan: Box::new(MovePlan {
            goal: PlanGoal::Even,
            batches: Vec::new(),
            copies: BTreeMap::new(),
        }),
    }
}

fn refusal(outcome: Outcome) -> String {
    match outcome {
        Outcome::Refused(words) => words,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_format_is_raised_if_all_nodes_support_it() {
    let mut led = LedCatalog::new(vec![
        node("n1", FORMATS),
        node("n2", [2, NEWEST_FORMAT + 1]),
    ]);
    let (head, outcome) = led.ask("plan", plan());
    assert!(refusal(outcome).contains("forebay cluster upgrade"));
    assert_eq!(head.forebay_head, 1);
    let upgrade = Request::Upgrade {
        format: NEWEST_FORMAT,
    };
    let (head, outcome) = led.ask("upgrade", upgrade.clone());
    assert_eq!((head.forebay_head, outcome), (NEWEST_FORMAT, Outcome::Done));
    let (head, outcome) = led.ask("again", upgrade);
    assert_eq!((head.forebay_head, outcome), (NEWEST_FORMAT, Outcome::Done));
}

/// The listing was begun before the request was written, and its result arrives late.
#[test]
fn an_older_listing_removes_no_request() {
    let mut led = LedCatalog::new(vec![node("n1", FORMATS)]);
    let requests = |names: &[&str]| {
        let drop = Request::Drop {
            table: "words".parse().unwrap(),
        };
        let named = names.iter().map(|name| RequestId((*name).to_owned()));
        CoordinatorEvent::Requests(named.map(|id| (id, drop.clone())).collect())
    };
    let actions = led.coordinator.handle(NOW, requests(&["first"]));
    let stamp = actions.iter().find_map(|action| match action {
        CoordinatorAction::Commit { head, .. } => Some(head.stamp),
        _ => None,
    });
    // During this write the coordinator decides nothing else.
    led.coordinator.handle(NOW, requests(&["first", "second"]));
    led.coordinator.handle(NOW, requests(&["first"]));
    led.handle(CoordinatorEvent::Wrote {
        stamp: stamp.unwrap(),
        outcome: CommitOutcome::Done(SeenTag("written".to_owned())),
    });
    let (_, model) = led.coordinator.standing().unwrap();
    let second = RequestId("second".to_owned());
    assert!(model.work.answers.contains_key(&second));
}

#[test]
fn live_tables_need_a_catalog_format_that_supports_them() {
    let mut led = LedCatalog::new(vec![node("n1", [1, 3])]);
    let make = Request::MakeLive {
        table: "carts".parse().unwrap(),
        live: Box::new(LiveEntry {
            options: LiveDraft::hashed().options,
            replication: Replication::Leader,
            last_load: EndedLoad::default(),
        }),
        lowers: vec![Bound::Slot(0)],
        replicas: Some(1),
    };
    led.ask("upgrade", Request::Upgrade { format: 2 });
    let (_, outcome) = led.ask("make", make.clone());
    assert!(refusal(outcome).contains("forebay cluster upgrade"));
    led.ask("again", Request::Upgrade { format: 3 });
    let (_, outcome) = led.ask("made", make.clone());
    let words = refusal(outcome);
    assert!(words.contains("0 are up"), "{words}");
    let wrong = |edit: &dyn Fn(&mut LiveEntry, &mut Vec<Bound>)| {
        let Request::MakeLive {
            table,
            mut live,
            mut lowers,
            replicas,
        } = make.clone()
        else {
            panic!("{make:?}");
        };
        edit(&mut live, &mut lowers);
        Request::MakeLive {
            table,
            live,
            lowers,
            replicas,
        }
    };
    let wrongs = [
        ("log", wrong(&|live, _| live.options.durability = None)),
        ("factor", wrong(&|live, _| live.options.factor = 1)),
        ("begin", wrong(&|_, lowers| lowers[0] = Bound::Slot(1))),
        (
            "begin",
            wrong(&|_, lowers| lowers.push(Bound::Key(vec![1]))),
        ),
        ("rise", wrong(&|_, lowers| lowers.push(Bound::Slot(0)))),
        (
            "last slot",
            wrong(&|_, lowers| lowers.push(Bound::Slot(16384))),
        ),
    ];
    for (at, (word, request)) in wrongs.into_iter().enumerate() {
        let (_, outcome) = led.ask(&format!("wrong{at}"), request);
        let words = refusal(outcome);
        assert!(words.contains(word), "{words}");
    }
}

#[test]
fn a_node_that_does_not_support_the_format_is_named() {
    let mut led = LedCatalog::new(vec![node("n1", FORMATS), node("n2", [1, 1])]);
    let upgrade = |format| Request::Upgrade { format };
    let (head, outcome) = led.ask("upgrade", upgrade(NEWEST_FORMAT));
    let words = refusal(outcome);
    assert!(
        words.contains("n2 (forebay 0.9.9") && !words.contains("n1"),
        "{words}"
    );
    assert_eq!(head.forebay_head, 1);
    let (head, outcome) = led.ask("newer", upgrade(NEWEST_FORMAT + 1));
    assert!(refusal(outcome).contains("newer program"));
    assert_eq!(head.forebay_head, 1);
}

#[test]
fn a_node_that_does_not_support_the_catalogs_format_is_refused() {
    let mut led = LedCatalog::new(Vec::new());
    led.ask("upgrade", Request::Upgrade { format: 2 });
    let actions = led.beat(0, [1, 1]);
    let [CoordinatorAction::Reply { reply, .. }] = &actions[..] else {
        panic!("{actions:?}");
    };
    let BeatReply::Refused { problem } = &**reply else {
        panic!("{reply:?}");
    };
    assert!(
        problem.contains("format 2") && problem.contains("0.9.9"),
        "{problem}"
    );
}

#[test]
fn a_coordinator_writes_nothing_on_an_old_copy_of_the_catalog() {
    let mut led = LedCatalog::new(vec![node("n1", [1, 2])]);
    let (before, _) = led.coordinator.standing().unwrap();
    let own = before.revision;
    // Nodes may know the revisions that it wrote.
    led.beat(own, [1, 2]);
    assert!(led.coordinator.standing().is_some());
    let actions = led.beat(own + 5, [1, 2]);
    assert!(actions.contains(&CoordinatorAction::Load), "{actions:?}");
    assert_eq!(led.load(own), None);
    assert!(led.coordinator.standing().is_none());
    assert_eq!(led.coordinator.behind(), Some((own, own + 5)));
    // The catalog as it was restored.
    let head = led.load(own + 6).unwrap();
    assert_eq!(head.revision, own + 7);
    assert_eq!(led.coordinator.behind(), None);
}

#[test]
fn a_catalog_older_than_the_nodes_own_revision_is_not_used() {
    let (mut coordinator, _) =
        Coordinator::new(NOW, 7, crate::coordinator::CoordinatorSettings::default());
    coordinator.expect(9);
    let mut led = LedCatalog {
        coordinator,
        writes: 0,
    };
    assert_eq!(led.load(8), None);
    assert_eq!(led.load(9).map(|head| head.revision), Some(10));
}

/// The revisions that this coordinator wrote count, even if no node has reported them.
#[test]
fn an_old_copy_restored_under_a_running_coordinator_is_not_written_to() {
    let mut led = LedCatalog::new(vec![node("n1", [1, 2])]);
    led.ask("first", plan());
    let (head, _) = led.ask("second", plan());
    let own = head.revision;
    let requests = BTreeMap::from([(RequestId("third".to_owned()), plan())]);
    let event = CoordinatorEvent::Requests(requests);
    let actions = led.coordinator.handle(NOW, event);
    let stamp = actions.iter().find_map(|action| match action {
        CoordinatorAction::Commit { head, .. } => Some(head.stamp),
        _ => None,
    });
    let conflict = CoordinatorEvent::Wrote {
        stamp: stamp.unwrap(),
        outcome: CommitOutcome::Conflict,
    };
    let actions = led.coordinator.handle(NOW, conflict);
    assert!(actions.contains(&CoordinatorAction::Load), "{actions:?}");
    assert_eq!(led.load(own - 1), None);
    assert_eq!(led.coordinator.behind(), Some((own - 1, own)));
    // The catalog as another coordinator has written it.
    assert_eq!(led.load(own + 1).unwrap().revision, own + 2);
}
