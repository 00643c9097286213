//! Whatever plugins do to an object, the patch that leaves the host is right: under this host's strict RFC 6902,
//! under an independent implementation of it, and under the library that kube-apiserver uses.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value, json};
use tollgate_json::document::{Json, Pointer, parse};
use tollgate_json::patch::{
    AnswerForm, ApplyLimits, Operation, Provenance, apply, check, diff, diff_within, merge_patch,
    write_all,
};

/// Says what was not tested past the test harness, which swallows what a passing test prints.
macro_rules! skipped {
    ($($message:tt)*) => {
        writeln!(std::io::stderr(), "SKIPPED: {}", format_args!($($message)*)).expect("stderr takes it")
    };
}

/// Member names that pointers, arrays and Go treat specially somewhere.
const NAMES: &[&str] = &[
    "a",
    "b",
    "c",
    "",
    "~",
    "/",
    "~1",
    "~0/",
    "0",
    "1",
    "-",
    "-1",
    "01",
    "name",
    "value",
    "mountPath",
    "containerPort",
    "ü",
    "\u{1f600}",
    "<&>",
    "\"\\",
    "\n",
];

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..4_i64).prop_map(Value::from),
        Just(json!(1.5)),
        Just(json!(9_007_199_254_740_993_i64)),
        proptest::sample::select(vec!["", "x", "y", "z", "é", "<script>", "\u{2028}"])
            .prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            3 => proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            3 => members(inner.clone()),
            2 => proptest::collection::vec(named(inner), 0..6).prop_map(Value::from),
        ]
    })
}

fn members(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    proptest::collection::vec((proptest::sample::select(NAMES), inner), 0..5)
        .prop_map(|members| {
            members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()
        })
        .prop_map(Value::Object)
}

/// An element as Kubernetes lists have them, names sometimes occurring twice.
fn named(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    (
        proptest::sample::select(vec!["p", "q", "r", "s", "t"]),
        members(inner),
    )
        .prop_map(|(name, mut value)| {
            value["name"] = Value::from(name);
            value
        })
}

/// Kubernetes objects are objects.
fn object() -> impl Strategy<Value = Value> {
    members(value())
}

/// One thing that a mutator might do, at a place chosen by the numbers.
#[derive(Clone, Debug)]
struct Mutation {
    walk: Vec<usize>,
    what: usize,
    with: Value,
}

fn mutation() -> impl Strategy<Value = Mutation> {
    (
        proptest::collection::vec(0..8_usize, 0..5),
        0..9_usize,
        value(),
    )
        .prop_map(|(walk, what, with)| Mutation { walk, what, with })
}

fn mutate(root: &mut Value, mutation: &Mutation) {
    let mut here = root;
    for step in &mutation.walk {
        if here.as_array().is_some_and(Vec::is_empty) || here.as_object().is_some_and(Map::is_empty)
        {
            break;
        }
        here = match here {
            Value::Array(elements) => {
                let index = step % elements.len();
                &mut elements[index]
            }
            Value::Object(members) => {
                let index = step % members.len();
                members
                    .values_mut()
                    .nth(index)
                    .expect("the index is within")
            }
            other => other,
        };
    }
    let with = mutation.with.clone();
    let position = mutation.walk.len() + mutation.what;
    match here {
        Value::Array(elements) => match mutation.what {
            0 => elements.insert(0, with),
            1 => elements.push(with),
            2 => elements.insert(position % (elements.len() + 1), with),
            3 if !elements.is_empty() => drop(elements.remove(position % elements.len())),
            4 => elements.reverse(),
            5 if !elements.is_empty() => {
                let by = position % elements.len();
                elements.rotate_left(by);
            }
            6 if !elements.is_empty() => {
                let again = elements[position % elements.len()].clone();
                elements.insert(position % (elements.len() + 1), again);
            }
            7 => elements.clear(),
            _ => elements.extend(with.as_array().cloned().unwrap_or_default()),
        },
        Value::Object(members) => {
            let name = NAMES[(position * 7) % NAMES.len()].to_owned();
            match mutation.what {
                0..=3 => drop(members.insert(name, with)),
                4 | 5 => {
                    let first = members.keys().next().cloned();
                    first.map(|first| members.remove(&first));
                }
                6 => members.clear(),
                _ => members.extend(with.as_object().cloned().unwrap_or_default()),
            }
        }
        other => *other = with,
    }
}

