//! Policies with bindings and parameters, on reviews in memory.

use serde_json::{Value as Json, json};

mod namespaces;

use super::import::import;
use super::*;
use crate::Tree;
use crate::json as cel_json;

fn policy(kind: &str, spec: Json) -> Json {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "demo"},
        "spec": spec,
    })
}

fn binding(name: &str, spec: Json) -> Json {
    let mut spec = spec;
    spec["policyName"] = json!("demo");
    let kind = if spec["validationActions"].is_null() {
        "MutatingAdmissionPolicyBinding"
    } else {
        "ValidatingAdmissionPolicyBinding"
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    })
}

fn compiled(policy: Json, bindings: Json, params: Json) -> Result<Policy, Vec<Problem>> {
    let settings = json!({"policy": policy, "bindings": bindings, "params": params});
    let settings = serde_json::from_value(settings).expect("settings");
    Policy::new(settings, Abilities::default())
}

fn validating(spec: Json) -> Policy {
    let bindings = json!([binding("all", json!({"validationActions": ["Deny"]}))]);
    compiled(
        policy("ValidatingAdmissionPolicy", spec),
        bindings,
        json!([]),
    )
    .expect("a policy")
}

fn problems(spec: Json) -> Vec<String> {
    let bindings = json!([binding("all", json!({"validationActions": ["Deny"]}))]);
    let problems = compiled(
        policy("ValidatingAdmissionPolicy", spec),
        bindings,
        json!([]),
    )
    .err();
    let problems = problems.expect("problems");
    problems.iter().map(ToString::to_string).collect()
}

fn object() -> Json {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"replicas": 6, "template": {"spec": {
            "containers": [
                {"name": "a", "image": "a:1", "ports": [{"containerPort": 80}]},
                {"name": "b", "image": "b:1", "args": ["x"]},
            ],
            "nodeSelector": {"a": "b"},
        }}},
    })
}

fn request() -> Json {
    json!({
        "operation": "CREATE",
        "name": "web",
        "namespace": "shop",
        "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
        "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
        "requestResource": {"group": "apps", "version": "v1", "resource": "deployments"},
        "userInfo": {"username": "alice"},
    })
}

fn review() -> Tree {
    Tree::new().object(&object()).request(&request())
}

fn message(policy: &Policy) -> Option<String> {
    policy
        .validate(&review())
        .denial
        .map(|denial| denial.message)
}

const PREFIX: &str = "ValidatingAdmissionPolicy 'demo' with binding 'all' denied request: ";

/// Returns the message of one validation behind the name of the policy.
fn words(validation: Json) -> String {
    let policy = validating(json!({"validations": [validation]}));
    let message = message(&policy).expect("a denial");
    message.strip_prefix(PREFIX).expect("a prefix").to_owned()
}

#[test]
fn messages_are_those_of_kube_apiserver() {
    let expression = "object.spec.replicas <= 5";
    for (validation, wanted) in [
        (
            json!({"expression": expression}),
            "failed expression: object.spec.replicas <= 5",
        ),
        (
            json!({"expression": expression, "message": " too many \n"}),
            "too many",
        ),
        (
            json!({"expression": expression, "messageExpression": "'has ' + string(object.spec.replicas)"}),
            "has 6",
        ),
        (
            json!({"expression": expression, "message": "m", "messageExpression": "'a\\nb'"}),
            "m",
        ),
        (
            json!({"expression": expression, "message": "m", "messageExpression": "object.x"}),
            "m",
        ),
        (
            json!({"expression": expression, "messageExpression": "'  '"}),
            "failed expression: object.spec.replicas <= 5",
        ),
        (
            json!({"expression": "object.spec.x == 1"}),
            "expression 'object.spec.x == 1' resulted in error: no such key: x",
        ),
        (
            json!({"expression": "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, \
                [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, \
                [1,2,3,4,5,6,7,8,9,10].all(f, true))))))"}),
            "operation cancelled: actual cost limit exceeded",
        ),
    ] {
        let found = words(validation);
        assert!(found == wanted || found.ends_with(wanted), "{found}");
    }
}

#[test]
fn loops_see_every_entry_of_a_map() {
    for expression in [
        "object.metadata.labels.all(key, false)",
        "object.metadata.labels.all(key, value, key != 'team')",
        "!object.metadata.labels.exists(key, value, object.metadata.name == 'web')",
        "object.metadata.labels.all(key, value, has(value.part))",
    ] {
        let policy = validating(json!({"validations": [{"expression": expression}]}));
        let object = json!({"metadata": {"name": "web", "labels": {"team": "a"}}});
        let source = Tree::new()
            .object(&object)
            .request(&json!({"operation": "CREATE"}));
        let verdict = policy.validate(&source);
        assert!(verdict.denial.is_some(), "{expression}");
    }
}

