//! What a MutatingAdmissionPolicy makes of an object.

use serde_json::{Value, json};

use super::case::{
    Case, apply, create, delete, map, mutating, namespace, on, patch, sized, update,
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = deployments();
    cases.extend(configurations());
    cases.extend(patches());
    cases.extend(params());
    cases.extend(together());
    cases.extend(matching());
    cases
}

/// A policy for Deployments, tried on one.
fn on_deployment(name: &'static str, mutations: &[Value]) -> Case {
    mutating(name, mutations)
        .matching(on("apps", &["deployments"]))
        .creates([sized(name, "web", 1)])
}

fn deployments() -> Vec<Case> {
    let container = |fields: &str| {
        format!(
            "Object{{spec: Object.spec{{template: Object.spec.template{{spec: Object.spec.template.spec{{containers: \
             [Object.spec.template.spec.containers{{{fields}}}]}}}}}}}}"
        )
    };
    vec![
        on_deployment(
            "counted",
            &[apply(
                "Object{metadata: Object.metadata{labels: {'n': string(object.spec.replicas)}}}",
            )],
        ),
        on_deployment(
            "injected",
            &[apply(
                "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{initContainers: \
                 [Object.spec.template.spec.initContainers{name: 'first', image: 'a:1', imagePullPolicy: 'Never', \
                 resources: Object.spec.template.spec.initContainers.resources{}, \
                 terminationMessagePath: '/x', terminationMessagePolicy: 'File'}]}}}}",
            )],
        ),
        // Containers and their variables are merged by name, and ports by number and protocol.
        on_deployment(
            "merged",
            &[
                apply(&container(
                    "name: 'app', env: [Object.spec.template.spec.containers.env{name: 'A', value: '1'}], \
                     ports: [Object.spec.template.spec.containers.ports{containerPort: 80, protocol: 'TCP'}]",
                )),
                apply(&container(
                    "name: 'app', env: [Object.spec.template.spec.containers.env{name: 'B', value: '2'}, \
                     Object.spec.template.spec.containers.env{name: 'A', value: '3'}], \
                     ports: [Object.spec.template.spec.containers.ports{containerPort: 80, protocol: 'TCP', name: 'web'}]",
                )),
            ],
        ),
        on_deployment(
            "sidecar",
            &[apply(&container(
                "name: 'side', image: 'b:1', imagePullPolicy: 'Always', resources: Object.spec.template.spec.containers.resources{}, \
                 terminationMessagePath: '/x', terminationMessagePolicy: 'File'",
            ))],
        ),
        on_deployment("without-key", &[apply(&container("image: 'b:1'"))]),
        on_deployment(
            "atomic",
            &[apply(
                "Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}",
            )],
        ),
        on_deployment(
            "wrong-field",
            &[apply("Object{spec: Object.spec{absent: 'a'}}")],
        ),
        on_deployment(
            "wrong-name",
            &[apply("Object{spec: Object.metadata{name: 'a'}}")],
        ),
        on_deployment(
            "replaced",
            &[patch(
                "[JSONPatch{op: 'replace', path: '/spec/replicas', value: object.spec.replicas + 1}]",
            )],
        ),
        on_deployment(
            "test-fails",
            &[patch(
                "[JSONPatch{op: 'test', path: '/spec/replicas', value: 77}, JSONPatch{op: 'replace', path: \
                 '/spec/replicas', value: 1}]",
            )],
        ),
        on_deployment(
            "nowhere",
            &[patch(
                "[JSONPatch{op: 'replace', path: '/spec/missing', value: 1}]",
            )],
        ),
        on_deployment(
            "constructed",
            &[patch(
                "[JSONPatch{op: 'add', path: '/spec/template/spec/containers/-', value: Object.spec.template.spec.containers{\
                 name: 'side', image: 'b:1', imagePullPolicy: 'Always', resources: Object.spec.template.spec.containers.resources{}, \
                 terminationMessagePath: '/x', terminationMessagePolicy: 'File'}}]",
            )],
        ),
    ]
}

/// A policy for ConfigMaps, tried on one with labels and one without.
fn on_maps(name: &'static str, mutations: &[Value]) -> Case {
    tried(mutating(name, mutations))
}

fn tried(case: Case) -> Case {
    let name = case.name;
    let mut labelled = map(name, "labelled", json!({"size": "s", "a.b": "c"}));
    labelled["metadata"]["labels"] = json!({"team": "a", "stage": "test"});
    labelled["metadata"]["annotations"] = json!({"example.com/a": "b"});
    labelled["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    case.creates([
        labelled,
        map(name, "plain", json!({"size": "l", "of": "two"})),
    ])
}