/// An object, and what it is after each of a chain of mutators.
fn chain() -> impl Strategy<Value = Vec<Value>> {
    (
        object(),
        proptest::collection::vec(proptest::collection::vec(mutation(), 1..4), 1..5),
    )
        .prop_map(|(object, mutators)| {
            let mut states = vec![object];
            for mutations in mutators {
                let mut state = states[states.len() - 1].clone();
                for mutation in &mutations {
                    mutate(&mut state, mutation);
                }
                // A mutator that makes something else of the object is refused before any of this.
                if state.is_object() {
                    states.push(state);
                }
            }
            states
        })
}

fn text(operations: &[Operation]) -> String {
    let mut text = Vec::new();
    write_all(operations, &mut text);
    String::from_utf8(text).expect("JSON is UTF-8")
}

fn strict(document: &Json, operations: &[Operation]) -> Option<Json> {
    apply(document, operations, &ApplyLimits::default()).ok()
}

/// Whether a value that is written is, or has somewhere at the same place, what stood there already.
fn rewrites(before: &Json, written: &Json) -> bool {
    match (before, written) {
        (Json::Object(before), Json::Object(written)) => {
            before.iter().any(|(name, value)| {
                written
                    .get(name)
                    .is_some_and(|other| rewrites(value, other))
            }) || before.is_empty() && written.is_empty()
        }
        (Json::Array(_), Json::Array(_)) | (Json::Null, Json::Null) => before == written,
        _ => before == written,
    }
}

