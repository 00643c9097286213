use bytes::Bytes;
use serde_json::{Value, json};
use tollgate_config::Source;
use tollgate_json::document::index_within;
use tollgate_json::patch::write_all;

use super::*;

const MAX_DEPTH: u32 = 50;

fn config() -> PluginConfig {
    let name = PluginName::parse("a").expect("it is a name");
    PluginConfig::new(name, Source::File("a.wasm".into()))
}

/// A Pod of some 25,000 values, as a review brings it.
fn large() -> Json {
    let variable = |index: usize| json!({"name": format!("N{index}"), "value": "v"});
    let environment: Value = (0..2_000).map(variable).collect();
    let container =
        |index: usize| json!({"name": format!("c{index}"), "image": "a", "env": environment});
    let containers: Value = (0..4).map(container).collect();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": containers},
    });
    let text = Bytes::from(pod.to_string());
    index_within(&text, MAX_DEPTH, &Account::unlimited()).expect("it is JSON")
}

fn operations(patch: &Value) -> Mutation {
    let patch = Json::from(patch.clone());
    Mutation::Operations(Operation::parse_all(&patch).expect("it is a patch"))
}

/// What comes of a mutation, and the bytes that are charged for it.
fn outcome(mutation: &Mutation, effort: Effort) -> Option<(String, u64)> {
    let memory = Account::unlimited().part();
    let held = memory.bytes();
    let changed = change(
        &config(),
        mutation,
        &memory,
        Some(&large()),
        MAX_DEPTH,
        effort,
    )?;
    let shown = match changed {
        Ok(None) => "unchanged".to_owned(),
        Ok(Some(change)) => {
            let mut patch = Vec::new();
            write_all(&change.operations, &mut patch);
            String::from_utf8(patch).expect("it is text")
        }
        Err(fault) => fault.to_string(),
    };
    Some((shown, memory.bytes() - held))
}

#[test]
fn small_effort_ends_as_any_effort_or_gives_up() {
    let image = |index: usize| json!({"op": "replace", "path": format!("/spec/containers/{index}/image"), "value": "b"});
    let sidecar =
        json!({"op": "add", "path": "/spec/containers/-", "value": {"name": "new", "image": "c"}});
    let first = json!({"op": "remove", "path": "/spec/containers/0"});
    let same = json!({"op": "replace", "path": "/spec/containers/0/image", "value": "a"});
    let missing = json!({"op": "remove", "path": "/spec/volumes"});
    let name = json!({"op": "replace", "path": "/metadata/name", "value": "b"});
    let deep = (0..60).fold(json!(1), |inner, _| json!([inner]));
    let deep = json!({"op": "add", "path": "/spec/deep", "value": deep});
    let moved = json!({"op": "move", "from": "/spec", "path": "/data"});
    for (patch, is_small) in [
        (json!([image(0), image(3)]), true),
        (json!([sidecar]), true),
        (json!([same]), true),
        (json!([missing]), true),
        (json!([name]), true),
        (json!([deep]), true),
        // The container that goes, and the value that moves, are larger than the bound.
        (json!([first]), false),
        (json!([moved]), false),
    ] {
        let mutation = operations(&patch);
        let small = outcome(&mutation, Effort::SMALL);
        assert_eq!(small.is_some(), is_small, "{patch}");
        let any = outcome(&mutation, Effort::ANY);
        assert!(any.is_some(), "{patch}");
        assert!(small.is_none_or(|small| Some(small) == any), "{patch}");
    }
}

#[test]
fn work_begins_anew_only_beyond_the_bound() {
    let efforts = |is_heavy: bool, is_enough: fn(Effort) -> bool| {
        let mut efforts = Vec::new();
        let ((), moved) = inline_if_small(is_heavy, |effort| {
            efforts.push(effort.most_steps);
            is_enough(effort).then_some(())
        });
        (efforts, moved)
    };
    let (small, any) = (Effort::SMALL.most_steps, Effort::ANY.most_steps);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    runtime.block_on(async {
        assert_eq!(efforts(false, |_| true), (vec![small], false));
        assert_eq!(efforts(true, |_| true), (vec![any], true));
        let is_any = |effort: Effort| effort.most_steps == Effort::ANY.most_steps;
        assert_eq!(efforts(false, is_any), (vec![small, any], true));
    });
}

#[test]
fn work_that_nobody_counts_moves_at_once() {
    let large = large();
    let heavy = |patch: &Value| is_heavy(&operations(patch), Some(&large));
    let add = |length: usize| json!({"op": "add", "path": "/spec/x", "value": vec![0; length]});
    assert!(!heavy(&json!([add(100)])));
    assert!(heavy(&json!([add(3_000), add(3_000)])));
    assert!(heavy(&Value::from(vec![add(1); 257])));
    assert!(heavy(
        &json!([{"op": "test", "path": "/kind", "value": "Pod"}])
    ));
    let small = Json::from(json!({"kind": "Pod"}));
    let test = operations(&json!([{"op": "test", "path": "/kind", "value": "Pod"}]));
    assert!(!is_heavy(&test, Some(&small)));
    assert!(is_heavy(&Mutation::MergePatch(small.clone()), Some(&large)));
    assert!(is_heavy(&Mutation::Object(small.clone()), Some(&large)));
    assert!(!is_heavy(
        &Mutation::MergePatch(small.clone()),
        Some(&small)
    ));
}