#[test]
fn resources_without_policies_are_not_matched() {
    let rules = json!({"resourceRules": [{
        "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
    }]});
    let policy =
        validating(json!({"matchConstraints": rules, "validations": [{"expression": "false"}]}));
    for (group, resource, is_denied) in [
        ("", "configmaps", true),
        ("authorization.k8s.io", "subjectaccessreviews", false),
        ("authentication.k8s.io", "tokenreviews", false),
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings",
            false,
        ),
        ("admissionregistration.k8s.io", "others", true),
        ("example.com", "tokenreviews", true),
    ] {
        let resource = json!({"group": group, "version": "v1", "resource": resource});
        let request = json!({"operation": "CREATE", "resource": resource});
        let object = json!({"metadata": {"name": "a"}});
        let verdict = policy.validate(&Tree::new().object(&object).request(&request));
        assert_eq!(verdict.denial.is_some(), is_denied, "{request}");
    }
}

#[test]
fn audit_annotation_has_the_first_failure() {
    let spec = json!({"validations": [
        {"expression": "false", "message": "one"},
        {"expression": "false", "message": "two"},
    ]});
    let bindings = json!([binding("all", json!({"validationActions": ["Audit"]}))]);
    let policy = compiled(
        policy("ValidatingAdmissionPolicy", spec),
        bindings,
        json!([]),
    );
    let verdict = policy.expect("a policy").validate(&review());
    let [(key, value)] = verdict.annotations.as_slice() else {
        panic!("{verdict:?}");
    };
    assert_eq!(key, "validation_failure");
    let value: Json = serde_json::from_str(value).expect("JSON");
    assert_eq!(value.as_array().map(Vec::len), Some(1), "{value}");
    assert_eq!(value[0]["message"], "one");
}

#[test]
fn reasons_have_their_codes() {
    for (reason, code) in [
        ("Unauthorized", 401),
        ("Forbidden", 403),
        ("Invalid", 422),
        ("RequestEntityTooLarge", 413),
    ] {
        let policy =
            validating(json!({"validations": [{"expression": "false", "reason": reason}]}));
        let denial = policy.validate(&review()).denial.expect("a denial");
        assert_eq!((denial.reason, denial.code), (reason, code));
    }
}

#[test]
fn an_expression_that_fails_counts_as_the_failure_policy_says() {
    let spec = |failure_policy: &str| json!({"failurePolicy": failure_policy, "validations": [{"expression": "object.spec.x == 1"}]});
    assert!(message(&validating(spec("Fail"))).is_some());
    assert!(message(&validating(spec("Ignore"))).is_none());
}

#[test]
fn match_conditions_decide_before_validations() {
    let spec = |expression: &str, failure_policy: &str| {
        validating(json!({
            "failurePolicy": failure_policy,
            "matchConditions": [{"name": "one", "expression": expression}],
            "validations": [{"expression": "false", "message": "reached"}],
        }))
    };
    assert_eq!(
        message(&spec("true", "Fail")),
        Some(format!("{PREFIX}reached"))
    );
    assert_eq!(message(&spec("false", "Fail")), None);
    assert_eq!(
        message(&spec("object.x == 1", "Fail")),
        Some(format!(
            "{PREFIX}expression 'object.x == 1' resulted in error: no such key: x"
        ))
    );
    assert_eq!(message(&spec("object.x == 1", "Ignore")), None);
}

#[test]
fn variables_are_lazy_and_name_themselves_in_errors() {
    let policy = validating(json!({
        "variables": [
            {"name": "broken", "expression": "object.spec.missing"},
            {"name": "replicas", "expression": "object.spec.replicas"},
            {"name": "double", "expression": "variables.replicas * 2"},
        ],
        "validations": [{"expression": "variables.double == 12 || variables.broken == 1"}],
    }));
    assert_eq!(message(&policy), None);
    let policy = validating(json!({
        "variables": [{"name": "broken", "expression": "object.spec.missing"}],
        "validations": [{"expression": "variables.broken == 1"}],
    }));
    assert_eq!(
        message(&policy),
        Some(format!(
            "{PREFIX}expression 'variables.broken == 1' resulted in error: composited variable \"broken\" fails to \
             evaluate: no such key: missing"
        ))
    );
}

