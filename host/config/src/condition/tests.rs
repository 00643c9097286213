//! Tests of the expressions that an operator can write, of their results, and of their costs.

use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::{Value, json};
use tollgate_admission::review::request::{
    GroupVersionKind, GroupVersionResource, Operation, RequestDocument,
};

use super::*;

fn request(object: Value, old_object: Value) -> AdmissionRequest {
    let part = |value: Value| (!value.is_null()).then(|| Json::from(value));
    AdmissionRequest {
        uid: "u-1".to_owned(),
        operation: Operation::Update,
        kind: GroupVersionKind::default(),
        resource: GroupVersionResource::default(),
        sub_resource: None,
        name: "web".to_owned(),
        namespace: Some("shop".to_owned()),
        dry_run: false,
        object: part(object),
        old_object: part(old_object),
        options: Some(Json::from(json!({"kind": "UpdateOptions", "force": true}))),
        document: RequestDocument::of(Json::from(json!({
            "uid": "u-1",
            "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
            "name": "web", "namespace": "shop", "operation": "UPDATE", "dryRun": false,
            "userInfo": {"username": "jane", "groups": ["dev", "system:authenticated"], "extra": {"scopes": ["a"]}},
        }))),
        memory: tollgate_json::document::Account::unlimited(),
        looked_up: tollgate_admission::namespaces::LookedUp::default(),
        observed: tollgate_admission::trace::Observed::default(),
        template: None,
    }
}

fn deployment() -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "shop", "labels": {"app": "web", "example.com/tier": "front"},
            "creationTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["a", "b"],
        },
        "spec": {
            "replicas": 3, "paused": false, "weight": 1.5, "nothing": null,
            "template": {"spec": {"containers": [
                {"name": "app", "image": "registry.example.com/app:1", "ports": [{"port": 80}]},
                {"name": "side", "image": "docker.io/side:2"},
            ]}},
        },
    })
}

fn condition(text: &str) -> Condition {
    Condition::compile("c", text).unwrap_or_else(|problems| panic!("{text}: {problems:?}"))
}

fn evaluate_on(object: Value, old_object: Value, text: &str) -> Result<bool, String> {
    let request = request(object, old_object);
    condition(text).evaluate(&request, request.object.as_ref(), &Budget::new(BUDGET))
}

fn evaluate(text: &str) -> Result<bool, String> {
    evaluate_on(deployment(), deployment(), text)
}

fn problems(text: &str) -> String {
    match Condition::compile("c", text) {
        Ok(_) => format!("accepted: {text}"),
        Err(problems) => problems.join("\n"),
    }
}

#[test]
fn evaluates_examples_of_kubernetes_documentation() {
    for (text, expected) in [
        // Source: kubernetes.io, Dynamic Admission Control, matchConditions.
        (
            "!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')",
            true,
        ),
        ("!('system:nodes' in request.userInfo.groups)", true),
        (
            "request.resource.group != 'rbac.authorization.k8s.io'",
            true,
        ),
        // Source: the cases of k8s.io/apiserver/pkg/admission/plugin/webhook/{mutating,validating} and
        // testing/testcase.go.
        ("object.metadata.namespace == 'shop'", true),
        ("true", true),
        ("false", false),
        ("oldObject.metadata.name != object.metadata.name", false),
        ("request.userInfo.username == 'jane'", true),
        ("request.operation in ['CREATE', 'UPDATE']", true),
        (
            "request.operation != 'DELETE' && object.spec.replicas > 2",
            true,
        ),
        ("has(request.subResource)", false),
        (
            "!has(request.subResource) || request.subResource == ''",
            true,
        ),
        ("request.?subResource.orValue('') == ''", true),
        ("request.options.force", true),
        ("request.userInfo.extra['scopes'] == ['a']", true),
        (
            "request.userInfo.groups.exists(g, g.startsWith('system:'))",
            true,
        ),
        ("request.dryRun == false", true),
    ] {
        assert_eq!(evaluate(text), Ok(expected), "{text}");
    }
}

