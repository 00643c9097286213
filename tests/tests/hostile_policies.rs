//! Hostile policies in Rego and CEL: each ends at a limit, with a message that names it.
//!
//! With `--nocapture`, the test prints a table with the end, the message and the time of each policy.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::{cli, guests};

const REGO: &str = "rego";
const CEL: &str = "cel-policy";

/// A policy and the words that its end has.
struct Case {
    name: &'static str,
    package: &'static str,
    settings: Value,
    object: Value,
    /// The words of the message. None for a policy that allows the object.
    expected: Option<&'static str>,
}

/// A template with one constraint.
fn rego(rules: &str) -> Value {
    json!({
        "template": {
            "apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": {"name": "hostile"},
            "spec": {
                "crd": {"spec": {"names": {"kind": "Hostile"}}},
                "targets": [{
                    "target": "admission.k8s.gatekeeper.sh",
                    "rego": format!("package hostile\n{rules}"),
                }],
            },
        },
        "constraints": [{
            "apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "Hostile", "metadata": {"name": "all"},
        }],
    })
}

/// A ValidatingAdmissionPolicy with its binding.
fn cel(expressions: impl IntoIterator<Item = String>) -> Value {
    let version = "admissionregistration.k8s.io/v1";
    let validation = |expression: String| json!({"expression": expression});
    let validations: Vec<Value> = expressions.into_iter().map(validation).collect();
    json!({
        "policy": {
            "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "hostile"},
            "spec": {"validations": validations},
        },
        "bindings": [{
            "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "all"},
            "spec": {"policyName": "hostile", "validationActions": ["Deny"]},
        }],
    })
}

fn one(expression: &str) -> Value {
    cel([expression.to_owned()])
}

/// An object with a text of 100 kB.
fn long() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "long", "namespace": "default"},
        "data": {"long": format!("{}b", "a".repeat(100_000))},
    })
}

/// An object of more than a megabyte, with many values.
fn large() -> Value {
    let item = |index: usize| json!({"name": format!("item-{index}"), "value": "v".repeat(20), "list": [1, 2, 3]});
    json!({
        "apiVersion": "example.com/v1", "kind": "Large", "metadata": {"name": "large", "namespace": "default"},
        "items": (0..16_000).map(item).collect::<Vec<_>>(),
    })
}