fn check_minimal(before: &Json, after: &Json, operations: &[Operation]) {
    let mut state = before.clone();
    for (index, operation) in operations.iter().enumerate() {
        match operation {
            Operation::Add { path, value } => {
                assert!(
                    state.lookup(path) != Some(value),
                    "{operation:?} writes what stands there"
                );
            }
            Operation::Replace { path, value } => {
                let old = state
                    .lookup(path)
                    .expect("a replacement has something to replace");
                assert!(
                    !rewrites(old, value),
                    "{operation:?} writes what stands there"
                );
            }
            Operation::Remove { .. } => {}
            other => panic!("{other:?} must not leave the host"),
        }
        state = strict(&state, std::slice::from_ref(operation))
            .expect("each operation applies in turn");
        let mut rest = operations.to_vec();
        rest.remove(index);
        assert!(
            strict(before, &rest).as_ref() != Some(after),
            "{operation:?} could be left out"
        );
        for second in index..rest.len() {
            let mut fewer = rest.clone();
            fewer.remove(second);
            assert!(
                strict(before, &fewer).as_ref() != Some(after),
                "{operation:?} and another could be left out"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn difference_produces_final_object_and_is_minimal(states in chain()) {
        let (first, last) = (&states[0], &states[states.len() - 1]);
        let (before, after) = (Json::from(first.clone()), Json::from(last.clone()));
        let operations = diff(&before, &after);
        prop_assert_eq!(operations.is_empty(), before == after);
        let result = strict(&before, &operations);
        prop_assert_eq!(result.as_ref(), Some(&after));
        prop_assert_eq!(&operations, &diff(&before, &after), "not deterministic");
        if operations.len() <= 24 {
            check_minimal(&before, &after, &operations);
        }
        // Less effort ends in the same operations or in none.
        for most_values in [0, 10, 50, 250] {
            if let Some(found) = diff_within(&before, &after, most_values) {
                prop_assert_eq!(&found, &operations);
            }
        }
        prop_assert_eq!(diff_within(&before, &after, usize::MAX), Some(operations.clone()));

        // An independent implementation, over the text as it goes over the wire.
        let patch: json_patch::Patch = serde_json::from_str(&text(&operations)).expect("a JSON Patch");
        let mut independent = first.clone();
        json_patch::patch(&mut independent, &patch).expect("applies elsewhere too");
        prop_assert_eq!(&independent, last);
    }

    #[test]
    fn records_each_step_of_chain(states in chain()) {
        let mut provenance = Provenance::new();
        let mut before = Json::from(states[0].clone());
        for (writer, state) in states.iter().enumerate().skip(1) {
            let target = Json::from(state.clone());
            let changes = diff(&before, &target);
            let after = strict(&before, &changes).expect("the difference applies");
            for conflict in provenance.record(writer, &before, &changes) {
                prop_assert!(conflict.earlier < writer);
                prop_assert!(changes.iter().any(|change| *change.path() == conflict.path));
            }
            prop_assert!(changes.is_empty() || !provenance.paths_of(writer).is_empty());
            // Places keep up with the object: what a value was written at is in the object or was removed.
            for path in provenance.paths_of(writer) {
                let (parent, _) = path.split_last().expect("the root stays an object");
                prop_assert!(after.lookup(&parent).is_some(), "{} has no parent", path);
            }
            // A second time by somebody else there is nothing to write, and so nothing to conflict with.
            prop_assert!(provenance.record(writer + 100, &after, &diff(&after, &target)).is_empty());
            let _ = check(&before, &after, &changes, AnswerForm::WholeObject { allow_removals: false });
            before = after;
        }
    }

    #[test]
    fn operations_survive_round_trip(states in chain()) {
        let last = Json::from(states[states.len() - 1].clone());
        let operations = diff(&Json::from(states[0].clone()), &last);
        let parsed = parse(text(&operations).as_bytes(), 64).expect("JSON");
        prop_assert_eq!(Operation::parse_all(&parsed).expect("a JSON Patch"), operations);
    }

    #[test]
    fn merge_patch_agrees_with_independent_implementation(document in value(), patch in value()) {
        let mut expected = document.clone();
        json_patch::merge(&mut expected, &patch);
        prop_assert_eq!(merge_patch(&Json::from(document), &Json::from(patch)), Json::from(expected));
    }
}

#[test]
fn kube_apiserver_library_produces_same_object() {
    let Some(program) = apiserver_patch() else {
        return;
    };
    let mut runner = TestRunner::new_with_rng(
        ProptestConfig::default(),
        TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]),
    );
    let mut cases = Vec::new();
    for _ in 0..3000 {
        let states = chain()
            .new_tree(&mut runner)
            .expect("a chain of objects")
            .current();
        cases.push((states[0].clone(), states[states.len() - 1].clone()));
    }
    cases.push(large_list());
    let mut input = Vec::new();
    let mut expected = Vec::new();
    for (first, last) in cases {
        let (before, after) = (Json::from(first), Json::from(last));
        let operations = diff(&before, &after);
        input.extend_from_slice(b"{\"doc\":");
        before.write(&mut input);
        input.extend_from_slice(b",\"patch\":");
        write_all(&operations, &mut input);
        input.extend_from_slice(b"}\n");
        expected.push(after);
    }
    let outcomes = run(&program, input);
    assert_eq!(outcomes.len(), expected.len());
    for (outcome, expected) in outcomes.iter().zip(&expected) {
        let outcome = parse(outcome.as_bytes(), 64).expect("the program writes JSON");
        let result = outcome
            .member("result")
            .unwrap_or_else(|| panic!("{}", outcome.to_text()));
        assert!(
            result == expected,
            "{} is not {}",
            result.to_text(),
            expected.to_text()
        );
    }
    eprintln!(
        "kube-apiserver's library applied {} patches",
        expected.len()
    );
}

/// Enough elements for many operations on one array, short of being replaced as a whole.
fn large_list() -> (Value, Value) {
    let element = |number: usize| json!({"name": format!("n{number}"), "value": number});
    let before: Vec<Value> = (0..2000).map(element).collect();
    let mut after: Vec<Value> = before
        .iter()
        .filter(|element| element["value"].as_u64() != Some(7))
        .cloned()
        .collect();
    for number in 0..500 {
        after.insert(number * 3, element(5000 + number));
    }
    (json!({"list": before}), json!({"list": after}))
}

/// Builds `tests/apiserver-patch`, which wraps kube-apiserver's library.
fn apiserver_patch() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/apiserver-patch");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("apiserver-patch");
    let build = Command::new("go")
        .arg("build")
        .arg("-o")
        .arg(&program)
        .arg(".")
        .current_dir(source)
        .output();
    match build {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr).into_owned();
            // Without the module proxy this is not the code's fault; anywhere else it is.
            assert!(
                is_offline(&reason),
                "go cannot build tests/apiserver-patch: {reason}"
            );
            skipped!(
                "kube-apiserver's library could not be fetched, so it was NOT tested: {reason}"
            );
            None
        }
        Err(error) => {
            skipped!(
                "kube-apiserver's library was NOT tested, as `go` does not run ({error}); install Go"
            );
            None
        }
    }
}

