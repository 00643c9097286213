//! What readers learn before, during and after scans, and while namespaces change hands.

use std::time::UNIX_EPOCH;

use super::*;
use crate::background::share::owner;
use crate::finding::Summary;

const INTERVAL: Duration = Duration::from_secs(1_800);

fn board() -> Board {
    Board {
        interval: INTERVAL,
        members: OnceLock::new(),
        state: Mutex::default(),
    }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
}

fn replicas(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

fn search() -> ScanSearch {
    ScanSearch {
        limit: 200,
        ..ScanSearch::default()
    }
}

/// Counts of this many namespaces that belong to `own`, with a failure in each.
fn counts(own: &str, replicas: &BTreeSet<String>, namespaces: usize) -> Counts {
    let mut counts = Counts::default();
    let mut summary = Summary::default();
    summary.add(Verdict::Fail);
    for namespace in (0..namespaces).map(|index| format!("team-{index}")) {
        if owner(replicas, Some(&namespace)).map(String::as_str) == Some(own) {
            counts.add(Some(&namespace), &BTreeMap::from([("labels", summary)]));
        }
    }
    counts
}

fn exceptions(rows: Vec<Row>, is_whole: bool) -> Exceptions {
    Exceptions { rows, is_whole }
}

fn scanned() -> Scanned {
    Scanned {
        is_complete: true,
        duration: Duration::from_millis(4_321),
        objects: 40,
        calls: 7,
        ..Scanned::default()
    }
}

#[test]
fn says_when_scans_run_and_how_they_end() {
    let board = board();
    let page = |board: &Board| board.page_of(&search(), None);
    let before = page(&board);
    for key in ["last", "scanning", "nextScan", "countedIn"] {
        assert_eq!(before[key], Value::Null, "{key}");
    }
    assert_eq!(
        (&before["enabled"], &before["intervalSeconds"]),
        (&json!(true), &json!(1_800))
    );
    assert_eq!(before["results"], json!([]));

    board.begins(at(0));
    assert_eq!(page(&board)["scanning"], "2023-11-14T22:13:20Z");
    let alone = replicas(&["a"]);
    board.counted(
        "a",
        alone.clone(),
        counts("a", &alone, 3),
        exceptions(Vec::new(), true),
    );
    board.ended(scanned(), &[]);
    let after = page(&board);
    assert_eq!(after["scanning"], Value::Null);
    assert_eq!(after["nextScan"], "2023-11-14T22:43:20Z");
    assert_eq!(after["countedIn"], "2023-11-14T22:13:20Z");
    let last = &after["last"];
    assert_eq!(
        (&last["end"], &last["seconds"]),
        (&json!("complete"), &json!(4.3))
    );
    assert_eq!((&last["objects"], &after["total"]), (&json!(40), &json!(3)));

    // A scan that fails keeps the counts of the one before.
    board.begins(at(2_000));
    board.failed(Duration::from_secs(1));
    let failed = page(&board);
    assert_eq!(failed["last"]["end"], "failed");
    assert_eq!(failed["last"]["began"], "2023-11-14T22:46:40Z");
    assert_eq!(failed["countedIn"], "2023-11-14T22:13:20Z");
    assert_eq!(failed["total"], 3);
}

#[test]
fn names_what_could_not_be_read_within_bounds() {
    let board = board();
    board.begins(at(0));
    let mut missing: Vec<String> = (0..300).map(|index| format!("things-{index}")).collect();
    missing[0] = format!("a\nb{}", "x".repeat(1_000));
    let incomplete = Scanned {
        is_complete: false,
        ..scanned()
    };
    board.ended(incomplete, &missing);
    let page = board.page_of(&search(), None);
    let last = &page["last"];
    assert_eq!(
        (&last["end"], &last["moreNotScanned"]),
        (&json!("incomplete"), &json!(200))
    );
    let names = last["notScanned"].as_array().expect("a list");
    assert_eq!(names.len(), MOST_NOT_SCANNED);
    let first = names[0].as_str().expect("a text");
    assert!(first.starts_with("a b") && first.len() <= 256, "{first}");
}

#[test]
fn two_replicas_show_every_namespace_once_while_a_third_one_comes() {
    let (two, three) = (replicas(&["a", "b"]), replicas(&["a", "b", "c"]));
    let scan = |board: &Board, own: &str, replicas: &BTreeSet<String>| {
        board.begins(at(0));
        let counts = counts(own, replicas, 150);
        board.counted(own, replicas.clone(), counts, exceptions(Vec::new(), true));
        board.ended(scanned(), &[]);
    };
    let boards = ["a", "b", "c"].map(|own| (own, board()));
    for (own, board) in &boards[..2] {
        scan(board, own, &two);
    }
    let pages = |ready: &BTreeSet<String>| {
        let pages = boards.iter();
        let pages = pages.map(|(_, board)| board.page_of(&search(), Some(ready.clone())));
        pages.collect::<Vec<_>>()
    };
    let sum = |pages: &[Value], key: &str| {
        let numbers = pages
            .iter()
            .map(|page| page[key].as_u64().unwrap_or_default());
        numbers.sum::<u64>()
    };
    let before = pages(&two);
    assert_eq!(
        (sum(&before, "total"), sum(&before, "handedOver")),
        (150, 0)
    );
    assert_eq!(before[0]["changesHands"], false);
    assert_eq!(before[0]["replicas"], 2);

    // The third one has not scanned yet: its namespaces are missing and nobody shows them twice.
    let during = pages(&three);
    let gone = sum(&during, "handedOver");
    assert!(gone > 20, "{gone}");
    assert_eq!(sum(&during, "total") + gone, 150);
    assert_eq!(
        (&during[0]["changesHands"], &during[0]["replicas"]),
        (&json!(true), &json!(3))
    );
    scan(&boards[2].1, "c", &three);
    assert_eq!(sum(&pages(&three), "total"), 150);
    for (own, board) in &boards[..2] {
        scan(board, own, &three);
    }
    let after = pages(&three);
    assert_eq!((sum(&after, "total"), sum(&after, "handedOver")), (150, 0));
    assert!(after.iter().all(|page| page["changesHands"] == false));
}

fn row(index: usize, until: &str, state: State) -> Row {
    let mut without = Summary::default();
    without.add(Verdict::Error);
    without.add(Verdict::Fail);
    without.add(Verdict::Warn);
    Row {
        plugin: "labels".to_owned(),
        index,
        label: format!("exceptions[{index}]"),
        until: until.to_owned(),
        reason: "legacy".to_owned(),
        state,
        objects: 3,
        applied: 3,
        without,
    }
}

#[test]
fn says_whether_exceptions_are_still_needed() {
    let shown = |index: usize, is_whole: bool| {
        let rows = vec![
            row(0, "never", State::Needed),
            row(1, "2999-12-31", State::NotNeeded),
            row(2, "2020-01-01", State::Expired),
        ];
        let board = board();
        board.begins(at(0));
        let alone = replicas(&["a"]);
        board.counted("a", alone, Counts::default(), exceptions(rows, is_whole));
        let exception = |until: &str| json!({"until": until, "reason": "legacy"});
        let labels = json!({"name": "labels", "exceptions": [
            exception("never"), exception("2999-12-31"), exception("2020-01-01"), exception("never"),
        ]});
        // Since the scan, somebody has put another exception into the first place.
        let changed = json!({"name": "labels", "exceptions": [exception("2030-01-01")]});
        let other = json!({"name": "other", "exceptions": [exception("never")]});
        let mut plugins = json!({"plugins": [labels, changed, other, {"name": "labels"}]});
        board.add_to_exceptions(&mut plugins);
        let all = &plugins["plugins"];
        assert!(all[1]["exceptions"][0].get("scan").is_none(), "{all}");
        assert!(all[2]["exceptions"][0].get("scan").is_none(), "{all}");
        all[0]["exceptions"][index].get("scan").cloned()
    };
    let needed = json!({"state": "needed", "objects": 3, "refused": 2, "warned": 1});
    for is_whole in [true, false] {
        assert_eq!(shown(0, is_whole), Some(needed.clone()));
        assert_eq!(
            shown(2, is_whole).map(|scan| scan["state"].clone()),
            Some(json!("expired"))
        );
        assert_eq!(shown(3, is_whole), None, "it is newer than the scan");
    }
    assert_eq!(
        shown(1, true).map(|scan| scan["state"].clone()),
        Some(json!("not-needed"))
    );
    assert_eq!(
        shown(1, false).map(|scan| scan["state"].clone()),
        Some(json!("not-known"))
    );
}

#[test]
fn before_the_first_scan_nothing_is_said_about_exceptions() {
    let mut plugins = json!({"plugins": [{"name": "labels", "exceptions": [{"until": "never", "reason": "legacy"}]}]});
    let before = plugins.clone();
    board().add_to_exceptions(&mut plugins);
    assert_eq!(plugins, before);
}
