//! Mutators, by Gatekeeper's documentation and the cases of its table tests.

use serde_json::{Value as Json, json};

use crate::mutation::{Mutators, Request};
use crate::{Match, Problems, Subject};

const POD: Request<'_> = Request {
    operation: "CREATE",
    group: "",
    version: "v1",
    kind: "Pod",
    namespace: "shop",
};

fn mutator(kind: &str, name: &str, location: &str, parameters: Json) -> Json {
    let mut spec = json!({ "location": location, "parameters": parameters });
    if kind != "AssignMetadata" {
        spec["applyTo"] = json!([{ "groups": [""], "versions": ["v1"], "kinds": ["Pod"] }]);
    }
    json!({
        "apiVersion": "mutations.gatekeeper.sh/v1", "kind": kind,
        "metadata": { "name": name }, "spec": spec,
    })
}

fn assign(location: &str, value: Json) -> Json {
    mutator(
        "Assign",
        "a",
        location,
        json!({ "assign": { "value": value } }),
    )
}

fn with_tests(mut mutator: Json, tests: Json) -> Json {
    mutator["spec"]["parameters"]["pathTests"] = tests;
    mutator
}

fn read(list: &[Json]) -> Result<Mutators, Vec<String>> {
    let mut problems = Problems::new();
    let mutators = Mutators::read(list, &mut problems);
    let text = |problem: crate::Problem| format!("{}: {}", problem.pointer, problem.message);
    match problems.is_empty() {
        true => Ok(mutators),
        false => Err(problems.into_iter().map(text).collect()),
    }
}

fn selects(matching: &Match, subject: &Subject, _: &str) -> bool {
    matching.selects(subject, &|_| None).unwrap()
}

fn try_apply(list: &[Json], object: Json) -> Result<Json, String> {
    let mut object = object;
    read(list).unwrap().apply(&mut object, POD, &selects)?;
    Ok(object)
}

fn apply(list: &[Json], object: Json) -> Json {
    try_apply(list, object).unwrap()
}

/// Returns a Pod with containers.
fn pod(containers: Json) -> Json {
    json!({ "metadata": { "name": "web" }, "spec": { "containers": containers } })
}

fn containers(object: &Json) -> Json {
    object["spec"]["containers"].clone()
}

#[test]
fn assign_creates_missing_parents() {
    let changed = apply(
        &[assign("spec.dnsConfig.nameservers", json!(["1.2.3.4"]))],
        pod(json!([])),
    );
    assert_eq!(
        changed["spec"]["dnsConfig"],
        json!({ "nameservers": ["1.2.3.4"] })
    );
}

#[test]
fn glob_changes_all_elements_and_creates_none() {
    let always = assign("spec.containers[name: *].imagePullPolicy", json!("Always"));
    let changed = apply(
        std::slice::from_ref(&always),
        pod(json!([{ "name": "a" }, { "name": "b", "imagePullPolicy": "Never" }])),
    );
    assert_eq!(
        containers(&changed),
        json!([
            { "name": "a", "imagePullPolicy": "Always" },
            { "name": "b", "imagePullPolicy": "Always" },
        ])
    );
    let empty = json!({ "spec": {} });
    assert_eq!(apply(&[always], empty.clone()), empty);
}

#[test]
fn element_with_a_key_is_created_unless_it_must_exist() {
    let location = "spec.containers[name:foo].securityContext.privileged";
    let privileged = assign(location, json!(false));
    let changed = apply(std::slice::from_ref(&privileged), pod(json!([])));
    let foo = json!({ "name": "foo", "securityContext": { "privileged": false } });
    assert_eq!(containers(&changed), json!([foo]));
    let tested = with_tests(
        privileged,
        json!([{ "subPath": "spec.containers[name:foo]", "condition": "MustExist" }]),
    );
    let without = pod(json!([{ "name": "bar" }]));
    assert_eq!(
        apply(std::slice::from_ref(&tested), without.clone()),
        without
    );
    let changed = apply(&[tested], pod(json!([{ "name": "foo" }])));
    assert_eq!(containers(&changed), json!([foo]));
}