fn is_offline(reason: &str) -> bool {
    ["dial tcp", "proxy", "no such host", "lookup", "i/o timeout"]
        .iter()
        .any(|sign| reason.contains(sign))
}

fn run(program: &Path, input: Vec<u8>) -> Vec<String> {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program was built just now");
    let mut stdin = child.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let lines = stdout
        .lines()
        .collect::<Result<_, _>>()
        .expect("the program writes UTF-8");
    writer
        .join()
        .expect("the writer does not panic")
        .expect("the program reads all of its input");
    assert!(child.wait().expect("it runs").success());
    lines
}

fn list(elements: impl IntoIterator<Item = Value>) -> Json {
    Json::from(json!({"list": elements.into_iter().collect::<Vec<_>>()}))
}

fn operations(before: &Json, after: &Json) -> Value {
    let operations = diff(before, after);
    assert_eq!(strict(before, &operations).as_ref(), Some(after));
    serde_json::from_str(&text(&operations)).expect("JSON")
}

fn containers(count: usize) -> Vec<Value> {
    (0..count)
        .map(|number| json!({"name": format!("c{number}"), "image": "same", "args": ["x"]}))
        .collect()
}

#[test]
fn prepending_a_container_to_twenty_is_one_add() {
    let sidecar = json!({"name": "sidecar", "image": "same", "args": ["x"]});
    let mut after = containers(20);
    after.insert(0, sidecar.clone());
    assert_eq!(
        operations(&list(containers(20)), &list(after)),
        json!([{"op": "add", "path": "/list/0", "value": sidecar}])
    );
}

#[test]
fn removing_the_middle_container_is_one_remove() {
    let mut after = containers(21);
    after.remove(10);
    assert_eq!(
        operations(&list(containers(21)), &list(after)),
        json!([{"op": "remove", "path": "/list/10"}])
    );
}

#[test]
fn changes_container_in_place_while_others_change() {
    let mut after = containers(5);
    after.remove(0);
    after[2]["image"] = json!("other");
    after.insert(1, json!({"name": "new"}));
    assert_eq!(
        operations(&list(containers(5)), &list(after)),
        json!([
            {"op": "remove", "path": "/list/0"},
            {"op": "add", "path": "/list/1", "value": {"name": "new"}},
            {"op": "replace", "path": "/list/3/image", "value": "other"},
        ])
    );
}

#[test]
fn very_large_arrays_take_few_operations_and_little_time() {
    let numbers = |range: std::ops::Range<u64>| list(range.map(Value::from));
    let objects = |range: std::ops::Range<u64>| list(range.map(|n| json!({"id": n, "x": [n]})));
    let reversed =
        |range: std::ops::Range<u64>| list(range.rev().map(|n| json!({"id": n, "x": [n]})));
    for (before, after, at_most) in [
        // All different and as many: each is replaced, none moves.
        (numbers(0..100_000), numbers(100_000..200_000), 100_000),
        // Everything moves: the array is replaced.
        (objects(0..100_000), reversed(0..100_000), 1),
        (objects(0..100_000), objects(100_000..200_000), 200_000),
        (objects(0..100_000), objects(99_000..199_000), 200_000),
        (numbers(0..100_000), numbers(0..0), 1),
        (numbers(0..0), numbers(0..100_000), 1),
        // Two values only: the hardest for an alignment.
        (
            list(
                (0..100_000_u64).map(|n| Value::from(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63)),
            ),
            list(
                (0..100_000_u64).map(|n| Value::from(n.wrapping_mul(0xD134_2543_DE82_EF95) >> 63)),
            ),
            100_000,
        ),
        // Little changed in much stays little.
        (objects(0..100_000), objects(1..100_000), 1),
    ] {
        let started = std::time::Instant::now();
        let operations = diff(&before, &after);
        eprintln!("{} operations in {:?}", operations.len(), started.elapsed());
        assert!(
            operations.len() <= at_most,
            "{} operations",
            operations.len()
        );
        let limits = ApplyLimits {
            max_steps: 100_000_000,
            max_added_nodes: 10_000_000,
            ..ApplyLimits::default()
        };
        assert_eq!(apply(&before, &operations, &limits).as_ref(), Ok(&after));
    }
}

