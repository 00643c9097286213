//! Policies of Kyverno.

use super::{notes, run};

/// Returns a policy of Kyverno for Pods. The expression is on line 9.
fn kyverno(kind: &str, expression: &str, more: &str) -> String {
    format!(
        "apiVersion: policies.kyverno.io/v1\nkind: {kind}\nmetadata: {{ name: labelled, namespace: shop }}\nspec:\n  matchConstraints:\n    resourceRules:\n      - {{ apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods] }}\n  validations:\n    - expression: {expression}\n{more}"
    )
}

#[test]
fn policy_of_kyverno_becomes_one_of_kubernetes() {
    let text = kyverno("ValidatingPolicy", "has(object.metadata.labels)", "");
    let imported = run(&[("k.yaml", &text)]);
    let [entry] = imported.entries.as_slice() else {
        panic!("{}", notes(&imported));
    };
    assert_eq!(entry.source, "file:./cel-policy.wasm");
    assert_eq!(entry.failure_policy, "Fail");
    assert_eq!(entry.matching.rules[0].resources, ["pods"]);
    let settings = &entry.settings;
    assert_eq!(settings["policy"]["kind"], "ValidatingAdmissionPolicy");
    assert_eq!(settings["policy"]["metadata"]["name"], "labelled");
    let actions = &settings["bindings"][0]["spec"]["validationActions"];
    assert_eq!(*actions, serde_json::json!(["Deny"]));
    let text = notes(&imported);
    assert!(
        text.contains("translated  k.yaml:1: ValidatingPolicy labelled: as the plugin labelled"),
        "{text}"
    );
    assert!(
        text.contains("differs     k.yaml:7: ValidatingPolicy labelled: Kyverno also applies it to the templates"),
        "{text}"
    );
}

#[test]
fn each_rule_for_pods_is_noted_where_kyverno_looks_at_controllers_too() {
    let pods = "resourceRules:\n      - { apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods] }\n";
    let text = kyverno("ValidatingPolicy", "has(object.metadata.labels)", "");
    assert!(text.contains(pods), "{text}");
    let with = |rules: &str| notes(&run(&[("k.yaml", &text.replace(pods, rules))]));
    let update = "      - { apiGroups: [''], apiVersions: [v1], operations: [UPDATE], resources: [RESOURCES] }\n";
    let both = |resources: &str| with(&format!("{pods}{}", update.replace("RESOURCES", resources)));
    let several = both("pods, pods/ephemeralcontainers");
    for line in [7, 8] {
        let note = format!(
            "differs     k.yaml:{line}: ValidatingPolicy labelled: some versions of Kyverno also apply this rule"
        );
        assert!(several.contains(&note), "{several}");
    }
    // Kyverno leaves a policy for other resources, too, as it is.
    let mixed = both("services");
    assert!(!mixed.contains("differs"), "{mixed}");
    let named = with(&pods.replace("resources: [pods]", "resources: [pods], resourceNames: [a]"));
    assert!(!named.contains("differs"), "{named}");
}

#[test]
fn policy_of_kyverno_for_a_namespace_selects_it() {
    let text = kyverno(
        "NamespacedValidatingPolicy",
        "has(object.metadata.labels)",
        "  validationActions: [Audit]\n  autogen: { podControllers: { controllers: [] } }\n",
    );
    let imported = run(&[("k.yaml", &text)]);
    let settings = &imported.entries[0].settings;
    let selector = settings
        .pointer("/policy/spec/matchConstraints/namespaceSelector/matchExpressions/0")
        .unwrap();
    assert_eq!(selector["key"], "kubernetes.io/metadata.name");
    assert_eq!(selector["values"], serde_json::json!(["shop"]));
    let actions = settings.pointer("/bindings/0/spec/validationActions");
    assert_eq!(actions, Some(&serde_json::json!(["Audit"])));
    assert_eq!(imported.notes.len(), 1, "{}", notes(&imported));
}

#[test]
fn mutating_policy_of_kyverno_is_translated() {
    let text = "apiVersion: policies.kyverno.io/v1alpha1\nkind: MutatingPolicy\nmetadata: { name: team }\nspec:\n  matchConstraints:\n    resourceRules:\n      - { apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments] }\n  mutations:\n    - patchType: ApplyConfiguration\n      applyConfiguration:\n        expression: \"Object{metadata: Object.metadata{labels: {'team': 'a'}}}\"\n";
    let imported = run(&[("k.yaml", text)]);
    assert_eq!(
        imported.entries[0].settings["policy"]["kind"],
        "MutatingAdmissionPolicy",
        "{}",
        notes(&imported)
    );
    assert!(imported.notes.iter().all(|note| !note.effect.is_loss()));
    let existing = format!("{text}  evaluation: {{ mutateExisting: {{ enabled: true }} }}\n");
    let imported = run(&[("k.yaml", &existing)]);
    assert!(imported.entries.is_empty());
    let text = notes(&imported);
    assert!(
        text.contains("cannot      k.yaml:12: MutatingPolicy team: mutateExisting: existing objects are not changed"),
        "{text}"
    );
}

#[test]
fn names_what_is_beyond_the_cel_of_kubernetes() {
    for (expression, word) in [
        (
            "resource.Get('v1', 'configmaps', 'a', 'b') != null",
            "resource is a library of Kyverno",
        ),
        (
            "http.Get('http://example.com').ok",
            "http is a library of Kyverno",
        ),
        (
            "images.containers.all(i, image(i).registry() == 'x')",
            "images is a library of Kyverno",
        ),
        ("object.spec.x ==", "/spec/validations/0/expression: line 1"),
    ] {
        let imported = run(&[("k.yaml", &kyverno("ValidatingPolicy", expression, ""))]);
        assert!(imported.entries.is_empty(), "{expression}");
        let text = notes(&imported);
        let place = "cannot      k.yaml:9: ValidatingPolicy labelled: /spec/validations/0/expression: line 1";
        assert!(text.contains(place) && text.contains(word), "{text}");
    }
    let text = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: { name: old }\n---\napiVersion: policies.kyverno.io/v1\nkind: GeneratingPolicy\nmetadata: { name: made }\n";
    let text = notes(&run(&[("k.yaml", text)]));
    for line in [
        "cannot      k.yaml:1: ClusterPolicy old: is no CEL; convert it",
        "cannot      k.yaml:5: GeneratingPolicy made: generating objects is not a goal",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