#[test]
fn path_that_must_not_exist_keeps_what_is_there() {
    let location = "spec.containers[name: *].resources.limits";
    let limits = with_tests(
        assign(location, json!({ "cpu": "1" })),
        json!([{ "subPath": "spec.containers[name: *].resources", "condition": "MustNotExist" }]),
    );
    let changed = apply(
        &[limits],
        pod(json!([{ "name": "a" }, { "name": "b", "resources": {} }])),
    );
    assert_eq!(
        containers(&changed),
        json!([
            { "name": "a", "resources": { "limits": { "cpu": "1" } } },
            { "name": "b", "resources": {} },
        ])
    );
    // No element of a glob can be the one that must not exist.
    let never = with_tests(
        assign("spec.containers[name: *].tty", json!(true)),
        json!([{ "subPath": "spec.containers[name: *]", "condition": "MustNotExist" }]),
    );
    let before = pod(json!([{ "name": "a" }]));
    assert_eq!(apply(&[never], before.clone()), before);
}

#[test]
fn whole_element_is_replaced_or_appended() {
    let sidecar = json!({ "name": "net", "image": "net:2" });
    let mutator = assign("spec.containers[name: net]", sidecar.clone());
    let before = pod(json!([{ "name": "net", "image": "net:1", "tty": true }, { "name": "a" }]));
    let changed = apply(std::slice::from_ref(&mutator), before);
    assert_eq!(containers(&changed), json!([sidecar, { "name": "a" }]));
    let changed = apply(&[mutator], pod(json!([{ "name": "a" }])));
    assert_eq!(containers(&changed), json!([{ "name": "a" }, sidecar]));
}