fn cases() -> Vec<Case> {
    let rule = |index: usize| {
        format!(
            "violation[{{\"msg\": \"{index}\"}}] {{ input.review.object.metadata.name == \"n{index}\" }}\n"
        )
    };
    let many_rules: String = (0..10_000).map(rule).collect();
    let case = |name, package, settings, object, expected| Case {
        name,
        package,
        settings,
        object,
        expected,
    };
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    vec![
        // The plugin evaluates a template once when it is configured.
        case(
            "endless comprehension",
            REGO,
            rego(
                "violation[{\"msg\": \"x\"}] {\n  count([1 | numbers.range(1, 1000)[_]; numbers.range(1, 1000)[_]; \
                 numbers.range(1, 1000)[_]]) > 1\n}\n",
            ),
            long(),
            Some("too much memory"),
        ),
        case(
            "endless comprehension for an object",
            REGO,
            rego(
                "violation[{\"msg\": \"x\"}] {\n  input.review.object.data.long\n  numbers.range(1, 1000)[_] + \
                 numbers.range(1, 1000)[_] + numbers.range(1, 1000)[_] < 0\n}\n",
            ),
            long(),
            Some("out-of-fuel"),
        ),
        case(
            "nested repetition",
            REGO,
            rego(
                "violation[{\"msg\": \"x\"}] { regex.match(\"^(a+)+$\", input.review.object.data.long) }\n",
            ),
            long(),
            None,
        ),
        case(
            "pattern of a billion states",
            REGO,
            rego(
                "violation[{\"msg\": \"x\"}] { regex.match(\"((a{1000}){1000}){1000}\", \
                 input.review.object.data.long) }\n",
            ),
            long(),
            Some("compiled regex exceeded size limit"),
        ),
        case(
            "walk over a megabyte",
            REGO,
            rego(
                "violation[{\"msg\": \"x\"}] {\n  walk(input.review.object, [path, value])\n  value == \"nothing\"\n}\n",
            ),
            large(),
            Some("out-of-fuel"),
        ),
        case(
            "10,000 rules",
            REGO,
            rego(&many_rules),
            long(),
            Some("out of fuel"),
        ),
        case(
            "5,000 brackets",
            REGO,
            rego(&format!(
                "violation[{{\"msg\": \"x\"}}] {{ x := {deep}; x }}\n"
            )),
            long(),
            Some("more than 100 brackets are open"),
        ),
        case(
            "rules that need each other",
            REGO,
            rego("a { b }\nb { a }\nviolation[{\"msg\": \"x\"}] { a }\n"),
            long(),
            Some("recursion detected"),
        ),
        // The analysis of what is read follows values into functions.
        case(
            "functions that call each other",
            REGO,
            rego(
                "f(x) { g(x.a) }\nf(x) { g(x.b) }\nf(x) { g(x.c) }\ng(x) { f(x.d) }\ng(x) { f(x.e) }\ng(x) { f(x.f) }\n\
                 violation[{\"msg\": \"x\"}] { f(input.review.object) }\n",
            ),
            // Everything is read, and with it the Namespace, which a Namespace has not.
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
            None,
        ),
        case(
            "endless loop",
            CEL,
            one(
                "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, c >= 0)))",
            ),
            long(),
            Some("failed"),
        ),
        case(
            "endless text",
            CEL,
            one("lists.range(1000).map(a, object.data.long + object.data.long).size() > 0"),
            long(),
            Some("actual cost limit exceeded"),
        ),
        case(
            "nested repetition",
            CEL,
            one("!object.data.long.matches('^(a+)+$')"),
            long(),
            Some("out-of-fuel"),
        ),
        case(
            "pattern of a billion states",
            CEL,
            one("object.data.long.matches('((a{1000}){1000}){1000}')"),
            long(),
            Some("compiled regex exceeded size limit"),
        ),
        case(
            "walk over a megabyte",
            CEL,
            one("object.items.all(a, object.items.all(b, a != b || a == b))"),
            large(),
            Some("out-of-fuel"),
        ),
        case(
            "10,000 rules",
            CEL,
            cel((0..10_000).map(|index| format!("object.metadata.name != 'n{index}'"))),
            long(),
            None,
        ),
        case(
            "5,000 brackets",
            CEL,
            one(&format!("{}true{}", "(".repeat(5_000), ")".repeat(5_000))),
            long(),
            Some("nested too deeply"),
        ),
    ]
}

/// Reviews the object. Returns the message of the denial, of the fault, or of the refusal to load the plugin.
fn message(case: &Case, code: &Path) -> Option<String> {
    // All cases of a plugin have its code in common.
    let code = code.display().to_string();
    let mut configuration = Configuration::new().with("engine.cacheDirectory", code);
    let rules = json!([{
        "operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
    }]);
    let more = json!({"settings": case.settings, "match": {"rules": rules}});
    configuration.plugin("hostile", &guests::build(case.package), more);
    let mut command = cli::command(&["review", "-o", "json", "--config"]);
    command.arg(configuration.write()).arg("-");
    let reviewed = cli::run_with(&mut command, &case.object.to_string());
    let response = serde_json::from_str::<Value>(&reviewed.stdout)
        .map(|reviewed| reviewed["documents"][0]["validate"]["response"]["response"].clone());
    match response {
        Ok(response) if response["allowed"] == true => None,
        Ok(response) if response.is_object() => Some(
            response["status"]["message"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        ),
        _ => Some(reviewed.stderr.trim().to_owned()),
    }
}

#[test]
fn every_policy_ends_with_a_message_that_says_why() {
    let code = tempfile::tempdir().expect("a temporary folder can be made");
    let mut wrong = Vec::new();
    let mut table = String::from("| policy | plugin | time | message |\n|---|---|---:|---|\n");
    for case in cases() {
        let began = Instant::now();
        let message = message(&case, code.path());
        let milliseconds = began.elapsed().as_millis();
        let shown = message.as_deref().unwrap_or("allowed");
        let (name, package) = (case.name, case.package);
        table.push_str(&format!(
            "| {name} | {package} | {milliseconds} ms | {shown} |\n"
        ));
        let fits = match (case.expected, &message) {
            (None, None) => true,
            (Some(words), Some(message)) => message.contains(words),
            _ => false,
        };
        if !fits {
            wrong.push(format!(
                "{name} ({package}): expected {:?}, got: {shown}",
                case.expected
            ));
        }
    }
    println!("{table}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
