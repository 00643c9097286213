mod kyverno;

use serde_json::Value;

use crate::*;

const TEMPLATE: &str = include_str!("tests/template.yaml");

fn run(files: &[(&str, &str)]) -> Imported {
    let mut parsed = Parsed::default();
    for (file, text) in files {
        parse(file, text, &mut parsed);
    }
    let sources = Sources {
        rego: "file:./rego.wasm".to_owned(),
        cel: "file:./cel-policy.wasm".to_owned(),
    };
    let in_tree = InTree::new(sources.clone(), &parsed);
    let kyverno = Kyverno {
        sources: sources.clone(),
    };
    import(&parsed, &[&Gatekeeper { sources }, &in_tree, &kyverno])
}

fn notes(imported: &Imported) -> String {
    let lines: Vec<String> = imported.notes.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn constraint(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: RequiredOwner\nmetadata: {{ name: {name} }}\nspec:\n  {spec}\n"
    )
}

#[test]
fn template_with_constraint_becomes_a_plugin() {
    let constraint = constraint(
        "apps",
        "match: { kinds: [{ apiGroups: [apps], kinds: [Deployment, StatefulSet] }, { apiGroups: [''], kinds: [Pod] }] }",
    );
    let imported = run(&[
        ("template.yaml", TEMPLATE),
        ("constraint.yaml", &constraint),
    ]);
    insta::assert_snapshot!(notes(&imported), @"
    translated  constraint.yaml:1: RequiredOwner apps: a constraint of plugin requiredowner
    translated  template.yaml:2: ConstraintTemplate requiredowner: plugin requiredowner, 1 constraint(s)
    ");
    let rules = serde_json::to_string(&imported.entries[0].matching.rules).unwrap();
    insta::assert_snapshot!(rules, @r#"[{"operations":["CREATE","UPDATE"],"apiGroups":[""],"apiVersions":["*"],"resources":["pods","pods/ephemeralcontainers"]},{"operations":["CREATE","UPDATE"],"apiGroups":["apps"],"apiVersions":["*"],"resources":["deployments","statefulsets"]}]"#);
}

#[test]
fn written_configuration_keeps_every_character_of_the_rego() {
    let imported = run(&[
        ("template.yaml", TEMPLATE),
        (
            "constraint.yaml",
            &constraint("all", "parameters: { note: \"a: #b\\n\" }"),
        ),
    ]);
    let text = write(&imported.entries).unwrap();
    let read: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(read["plugins"][0]["settings"], imported.entries[0].settings);
    let config = tollgate_config::Config::parse(&text, std::path::Path::new("."));
    assert_eq!(config.unwrap().plugins.len(), 1);
}

#[test]
fn constraint_without_kinds_matches_everything() {
    let imported = run(&[("a", TEMPLATE), ("b", &constraint("all", "parameters: {}"))]);
    let rules = &imported.entries[0].matching.rules;
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0].resources, ["*", "pods/ephemeralcontainers"]);
    assert_eq!(rules[0].api_groups, ["*"]);
}

#[test]
fn kinds_of_subresources_have_rules_of_their_own() {
    let kinds =
        "match: { kinds: [{ apiGroups: ['*'], kinds: [Pod, PodExecOptions, Scale, Eviction] }] }";
    let imported = run(&[("a", TEMPLATE), ("b", &constraint("all", kinds))]);
    let rules = &imported.entries[0].matching.rules;
    let of = |group: &str, operation: &str| -> Vec<&str> {
        let rule = rules.iter().find(|rule| {
            rule.api_groups == [group] && rule.operations.iter().any(|one| one == operation)
        });
        let resources = rule.unwrap().resources.iter();
        resources.map(String::as_str).collect()
    };
    assert_eq!(of("", "CONNECT"), ["pods/exec"]);
    assert!(of("", "CREATE").contains(&"pods/eviction"));
    assert!(of("apps", "UPDATE").contains(&"deployments/scale"));
    assert!(imported.notes.iter().all(|note| !note.effect.is_loss()));
}

#[test]
fn operations_in_parameters_are_operations_of_the_rules() {
    let parameters = "parameters: { operations: [DELETE, CONNECT] }";
    let imported = run(&[("a", TEMPLATE), ("b", &constraint("all", parameters))]);
    let rules = &imported.entries[0].matching.rules;
    assert_eq!(
        rules[0].operations,
        ["CREATE", "UPDATE", "DELETE", "CONNECT"]
    );
}