#[test]
fn little_effort_finds_a_small_change_of_a_large_object() {
    let environment = list((0..200).map(|n| json!({"name": format!("N{n}"), "value": "v"})));
    let environment: Value = serde_json::from_str(&environment.to_text()).unwrap();
    let container = |n: usize, image: &str| {
        let name = format!("c{n}");
        json!({"name": name, "image": image, "env": environment, "args": ["a", {"b": []}]})
    };
    let pod = |image: &str| {
        let containers: Vec<Value> = (0..50).map(|n| container(n, image)).collect();
        Json::from(json!({"metadata": {"name": "web"}, "spec": {"containers": containers}}))
    };
    let before = pod("a");
    let patch = |index: usize| {
        let path = Pointer::parse(&format!("/spec/containers/{index}/image")).unwrap();
        let value = Json::text("b");
        Operation::Replace { path, value }
    };
    let operations = [patch(0), patch(49)];
    let after = apply(&before, &operations, &ApplyLimits::default()).unwrap();
    assert_eq!(
        diff_within(&before, &after, 1_000).as_deref(),
        Some(&operations[..])
    );
    assert_eq!(diff_within(&before, &after, 100), None);
    // Nothing is shared here, so every value has to be compared.
    assert_eq!(diff_within(&before, &pod("b"), 10_000), None);
    assert_eq!(diff(&before, &pod("b")).len(), 50);
}

/// A list of long numbers that all differ.
fn long_numbers(first: u8) -> Json {
    let number = |last: usize| format!("{first}{}{last}", "7".repeat(4_000));
    let numbers: Vec<String> = (0..32).map(number).collect();
    let text = format!("[{}]", numbers.join(","));
    parse(text.as_bytes(), 5).unwrap()
}

#[test]
fn little_effort_ends_early() {
    let named = |n: u64| json!({"name": n.to_string(), "x": [n]});
    let unnamed = |n: u64| json!([[n]]);
    for make in [named, unnamed] {
        let before = list((0..2_000).map(make));
        let after = list((0..2_000).rev().map(make));
        assert_eq!(diff_within(&before, &after, 5_000), None);
    }
    // Neither what is added, nor what is compared in pairs, is looked at without limit.
    let nested = |count: usize| list((0..count).map(|_| json!([[], [], [], []])));
    let moved = apply(
        &Json::from(json!({"spec": {"a": 1}})),
        &[Operation::Add {
            path: Pointer::parse("/spec/b").unwrap(),
            value: nested(2_000),
        }],
        &ApplyLimits::default(),
    );
    let before = Json::from(json!({"spec": {"a": 1}}));
    assert_eq!(diff_within(&before, &moved.unwrap(), 5_000), None);
    let (before, after) = (long_numbers(1), long_numbers(2));
    assert_eq!(diff_within(&before, &after, 5_000), None);
    let wide = |from: u64| {
        let members = (from..from + 4_000).map(|n| (n.to_string(), Value::from(n)));
        Json::from(Value::from(members.collect::<Map<String, Value>>()))
    };
    assert_eq!(diff_within(&wide(0), &wide(1), 5_000), None);
}

#[test]
fn deep_nesting_is_linear() {
    let nest = |leaf: Value| {
        (0..100).fold(
            json!([leaf, "a", "b"]),
            |inner, level| json!([inner, level, {"x": [level]}]),
        )
    };
    let wide: Map<String, Value> = (0..5000).map(|n| (n.to_string(), Value::from(n))).collect();
    let mut changed = wide.clone();
    changed.insert("17".to_owned(), Value::Null);
    let (before, after) = (list([nest(wide.into())]), list([nest(changed.into())]));
    let operations = diff(&before, &after);
    assert_eq!(operations.len(), 1);
    assert_eq!(strict(&before, &operations), Some(after));
}
