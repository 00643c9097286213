//! Policies whose selectors need a Namespace that is not known. kube-apiserver looks at `failurePolicy` then.

use super::*;
use crate::node::Document;

const PASSING: Abilities = Abilities {
    namespace: true,
    access: false,
};

fn compiled(policy: Json, binding: Json) -> Policy {
    let settings = json!({"policy": policy, "bindings": [binding]});
    let settings = serde_json::from_value(settings).expect("settings");
    match Policy::new(settings, PASSING) {
        Ok(policy) => policy,
        Err(_) => panic!("not a policy"),
    }
}

fn selector() -> Json {
    json!({"namespaceSelector": {"matchLabels": {"team": "a"}}})
}

/// Returns a policy that denies everything that it is about.
fn validating(failure_policy: &str, constraints: &Json, binding_spec: Json) -> Policy {
    let spec = json!({
        "failurePolicy": failure_policy,
        "matchConstraints": constraints,
        "validations": [{"expression": "false"}],
    });
    let policy = policy("ValidatingAdmissionPolicy", spec);
    compiled(policy, binding("all", binding_spec))
}

fn denying() -> Json {
    json!({"validationActions": ["Deny"]})
}

fn shop(labels: &Json) -> Value {
    let metadata = json!({"name": "shop", "labels": labels});
    cel_json::from_json(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
}

#[test]
fn failure_policy_decides_about_an_unknown_namespace() {
    let failing = validating("Fail", &selector(), denying());
    let denial = failing.validate(&review()).denial.expect("a denial");
    assert_eq!(
        denial.message,
        "ValidatingAdmissionPolicy 'demo' denied request: failed to configure policy: namespaces \"shop\" not found"
    );
    assert_eq!((denial.reason, denial.code), ("Invalid", 422));
    let ignoring = validating("Ignore", &selector(), denying());
    assert_eq!(ignoring.validate(&review()), Verdict::default());
}

#[test]
fn actions_of_a_binding_do_not_soften_an_unknown_namespace() {
    for (failure_policy, is_denied) in [("Fail", true), ("Ignore", false)] {
        let spec = json!({"validationActions": ["Audit"], "matchResources": selector()});
        let policy = validating(failure_policy, &json!({}), spec);
        let denial = policy.validate(&review()).denial;
        assert_eq!(denial.is_some(), is_denied, "{failure_policy}");
        if let Some(denial) = denial {
            let wanted = "ValidatingAdmissionPolicy 'demo' with binding 'all' denied request: failed to configure binding: \
                          namespaces \"shop\" not found";
            assert_eq!(denial.message, wanted);
        }
    }
}

#[test]
fn known_namespace_decides_by_its_labels() {
    let policy = validating("Fail", &selector(), denying());
    for (labels, is_denied) in [
        (json!({"team": "a"}), true),
        (json!({"team": "b"}), false),
        (json!(null), false),
    ] {
        let review = review().with(Document::Namespace, shop(&labels));
        let denial = policy.validate(&review).denial;
        assert_eq!(denial.is_some(), is_denied, "{labels}");
    }
}

#[test]
fn policy_for_other_requests_needs_no_namespace() {
    let mut constraints = selector();
    constraints["objectSelector"] = json!({"matchLabels": {"app": "other"}});
    let policy = validating("Fail", &constraints, denying());
    assert_eq!(policy.validate(&review()), Verdict::default());
    // The request has the name of the Namespace.
    let labels = json!({"kubernetes.io/metadata.name": "shop"});
    let by_name = json!({"namespaceSelector": {"matchLabels": labels}});
    let policy = validating("Fail", &by_name, denying());
    let denial = policy.validate(&review()).denial.expect("a denial");
    assert!(denial.message.ends_with("failed expression: false"));
}

#[test]
fn failure_policy_of_a_mutating_policy_decides_too() {
    let mutate = |failure_policy: &str, constraints: &Json, resources: Json| {
        let expression = "[JSONPatch{op: 'add', path: '/metadata/labels/team', value: 'a'}]";
        let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
        let spec = json!({
            "failurePolicy": failure_policy,
            "matchConstraints": constraints,
            "mutations": [mutation],
        });
        let binding = binding("all", json!({"matchResources": resources}));
        compiled(policy("MutatingAdmissionPolicy", spec), binding).mutate(&review())
    };
    let message = |mutated: Mutated| match mutated {
        Mutated::Denied(denial) => denial.message,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        message(mutate("Fail", &selector(), json!({}))),
        "policy \"demo\" denied request: failed to configure policy: namespaces \"shop\" not found"
    );
    assert_eq!(
        message(mutate("Fail", &json!({}), selector())),
        "policy 'demo' with binding 'all' denied request: failed to configure binding: namespaces \"shop\" not found"
    );
    for (constraints, resources) in [(selector(), json!({})), (json!({}), selector())] {
        let unchanged = mutate("Ignore", &constraints, resources);
        assert_eq!(unchanged, Mutated::Unchanged);
    }
}

#[test]
fn a_namespace_has_no_namespace() {
    let spec = json!({"validations": [{"expression": "namespaceObject == null"}]});
    let policy = policy("ValidatingAdmissionPolicy", spec);
    let policy = compiled(policy, binding("all", denying()));
    for (group, kind, is_denied) in [
        ("", "Namespace", false),
        ("", "ConfigMap", true),
        ("example.com", "Namespace", true),
    ] {
        let request =
            json!({"operation": "CREATE", "kind": {"group": group, "version": "v1", "kind": kind}});
        let source = Tree::new()
            .object(&json!({"metadata": {"name": "shop"}}))
            .request(&request);
        let source = source.with(Document::Namespace, shop(&json!({})));
        let denial = policy.validate(&source).denial;
        assert_eq!(denial.is_some(), is_denied, "{request}");
    }
}
