use super::*;

fn picture(nodes: usize) -> Picture {
    let value = |node: usize| ((node * 7 + 3) % 10 + 1) as f64 * 100.0;
    Picture {
        title: "a <plan> & more".to_owned(),
        lines: vec!["costs 5".to_owned()],
        stages: vec![
            Stage::new("before", 0, (0..nodes).map(value).collect()),
            Stage::new("after", 0, vec![550.0; nodes]),
        ],
        flows: Picture::sum_flows((1..nodes as u32).map(|node| (0, node, f64::from(node)))),
        unit: "records".to_owned(),
        ..Picture::default()
    }
}

/// Checks that elements open and close in order, as any XML reader requires.
fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    for part in svg.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("a closed tag");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{svg}");
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().expect("a name"));
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn few_nodes_have_a_bar_and_a_name_each() {
    let svg = svg(&picture(10));
    assert_well_formed(&svg);
    assert!(svg.contains("a &lt;plan&gt; &amp; more"));
    // Below the bars; nine flows need no matrix.
    assert_eq!(svg.matches("font-size=\"11\" fill=\"#999\">7<").count(), 1);
    assert!(svg.contains("0 to 9: 9 records in 1 partition<"));
}

#[test]
fn many_nodes_fit_the_same_page() {
    let svg = svg(&picture(1000));
    assert_well_formed(&svg);
    assert!(svg.contains(r#"width="1200""#));
    assert_eq!(svg.matches("<title>0-19 to ").count(), 50);
    assert!(svg.contains("and 979 more"));
}

#[test]
fn the_matrix_has_only_nodes_that_send_or_receive() {
    let flows = (0..25).map(|number| (number % 5 * 100, 50 + number / 5 * 100, 1.0));
    let flows = Picture::sum_flows(flows);
    let svg = svg(&Picture {
        flows,
        ..picture(1000)
    });
    assert_well_formed(&svg);
    assert_eq!(svg.matches("1 records, 1 partitions</title>").count(), 25);
    assert!(svg.contains("<title>400 to 450: "), "{svg}");
}

#[test]
fn the_verdict_is_first_and_the_steps_are_shown_in_order() {
    let picture = Picture {
        verdict: "worth it".to_owned(),
        steps: (0..22).map(|step| format!("step {step}")).collect(),
        ..picture(3)
    };
    let drawn = text(&picture, 80);
    assert_eq!(drawn.lines().nth(1), Some("worth it"), "{drawn}");
    let drawn = svg(&picture);
    assert_well_formed(&drawn);
    assert!(drawn.contains("font-weight=\"bold\">worth it<"), "{drawn}");
    assert!(drawn.contains("step 19<") && drawn.contains("and 2 more"));
}

#[test]
fn empty_pictures_are_drawn_too() {
    assert_well_formed(&svg(&Picture::default()));
    assert_eq!(text(&Picture::default(), 80), "");
    let flat = Picture {
        stages: vec![Stage::new("none", 0, vec![0.0; 3])],
        ..Picture::default()
    };
    assert_well_formed(&svg(&flat));
    assert!(text(&flat, 80).contains("none"));
}

#[test]
fn the_terminal_gets_bars_for_few_nodes() {
    let drawn = text(&picture(3), 80);
    let lines: Vec<&str> = drawn.lines().collect();
    assert_eq!(lines[..2], ["a <plan> & more", "costs 5"]);
    assert!(lines[3].starts_with("node  before"), "{drawn}");
    assert!(lines[4].starts_with("   0     400 █"), "{drawn}");
    assert_eq!(lines.len(), 7);
}

#[test]
fn long_titles_are_shown_whole_and_flows_have_names() {
    let names = ["node-1", "a-very-long-name-of-a-node", "node-3"];
    let mut picture = picture(3);
    picture.names = names.map(str::to_owned).to_vec();
    picture.stages[1].title = "bytes that are inserted afterwards".to_owned();
    let drawn = text(&picture, 80);
    let lines: Vec<&str> = drawn.lines().collect();
    assert!(
        lines[3].trim_start().starts_with("bytes that are inserted"),
        "{drawn}"
    );
    assert!(lines[4].ends_with("afterwards"), "{drawn}");
    assert!(lines[4].contains("before"), "{drawn}");
    let drawn = svg(&picture);
    assert!(drawn.contains("node-1 to node-3: "), "{drawn}");
}

#[test]
fn the_terminal_gets_a_profile_for_many_nodes() {
    let drawn = text(&picture(1000), 100);
    assert_eq!(drawn.lines().count(), 5);
    assert!(
        drawn.lines().all(|line| line.chars().count() <= 100),
        "{drawn}"
    );
    assert!(drawn.contains("max  1.00k  mean    550"), "{drawn}");
}

#[test]
fn bytes_are_shown_as_sizes() {
    assert_eq!(
        [0.0, 1023.0, 1536.0].map(size),
        ["0 B", "1023 B", "1.5 KiB"]
    );
    let picture = Picture {
        sizes: true,
        unit: "bytes".to_owned(),
        stages: vec![Stage::new("bytes before", 0, vec![1536.0, 3.0 * 1048576.0])],
        flows: Picture::sum_flows([(0, 1, 2048.0)]),
        ..Picture::default()
    };
    let shown = text(&picture, 80);
    assert!(
        shown.contains("1.5 KiB") && shown.contains("3.0 MiB"),
        "{shown}"
    );
    let drawn = svg(&picture);
    assert!(drawn.contains("0 to 1: 2.0 KiB in 1 partition"), "{drawn}");
    assert!(!drawn.contains("KiB bytes"), "{drawn}");
}

#[test]
fn numbers_are_shortened() {
    for (value, text) in [
        (0.0, "0"),
        (7.0, "7"),
        (7.25, "7.25"),
        (999.0, "999"),
        (999.6, "1.00k"),
        (12_345.0, "12.3k"),
        (1_234_567.0, "1.23M"),
    ] {
        assert_eq!(short(value), text);
    }
}

#[test]
fn flows_between_the_same_nodes_are_one() {
    let flows = Picture::sum_flows([(1, 0, 2.0), (0, 1, 1.0), (1, 0, 3.0)]);
    let flow = |from, to, amount, count| Flow {
        from,
        to,
        amount,
        count,
    };
    assert_eq!(flows, [flow(0, 1, 1.0, 1), flow(1, 0, 5.0, 2)]);
}

fn timed(nodes: usize) -> Picture {
    let bar = |work, node: usize, begin, end| TimeBar {
        work,
        node: node as u32,
        begin,
        end,
    };
    let moves = (1..nodes).flat_map(|node| {
        let (begin, end) = (node as f64 - 1.0, node as f64);
        let send = bar(Activity::Send(7, node as u32), 0, begin, end);
        [send, bar(Activity::Receive(7, 0), node, begin, end)]
    });
    let steps_end = nodes as f64 - 1.0;
    let inserts = (0..nodes).map(|node| bar(Activity::Insert, node, steps_end, 7200.0));
    let split = bar(Activity::Split(3), 1, 0.0, 0.0);
    Picture {
        timeline: Some(Timeline {
            bars: moves.chain(inserts).chain([split]).collect(),
            unit: TimeUnit::Seconds,
            steps_end,
            without: Some(10_800.0),
        }),
        costs: vec![CostBar {
            title: "this plan".to_owned(),
            parts: vec![("moves", 3.0), ("inserts", 5.0)],
        }],
        splits: vec![SplitBar {
            title: "partition 3".to_owned(),
            pieces: vec![(5.0, vec![0]), (5.0, vec![1, 3])],
        }],
        ..picture(nodes)
    }
}

#[test]
fn the_timeline_shows_order_and_time() {
    let drawn = svg(&timed(4));
    assert_well_formed(&drawn);
    for words in [
        "partition 7 to 2, 1 s to 2 s",
        "partition 7 from 0, 2 s to 3 s",
        "all steps done: 3 s",
        "all inserted: 2 h",
        "without the plan: 3 h",
        "partition 3 is split",
        "piece 1: 5 to 1",
        "moves 3",
    ] {
        assert!(drawn.contains(words), "{words}: {drawn}");
    }
    let many = svg(&timed(1000));
    assert_well_formed(&many);
    assert!(many.len() < 2_000_000, "{} bytes", many.len());
    assert!(many.contains("all inserted: 2 h"));
}