#[test]
fn keys_can_be_numbers_and_quoted_texts() {
    let port = assign("spec.ports[containerPort: 80].protocol", json!("TCP"));
    let changed = apply(
        &[port],
        json!({ "spec": { "ports": [{ "containerPort": "80" }, { "containerPort": 80 }] } }),
    );
    assert_eq!(
        changed["spec"]["ports"],
        json!([{ "containerPort": "80" }, { "containerPort": 80, "protocol": "TCP" }])
    );
    let quoted = assign(r#"spec."a.b"['x y': "q\"z"].on"#, json!(1));
    let changed = apply(&[quoted], json!({ "spec": {} }));
    assert_eq!(
        changed,
        json!({ "spec": { "a.b": [{ "x y": "q\"z", "on": 1 }] } })
    );
}

#[test]
fn metadata_is_added_and_never_replaced() {
    let label = |value: Json| {
        mutator(
            "AssignMetadata",
            "owner",
            r#"metadata.labels."example.com/owner""#,
            json!({ "assign": value }),
        )
    };
    let admin = label(json!({ "value": "admin" }));
    let changed = apply(std::slice::from_ref(&admin), pod(json!([])));
    assert_eq!(
        changed["metadata"]["labels"],
        json!({ "example.com/owner": "admin" })
    );
    let mut owned = pod(json!([]));
    owned["metadata"]["labels"] = json!({ "example.com/owner": "me" });
    assert_eq!(apply(&[admin], owned.clone()), owned);
    for (field, expected) in [("name", "web"), ("namespace", "shop")] {
        let from = label(json!({ "fromMetadata": { "field": field } }));
        let changed = apply(&[from], pod(json!([])));
        assert_eq!(
            changed["metadata"]["labels"],
            json!({ "example.com/owner": expected })
        );
    }
}

#[test]
fn set_is_merged_and_pruned() {
    let set = |operation: Json| {
        let values = json!({ "fromList": ["--a", "--b"] });
        let parameters = json!({ "operation": operation, "values": values });
        mutator(
            "ModifySet",
            "args",
            "spec.containers[name: *].args",
            parameters,
        )
    };
    let before = pod(json!([{ "name": "x", "args": ["--b", "--c"] }, { "name": "y" }]));
    let changed = apply(&[set(json!("merge"))], before.clone());
    assert_eq!(
        containers(&changed),
        json!([
            { "name": "x", "args": ["--b", "--c", "--a"] },
            { "name": "y", "args": ["--a", "--b"] },
        ])
    );
    let changed = apply(&[set(json!("prune"))], before);
    assert_eq!(
        containers(&changed),
        json!([{ "name": "x", "args": ["--c"] }, { "name": "y" }])
    );
    let wrong = pod(json!([{ "name": "x", "args": "--a" }]));
    assert_eq!(
        try_apply(&[set(json!("merge"))], wrong),
        Err("ModifySet args: args is not a list of values".to_owned())
    );
}

#[test]
fn parts_of_an_image_are_set() {
    for (domain, path, tag, before, after) in [
        ("", "", ":new", "library/busybox:v1", "library/busybox:new"),
        (
            "",
            "",
            ":new",
            "docker.io/a/b@sha256:0123",
            "docker.io/a/b:new",
        ),
        (
            "r.example.com",
            "",
            "",
            "busybox:v1",
            "r.example.com/busybox:v1",
        ),
        (
            "r.example.com:5000",
            "",
            "",
            "localhost/x",
            "r.example.com:5000/x",
        ),
        ("", "a/b", "", "r.io:80/x:1", "r.io:80/a/b:1"),
        ("localhost", "c", ":2", "", "localhost/c:2"),
    ] {
        let parameters = json!({ "assignDomain": domain, "assignPath": path, "assignTag": tag });
        let image = mutator(
            "AssignImage",
            "i",
            "spec.containers[name: *].image",
            parameters,
        );
        let changed = apply(&[image], pod(json!([{ "name": "a", "image": before }])));
        assert_eq!(containers(&changed)[0]["image"], after, "{before}");
    }
}

#[test]
fn mutators_run_in_their_order_until_nothing_changes() {
    // The Assign runs before the AssignMetadata that it waits for, and so changes the object in the second round.
    let label = mutator(
        "AssignMetadata",
        "label",
        "metadata.labels.tier",
        json!({ "assign": { "value": "web" } }),
    );
    let mut waiting = assign("spec.priorityClassName", json!("high"));
    waiting["spec"]["match"] = json!({ "labelSelector": { "matchLabels": { "tier": "web" } } });
    let changed = apply(&[waiting, label], pod(json!([])));
    assert_eq!(changed["spec"]["priorityClassName"], "high");
}

#[test]
fn last_mutator_of_a_round_wins() {
    let named = |name: &str, value: &str| {
        let assign = json!({ "assign": { "value": value } });
        mutator("Assign", name, "spec.dnsPolicy", assign)
    };
    // The last one wins in each round, so the object settles.
    let list = [named("b", "two"), named("a", "one")];
    assert_eq!(apply(&list, pod(json!([])))["spec"]["dnsPolicy"], "two");
    let prune = mutator(
        "ModifySet",
        "p",
        "spec.args",
        json!({ "operation": "prune", "values": { "fromList": ["x"] } }),
    );
    let prefix = assign("spec.args", json!(["y", "x"]));
    assert_eq!(
        apply(&[prefix, prune], json!({ "spec": {} }))["spec"]["args"],
        json!(["y"])
    );
}

#[test]
fn kinds_and_operations_select() {
    let mut on_creation = assign("spec.x", json!(1));
    on_creation["spec"]["applyTo"][0]["operations"] = json!(["CREATE"]);
    let mutators = read(&[on_creation]).unwrap();
    let changes = |request: Request<'_>| {
        let mut object = pod(json!([]));
        mutators.apply(&mut object, request, &selects).unwrap()
    };
    assert!(changes(POD));
    let other = |operation, version, kind| Request {
        operation,
        version,
        kind,
        ..POD
    };
    assert!(!changes(other("UPDATE", "v1", "Pod")));
    assert!(!changes(other("CREATE", "v2", "Pod")));
    assert!(!changes(other("CREATE", "v1", "Service")));
}

#[test]
fn shape_that_a_location_does_not_fit_is_an_error_without_values() {
    let list = assign("spec.containers[name: a].tty", json!(true));
    let wrong = json!({ "spec": { "containers": { "secret": 1 } } });
    assert_eq!(
        try_apply(&[list], wrong),
        Err("Assign a: spec.containers is not a list".to_owned())
    );
}

