use serde_json::{Value, json};

use super::*;
use crate::patch::diff;

/// The first state is the original object. Each later state is the result of its writer: `'a'`, `'b'`, and so on.
/// Returns the conflicts of the last mutation, and the record.
fn conflicts(states: &[Value]) -> (Vec<(String, char)>, Provenance<char>) {
    let writers: Vec<char> = ('a'..).take(states.len() - 1).collect();
    conflicts_of(states, &writers)
}

fn conflicts_of(states: &[Value], writers: &[char]) -> (Vec<(String, char)>, Provenance<char>) {
    let states: Vec<Json> = states.iter().cloned().map(Json::from).collect();
    let mut provenance = Provenance::new();
    let mut last = Vec::new();
    for (pair, writer) in states.windows(2).zip(writers) {
        last = provenance.record(*writer, &pair[0], &diff(&pair[0], &pair[1]));
    }
    let shown = last
        .into_iter()
        .map(|conflict| (conflict.path.to_string(), conflict.earlier))
        .collect();
    (shown, provenance)
}

fn found(states: &[Value], expected: &[(&str, char)]) {
    let (conflicts, _) = conflicts(states);
    let expected: Vec<_> = expected
        .iter()
        .map(|(path, writer)| ((*path).to_owned(), *writer))
        .collect();
    assert_eq!(conflicts, expected, "{states:?}");
}

fn paths(provenance: &Provenance<char>, writer: char) -> Vec<String> {
    provenance
        .paths_of(writer)
        .iter()
        .map(Pointer::to_string)
        .collect()
}

#[test]
fn changing_or_removing_value_of_other_writer_is_conflict() {
    found(
        &[json!({}), json!({"x": 1}), json!({"x": 2})],
        &[("/x", 'a')],
    );
    found(
        &[json!({"x": 0}), json!({"x": 1}), json!({})],
        &[("/x", 'a')],
    );
    found(
        &[
            json!({"x": 0}),
            json!({"x": 1}),
            json!({"x": 2}),
            json!({"x": 3}),
        ],
        &[("/x", 'b')],
    );
}

#[test]
fn same_value_or_other_place_is_no_conflict() {
    found(&[json!({}), json!({"x": 1}), json!({"x": 1})], &[]);
    found(
        &[
            json!({"y": 1}),
            json!({"x": 1, "y": 1}),
            json!({"x": 1, "y": 2}),
        ],
        &[],
    );
}

#[test]
fn restoring_value_that_other_writer_removed_is_conflict() {
    found(
        &[json!({"x": 1}), json!({}), json!({"x": 1})],
        &[("/x", 'a')],
    );
    found(
        &[
            json!({"m": {"x": 1}}),
            json!({"m": {}}),
            json!({}),
            json!({"m": {"x": 2}}),
        ],
        &[("/m", 'b'), ("/m", 'a')],
    );
    found(
        &[
            json!({"m": {"x": 1}}),
            json!({"m": {}}),
            json!({}),
            json!({"m": {"y": 2}}),
        ],
        &[("/m", 'b')],
    );
    found(
        &[
            json!({"l": ["x", "y"]}),
            json!({"l": ["y"]}),
            json!({"l": ["y", "x"]}),
        ],
        &[("/l/1", 'a')],
    );
    found(
        &[
            json!({"l": [{"name": "x", "v": 1}, {"name": "y"}]}),
            json!({"l": [{"name": "y"}]}),
            json!({"l": [{"name": "y"}, {"name": "x", "v": 2}]}),
        ],
        &[("/l/1", 'a')],
    );
    found(
        &[
            json!({"l": ["x", "y"]}),
            json!({"l": ["y"]}),
            json!({"l": ["y", "z"]}),
        ],
        &[],
    );
}

#[test]
fn removing_ancestor_conflicts_with_all_writers_inside() {
    found(
        &[
            json!({"m": {}}),
            json!({"m": {"x": 1}}),
            json!({"m": {"x": 1, "y": {"z": 1}}}),
            json!({}),
        ],
        &[("/m", 'a'), ("/m", 'b')],
    );
    found(
        &[
            json!({"m": {"k": 1, "x": 1}}),
            json!({"m": {"k": 1}}),
            json!({}),
        ],
        &[],
    );
    found(
        &[
            json!({"m": {"x": 0}}),
            json!({"m": {"x": 1}}),
            json!({"m": "text"}),
        ],
        &[("/m", 'a')],
    );
}

#[test]
fn adding_whole_value_writes_its_leaves() {
    let added = json!({"l": [{"name": "n", "image": "i", "env": [{"name": "e", "value": "1"}]}]});
    let mut changed = added.clone();
    changed["l"][0]["env"][0]["value"] = json!("2");
    found(
        &[json!({}), added.clone(), changed],
        &[("/l/0/env/0/value", 'a')],
    );
    let mut beside = added.clone();
    beside["l"][0]["securityContext"] = json!({});
    beside["l"][0]["env"] = json!([{"name": "f"}, {"name": "e", "value": "1"}]);
    found(&[json!({}), added.clone(), beside.clone()], &[]);
    let mut third = beside.clone();
    third["l"][0]["env"][0]["name"] = json!("g");
    third["l"][0]["env"][0]["x"] = json!(1);
    third["l"][0]["env"][1]["value"] = json!("3");
    let (found, _) = conflicts(&[json!({}), added, beside, third]);
    let writers: Vec<char> = found.iter().map(|(_, writer)| *writer).collect();
    assert!(
        writers.contains(&'a') && writers.contains(&'b'),
        "{found:?}"
    );
}