#[test]
fn evaluates_objects() {
    for (text, expected) in [
        ("has(object.spec.paused) && !object.spec.paused", true),
        ("has(object.spec.missing)", false),
        ("has(object.spec.nothing)", true),
        ("object.spec.nothing == null", true),
        ("object.spec.weight == 1.5 && object.spec.weight > 1", true),
        ("object.spec.replicas + 1 == 4", true),
        (
            "object.metadata.labels['example.com/tier'] == 'front'",
            true,
        ),
        ("'app' in object.metadata.labels", true),
        ("'other' in object.metadata.labels", false),
        (
            "object.metadata.labels.exists(k, k.startsWith('example.com/'))",
            true,
        ),
        ("object.metadata.finalizers == ['a', 'b']", true),
        ("['a', 'b'] == object.metadata.finalizers", true),
        (
            "object.metadata.finalizers + ['c'] == ['a', 'b', 'c']",
            true,
        ),
        ("'a' in object.metadata.finalizers", true),
        ("object.metadata == oldObject.metadata", true),
        ("object == oldObject", true),
        (
            "object.spec.template.spec.containers.all(c, has(c.image))",
            true,
        ),
        (
            "object.spec.template.spec.containers.exists_one(c, has(c.ports))",
            true,
        ),
        (
            "object.spec.template.spec.containers.map(c, c.name) == ['app', 'side']",
            true,
        ),
        (
            "object.spec.template.spec.containers.map(c, has(c.ports), c.name) == ['app']",
            true,
        ),
        (
            "object.spec.template.spec.containers.filter(c, c.image.startsWith('docker.io/')).size() == 1",
            true,
        ),
        (
            "object.spec.template.spec.containers[0].ports[0].port == 80",
            true,
        ),
        ("size(object.spec.template.spec.containers) == 2", true),
        ("object.?spec.?template.?missing.hasValue()", false),
        (
            "object.?metadata.?labels[?'app'].orValue('none') == 'web'",
            true,
        ),
        (
            "object[?'metadata'].optMap(m, m.name).orValue('') == 'web'",
            true,
        ),
        (
            "timestamp(object.metadata.creationTimestamp) < timestamp('2026-02-01T00:00:00Z')",
            true,
        ),
        (
            "timestamp(object.metadata.creationTimestamp).getFullYear() == 2026",
            true,
        ),
        ("duration('1h') > duration('59m')", true),
        (
            "object.spec.replicas > 5 ? true : object.metadata.name == 'web'",
            true,
        ),
        ("type(object.spec.replicas) == int", true),
        (
            "string(object.spec.replicas) == '3' && int('3') == object.spec.replicas",
            true,
        ),
        ("{'a': object.spec.replicas}['a'] == 3", true),
        ("[[1, 2], [3]].all(x, x.all(y, y > 0))", true),
    ] {
        assert_eq!(evaluate(text), Ok(expected), "{text}");
    }
}

#[test]
fn missing_objects_are_null() {
    let created = |text| evaluate_on(deployment(), Value::Null, text);
    let deleted = |text| evaluate_on(Value::Null, deployment(), text);
    assert_eq!(created("oldObject == null && object != null"), Ok(true));
    assert_eq!(
        deleted("object == null && oldObject.metadata.name == 'web'"),
        Ok(true)
    );
    assert_snapshot!(deleted("object.metadata.name == 'web'").unwrap_err(), @"failed: `.` cannot be applied to null_type and string");
}

#[test]
fn supports_strings_library() {
    for text in [
        "'tacocat'.indexOf('c') == 2",
        "'tacocat'.indexOf('c', 3) == 4",
        "'tacocat'.indexOf('x') == -1",
        "'ta©o©αT'.indexOf('©', 3) == 4",
        "'tacocat'.lastIndexOf('c') == 4",
        "'abcabc'.lastIndexOf('abc', 3) == 3",
        "'bananananana'.lastIndexOf('nana', 7) == 6",
        "'ta©o©αT'.lastIndexOf('©', 3) == 2",
        "'hello hello'.replace('he', 'we') == 'wello wello'",
        "'hello hello'.replace('he', 'we', 1) == 'wello hello'",
        "'hello'.replace('', '-') == '-h-e-l-l-o-'",
        "'hello'.replace('he', 'we', -1) == 'wello'",
        "['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b'",
        "object.metadata.finalizers.join(',') == 'a,b'",
        "'a,b'.split(',') == ['a', 'b'] && 'a,b,'.split(',') == ['a', 'b', '']",
        "'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'a,b'.split(',', 0) == [] && 'a,b'.split(',', -1) == ['a', 'b']",
        "'a©b'.split('') == ['a', '©', 'b'] && 'abc'.split('', 2) == ['a', 'bc'] && ''.split('') == []",
        "''.split(',') == ['']",
        "'TacoCat'.lowerAscii() == 'tacocat' && 'a'.upperAscii() == 'A' && ' a '.trim() == 'a'",
        "'tacocat'.substring(1, 3) == 'ac' && 'tacocat'.charAt(1) == 'a'",
        "strings.quote('a') == '\"a\"'",
        "object.metadata.name.matches('^w[a-z]+$')",
        "matches(object.metadata.name, 'eb')",
        "object.metadata.name.matches(object.metadata.labels.app)",
        "!object.metadata.name.matches('^x')",
        "'abc'.contains('b') && 'abc'.endsWith('c') && size('a©') == 2",
    ] {
        assert_eq!(evaluate(text), Ok(true), "{text}");
    }
}