fn configurations() -> Vec<Case> {
    let annotated = |key: &str| {
        apply(&format!(
            "Object{{metadata: Object.metadata{{annotations: {{'{key}': 'yes'}}}}}}"
        ))
    };
    let mut variables = mutating("variables", &[]);
    variables.policies.clear();
    let variables = variables.policy(
        "variables",
        json!({
            "variables": [
                {"name": "one", "expression": "'one of ' + object.data.size"},
                {"name": "two", "expression": "variables.one.replace('one', 'two')"},
            ],
            "mutations": [
                apply("Object{metadata: Object.metadata{annotations: {'one': variables.one}}}"),
                patch("[JSONPatch{op: 'test', path: '/metadata/annotations', value: {'one': variables.one}}, \
                       JSONPatch{op: 'add', path: '/metadata/annotations/two', value: variables.two}]"),
                apply("Object{metadata: Object.metadata{annotations: {'three': object.metadata.annotations['two']}}}"),
            ],
        }),
    );
    vec![
        on_maps("annotated", &[annotated("a")]),
        on_maps("twice", &[annotated("a"), annotated("b")]),
        on_maps("nothing", &[apply("Object{}")]),
        on_maps(
            "optional-fields",
            &[apply(
                "Object{metadata: Object.metadata{?labels: has(object.metadata.labels) ? optional.of({'seen': 'yes'}) : optional.none()}}",
            )],
        ),
        on_maps(
            "optional-entries",
            &[apply(
                "Object{metadata: Object.metadata{annotations: {?'team': object.metadata.?labels[?'team'], 'size': object.data.size}}}",
            )],
        ),
        on_maps(
            "conditional",
            &[apply(
                "object.data.size == 's' ? Object{data: {'small': 'yes'}} : Object{}",
            )],
        ),
        // The elements of a set are added.
        on_maps(
            "finalized",
            &[apply(
                "Object{metadata: Object.metadata{finalizers: ['example.com/two', 'example.com/three']}}",
            )],
        ),
        on_maps(
            "owned",
            &[
                apply(
                    "Object{metadata: Object.metadata{ownerReferences: [Object.metadata.ownerReferences{apiVersion: 'v1', kind: 'Pod', name: 'a', uid: 'u1'}]}}",
                ),
                apply(
                    "Object{metadata: Object.metadata{ownerReferences: [Object.metadata.ownerReferences{apiVersion: 'v1', kind: 'Pod', name: 'b', uid: 'u1'}, \
                       Object.metadata.ownerReferences{apiVersion: 'v1', kind: 'Pod', name: 'c', uid: 'u2'}]}}",
                ),
            ],
        ),
        on_maps(
            "failing",
            &[apply("Object{data: {'a': object.data.absent}}")],
        ),
        tried(Case::new("failing-ignored").policy(
            "failing-ignored",
            json!({"failurePolicy": "Ignore", "mutations": [
                apply("Object{data: {'a': object.data.absent}}"),
                annotated("after"),
            ]}),
        )),
        tried(Case::new("invalid-ignored").policy(
            "invalid-ignored",
            json!({"failurePolicy": "Ignore", "mutations": [
                apply("Object{spec: Object.spec{absent: 'invalid'}}"),
            ]}),
        )),
        tried(variables),
    ]
}

fn patches() -> Vec<Case> {
    let one = |name: &'static str, operations: &str| on_maps(name, &[patch(operations)]);
    vec![
        one(
            "adds",
            "[JSONPatch{op: 'add', path: '/data/new', value: 'b'}]",
        ),
        one(
            "adds-parents",
            "(has(object.metadata.labels) ? [] : [JSONPatch{op: 'add', path: '/metadata/labels', value: {}}]) + \
             [JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/a'), value: 'c'}]",
        ),
        one("removes", "[JSONPatch{op: 'remove', path: '/data/size'}]"),
        one(
            "removes-nothing",
            "[JSONPatch{op: 'remove', path: '/data/absent'}]",
        ),
        one(
            "moves",
            "[JSONPatch{op: 'move', from: '/data/size', path: '/data/moved'}]",
        ),
        one(
            "copies",
            "[JSONPatch{op: 'copy', from: '/data/size', path: '/data/copied'}]",
        ),
        one(
            "tests",
            "[JSONPatch{op: 'test', path: '/data/size', value: 's'}, JSONPatch{op: 'replace', path: '/data/size', value: 't'}]",
        ),
        one(
            "tests-absent",
            "[JSONPatch{op: 'test', path: '/data/absent', value: 's'}]",
        ),
        one(
            "no-operations",
            "object.data.size == '' ? [JSONPatch{op: 'remove', path: '/data'}] : []",
        ),
        one(
            "escaped",
            "has(object.metadata.annotations) ? [JSONPatch{op: 'replace', path: '/metadata/annotations/' + jsonpatch.escapeKey('example.com/a'), value: 'c'}] : []",
        ),
        one(
            "mapped",
            "object.data.map(key, JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('copy.of.') + jsonpatch.escapeKey(key), value: object.data[key]})",
        ),
        one(
            "unknown-operation",
            "[JSONPatch{op: 'change', path: '/data/size', value: 't'}]",
        ),
        one(
            "lists",
            "has(object.metadata.finalizers) ? [JSONPatch{op: 'add', path: '/metadata/finalizers/1', value: 'example.com/new'}, \
             JSONPatch{op: 'remove', path: '/metadata/finalizers/0'}, JSONPatch{op: 'add', path: '/metadata/finalizers/-', value: 'example.com/last'}] : []",
        ),
        one(
            "out-of-list",
            "[JSONPatch{op: 'add', path: '/metadata/finalizers/7', value: 'example.com/new'}]",
        ),
    ]
}

