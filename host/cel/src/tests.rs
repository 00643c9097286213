//! Runs the tables of expressions in `tests/`.
//!
//! A line is an expression that must be true. A line with `~>` is an expression and a part of its error: one of
//! evaluation, or after `compile:` one of compilation. The expectations are those of the tests of cel-go, of cel-spec
//! and of Kubernetes' libraries, written anew.

use serde_json::json;

use super::*;

/// The review that the expressions can use.
fn review() -> Tree {
    Tree::new()
        .object(&json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web", "example.com/tier": "front"}},
            "spec": {
                "replicas": 3,
                "paused": false,
                "ratio": 1.5,
                "nothing": null,
                "template": {"spec": {"containers": [
                    {"name": "a", "image": "registry.example.com/a:1", "ports": [{"containerPort": 80}]},
                    {"name": "b", "image": "registry.example.com/b@sha256:0"},
                ]}},
            },
        }))
        .request(&json!({
            "operation": "CREATE",
            "name": "web",
            "namespace": "shop",
            "dryRun": false,
            "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
            "userInfo": {"username": "alice", "groups": ["dev", "system:authenticated"]},
        }))
}

/// Evaluates one line of a table. Returns the difference from the expected result.
fn difference(line: &str) -> Option<String> {
    let environment = Environment::new().with_patches(true).with_params(true);
    let (expression, wanted) = match line.rsplit_once(" ~> ") {
        Some((expression, error)) => (expression, Some(error)),
        None => (line, None),
    };
    let review = review();
    let params = json::from_json(&json!({"max": 5, "names": ["a", "b"]}));
    let result = environment
        .compile(expression)
        .map_err(|error| format!("compile: {}", error.message))
        .and_then(|program| {
            let scope = Scope::new(&review, params, &[]);
            scope
                .evaluate(&program)
                .0
                .map_err(|error| error.to_string())
        });
    match (wanted, &result) {
        (None, Ok(Value::Bool(true))) => None,
        (Some(wanted), Err(error)) if error.contains(wanted) => None,
        _ => Some(format!("{line}\n    gives {result:?}")),
    }
}

fn check(table: &str) -> usize {
    let lines = table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut count = 0;
    let mut differences = Vec::new();
    for line in lines {
        count += 1;
        differences.extend(difference(line));
    }
    assert!(
        differences.is_empty(),
        "{} of {count} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
    count
}

#[test]
fn expressions_have_the_results_of_kube_apiserver() {
    let count = check(include_str!("tests/language.txt"))
        + check(include_str!("tests/libraries.txt"))
        + check(include_str!("tests/kubernetes.txt"));
    assert!(count > 500, "{count} expressions");
}

#[test]
fn every_declared_function_is_implemented() {
    for ((name, is_member), overloads) in signatures::table() {
        assert!(
            functions::lookup(&name, is_member).is_some(),
            "{name} (member: {is_member})"
        );
        assert!(!overloads.is_empty());
    }
}

#[test]
fn errors_of_compilation_have_a_place() {
    let environment = Environment::new();
    for (source, place) in [
        ("object.spec.x == foo", (1, 18)),
        ("true &&\n  bar(1)", (2, 3)),
        ("'foo' == foo", (1, 10)),
        ("request.uid == 'x'", (1, 9)),
        ("1 +", (1, 4)),
    ] {
        let error = environment.compile(source).unwrap_err();
        assert_eq!((error.line, error.column), place, "{source}: {error}");
    }
}

#[test]
fn names_that_plugins_do_not_have_are_refused() {
    let environment = Environment::new();
    let message = |source: &str| environment.compile(source).unwrap_err().message;
    assert!(
        message("authorizer.group('').resource('pods').check('get').allowed()")
            .contains("authorizer is not available")
    );
    assert!(
        message("namespaceObject.metadata.name == 'a'")
            .contains("namespaceObject is not available")
    );
    assert!(message("params.max > 1").contains("the policy has no paramKind"));
    assert!(message("Object{}").contains("undeclared reference to 'Object'"));
}

#[test]
fn an_endless_loop_ends_at_the_cost_limit() {
    let environment = Environment::new();
    let tens = "[0,1,2,3,4,5,6,7,8,9]";
    let mut source = "true".to_owned();
    for level in 0..8 {
        source = format!("{tens}.all(x{level}, {source})");
    }
    let program = environment.compile(&source).unwrap();
    let review = Tree::new();
    let (result, cost) = Scope::new(&review, Value::Null, &[]).evaluate(&program);
    assert_eq!(result, Err(EvalError::CostLimit));
    assert!(
        (EXPRESSION_LIMIT..EXPRESSION_LIMIT + 100).contains(&cost),
        "{cost}"
    );
}

#[test]
fn deep_and_long_expressions_are_refused() {
    let environment = Environment::new();
    let deep = format!("{}true{}", "(".repeat(1000), ")".repeat(1000));
    assert!(environment.compile(&deep).is_err());
    let long = format!("'{}' == ''", "a".repeat(70_000));
    assert!(
        environment
            .compile(&long)
            .unwrap_err()
            .message
            .contains("64 KiB")
    );
}

/// A source that records the pointers that are read.
struct Recording(Tree, std::cell::RefCell<Vec<String>>);

impl Source for Recording {
    fn value(&self, document: Document, pointer: &str) -> Option<Found> {
        self.1.borrow_mut().push(pointer.to_owned());
        self.0.value(document, pointer)
    }
}

#[test]
fn only_the_named_places_are_read() {
    let environment = Environment::new();
    for (source, read) in [
        ("object.spec.replicas == 3", vec!["/spec/replicas"]),
        ("has(object.metadata.labels)", vec!["/metadata/labels"]),
        (
            "object.spec.template.spec.containers.size() == 2",
            vec!["/spec/template/spec/containers"],
        ),
        (
            "object.metadata.labels['example.com/tier'] == 'front'",
            vec!["/metadata/labels"],
        ),
    ] {
        let program = environment.compile(source).unwrap();
        let recording = Recording(review(), std::cell::RefCell::default());
        let (result, _) = Scope::new(&recording, Value::Null, &[]).evaluate(&program);
        assert_eq!(result, Ok(Value::Bool(true)), "{source}");
        assert_eq!(*recording.1.borrow(), read, "{source}");
    }
}

#[test]
fn json_survives_a_round_trip() {
    for text in [
        r#"{"a":[1,-2,1.5,"x\n\"",true,null],"b":{}}"#,
        r#"[9223372036854775807]"#,
    ] {
        assert_eq!(json::write(&json::parse(text).unwrap()).unwrap(), text);
    }
    assert!(json::parse("{} x").is_none());
}

/// Runs a table that is not part of the project, such as one that is extracted from another project's tests.
#[test]
fn a_foreign_table_has_the_same_results() {
    if let Ok(path) = std::env::var("CEL_TABLE") {
        check(&std::fs::read_to_string(path).unwrap());
    }
}