#[test]
fn errors_name_the_cause_without_values() {
    assert_snapshot!(evaluate("object.spec.missing == 1").unwrap_err(), @"failed: no such key: missing");
    assert_snapshot!(evaluate("object[object.metadata.name] == 1").unwrap_err(), @"failed: no such key");
    assert_snapshot!(evaluate("object.metadata.name > 1").unwrap_err(), @"failed: `>` cannot be applied to string and int");
    assert_snapshot!(evaluate("object.metadata.name + 1 == 'a'").unwrap_err(), @"failed: `+` cannot be applied to these types");
    assert_snapshot!(evaluate("object.metadata.finalizers[7] == 'a'").unwrap_err(), @"failed: index out of bounds");
    assert_snapshot!(evaluate("object.metadata.name").unwrap_err(), @"returned a value of the type string, expected a boolean");
    assert_snapshot!(evaluate("object.metadata.name && true").unwrap_err(), @"failed: `&&` cannot be applied to string and bool");
    assert_snapshot!(evaluate("timestamp(object.metadata.name) < timestamp(0)").unwrap_err(), @"failed: `timestamp` does not accept this value");
    assert_snapshot!(evaluate("object.metadata.name.matches(object.metadata.name + '(')").unwrap_err(), @"failed: `matches` does not accept this value");
    assert_snapshot!(evaluate("1 / (object.spec.replicas - 3) == 1").unwrap_err(), @"failed: division by zero");
    assert_snapshot!(evaluate("object.spec.replicas.startsWith('a')").unwrap_err(), @"failed: `startsWith` cannot be applied to int and string");
    assert_snapshot!(evaluate("object.metadata.labels.join(',') == 'app'").unwrap_err(), @"failed: `join` does not accept this value");
    assert_snapshot!(evaluate("object.spec.replicas.all(x, true)").unwrap_err(), @"failed: a value has an unexpected type");
    assert_snapshot!(evaluate("9223372036854775807 + object.spec.replicas > 0").unwrap_err(), @"failed: a number is too large");
    // A name that could be a value is not shown, even if the text contains the same word.
    let text = "object.metadata.labels[object.metadata.name] == 'web' && object.web == 1";
    assert_snapshot!(evaluate(text).unwrap_err(), @"failed: no such key");
    for text in [
        "object.metadata.labels[object.metadata.name] == 'a'",
        "object.metadata.name - 1 == 0",
        "{object.metadata.name: 1}.x == 1",
        "int(object.metadata.name) == 1",
        "object.metadata.name < object.spec",
    ] {
        let error = evaluate(text).unwrap_err();
        assert!(!error.contains("web"), "{text}: {error}");
    }
}

#[test]
fn ignores_errors_that_do_not_affect_the_result() {
    assert_eq!(evaluate("object.spec.missing == 1 || true"), Ok(true));
    assert_eq!(evaluate("object.spec.missing == 1 && false"), Ok(false));
    assert!(evaluate("object.spec.missing == 1 || false").is_err());
}