#[test]
fn all_problems_are_told_with_their_places() {
    let found = problems(json!({
        "matchConstraints": {"namespaceSelector": {"matchLabels": {"team": "a"}}},
        "matchConditions": [{"name": "a", "expression": "variables.x == 1"}],
        "variables": [{"name": "x", "expression": "1 +"}],
        "validations": [{"expression": "object.x ? 1 : 2"}, {"expression": "params.x == 1"}, {"expression": "namespaceObject.metadata.name == 'a'"}],
    }));
    assert_eq!(
        found,
        [
            "/policy/spec/matchConditions/0/expression: line 1, column 11: undefined field 'x'",
            "/policy/spec/variables/0/expression: line 1, column 4: Syntax error: mismatched input '<EOF>' expecting expression",
            "/policy/spec/validations/0/expression: must evaluate to bool but got int",
            "/policy/spec/validations/1/expression: line 1, column 1: undeclared reference to 'params' (in container ''): the policy has no paramKind",
            "/policy/spec/validations/2/expression: line 1, column 1: namespaceObject is not available: the host does not pass the Namespace to plugins",
            "/policy/spec/matchConstraints/namespaceSelector: cannot select by the label \"team\": the host does not pass the Namespace to plugins; only \"kubernetes.io/metadata.name\" is known",
        ]
    );
}

#[test]
fn constraints_match_as_in_kube_apiserver() {
    let rule = |change: Json| {
        let mut rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]});
        for (name, value) in change.as_object().unwrap() {
            rule[name] = value.clone();
        }
        rule
    };
    let rules = |change: Json| json!({"resourceRules": [rule(change)]});
    for (constraints, matches) in [
        (json!({}), true),
        (rules(json!({})), true),
        (rules(json!({"apiGroups": [""]})), false),
        (
            rules(
                json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}),
            ),
            true,
        ),
        (rules(json!({"apiVersions": ["v1beta1"]})), false),
        (rules(json!({"operations": ["UPDATE"]})), false),
        (rules(json!({"resources": ["deployments/scale"]})), false),
        (rules(json!({"resources": ["deployments/*"]})), true),
        (rules(json!({"resources": ["*/*"]})), true),
        (rules(json!({"resourceNames": ["web"]})), true),
        (rules(json!({"resourceNames": ["other"]})), false),
        (rules(json!({"scope": "Namespaced"})), true),
        (rules(json!({"scope": "Cluster"})), false),
        (json!({"excludeResourceRules": [rule(json!({}))]}), false),
        (
            json!({"excludeResourceRules": [rule(json!({"resourceNames": ["other"]}))]}),
            true,
        ),
        (
            json!({"objectSelector": {"matchLabels": {"app": "web"}}}),
            true,
        ),
        (
            json!({"objectSelector": {"matchLabels": {"app": "x"}}}),
            false,
        ),
        (
            json!({"objectSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}}),
            true,
        ),
        (
            json!({"objectSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}),
            false,
        ),
        (
            json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}),
            true,
        ),
        (
            json!({"namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["shop"]}]}}),
            false,
        ),
    ] {
        let policy = validating(
            json!({"matchConstraints": constraints, "validations": [{"expression": "false"}]}),
        );
        assert_eq!(message(&policy).is_some(), matches, "{constraints}");
    }
}

#[test]
fn an_exact_policy_ignores_converted_requests() {
    let mut converted = request();
    converted["requestResource"]["version"] = json!("v1beta1");
    for (match_policy, is_denied) in [("Exact", false), ("Equivalent", true)] {
        let policy = validating(json!({
            "matchConstraints": {"matchPolicy": match_policy, "resourceRules": [{
                "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]}]},
            "validations": [{"expression": "false"}],
        }));
        let review = Tree::new().object(&object()).request(&converted);
        assert_eq!(
            policy.validate(&review).denial.is_some(),
            is_denied,
            "{match_policy}"
        );
    }
}

fn config_map(name: &str, namespace: &str, max: &str) -> Json {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace, "labels": {"set": "a"}}, "data": {"max": max}})
}

fn with_params(reference: Json, params: Json) -> Verdict {
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "object.spec.replicas <= int(params.data.max)", "messageExpression": "'max ' + params.data.max"}],
    });
    let bindings = json!([binding(
        "all",
        json!({"validationActions": ["Deny"], "paramRef": reference})
    )]);
    let policy =
        compiled(policy("ValidatingAdmissionPolicy", spec), bindings, params).expect("a policy");
    policy.validate(&review())
}