#[test]
fn unknown_kind_is_named_and_matches_its_group() {
    let imported = run(&[
        ("a", TEMPLATE),
        (
            "b",
            &constraint(
                "crd",
                "match: { kinds: [{ apiGroups: [example.com], kinds: [Widget] }] }",
            ),
        ),
    ]);
    assert_eq!(imported.entries[0].matching.rules[0].resources, ["*"]);
    insta::assert_snapshot!(notes(&imported), @"
    translated  a:2: ConstraintTemplate requiredowner: plugin requiredowner, 1 constraint(s)
    translated  b:1: RequiredOwner crd: a constraint of plugin requiredowner
    differs     b:5: RequiredOwner crd: the resource of Widget is not known; the plugin is called for every resource of its group
    ");
}

#[test]
fn constraint_with_namespace_selector_is_translated() {
    let selector = "match: { namespaceSelector: { matchLabels: { team: a } } }";
    let imported = run(&[("a", TEMPLATE), ("b", &constraint("labels", selector))]);
    let constraints = &imported.entries[0].settings["constraints"];
    assert_eq!(constraints.as_array().unwrap().len(), 1);
    assert!(imported.notes.iter().all(|note| !note.effect.is_loss()));
}

/// Returns the template with CEL beside its Rego.
fn with_cel() -> String {
    let target = "    - target: admission.k8s.gatekeeper.sh\n";
    assert!(TEMPLATE.contains(target), "{TEMPLATE}");
    let code = "      code:\n        - engine: K8sNativeValidation\n          source:\n            validations:\n              - expression: request.operation != 'DELETE' || variables.params.strict\n";
    TEMPLATE.replace(target, &format!("{target}{code}"))
}

#[test]
fn cel_of_a_template_goes_before_its_rego() {
    let imported = run(&[
        ("a", &with_cel()),
        ("b", &constraint("all", "parameters: {}")),
    ]);
    let entry = &imported.entries[0];
    assert_eq!(entry.source, "file:./cel-policy.wasm");
    assert_eq!(
        entry.matching.rules[0].operations,
        ["CREATE", "UPDATE", "DELETE"]
    );
    insta::assert_snapshot!(notes(&imported), @"
    translated  a:2: ConstraintTemplate requiredowner: plugin requiredowner, 1 constraint(s), with its CEL
    translated  b:1: RequiredOwner all: a constraint of plugin requiredowner
    ");
}

#[test]
fn broken_document_is_named_and_loses_no_other() {
    let file = format!(
        "{TEMPLATE}---\nkind: [\n---\n{}",
        constraint("all", "parameters: {}")
    );
    let imported = run(&[("all.yaml", &file)]);
    assert_eq!(imported.entries.len(), 1);
    let broken: Vec<&Note> = imported
        .notes
        .iter()
        .filter(|note| note.effect == Effect::Broken)
        .collect();
    assert_eq!(broken.len(), 1);
    let line = file.lines().position(|line| line == "kind: [").unwrap() + 1;
    assert!(
        broken[0].line >= line && broken[0].line <= line + 1,
        "{}",
        broken[0]
    );
}

#[test]
fn names_what_cannot_be_expressed() {
    let documents = "\
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: { name: pull-policy }
spec:
  applyTo: [{ groups: [\"\"], kinds: [Pod], versions: [v1] }]
  location: spec.x
  parameters:
    assign:
      externalData: { provider: images }
---
apiVersion: externaldata.gatekeeper.sh/v1beta1
kind: Provider
metadata: { name: images }
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: Missing
metadata: { name: alone }
---
apiVersion: v1
kind: Pod
metadata: { name: web }
";
    insta::assert_snapshot!(notes(&run(&[("all.yaml", documents)])), @"
    cannot      all.yaml:9: Assign pull-policy: /spec/parameters/assign/externalData: external data is not supported
    cannot      all.yaml:11: Provider images: external data is not supported; use a plugin of your own
    cannot      all.yaml:15: Missing alone: its ConstraintTemplate is not among the documents
    skipped     all.yaml:19: Pod web: is no policy that can be imported
    ");
}

#[test]
fn mutators_become_one_plugin() {
    let mutator = |kind: &str, name: &str, location: &str, parameters: &str| {
        format!(
            "apiVersion: mutations.gatekeeper.sh/v1\nkind: {kind}\nmetadata: {{ name: {name} }}\nspec:\n  applyTo: [{{ groups: [''], kinds: [Pod], versions: [v1] }}]\n  location: {location}\n  parameters: {parameters}\n---\n"
        )
    };
    let value = "{ assign: { value: x } }";
    let text = [
        mutator("Assign", "policy", "spec.dnsPolicy", value),
        mutator("Assign", "one", "spec.list.x", value),
        mutator("Assign", "two", "'spec.list[name: a].x'", value),
        mutator("ModifySet", "args", "spec.args", "{ values: { fromList: [a] } }"),
        "apiVersion: mutations.gatekeeper.sh/v1\nkind: AssignMetadata\nmetadata: { name: label }\nspec:\n  match: { kinds: [{ apiGroups: [apps], kinds: [Deployment] }] }\n  location: metadata.labels.x\n  parameters: { assign: { value: z } }\n".to_owned(),
    ];
    let imported = run(&[("m.yaml", &text.concat())]);
    insta::assert_snapshot!(notes(&imported), @"
    translated  m.yaml:1: Assign policy: a mutator of plugin gatekeeper-mutators
    cannot      m.yaml:14: Assign one: conflicts with Assign two: the locations take a field for different types, and Gatekeeper applies neither
    cannot      m.yaml:22: Assign two: conflicts with Assign one: the locations take a field for different types, and Gatekeeper applies neither
    translated  m.yaml:25: ModifySet args: a mutator of plugin gatekeeper-mutators
    translated  m.yaml:33: AssignMetadata label: a mutator of plugin gatekeeper-mutators
    ");
    let [entry] = imported.entries.as_slice() else {
        panic!("{:?}", imported.entries);
    };
    assert_eq!(entry.source, "file:./cel-policy.wasm");
    assert_eq!(entry.settings["mutators"].as_array().unwrap().len(), 3);
    let rules = serde_json::to_string(&entry.matching.rules).unwrap();
    insta::assert_snapshot!(rules, @r#"[{"operations":["CREATE","UPDATE"],"apiGroups":[""],"apiVersions":["*"],"resources":["pods","pods/ephemeralcontainers"]},{"operations":["CREATE","UPDATE"],"apiGroups":["apps"],"apiVersions":["*"],"resources":["deployments"]}]"#);
}

#[test]
fn names_actions_that_differ() {
    let imported = run(&[
        ("a", TEMPLATE),
        ("b", &constraint("dry", "enforcementAction: dryrun")),
    ]);
    let text = notes(&imported);
    assert!(
        text.contains("differs     b:5: RequiredOwner dry: reports violations in the log"),
        "{text}"
    );
}

#[test]
fn constraints_whose_actions_the_plugin_refuses_are_left_out() {
    for (wrong, text) in [
        (
            "enforcementAction: ''",
            "got \"\", expected deny, warn, dryrun, scoped",
        ),
        ("enforcementAction: deney", "got \"deney\""),
        (
            "enforcementAction: scoped",
            "a list of actions in scopedEnforcementActions",
        ),
        (
            "enforcementAction: scoped\n  scopedEnforcementActions: [{ action: deney, enforcementPoints: [{ name: '*' }] }]",
            "each deny, warn, dryrun",
        ),
    ] {
        let imported = run(&[
            ("a", TEMPLATE),
            ("b", &constraint("wrong", wrong)),
            ("c", &constraint("right", "enforcementAction: warn")),
        ]);
        let said = notes(&imported);
        assert!(
            said.contains("cannot      b:5: RequiredOwner wrong: "),
            "{said}"
        );
        assert!(said.contains(text), "{said}");
        let [entry] = imported.entries.as_slice() else {
            panic!("{:?}", imported.entries);
        };
        let constraints = entry.settings["constraints"].as_array().unwrap();
        assert_eq!(constraints.len(), 1);
        assert_eq!(constraints[0]["metadata"]["name"], "right");
    }
}

#[test]
fn names_scoped_actions_for_other_points_than_the_webhook() {
    let scoped = "enforcementAction: scoped
  scopedEnforcementActions:
    - action: deny
      enforcementPoints:
        - name: validation.gatekeeper.sh
        - name: audit.gatekeeper.sh
    - action: warn
      enforcementPoints:
        - name: audit.gatekeeper.sh
        - name: gator.gatekeeper.sh";
    let imported = run(&[("a", TEMPLATE), ("b", &constraint("scoped", scoped))]);
    insta::assert_snapshot!(notes(&imported), @"
    translated  a:2: ConstraintTemplate requiredowner: plugin requiredowner, 1 constraint(s)
    translated  b:1: RequiredOwner scoped: a constraint of plugin requiredowner
    differs     b:10: RequiredOwner scoped: the action deny for audit.gatekeeper.sh has no effect: the plugin takes the actions for validation.gatekeeper.sh and *
    differs     b:13: RequiredOwner scoped: the action warn for audit.gatekeeper.sh has no effect: the plugin takes the actions for validation.gatekeeper.sh and *
    differs     b:14: RequiredOwner scoped: the action warn for gator.gatekeeper.sh has no effect: the plugin takes the actions for validation.gatekeeper.sh and *
    ");
}

#[test]
fn names_constraint_that_no_action_enforces() {
    let scoped = |point: &str| {
        format!(
            "enforcementAction: scoped\n  scopedEnforcementActions: [{{ action: deny, enforcementPoints: [{{ name: '{point}' }}] }}]"
        )
    };
    let of = |point: &str| {
        notes(&run(&[
            ("a", TEMPLATE),
            ("b", &constraint("scoped", &scoped(point))),
        ]))
    };
    let ignored = "differs     b:5: RequiredOwner scoped: no action is for validation.gatekeeper.sh, so the plugin ignores";
    let text = of("audit.gatekeeper.sh");
    assert!(text.contains(ignored), "{text}");
    let other = "differs     b:6: RequiredOwner scoped: the action deny for audit.gatekeeper.sh has no effect";
    assert!(text.contains(other), "{text}");
    for point in ["validation.gatekeeper.sh", "*"] {
        let text = of(point);
        assert!(!text.contains("differs"), "{text}");
    }
}

#[test]
fn items_of_a_list_are_documents() {
    let list =
        "apiVersion: v1\nkind: List\nitems:\n- { kind: A, metadata: { name: a } }\n- { kind: B }\n";
    let imported = run(&[("list.yaml", list)]);
    assert_eq!(imported.notes.len(), 2);
    assert_eq!(imported.notes[0].subject, "A a");
    assert_eq!([imported.notes[0].line, imported.notes[1].line], [4, 5]);
}

#[test]
fn quoted_text_may_be_indented_like_its_key() {
    let text = "kind: A\nmetadata:\n  name: \"a\n  b\"\n";
    let mut parsed = Parsed::default();
    parse("a.yaml", text, &mut parsed);
    assert!(parsed.broken.is_empty(), "{:?}", parsed.broken);
    assert_eq!(parsed.documents[0].name(), "a b");
}

const POLICY: &str = r#"apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: { name: replica-limit }
spec:
  paramKind: { apiVersion: rules.example.com/v1, kind: ReplicaLimit }
  matchConstraints:
    resourceRules:
      - { apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments], scope: Namespaced }
  validations:
    - expression: object.spec.replicas <= params.maxReplicas
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: { name: everywhere }
spec:
  policyName: replica-limit
  paramRef: { name: five, parameterNotFoundAction: Deny }
  validationActions: [Deny]
---
apiVersion: rules.example.com/v1
kind: ReplicaLimit
metadata: { name: five }
maxReplicas: 5
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: { name: of-another }
spec: { policyName: missing, validationActions: [Deny] }
"#;

#[test]
fn translates_policies_of_kubernetes_with_bindings_and_parameters() {
    let imported = run(&[("policies.yaml", POLICY)]);
    let [entry] = imported.entries.as_slice() else {
        panic!("one policy is one plugin: {:?}", imported.entries);
    };
    assert_eq!(entry.name, "replica-limit");
    assert_eq!(entry.source, "file:./cel-policy.wasm");
    assert_eq!(entry.matching.rules[0].scope.as_deref(), Some("Namespaced"));
    assert_eq!(entry.settings["params"][0]["maxReplicas"], 5);
    let effects: Vec<Effect> = imported.notes.iter().map(|note| note.effect).collect();
    let expected = [
        Effect::Differs,
        Effect::Translated,
        Effect::Translated,
        Effect::Impossible,
    ];
    assert_eq!(effects, expected, "{}", notes(&imported));
}

#[test]
fn policy_that_asks_about_rights_gets_the_grant() {
    let written = |expression: &str| {
        let version = "admissionregistration.k8s.io/v1";
        let rules =
            "[{ apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods] }]";
        let policy = format!(
            "apiVersion: {version}\nkind: ValidatingAdmissionPolicy\nmetadata: {{ name: a }}\nspec:\n  matchConstraints: {{ \
             resourceRules: {rules} }}\n  validations: [{{ expression: \"{expression}\" }}]\n"
        );
        let binding = format!(
            "apiVersion: {version}\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {{ name: a }}\nspec: {{ policyName: \
             a, validationActions: [Deny] }}\n"
        );
        let imported = run(&[("a", &policy), ("b", &binding)]);
        let text = write(&imported.entries).unwrap();
        let config = tollgate_config::Config::parse(&text, std::path::Path::new("."));
        let plugin = config.unwrap().plugins.remove(0);
        let is_granted = plugin
            .capabilities
            .contains(&tollgate_config::Capability::Access);
        (is_granted, plugin.access.service_accounts)
    };
    let of_user = "authorizer.requestResource.check('delete').allowed()";
    let of_account = "authorizer.serviceAccount('a', 'b').path('/').check('get').allowed()";
    assert_eq!(written(of_user), (true, false));
    assert_eq!(written(of_account), (true, true));
    assert_eq!(
        written("object.metadata.name != 'authorizer'"),
        (false, false)
    );
}