#[test]
fn rejects_expressions_that_can_never_be_evaluated() {
    assert_snapshot!(problems("object.spec.replicas >"), @"line 1, column 24: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}");
    assert_snapshot!(problems("object.metadata.name == 'a' &&\n  foo == bar"), @r#"
line 2, column 3: unknown name `foo`, expected object, oldObject, request or namespaceObject
line 2, column 10: unknown name `bar`, expected object, oldObject, request or namespaceObject
"#);
    assert_snapshot!(problems("authorizer.group('').resource('pods').check('create').allowed()"), @"line 1, column 1: `authorizer` is not available here: it needs the API server; write this condition into the webhook configuration");
    assert_snapshot!(problems("request.object.spec.replicas == 1"), @"line 1, column 8: `request` has no field `object`, expected the variable `object`");
    assert_snapshot!(problems("request.user == 'a' || request.userInfo.name == 'a' || has(request.kind.name)"), @r#"
line 1, column 8: `request` has no field `user`, expected uid, kind, resource, subResource, requestKind, requestResource, requestSubResource, name, namespace, operation, userInfo, dryRun, options
line 1, column 40: `request.userInfo` has no field `name`, expected username, uid, groups, extra
line 1, column 59: `request.kind` has no field `name`, expected group, version, kind
"#);
    assert_snapshot!(problems("request['user'] == 'a'"), @"line 1, column 8: `request` has no field `user`, expected uid, kind, resource, subResource, requestKind, requestResource, requestSubResource, name, namespace, operation, userInfo, dryRun, options");
    assert_snapshot!(problems("object.spec.size.isQuantity() || quantity('1Gi') == object.x"), @r#"
line 1, column 28: unknown function `isQuantity`
line 1, column 42: unknown function `quantity`
"#);
    assert_snapshot!(problems("'abc'.reverse() == 'cba'"), @"line 1, column 14: unknown function `reverse`");
    assert_snapshot!(problems("'%d'.format([1]) == '1'"), @"line 1, column 12: unknown function `format`");
    assert_snapshot!(problems("object.metadata.name.matches('(')"), @"line 1, column 29: the pattern of `matches` is not a valid regular expression, or is too large");
    assert_snapshot!(problems("'a'"), @"line 1, column 1: the result is always a string, expected a boolean");
    assert_snapshot!(problems("google.protobuf.Duration{} == object"), @"line 1, column 25: unknown type `google.protobuf.Duration`");
    assert_snapshot!(problems("has(object)"), @"line 1, column 6: invalid argument to has() macro");
    assert_snapshot!(problems("[1].all(x, y > x)"), @"line 1, column 12: unknown name `y`, expected object, oldObject, request or namespaceObject");
    assert_snapshot!(problems(""), @"line 1, column 2: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}");
    assert_snapshot!(problems(&format!("object.a == '{}'", "x".repeat(9000))), @"got 9014 bytes, expected at most 8192");
    assert_snapshot!(problems(&format!("{}true{}", "!(".repeat(90), ")".repeat(90))), @"line 1, column 131: the expression is nested deeper than 64 levels");
    assert!(problems(&"(".repeat(5000)).len() < 2000);
}

#[test]
fn macro_variables_may_shadow_known_names() {
    assert_eq!(
        evaluate("[{'user': 1}].all(request, request.user == 1)"),
        Ok(true)
    );
    assert_eq!(evaluate("[1].map(x, [2].map(x, x)[0])[0] == 2"), Ok(true));
}

/// A review with a long list of numbers, a long text, and many labels.
fn large() -> Value {
    let list: Vec<u32> = (0..100_000).collect();
    json!({
        "list": list, "lists": vec![vec!["x"; 300]; 300], "text": "a".repeat(1_000_000),
        "pattern": "(a|b|ab)*c(\\w{50}){5}", "one": "a",
    })
}

#[test]
fn no_expression_costs_more_than_the_budget() {
    let object = large();
    for text in [
        "object.list.all(x, object.list.all(y, x + y >= 0))",
        "object.list.exists(x, object.list.exists(y, x + y < 0))",
        "object.list.map(x, object.list.map(y, x)).size() == 1",
        "object.list.map(x, object.list).size() == 1",
        "object.list.filter(x, object.list.filter(y, y > x).size() > 3).size() == 1",
        "object.list.exists_one(x, object.list.exists_one(y, x + y < 0))",
        "object.list.exists(x, object.text.contains('b'))",
        "object.list.exists(x, object.text.matches('(a|b)*c'))",
        "object.list.exists(x, object.one.matches(object.pattern))",
        "object.list.all(x, object.lists == object.lists)",
        "object.list.all(x, !(x + 1000000 in object.list))",
        "object.text.replace('', object.text).size() > 3",
        "object.text.replace('a', object.text, 1000000).size() > 3",
        "object.lists.map(l, l.join(object.text)).size() > 3",
        "object.list.exists(x, object.text.indexOf('aaaab') > 1)",
        "object.list.exists(x, object.text.lastIndexOf('baaaa') > 1)",
        "object.list.exists(x, object.text.split('a').size() == 7)",
        "object.list.exists(x, object.text.lowerAscii() == 'b')",
        "object.list.exists(x, [object.lists, object.lists].size() == 3)",
        "object.list.exists(x, {'a': object.lists}.size() == 3)",
        "object.list.exists(x, object.?lists.orValue([]).size() == 3)",
        "object.list.exists(x, object.text < object.text)",
        "[object.text].map(t, t + t).map(t, t + t).map(t, t + t).map(t, t + t).map(t, t + t).map(t, t + t)\
         .map(t, t + t).map(t, t + t).map(t, t + t).map(t, t + t).map(t, t + t).map(t, t + t).size() > 3",
        "object.list.all(x, object.list.all(y, object.missing) || true)",
        "object.list.all(a, object.list.all(b, a.y == 1 || true) || true) || true",
    ] {
        let compiled = condition(text);
        let request = request(object.clone(), Value::Null);
        let began = Instant::now();
        let result = compiled.evaluate(&request, request.object.as_ref(), &Budget::new(BUDGET));
        let took = began.elapsed();
        println!("{took:?} {text}");
        let error = result.expect_err(text);
        assert!(error.starts_with("costs too much"), "{text}: {error}");
        assert!(took < Duration::from_secs(3), "{text}: {took:?}");
    }
}

#[test]
fn evaluates_cheap_expressions_on_large_objects() {
    for text in [
        "object.list.all(x, x >= 0)",
        "object.list.map(x, x + 1).size() == 100000",
        "object.list.filter(x, x > 10).size() > 3",
        "object.text.matches('^a+$')",
        "object.lists.all(l, l.all(t, t == 'x'))",
        "object.text.indexOf('b') == -1",
        "object.text.replace('a', 'b').size() == 1000000",
        "5000 in object.list",
    ] {
        assert_eq!(evaluate_on(large(), Value::Null, text), Ok(true), "{text}");
    }
}

#[test]
fn deepest_expressions_do_not_overflow_the_stack() {
    let nested = |open: &str, close: &str, depth: usize| {
        format!(
            "{}object.spec.replicas == 3{}",
            open.repeat(depth),
            close.repeat(depth)
        )
    };
    let lists = |depth: usize| {
        let opens: String = (0..depth)
            .map(|level| format!("[1].all(x{level}, "))
            .collect();
        format!("{opens}object.spec.replicas == 3{}", ")".repeat(depth))
    };
    type Text<'t> = &'t dyn Fn(usize) -> String;
    let shapes: [Text<'_>; 5] = [
        &|depth| nested("(true && ", ")", depth),
        &|depth| nested("(true ? ", " : false)", depth),
        &|depth| nested("dyn(dyn(", "))", depth),
        &|depth| nested("[", "][0]", depth),
        &lists,
    ];
    for shape in shapes {
        let deepest = (1..100)
            .rev()
            .find_map(|depth| Condition::compile("c", &shape(depth)).ok());
        let deepest = deepest.expect("some depth is accepted");
        assert!(deepest.text().len() > 150, "only {}", deepest.text());
        let run = move || {
            let request = request(deployment(), Value::Null);
            deepest.evaluate(&request, request.object.as_ref(), &Budget::new(BUDGET))
        };
        let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(run);
        assert_eq!(thread.unwrap().join().unwrap(), Ok(true));
    }
    let chain = vec!["object.spec.replicas == 4"; 200].join(" || ");
    assert_eq!(evaluate(&chain), Ok(false));
}

/// Source: k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions/matcher_test.go, TestMatch.
///
/// Each case has the results of the conditions, and whether the webhook is called. None stands for an error, which
/// follows the failure policy. If the evaluator as a whole fails there, a condition fails here.
#[test]
fn decides_as_kube_apiserver_does() {
    const TRUE: &str = "true";
    const FALSE: &str = "object.metadata.name == 'other'";
    const ERROR: &str = "object.missing.field == 1";
    for (origin, conditions, expected) in [
        ("test single matches", vec![TRUE], Some(true)),
        ("test multiple match", vec![TRUE, TRUE], Some(true)),
        ("test empty evals", vec![], Some(true)),
        ("test single no match", vec![FALSE], Some(false)),
        ("test multiple no match", vec![FALSE, FALSE], Some(false)),
        (
            "test mixed with no match first",
            vec![FALSE, TRUE],
            Some(false),
        ),
        (
            "test mixed with no match last",
            vec![TRUE, FALSE],
            Some(false),
        ),
        (
            "test mixed with no match middle",
            vec![TRUE, FALSE, TRUE],
            Some(false),
        ),
        ("test error, no fail policy", vec![ERROR], None),
        (
            "test mix of true, errors and false",
            vec![TRUE, ERROR, FALSE, TRUE, ERROR],
            Some(false),
        ),
        (
            "test mix of true, errors and fail policy fail",
            vec![TRUE, ERROR, TRUE, ERROR],
            None,
        ),
    ] {
        let conditions: Vec<Condition> = conditions.into_iter().map(condition).collect();
        let request = request(deployment(), Value::Null);
        let decision = decide(&conditions, &request, request.object.as_ref());
        let found = match decision {
            Decision::Holds => Some(true),
            Decision::Fails(_) => Some(false),
            Decision::Unclear(_) => None,
        };
        assert_eq!(found, expected, "{origin}");
    }
}

#[test]
fn reports_the_first_error() {
    let conditions = [
        Condition::compile("first", "object.a.b == 1").unwrap(),
        Condition::compile("second", "object.c.d == 1").unwrap(),
    ];
    let request = request(deployment(), Value::Null);
    let Decision::Unclear(error) = decide(&conditions, &request, request.object.as_ref()) else {
        panic!("both conditions fail");
    };
    assert_snapshot!(error, @"the match condition `first` failed: no such key: a");
}

#[test]
fn conditions_share_one_budget() {
    let text = "object.list.all(x, x >= 0)";
    let conditions = vec![condition(text); 2];
    let request = request(large(), Value::Null);
    assert_eq!(
        decide(&conditions[..1], &request, request.object.as_ref()),
        Decision::Holds
    );
    assert!(matches!(
        decide(&conditions, &request, request.object.as_ref()),
        Decision::Unclear(_)
    ));
}

#[test]
fn inline_decisions_equal_full_decisions() {
    let pairs = "object.list.all(x, object.list.all(y, x <= y || x >= y))";
    let cheap = "object.list.size() > 3";
    let never = "object.list.size() < 3";
    let list = |length: usize| {
        let list: Vec<usize> = (0..length).collect();
        request(json!({ "list": list }), Value::Null)
    };
    let (short, long) = (list(10), list(100));
    for (conditions, request, is_inline) in [
        (vec![pairs], &short, true),
        (vec![cheap], &long, true),
        (vec![pairs], &long, false),
        (vec![cheap, pairs], &long, false),
        // The false condition comes before the expensive one.
        (vec![never, pairs], &long, true),
        // The first condition uses up the budget, so it is unknown whether the second one is false.
        (vec![pairs, never], &long, false),
    ] {
        let text = format!("{conditions:?}");
        let named = |text: &str| Condition::compile(text, text).unwrap();
        let conditions: Vec<Condition> = conditions.into_iter().map(named).collect();
        let object = request.object.as_ref();
        let in_full = decide(&conditions, request, object);
        assert!(!matches!(in_full, Decision::Unclear(_)), "{text}");
        match decide_inline(&conditions, request, object) {
            Ok(decision) => assert!(is_inline && decision == in_full, "{text}"),
            Err(costly) => assert!(!is_inline && costly.text() == pairs, "{text}"),
        }
    }
}

#[test]
fn namespace_object_is_namespace_of_request() {
    let request = request(json!({}), Value::Null);
    let team = condition("namespaceObject.metadata.labels['team'] == 'a'");
    assert!(team.needs_namespace());
    assert!(!condition("request.namespace == 'namespaceObject'").needs_namespace());
    let early = decide(std::slice::from_ref(&team), &request, None);
    assert!(matches!(early, Decision::Unclear(_)));
    let namespace =
        json!({"metadata": {"name": "shop", "labels": {"team": "a"}}, "spec": {"a": 1}});
    let namespace = tollgate_admission::namespaces::Namespace::of(&Json::from(namespace));
    request.take_lookup(tollgate_admission::namespaces::Lookup::Found(namespace));
    for (text, expected) in [
        ("namespaceObject.metadata.labels['team'] == 'a'", true),
        ("namespaceObject.metadata.name == request.namespace", true),
        ("has(namespaceObject.spec)", false),
        ("namespaceObject == null", false),
        ("namespaceObject.kind == 'Namespace'", true),
    ] {
        let result = condition(text).evaluate(&request, None, &Budget::new(BUDGET));
        assert_eq!(result, Ok(expected), "{text}");
    }
    let node = AdmissionRequest {
        namespace: None,
        ..request
    };
    let result = condition("namespaceObject == null").evaluate(&node, None, &Budget::new(BUDGET));
    assert_eq!(result, Ok(true));
}