#[test]
fn parameters_are_found_by_name_and_by_labels() {
    let denied = |reference: Json, params: Json| {
        with_params(reference, params)
            .denial
            .map(|denial| denial.message)
    };
    let by_name = json!({"name": "limits", "parameterNotFoundAction": "Deny"});
    let all = json!([
        config_map("limits", "shop", "5"),
        config_map("limits", "other", "9"),
        config_map("more", "shop", "4")
    ]);
    assert_eq!(
        denied(by_name.clone(), all.clone()),
        Some(format!("{PREFIX}max 5"))
    );
    let elsewhere =
        json!({"name": "limits", "namespace": "other", "parameterNotFoundAction": "Deny"});
    assert_eq!(denied(elsewhere, all.clone()), None);
    let by_labels =
        json!({"selector": {"matchLabels": {"set": "a"}}, "parameterNotFoundAction": "Deny"});
    assert_eq!(
        denied(
            by_labels,
            json!([config_map("a", "shop", "9"), config_map("b", "shop", "4")])
        ),
        Some(format!("{PREFIX}max 4"))
    );
    assert_eq!(
        denied(by_name, json!([])),
        Some(format!(
            "{PREFIX}failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
        ))
    );
    assert_eq!(
        denied(
            json!({"name": "limits", "parameterNotFoundAction": "Allow"}),
            json!([])
        ),
        None
    );
}

#[test]
fn actions_and_annotations_are_those_of_the_binding() {
    let spec = json!({
        "validations": [{"expression": "true"}, {"expression": "false", "message": "a <b> & c"}],
        "auditAnnotations": [
            {"key": "who", "valueExpression": "request.userInfo.username"},
            {"key": "nothing", "valueExpression": "object.spec.replicas > 9 ? 'x' : null"},
        ],
    });
    let bindings = json!([
        binding("one", json!({"validationActions": ["Warn"]})),
        binding("two", json!({"validationActions": ["Audit"]})),
    ]);
    let policy = compiled(
        policy("ValidatingAdmissionPolicy", spec),
        bindings,
        json!([]),
    )
    .expect("a policy");
    let verdict = policy.validate(&review());
    assert_eq!(verdict.denial, None);
    assert_eq!(
        verdict.warnings,
        ["Validation failed for ValidatingAdmissionPolicy 'demo' with binding 'one': a <b> & c"]
    );
    assert_eq!(verdict.annotations, [
        ("who".to_owned(), "alice".to_owned()),
        ("validation_failure".to_owned(), "[{\"message\":\"a \\u003cb\\u003e \\u0026 c\",\"policy\":\"demo\",\"binding\":\"two\",\"expressionIndex\":1,\"validationActions\":[\"Audit\"]}]".to_owned()),
    ]);
}

fn mutating(mutations: Json) -> Policy {
    let bindings = json!([binding("all", json!({}))]);
    let spec = json!({"mutations": mutations});
    compiled(policy("MutatingAdmissionPolicy", spec), bindings, json!([])).expect("a policy")
}

fn apply(expression: &str) -> Json {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Json {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// Returns the object after a policy, or the message of its denial.
fn mutated(mutations: Json) -> Result<Json, String> {
    match mutating(mutations).mutate(&review()) {
        Mutated::Unchanged => Ok(object()),
        Mutated::Denied(denial) => Err(denial.message),
        Mutated::Patch(operations) => {
            let before = cel_json::from_json(&object());
            let after = crate::patch::apply(&before, &operations).expect("the patch applies");
            Ok(serde_json::from_str(&cel_json::write(&after).expect("JSON")).expect("JSON"))
        }
    }
}

#[test]
fn configurations_are_applied_by_map_keys() {
    let containers = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [\
        Object.spec.template.spec.containers{name: 'b', image: 'b:2'}, Object.spec.template.spec.containers{name: 'c'}]}}}}";
    let after = mutated(json!([apply(containers)])).unwrap();
    assert_eq!(
        after["spec"]["template"]["spec"]["containers"],
        json!([
            {"name": "a", "image": "a:1", "ports": [{"containerPort": 80}]},
            {"name": "b", "image": "b:2", "args": ["x"]},
            {"name": "c"},
        ])
    );
    // The default of the key `protocol` counts.
    let ports = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [\
        Object.spec.template.spec.containers{name: 'a', ports: [Object.spec.template.spec.containers.ports{\
        containerPort: 80, protocol: 'TCP', name: 'http'}]}]}}}}";
    let after = mutated(json!([apply(ports)])).unwrap();
    assert_eq!(
        after["spec"]["template"]["spec"]["containers"][0]["ports"],
        json!([{"containerPort": 80, "protocol": "TCP", "name": "http"}])
    );
}