fn params() -> Vec<Case> {
    let annotates = "Object{metadata: Object.metadata{annotations: params.data}}";
    let policy = |name: &'static str| {
        Case::new(name).policy(
            name,
            json!({
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "mutations": [apply(annotates)],
            }),
        )
    };
    let by_name = |name: &str, action: &str| json!({"paramRef": {"name": name, "parameterNotFoundAction": action}});
    let param = |case: &str, name: &str, data: Value| {
        let mut object = map(case, name, data);
        object["metadata"]["labels"] = json!({"annotations": "yes"});
        object
    };
    let selected = json!({"paramRef": {
        "selector": {"matchLabels": {"annotations": "yes"}}, "parameterNotFoundAction": "Deny",
    }});
    vec![
        tried(
            policy("param")
                .existing([param("param", "one", json!({"a": "1"}))])
                .binding(by_name("one", "Deny")),
        ),
        tried(policy("param-not-found").binding(by_name("one", "Deny"))),
        tried(policy("param-not-found-allowed").binding(by_name("one", "Allow"))),
        tried(policy("without-param")),
        tried(
            policy("selected-params")
                .existing([
                    param("selected-params", "one", json!({"a": "1"})),
                    param("selected-params", "two", json!({"b": "2", "c": "3"})),
                ])
                .binding(selected),
        ),
        tried(
            policy("bound-twice")
                .existing([
                    param("bound-twice", "one", json!({"a": "1", "b": "1"})),
                    param("bound-twice", "two", json!({"b": "1", "c": "3"})),
                ])
                .binding(by_name("one", "Deny"))
                .binding(by_name("two", "Deny")),
        ),
    ]
}

/// Policies that change the same object.
fn together() -> Vec<Case> {
    let annotated = |key: &str| {
        json!({"mutations": [apply(&format!(
            "Object{{metadata: Object.metadata{{annotations: {{'{key}': 'yes'}}}}}}"
        ))]})
    };
    let size = |expression: &str| {
        json!({"matchConditions": [{"name": "size", "expression": expression}], "mutations": [
            apply("Object{metadata: Object.metadata{annotations: {'condition': 'met'}}}"),
        ]})
    };
    vec![
        tried(
            Case::new("two-policies")
                .policy("two-policies-a", annotated("a"))
                .policy("two-policies-b", annotated("b")),
        ),
        tried(
            Case::new("two-conditions")
                .policy("two-conditions-a", size("object.data.size == 's'"))
                .policy(
                    "two-conditions-b",
                    size("object.data.?absent == optional.of('s')"),
                ),
        ),
    ]
}

fn matching() -> Vec<Case> {
    let changed = [apply("Object{data: {'changed': request.operation}}")];
    let existing = [map("operations", "old", json!({"size": "s"}))];
    let of_status = mutating(
        "status",
        &[apply(
            "Object{status: Object.status{conditions: [Object.status.conditions{type: 'NamespaceContentRemaining', message: 'changed'}]}}",
        )],
    );
    let mut with_condition = namespace("status", "cel-status-old");
    with_condition["status"] = json!({"phase": "Active", "conditions": [
        {"type": "NamespaceContentRemaining", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]});
    vec![
        tried(mutating("operations", &changed).existing(existing)).requests([
            update(map("operations", "old", json!({"size": "l"}))),
            delete(map("operations", "old", json!({}))),
        ]),
        of_status
            .matching(on("", &["namespaces/status"]))
            .existing([namespace("status", "cel-status-old")])
            .requests([
                update(with_condition).of("status"),
                create(namespace("status", "cel-status-new")),
            ])
            .at(&["/status/conditions", "/metadata/annotations"]),
        mutating(
            "pandas",
            &[apply(
                "Object{metadata: Object.metadata{labels: {'changed': 'yes'}}}",
            )],
        )
        .matching(on("policies.example.com", &["pandas"]))
        .requests([create(panda("v1")), create(panda("v2")).converted_to("v1")])
        .at(&["/metadata/labels"]),
        tried(mutating(
            "uses-namespace",
            &[apply(
                "Object{metadata: Object.metadata{labels: {'of': namespaceObject.metadata.labels['case']}}}",
            )],
        )),
    ]
}

fn panda(version: &str) -> Value {
    json!({
        "apiVersion": format!("policies.example.com/{version}"), "kind": "Panda", "metadata": {"name": "a"},
    })
}