#[test]
fn wrong_mutators_are_refused_with_their_place() {
    for (mutator, expected) in [
        (
            assign("metadata.labels.x", json!("y")),
            "/mutators/0/spec/location: must not be in the metadata",
        ),
        (
            assign("spec.", json!(1)),
            "/mutators/0/spec/location: expected a field at position 6",
        ),
        (
            assign("spec.a[name]", json!(1)),
            "/mutators/0/spec/location: expected `:` at position 12",
        ),
        (
            assign("spec.a[name: *]", json!({})),
            "/mutators/0/spec/location: must not end with `*`",
        ),
        (
            assign("spec.a[name: b].name", json!("c")),
            "/mutators/0/spec/location: must not end with the key of the list",
        ),
        (
            assign("spec.a[name: b]", json!({ "name": "c" })),
            "/mutators/0/spec/parameters/assign/value: expected an object with the name of the location",
        ),
        (
            mutator(
                "Assign",
                "a",
                "spec.x",
                json!({ "assign": { "externalData": {} } }),
            ),
            "/mutators/0/spec/parameters/assign/externalData: external data is not supported",
        ),
        (
            mutator(
                "Assign",
                "a",
                "spec.x",
                json!({ "assignIf": { "in": [1] } }),
            ),
            "/mutators/0/spec: unknown field `assignIf`",
        ),
        (
            with_tests(
                assign("spec.x", json!(1)),
                json!([{ "subPath": "spec.y", "condition": "MustExist" }]),
            ),
            "/mutators/0/spec/parameters/pathTests/0/subPath: is no beginning of the location",
        ),
        (
            with_tests(
                assign("spec.x.y", json!(1)),
                json!([
                    { "subPath": "spec.x", "condition": "MustNotExist" },
                    { "subPath": "spec.x.y", "condition": "MustExist" },
                ]),
            ),
            "/mutators/0/spec/parameters/pathTests: something must exist below",
        ),
        (
            mutator(
                "AssignMetadata",
                "m",
                "metadata.labels.x",
                json!({ "assign": { "value": 1 } }),
            ),
            "/mutators/0/spec/parameters/assign/value: expected a string",
        ),
        (
            mutator(
                "AssignMetadata",
                "m",
                "metadata.finalizers",
                json!({ "assign": { "value": "1" } }),
            ),
            "/mutators/0/spec/location: expected metadata.labels.NAME or metadata.annotations.NAME",
        ),
        (
            mutator(
                "ModifySet",
                "s",
                "spec.a[name: b]",
                json!({ "values": { "fromList": [] } }),
            ),
            "/mutators/0/spec/location: must not end with an element of a list",
        ),
        (
            mutator("AssignImage", "i", "spec.image", json!({})),
            "/mutators/0/spec/parameters: has none of assignDomain",
        ),
        (
            mutator(
                "AssignImage",
                "i",
                "spec.image",
                json!({ "assignPath": "gcr.io/x" }),
            ),
            "/mutators/0/spec/parameters/assignPath: begins like a domain",
        ),
        (
            mutator(
                "AssignImage",
                "i",
                "spec.image",
                json!({ "assignTag": "latest" }),
            ),
            "/mutators/0/spec/parameters/assignTag: expected `:TAG`",
        ),
    ] {
        let problems = read(std::slice::from_ref(&mutator)).err();
        let problems = problems.unwrap_or_else(|| panic!("{mutator} is accepted"));
        assert!(problems[0].starts_with(expected), "{problems:?}");
    }
}

#[test]
fn mutators_that_disagree_about_a_type_are_refused() {
    let named = |name: &str, location: &str| {
        let assign = json!({ "assign": { "value": 1 } });
        mutator("Assign", name, location, assign)
    };
    let set = |location: &str| {
        mutator(
            "ModifySet",
            "set",
            location,
            json!({ "values": { "fromList": [1] } }),
        )
    };
    for (one, two, conflict) in [
        (named("a", "spec.x.y"), named("b", "spec.x[k: v].y"), true),
        (
            named("a", "spec.x[k: v].y"),
            named("b", "spec.x[l: v].y"),
            true,
        ),
        (
            named("a", "spec.x[k: v].y"),
            named("b", "spec.x[k: *].z"),
            false,
        ),
        (named("a", "spec.x"), named("b", "spec.x.y"), false),
        (set("spec.x"), named("b", "spec.x[k: v].y"), true),
        (set("spec.x"), named("b", "spec.x"), false),
    ] {
        let is_refused = read(&[one.clone(), two.clone()]).is_err();
        assert_eq!(is_refused, conflict, "{one} {two}");
    }
}