#[test]
fn later_changes_see_earlier_ones() {
    let after = mutated(json!([
        apply("Object{metadata: Object.metadata{labels: {'n': string(object.spec.replicas)}}}"),
        patch("[JSONPatch{op: 'replace', path: '/spec/replicas', value: int(object.metadata.labels.n) + 1}]"),
        patch("[JSONPatch{op: 'test', path: '/spec/replicas', value: 1}, JSONPatch{op: 'remove', path: '/spec'}]"),
        patch("[JSONPatch{op: 'add', path: '/spec/template/spec/containers/-', value: Object.spec.template.spec.containers{name: 'c'}}]"),
    ])).unwrap();
    assert_eq!(after["metadata"]["labels"], json!({"app": "web", "n": "6"}));
    assert_eq!(after["spec"]["replicas"], json!(7));
    assert_eq!(
        after["spec"]["template"]["spec"]["containers"][2],
        json!({"name": "c"})
    );
}

#[test]
fn errors_of_changes_are_those_of_kube_apiserver() {
    const PREFIX: &str = "policy 'demo' with binding 'all' denied request: ";
    for (mutation, wanted) in [
        (
            apply(
                "Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}",
            ),
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector",
        ),
        (
            apply(
                "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{nodeSelector: {'a': 'c'}}}}}",
            ),
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.template.spec.nodeSelector",
        ),
        (
            apply("Object{spec: Object.spec{replica: 1}}"),
            "error applying patch: failed to convert patch object to typed object: .spec.replica: field not declared in schema",
        ),
        (
            apply("Object{spec: Object.status{}}"),
            "type mismatch: unexpected type name \"Object.status\", expected \"Object.spec\", which matches field name path from root Object type",
        ),
        (
            patch("[JSONPatch{op: 'remove', path: '/spec/missing'}]"),
            "JSON Patch: error in remove for path: '/spec/missing': Unable to remove nonexistent key: missing: missing value",
        ),
        (
            patch("[JSONPatch{op: 'replace', path: '/spec/missing', value: 1}]"),
            "JSON Patch: replace operation does not apply: doc is missing key: /spec/missing: missing value",
        ),
        (
            patch("[JSONPatch{op: 'add', path: '/x/y', value: 1}]"),
            "JSON Patch: add operation does not apply: doc is missing path: \"/x/y\": missing value",
        ),
        (
            patch("object.spec.x == 1 ? [JSONPatch{}] : []"),
            "expression 'object.spec.x == 1 ? [JSONPatch{}] : []' resulted in error: no such key: x",
        ),
    ] {
        assert_eq!(
            mutated(json!([mutation.clone()])),
            Err(format!("{PREFIX}{wanted}")),
            "{mutation}"
        );
    }
}

#[test]
fn a_policy_on_nothing_changes_nothing() {
    assert_eq!(mutated(json!([patch("[]")])).unwrap(), object());
    assert_eq!(
        mutated(json!([apply("Object{spec: Object.spec{replicas: 6}}")])).unwrap(),
        object()
    );
    let policy = mutating(json!([apply("Object{spec: Object.spec{replicas: 1}}")]));
    assert_eq!(
        policy.mutate(&Tree::new().request(&request())),
        Mutated::Unchanged
    );
}

#[test]
fn files_become_settings_and_rules() {
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"], "resourceNames": ["a"]});
    let spec = json!({
        "failurePolicy": "Ignore",
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "true"}],
    });
    let mut orphan = binding("orphan", json!({"validationActions": ["Deny"]}));
    orphan["spec"]["policyName"] = json!("other");
    let documents = [
        policy("ValidatingAdmissionPolicy", spec),
        binding("all", json!({"validationActions": ["Deny"]})),
        config_map("limits", "shop", "5"),
        orphan,
        policy("ValidatingAdmissionPolicy", json!({"unknown": 1})),
        json!({"kind": "Secret"}),
    ];
    let (imported, skipped) = import(&documents);
    assert_eq!(imported.len(), 1);
    let one = &imported[0];
    assert_eq!((one.name.as_str(), one.failure_policy), ("demo", "Ignore"));
    assert_eq!(
        one.rules,
        [
            json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]})
        ]
    );
    assert_eq!(
        one.settings["params"],
        json!([config_map("limits", "shop", "5")])
    );
    assert_eq!(one.notes.len(), 2);
    let settings = serde_json::from_value(one.settings.clone()).expect("settings");
    assert!(Policy::new(settings, Abilities::default()).is_ok());
    let reasons: Vec<(usize, bool)> = skipped
        .iter()
        .map(|one| (one.index, one.reason.contains("not in the files")))
        .collect();
    assert_eq!(reasons, [(3, true), (4, false)]);
    assert!(
        skipped[1].reason.contains("unknown field `unknown`"),
        "{}",
        skipped[1].reason
    );
}