#[test]
fn place_follows_insertions_and_removals_before_it() {
    let element = |name: &str, image: &str| json!({"name": name, "image": image});
    let states = |last: Value| {
        vec![
            json!({"l": [element("p", "1"), element("q", "1")]}),
            json!({"l": [element("p", "1"), element("q", "2")]}),
            json!({"l": [element("s", "1"), element("t", "1"), element("p", "1"), element("q", "2")]}),
            json!({"l": [element("t", "1"), element("p", "1"), element("q", "2")]}),
            last,
        ]
    };
    found(
        &states(json!({"l": [element("t", "1"), element("p", "1"), element("q", "3")]})),
        &[("/l/2/image", 'a')],
    );
    found(
        &states(json!({"l": [element("t", "1"), element("p", "3"), element("q", "2")]})),
        &[],
    );
    found(
        &states(json!({"l": [element("t", "1"), element("p", "1")]})),
        &[("/l/2", 'a')],
    );
    let (_, provenance) = conflicts(&states(json!({"l": []}))[..4]);
    assert_eq!(paths(&provenance, 'a'), ["/l/2/image"]);
    assert_eq!(paths(&provenance, 'b'), ["/l/0"]);
    assert_eq!(paths(&provenance, 'c'), ["/l/0"]);
}

#[test]
fn moving_element_is_no_conflict_and_keeps_writer() {
    let element = |name: &str, image: &str| json!({"name": name, "image": image});
    let original = json!({"l": [element("p", "1"), element("q", "1"), element("r", "1")]});
    let written = json!({"l": [element("p", "2"), element("q", "1"), element("r", "1")]});
    for moved in [
        json!({"l": [element("q", "1"), element("r", "1"), element("p", "2")]}),
        json!({"l": [element("q", "1"), element("p", "2"), element("r", "1")]}),
        json!({"l": [element("r", "1"), element("p", "2"), element("q", "1")]}),
    ] {
        found(&[original.clone(), written.clone(), moved.clone()], &[]);
        let mut undone = moved.clone();
        let position = moved["l"]
            .as_array()
            .unwrap()
            .iter()
            .position(|e| e["name"] == "p")
            .unwrap();
        undone["l"][position]["image"] = json!("3");
        let (found, _) = conflicts(&[original.clone(), written.clone(), moved.clone(), undone]);
        assert!(
            found.contains(&(format!("/l/{position}/image"), 'a')),
            "{moved}: {found:?}"
        );
    }
}

#[test]
fn writer_never_conflicts_with_itself() {
    let states = [
        json!({}),
        json!({"x": {"y": 1}}),
        json!({"x": {"y": 2}}),
        json!({}),
        json!({"x": 1}),
    ];
    for last in 2..=states.len() {
        assert_eq!(conflicts_of(&states[..last], &['a'; 4]).0, []);
    }
    let (conflicts, _) = conflicts_of(
        &[
            json!({"x": {}}),
            json!({"x": {"y": 1}}),
            json!({"x": {"y": 1, "z": 2}}),
            json!({}),
        ],
        &['a', 'b', 'a'],
    );
    assert_eq!(conflicts, [("/x".to_owned(), 'b')]);
}

#[test]
fn member_names_like_indexes_are_names() {
    found(
        &[
            json!({"m": {"1": "x"}}),
            json!({"m": {"1": "y"}}),
            json!({"m": {"0": "", "1": "y"}}),
        ],
        &[],
    );
    found(
        &[
            json!({"m": {"1": "x"}}),
            json!({"m": {"1": "y"}}),
            json!({"m": {"0": "", "1": "y"}}),
            json!({"m": {"0": "", "1": "z"}}),
        ],
        &[("/m/1", 'a')],
    );
}

#[test]
fn paths_include_written_and_removed_places() {
    let (_, provenance) = conflicts(&[
        json!({"keep": 1, "gone": 1, "l": ["x", "y"]}),
        json!({"keep": 1, "new": {"deep": 1}, "l": ["y"], "other": 1}),
        json!({"keep": 1, "new": {"deep": 2}, "l": ["first", "y"], "other": 2}),
    ]);
    assert_eq!(paths(&provenance, 'a'), ["/gone", "/l/0", "/new"]);
    assert_eq!(paths(&provenance, 'b'), ["/l/0", "/new/deep", "/other"]);
    assert_eq!(paths(&provenance, 'c'), Vec::<String>::new());
}

#[test]
fn recognizes_replaced_element_when_it_returns() {
    let states = [
        json!({"l": ["x", "y"]}),
        json!({"l": ["z", "y"]}),
        json!({"l": ["z", "y", "x"]}),
    ];
    found(&states, &[("/l/2", 'a')]);
    let (_, provenance) = conflicts(&states[..2]);
    assert_eq!(paths(&provenance, 'a'), ["/l/0"]);
}

#[test]
fn recording_of_huge_changed_lists_is_bounded() {
    let list = |range: std::ops::Range<u32>| json!({"l": range.collect::<Vec<_>>()});
    let states = [
        list(0..50_000),
        list(50_000..100_000),
        list(0..50_000),
        list(100_000..150_000),
    ];
    let (conflicts, provenance) = conflicts(&states);
    assert_eq!(conflicts.len(), 50_000);
    assert_eq!(paths(&provenance, 'c').len(), 50_000);
    assert_eq!(paths(&provenance, 'a'), Vec::<String>::new());
}
