//! Tests of the union of rules, as tables, and of the printed configurations.

use std::path::Path;

use insta::assert_snapshot;
use tollgate_config::{Config, PluginConfig};

use super::*;

mod templates;
mod tenants;

fn config(plugins: &str) -> Config {
    match Config::parse(&format!("plugins:\n{plugins}"), Path::new("/etc/tollgate")) {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

/// Creates a participant. Its name says whether it mutates or validates. If the name says neither, it does both.
pub(crate) fn participant(plugin: &PluginConfig) -> Participant<'_> {
    let name = plugin.name.as_str();
    Participant {
        name,
        mutates: !name.contains("check"),
        validates: !name.contains("change"),
        matching: plugin.matching.as_ref().expect("the test names rules"),
        mode: plugin.mode,
        failure_policy: plugin.failure_policy,
        reinvocation_policy: plugin.reinvocation_policy,
        existing_violations: plugin.existing_violations,
        timeout: plugin.limits.timeout,
    }
}

pub(crate) fn registration() -> Registration {
    Registration {
        name: "tollgate".to_owned(),
        address: Address::Service {
            namespace: "tollgate-system".to_owned(),
            name: "tollgate".to_owned(),
            port: 443,
        },
        ca_bundle: Some(b"PEM".to_vec()),
        per_plugin: false,
        timeout_seconds: None,
        reinvocation_policy: None,
        excluded_namespaces: ["kube-node-lease", "kube-system", "tollgate-system"]
            .map(str::to_owned)
            .into(),
        break_glass_groups: [BREAK_GLASS_GROUP.to_owned()].into(),
        margin: Margin {
            percent: 10,
            at_least: Duration::from_millis(50),
        },
    }
}

fn printed(registration: &Registration, plugins: &str) -> String {
    let config = config(plugins);
    let participants: Vec<_> = config.plugins.iter().map(participant).collect();
    let documents: Vec<Webhooks> = [Endpoint::Mutate, Endpoint::Validate]
        .into_iter()
        .filter_map(|endpoint| {
            registration
                .webhooks(endpoint, &participants)
                .unwrap_or_else(|error| panic!("{error}"))
        })
        .collect();
    Webhooks::to_yaml(&documents).expect("printable")
}

fn refusal(registration: &Registration, plugins: &str) -> String {
    let config = config(plugins);
    let participants: Vec<_> = config.plugins.iter().map(participant).collect();
    [Endpoint::Mutate, Endpoint::Validate]
        .into_iter()
        .find_map(|endpoint| registration.webhooks(endpoint, &participants).err())
        .expect("refused")
        .to_string()
}

fn rule(operations: &str, groups: &str, versions: &str, resources: &str, scope: &str) -> String {
    format!(
        "{{operations: [{operations}], apiGroups: [{groups}], apiVersions: [{versions}], resources: [{resources}], scope: {scope}}}"
    )
}

/// Returns the union of rules in the short form `operations groups versions resources scope`, quoted as in YAML.
fn union(rules: &[[&str; 5]]) -> Vec<String> {
    let rules: Vec<String> = rules
        .iter()
        .map(|[operations, groups, versions, resources, scope]| {
            rule(operations, groups, versions, resources, scope)
        })
        .collect();
    let config = config(&format!(
        "- {{name: a, source: 'file:a', match: {{rules: [{}]}}}}",
        rules.join(", ")
    ));
    let matching = config.plugins[0].matching.as_ref().expect("rules");
    let one = |rule: &rules::RegisteredRule| {
        let value = serde_json::to_value(rule).expect("JSON");
        let list = |key: &str| {
            let names = value[key].as_array().expect("a list").iter();
            let names: Vec<_> = names
                .map(|name| match name.as_str().expect("text") {
                    "" => "core",
                    name => name,
                })
                .collect();
            names.join(",")
        };
        format!(
            "{} {} {} {} {}",
            list("operations"),
            list("apiGroups"),
            list("apiVersions"),
            list("resources"),
            value["scope"].as_str().expect("text")
        )
    };
    rules::union(matching.rules().iter())
        .iter()
        .map(one)
        .collect()
}

const ALL: &str = "\"*\"";

#[test]
fn joins_rules_that_differ_in_one_set() {
    for (second, expected) in [
        (
            ["UPDATE", "apps", "v1", "deployments", ALL],
            "CREATE,UPDATE apps v1 deployments *",
        ),
        (
            ["CREATE", "extensions", "v1", "deployments", ALL],
            "CREATE apps,extensions v1 deployments *",
        ),
        (
            ["CREATE", "apps", "v1beta1", "deployments", ALL],
            "CREATE apps v1,v1beta1 deployments *",
        ),
        (
            ["CREATE", "apps", "v1", "daemonsets", ALL],
            "CREATE apps v1 daemonsets,deployments *",
        ),
        (
            ["CREATE", "apps", "v1", "deployments", ALL],
            "CREATE apps v1 deployments *",
        ),
    ] {
        let first = ["CREATE", "apps", "v1", "deployments", ALL];
        assert_eq!(union(&[first, second]), [expected]);
        assert_eq!(union(&[second, first]), [expected]);
    }
    assert_eq!(
        union(&[
            ["CREATE", "\"\"", "v1", "pods", "Namespaced"],
            ["CREATE", "\"\"", "v1", "pods", "Cluster"]
        ]),
        ["CREATE core v1 pods *"]
    );
    assert_eq!(
        union(&[
            ["CREATE, UPDATE", "\"\"", "v1", "pods", ALL],
            ["DELETE, CONNECT", "\"\"", "v1", "pods", ALL]
        ]),
        ["* core v1 pods *"]
    );
}

#[test]
fn keeps_rules_apart_if_joined_rule_matches_more() {
    for rules in [
        [
            ["CREATE", "\"\"", "v1", "pods", ALL],
            ["UPDATE", "apps", "v1", "pods", ALL],
        ],
        [
            ["CREATE", "\"\"", "v1", "pods", ALL],
            ["CREATE", "apps", "v1", "deployments", ALL],
        ],
        [
            ["CREATE, UPDATE", "apps", "v1", "deployments", ALL],
            ["UPDATE, DELETE", "apps", "v1", "daemonsets", ALL],
        ],
        [
            ["CREATE", "\"\"", "v1", "namespaces", "Cluster"],
            ["CREATE", "\"\"", "v1", "pods", "Namespaced"],
        ],
    ] {
        assert_eq!(union(&rules).len(), 2, "{rules:?}");
    }
}

#[test]
fn drops_rules_that_another_rule_covers() {
    for (wide, narrow) in [
        (
            [ALL, ALL, ALL, "\"*/*\"", ALL],
            ["CREATE", "apps", "v1", "deployments/scale", "Namespaced"],
        ),
        (
            ["CREATE", "\"\"", "v1", "pods/*", ALL],
            ["CREATE", "\"\"", "v1", "pods", ALL],
        ),
        (
            ["CREATE", "\"\"", "v1", "pods/*", ALL],
            ["CREATE", "\"\"", "v1", "pods/status", "Namespaced"],
        ),
        (
            ["CREATE", "apps", "v1", "\"*/scale\"", ALL],
            ["CREATE", "apps", "v1", "deployments/scale", ALL],
        ),
        (
            ["CREATE", "apps", "v1", ALL, ALL],
            ["CREATE", "apps", "v1", "deployments", ALL],
        ),
        (
            ["CREATE, DELETE", ALL, "v1", "pods", ALL],
            ["DELETE", "\"\"", "v1", "pods", "Namespaced"],
        ),
    ] {
        let alone = union(&[wide]);
        assert_eq!(union(&[wide, narrow]), alone);
        assert_eq!(union(&[narrow, wide]), alone);
    }
    // A wildcard for resources does not cover subresources.
    let all_resources = ["CREATE", "apps", "v1", ALL, ALL];
    let scale = ["CREATE", "apps", "v1", "deployments/scale", ALL];
    assert_eq!(
        union(&[all_resources, scale]),
        ["CREATE apps v1 *,deployments/scale *"]
    );
}

#[test]
fn removes_overlap_with_other_rules() {
    assert_eq!(
        union(&[
            ["CREATE, UPDATE", "\"\"", "v1", "pods", ALL],
            [
                "UPDATE, DELETE",
                "\"\"",
                "v1",
                "pods, pods/status",
                "Namespaced"
            ],
        ]),
        [
            "CREATE,UPDATE core v1 pods *",
            "UPDATE,DELETE core v1 pods,pods/status Namespaced"
        ]
    );
    assert_eq!(
        union(&[
            ["CREATE, UPDATE", "\"\"", "v1", "pods", ALL],
            ["UPDATE", "\"\"", "v1", "pods, pods/status", "Namespaced"],
        ]),
        [
            "CREATE,UPDATE core v1 pods *",
            "UPDATE core v1 pods/status Namespaced"
        ]
    );
}

#[test]
fn joins_rules_until_none_can_be_joined() {
    assert_eq!(
        union(&[
            ["CREATE", "apps", "v1", "deployments", ALL],
            ["UPDATE", "apps", "v1", "daemonsets", ALL],
            ["CREATE", "apps", "v1", "daemonsets", ALL],
            ["UPDATE", "apps", "v1", "deployments", ALL],
            ["CREATE", "\"\"", "v1", "pods", ALL],
        ]),
        [
            "CREATE,UPDATE apps v1 daemonsets,deployments *",
            "CREATE core v1 pods *"
        ]
    );
}

/// Checks that the union of two rules matches exactly what the two rules match. The test tries every set of two rules
/// with every request of a small world.
#[test]
fn joined_rules_match_the_same_requests() {
    let sets = [
        ["CREATE", "apps", "v1", "pods", "Namespaced"],
        ["CREATE, UPDATE", "apps", ALL, "pods/*", ALL],
        ["UPDATE", ALL, "v1", ALL, "Cluster"],
        ["DELETE", "apps", "v1", "\"*/status\"", ALL],
        ["CREATE", "\"\"", "v1", "\"*/*\"", "Namespaced"],
        ["CREATE", "apps", "v1", "pods/status", ALL],
    ];
    let has = |list: &str, name: &str| {
        let name = if name.is_empty() { "core" } else { name };
        list == "*" || list.split(',').any(|one| one == name)
    };
    let matches = |rules: &[String], request: [&str; 6]| {
        let [operation, group, version, resource, sub_resource, scope] = request;
        rules.iter().any(|rule| {
            let parts: Vec<&str> = rule.split(' ').collect();
            let of_resource = parts[3].split(',').any(|pattern| {
                let (one, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
                (one == "*" || one == resource) && (sub == "*" || sub == sub_resource)
            });
            has(parts[0], operation)
                && has(parts[1], group)
                && has(parts[2], version)
                && of_resource
                && (parts[4] == "*" || parts[4] == scope)
        })
    };
    for first in &sets {
        for second in &sets {
            let apart = [union(&[*first]), union(&[*second])].concat();
            let together = union(&[*first, *second]);
            for operation in ["CREATE", "UPDATE", "DELETE", "CONNECT"] {
                for group in ["apps", "", "batch"] {
                    for version in ["v1", "v2"] {
                        for resource in ["pods", "jobs"] {
                            for sub_resource in ["", "status", "scale"] {
                                for scope in ["Cluster", "Namespaced"] {
                                    let request =
                                        [operation, group, version, resource, sub_resource, scope];
                                    assert_eq!(
                                        matches(&together, request),
                                        matches(&apart, request),
                                        "{request:?} {first:?} {second:?}: {together:?}"
                                    );
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

const PLUGINS: &str = r#"
- name: images-change
  source: file:a.wasm
  failurePolicy: Ignore
  match:
    rules: [{ operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods] }]
    excludeNamespaces: [legacy, shop]
- name: labels-check
  source: file:b.wasm
  match:
    rules:
      - { operations: [CREATE, UPDATE], apiGroups: [apps], apiVersions: ["*"], resources: [deployments, daemonsets] }
      - { operations: [UPDATE], apiGroups: [""], apiVersions: [v1], resources: [pods, pods/ephemeralcontainers] }
    namespaces: [bank]
- name: both
  source: file:c.wasm
  mode: warn
  limits: { timeout: 6s }
  match:
    rules: [{ operations: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [pods] }]
    excludeNamespaces: [legacy]
"#;

#[test]
fn prints_one_webhook_for_all_plugins_of_an_endpoint() {
    assert_snapshot!(printed(&registration(), PLUGINS));
}

#[test]
fn prints_one_webhook_for_each_plugin() {
    let registration = Registration {
        per_plugin: true,
        address: Address::Url("https://gate.example.com:8443/".to_owned()),
        ca_bundle: None,
        reinvocation_policy: Some(ReinvocationPolicy::IfNeeded),
        timeout_seconds: Some(10),
        excluded_namespaces: BTreeSet::new(),
        ..registration()
    };
    assert_snapshot!(printed(&registration, PLUGINS));
}

#[test]
fn webhook_of_one_plugin_has_its_selector_and_conditions() {
    let rules = rule("CREATE", "\"\"", "v1", "pods", ALL);
    let selector = "{matchLabels: {stage: prod}, matchExpressions: [{key: app, operator: Exists}, \
                    {key: tier, operator: NotIn, values: [lab, test]}]}";
    let condition = "{name: has-a-node, expression: has(object.spec.nodeName)}";
    let plugins = format!(
        "- {{name: a-check, source: 'file:a', match: {{rules: [{rules}], objectSelector: {selector}, \
         matchConditions: [{condition}]}}}}\n- {{name: b-check, source: 'file:a', match: {{rules: [{rules}], \
         objectSelector: {{}}}}}}"
    );
    let apart = Registration {
        per_plugin: true,
        ..registration()
    };
    let text = printed(&apart, &plugins);
    let (_, first) = text.split_once("  objectSelector:\n").expect("a selector");
    let (first, second) = first
        .split_once("- name: b-check")
        .expect("another webhook");
    assert_snapshot!(first, @r#"
      matchExpressions:
      - key: stage
        operator: In
        values:
        - prod
      - key: app
        operator: Exists
      - key: tier
        operator: NotIn
        values:
        - lab
        - test
    matchConditions:
    - name: exclude-break-glass
      expression: "!has(request.userInfo.groups) || !('tollgate:break-glass' in request.userInfo.groups)"
    - name: a-check/has-a-node
      expression: has(object.spec.nodeName)
    sideEffects: None
    timeoutSeconds: 5
    admissionReviewVersions:
    - v1
    - v1beta1
    "#);
    // A selector that matches everything is left out.
    assert!(!second.contains("objectSelector"), "{second}");
    assert!(!second.contains("b-check/"), "{second}");
    // One plugin's exclusions must not apply to the other plugins of a shared webhook.
    let text = printed(&registration(), &plugins);
    assert!(!text.contains("objectSelector"), "{text}");
    assert!(!text.contains("a-check/has-a-node"), "{text}");

    // kube-apiserver may see another version of the resource there than the host.
    let resource = "{name: of-pods, expression: request.resource.version == 'v1'}, {name: b, expression: 'true'}";
    let text = printed(&apart, &plugins.replace(condition, resource));
    assert!(!text.contains("a-check/of-pods"), "{text}");
    assert!(text.contains("a-check/b"), "{text}");

    // If there are more conditions than kube-apiserver accepts, only the host evaluates them.
    let many: Vec<String> = (0..MOST_CONDITIONS)
        .map(|index| format!("{{name: c{index}, expression: 'true'}}"))
        .collect();
    let many = plugins.replace(condition, &many.join(", "));
    let text = printed(&apart, &many);
    assert!(!text.contains("a-check/c"), "{text}");
    assert_eq!(
        text.matches("name: exclude-break-glass").count(),
        2,
        "{text}"
    );
}

#[test]
fn excludes_vital_resources_that_rules_could_match() {
    let everything = rule(ALL, ALL, ALL, "\"*/*\"", ALL);
    let plugins = format!("- {{name: check, source: 'file:a', match: {{rules: [{everything}]}}}}");
    let registration = Registration {
        break_glass_groups: ["system:masters".to_owned(), "oncall".to_owned()].into(),
        ..registration()
    };
    assert_snapshot!(printed(&registration, &plugins));
    let leases = rule("UPDATE", "coordination.k8s.io", "v1", "leases", ALL);
    let plugins = format!("- {{name: check, source: 'file:a', match: {{rules: [{leases}]}}}}");
    let registration = Registration {
        break_glass_groups: BTreeSet::new(),
        ..registration
    };
    let text = printed(&registration, &plugins);
    assert_eq!(text.matches("name: exclude-").count(), 1, "{text}");
    assert!(text.contains("name: exclude-leases"), "{text}");
}

/// Returns the list in `exclude-nodes` of each webhook that has this condition.
fn excluded_for_nodes(registration: &Registration, plugins: &str) -> Vec<String> {
    let before = "expression: request.operation == 'CONNECT' || !(request.resource.group + '/' + \
                  request.resource.resource in [";
    let text = printed(registration, plugins);
    let lists = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix(before)?.strip_suffix("])"));
    lists.map(|list| list.replace('\'', "")).collect()
}

fn lockouts(registration: &Registration, plugins: &str) -> Vec<String> {
    let config = config(plugins);
    let participants: Vec<_> = config.plugins.iter().map(participant).collect();
    let lockouts = registration.lockouts(Endpoint::Validate, &participants);
    lockouts.iter().map(ToString::to_string).collect()
}

const FOR_NODES: &str = "/nodes, certificates.k8s.io/certificatesigningrequests, \
                         storage.k8s.io/csinodes, storage.k8s.io/volumeattachments";

#[test]
fn excludes_resources_of_nodes_unless_rules_name_them() {
    let others =
        "/nodes, certificates.k8s.io/certificatesigningrequests, storage.k8s.io/volumeattachments";
    for (rules, of_another, excluded, named) in [
        // Only wildcards match the resources.
        ("* * *", "core v1 pods", FOR_NODES, ""),
        ("* * */*", "* * *", FOR_NODES, ""),
        ("* * */status", "core v1 pods", FOR_NODES, ""),
        ("core v1 *", "core v1 pods", "/nodes", ""),
        (
            "storage.k8s.io v1 *",
            "core v1 pods",
            "storage.k8s.io/csinodes, storage.k8s.io/volumeattachments",
            "",
        ),
        // No rule matches them.
        ("apps v1 *", "core v1 pods", "", ""),
        ("apps v1 nodes", "core v1 nodes/proxy", "", ""),
        // A rule names one of them.
        ("core v1 nodes", "core v1 pods", "", "nodes"),
        ("core v1 nodes/status", "core v1 pods", "", "nodes"),
        ("core v1 nodes/*", "core v1 pods", "", "nodes"),
        ("* * nodes", "core v1 pods", "", "nodes"),
        (
            "certificates.k8s.io v1 certificatesigningrequests/approval",
            "core v1 *",
            "/nodes",
            "certificatesigningrequests.certificates.k8s.io",
        ),
        // One plugin names a resource, and the other plugin has a wildcard.
        ("core v1 nodes", "core v1 *", "", "nodes"),
        ("core v1 nodes/status", "core v1 */*", "", "nodes"),
        (
            "storage.k8s.io * csinodes",
            "* * *",
            others,
            "csinodes.storage.k8s.io",
        ),
        // The operation of this subresource is CONNECT, which is not excluded.
        ("core v1 nodes/proxy", "core v1 *", "/nodes", ""),
        ("apps v1 nodes", "core v1 *", "/nodes", ""),
    ] {
        let plugins = [validator("a", rules), validator("b", of_another)].concat();
        let lists = excluded_for_nodes(&registration(), &plugins);
        assert_eq!(lists.join("; "), excluded, "{rules} with {of_another}");
        let warnings = lockouts(&registration(), &plugins).join("; ");
        if named.is_empty() {
            assert_eq!(warnings, "", "{rules} with {of_another}");
        } else {
            let named = format!("nodes need: {named} (named in the rules of a-check);");
            assert!(
                warnings.contains(&named),
                "{rules} with {of_another}: {warnings}"
            );
        }
    }
}

#[test]
fn keeps_connections_and_namespaced_objects_in_wildcard_rules() {
    for (operations, resources, scope) in [
        ("CONNECT", "\"*/*\"", ALL),
        (ALL, "\"*/proxy\"", ALL),
        (ALL, ALL, "Namespaced"),
        (ALL, "nodes", "Namespaced"),
        ("CONNECT", "nodes/*", ALL),
    ] {
        let rule = rule(operations, ALL, ALL, resources, scope);
        let plugins = format!("- {{name: check, source: 'file:a', match: {{rules: [{rule}]}}}}");
        let lists = excluded_for_nodes(&registration(), &plugins);
        assert!(lists.is_empty(), "{rule}: {lists:?}");
        let warnings = lockouts(&registration(), &plugins);
        assert!(warnings.is_empty(), "{rule}: {warnings:?}");
    }
}

#[test]
fn warns_for_each_webhook_that_can_lock_out_nodes() {
    let names = validator("a", "core v1 nodes");
    let plugins = [
        names.clone(),
        validator("b", "core v1 nodes,pods; storage.k8s.io v1 csinodes"),
        validator("c", "* * *"),
    ]
    .concat();
    // The rule for one version of CSINodes is hidden by the wildcard, so each plugin gets its own webhook.
    assert_eq!(lockouts(&registration(), &plugins).len(), 2);
    let plugins = plugins.replace("'v1'", "'*'");
    let warnings = lockouts(&registration(), &plugins);
    assert_snapshot!(warnings.join("\n"), @"a validating webhook under failurePolicy Fail is registered for resources that nodes need: nodes (named in the rules of a-check, b-check), csinodes.storage.k8s.io (named in the rules of b-check); while no replica answers, kube-apiserver denies changes to them, so nodes cannot join the cluster or attach volumes; remove them from the rules unless a plugin must review them");

    // In its own webhook, the plugin with the wildcard does not get the resources that others name.
    let apart = Registration {
        per_plugin: true,
        ..registration()
    };
    let plugins = [names.clone(), validator("c", "* * *")].concat();
    assert_eq!(excluded_for_nodes(&apart, &plugins), [FOR_NODES]);
    assert_eq!(lockouts(&apart, &plugins).len(), 1);

    // Under Ignore, the requests pass while no replica answers. One plugin under Fail is enough to deny them.
    let ignoring = |plugin: &str| plugin.replace("source:", "failurePolicy: Ignore, source:");
    assert!(lockouts(&registration(), &ignoring(&plugins)).is_empty());
    let one_fails = [ignoring(&names), validator("c", "* * *")].concat();
    assert_eq!(lockouts(&registration(), &one_fails).len(), 1);
    assert!(lockouts(&apart, &one_fails).is_empty());
}

fn slow(plugins: &[(&str, &str)]) -> String {
    let rules = rule("CREATE", "\"\"", "v1", "pods", ALL);
    let one = |(name, timeout): &(&str, &str)| {
        format!(
            "- {{name: {name}, source: 'file:a', limits: {{timeout: {timeout}}}, match: {{rules: [{rules}]}}}}"
        )
    };
    let all: Vec<String> = plugins.iter().map(one).collect();
    all.join("\n")
}

#[test]
fn rejects_chains_slower_than_kube_apiserver_waits() {
    let three = slow(&[
        ("a-change", "10s"),
        ("b-change", "10s"),
        ("c-change", "7500ms"),
    ]);
    assert_snapshot!(refusal(&registration(), &three), @"the mutating plugins, called in sequence, may take 27500ms (a-change 10s + b-change 10s + c-change 7500ms), but of the 30 s that kube-apiserver waits (the most that Kubernetes allows) only 27s are left after requests.deadlineMargin: lower limits.timeout so that the sum is at most 27s, or give each plugin its own webhook with --per-plugin");
    let long = slow(&[("a-check", "28s"), ("b-check", "1s")]);
    assert_snapshot!(refusal(&registration(), &long), @"the validating plugins, called in parallel, may take 28s (a-check 28s, b-check 1s), but of the 30 s that kube-apiserver waits (the most that Kubernetes allows) only 27s are left after requests.deadlineMargin: lower limits.timeout to at most 27s");
    let short = Registration {
        timeout_seconds: Some(2),
        ..registration()
    };
    let two = slow(&[("a-change", "1s"), ("b-change", "1s")]);
    assert_snapshot!(refusal(&short, &two), @"the mutating plugins, called in sequence, may take 2s (a-change 1s + b-change 1s), but of the 2 s that kube-apiserver waits (--timeout-seconds) only 1800ms are left after requests.deadlineMargin: set --timeout-seconds 3, or lower limits.timeout");
}

#[test]
fn timeout_covers_every_possible_call() {
    let again = slow(&[("a-change", "4s"), ("b-change", "4s")]).replacen(
        "source:",
        "reinvocationPolicy: IfNeeded, source:",
        1,
    );
    let text = printed(&registration(), &again);
    assert!(text.contains("timeoutSeconds: 18\n"), "{text}");
    assert!(text.contains("reinvocationPolicy: IfNeeded\n"), "{text}");
    let once = Registration {
        reinvocation_policy: Some(ReinvocationPolicy::Never),
        ..registration()
    };
    assert!(printed(&once, &again).contains("reinvocationPolicy: Never\n"));
    let too_often = again.replace("4s", "7s");
    assert!(
        refusal(&registration(), &too_often)
            .contains("may take 28s (a-change 3 × 7s + b-change 7s)")
    );
    // In its own webhook, no other plugin changes the object afterwards.
    let apart = Registration {
        per_plugin: true,
        ..registration()
    };
    assert!(printed(&apart, &too_often).contains("timeoutSeconds: 8\n"));
    let twice = slow(&[("a-check", "4s"), ("b-check", "5s")]).replacen(
        "source:",
        "existingViolations: allow, source:",
        1,
    );
    assert!(printed(&registration(), &twice).contains("timeoutSeconds: 9\n"));
}

#[test]
fn chooses_smallest_sufficient_timeout_without_audits() {
    let seconds = |plugins: &[(&str, &str)]| {
        let text = printed(&registration(), &slow(plugins));
        let lines = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("timeoutSeconds: "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        seconds(&[("a-change", "500ms"), ("b-change", "500ms")]),
        ["5"]
    );
    assert_eq!(seconds(&[("a-change", "9s"), ("b-change", "9s")]), ["20"]);
    assert_eq!(seconds(&[("a-check", "9s"), ("b-check", "9s")]), ["10"]);
    assert_eq!(seconds(&[("both", "27s")]), ["30", "30"]);
    let audit = slow(&[("a-change", "20s"), ("b-change", "20s")]).replacen(
        "source:",
        "mode: audit, source:",
        1,
    );
    assert!(printed(&registration(), &audit).contains("timeoutSeconds: 23\n"));
}

/// Writes a plugin with rules in the short form `groups versions resources`, with `core` for the core group.
fn validator(name: &str, rules: &str) -> String {
    let one = |rule: &str| {
        let lists: Vec<String> = rule
            .split(' ')
            .map(|list| {
                let names = list.split(',').map(|name| match name {
                    "core" => "''".to_owned(),
                    name => format!("'{name}'"),
                });
                names.collect::<Vec<_>>().join(", ")
            })
            .collect();
        let [groups, versions, resources] = &lists[..] else {
            panic!("{rule}")
        };
        rule_of("CREATE, UPDATE", groups, versions, resources)
    };
    let rules: Vec<String> = rules.split("; ").map(one).collect();
    format!(
        "- {{name: {name}-check, source: 'file:a', match: {{rules: [{}]}}}}\n",
        rules.join(", ")
    )
}

fn rule_of(operations: &str, groups: &str, versions: &str, resources: &str) -> String {
    rule(operations, groups, versions, resources, ALL)
}

fn hiding(plugins: &str) -> Option<String> {
    let config = config(plugins);
    let participants: Vec<_> = config.plugins.iter().map(participant).collect();
    let hiding = registration().hiding(Endpoint::Validate, &participants);
    hiding.map(|hiding| hiding.to_string())
}

#[test]
fn detects_plugins_hidden_by_rules_of_another() {
    for (plugin, other, expected) in [
        ("autoscaling v2 hpas", "* * *", Some("hpas.autoscaling")),
        (
            "autoscaling v2 hpas",
            "autoscaling v1 hpas",
            Some("hpas.autoscaling"),
        ),
        (
            "autoscaling v2 hpas",
            "autoscaling v1,v2 *",
            Some("hpas.autoscaling"),
        ),
        ("* v2 *", "autoscaling v1 hpas", Some("hpas.autoscaling")),
        ("* v1 *", "* * *", Some("*")),
        (
            "apps v1 deployments/scale",
            "apps * */scale",
            Some("deployments.apps/scale"),
        ),
        ("autoscaling v2 hpas", "autoscaling v2 *", None),
        ("autoscaling v2 hpas", "autoscaling v1 other", None),
        ("autoscaling v2 hpas", "autoscaling v1 hpas/status", None),
        ("autoscaling v2 hpas", "apps,batch * *", None),
        ("autoscaling * hpas", "* * */*", None),
        // An object that another rule of the same plugin matches directly is not hidden.
        (
            "autoscaling v2 hpas; autoscaling v1 *",
            "autoscaling v1,v2 hpas",
            None,
        ),
        // The core group has only one version.
        ("core v1 pods", "* * */*", None),
        ("core v1 pods,pods/status", "core * */*", None),
        ("core v2 pods", "* * */*", None),
        // Events are in two groups.
        ("core v1 events", "* * */*", Some("events.events.k8s.io")),
        (
            "core v1 *",
            "events.k8s.io v1 events",
            Some("events.events.k8s.io"),
        ),
        ("events.k8s.io v1 events", "core v1 *", Some("events")),
        ("core,events.k8s.io v1 events", "core v1 *", None),
        ("core v1 pods", "events.k8s.io v1 *", None),
    ] {
        let plugins = [validator("a", plugin), validator("b", other)].concat();
        let found = hiding(&plugins);
        let hides_a = found
            .as_ref()
            .filter(|text| text.contains("in a shared webhook, a-check would"));
        match expected {
            None => assert_eq!(hides_a, None, "{plugin} with {other}"),
            Some(resource) => {
                let named = format!("a-check would not be called for {resource} in every version");
                assert!(
                    hides_a.is_some_and(|text| text.contains(&named)),
                    "{plugin} with {other}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn rules_for_other_operations_or_scopes_hide_nothing() {
    let plugin = |name: &str, operations: &str, versions: &str, scope: &str| {
        format!(
            "- {{name: {name}-check, source: 'file:a', match: {{rules: [{}]}}}}\n",
            rule(operations, "autoscaling", versions, "hpas", scope)
        )
    };
    for (operations, scope, expected) in [
        ("UPDATE, DELETE", "Namespaced", true),
        ("DELETE", "Namespaced", false),
        ("UPDATE", "Cluster", false),
    ] {
        let plugins = [
            plugin("a", "CREATE, UPDATE", "v2", "Namespaced"),
            plugin("b", operations, "v1, v2", scope),
        ];
        assert_eq!(
            hiding(&plugins.concat()).is_some(),
            expected,
            "{operations} {scope}"
        );
    }
}

#[test]
fn separates_webhooks_if_a_shared_one_hides_a_plugin() {
    let hpa = validator("hpa-limit", "autoscaling v2 horizontalpodautoscalers");
    let labels = validator("labels", "* * *");
    let pods = validator("pods", "core v1 pods");
    let events = validator("events", "core v1 events");
    let plugins = [hpa.clone(), labels.clone(), pods.clone(), events].concat();
    let text = printed(&registration(), &plugins);
    let paths: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("path: "))
        .collect();
    assert_eq!(
        paths,
        ["hpa-limit", "labels", "pods", "events"].map(|name| format!("/validate/{name}-check"))
    );
    assert_snapshot!(hiding(&plugins).expect("hidden"), @"each of the validating plugins gets its own webhook: in a shared webhook, hpa-limit-check would not be called for horizontalpodautoscalers.autoscaling in every version, because labels-check has rules for more of its versions, and kube-apiserver converts an object only if no rule of the webhook matches it as it is; the same holds for events-check and events.events.k8s.io, because of labels-check; to share one webhook, write the same apiGroups and apiVersions into their rules");
    // No plugin is hidden if it gets its own webhook anyway. Plugins of the other endpoint do not hide it either.
    let apart = Registration {
        per_plugin: true,
        ..registration()
    };
    let config = config(&plugins);
    let participants: Vec<_> = config.plugins.iter().map(participant).collect();
    assert_eq!(apart.hiding(Endpoint::Validate, &participants), None);
    assert_eq!(registration().hiding(Endpoint::Mutate, &participants), None);
    let together = printed(&registration(), &[pods, labels].concat());
    assert_eq!(
        together.matches("path: /validate\n").count(),
        1,
        "{together}"
    );
}

#[test]
fn pushes_namespace_selector_up_where_that_is_equivalent() {
    let rules = rule("CREATE", "\"\"", "v1", "pods", ALL);
    let plugin = |name: &str, selector: &str| {
        format!(
            "- {{name: {name}, source: 'file:a', match: {{rules: [{rules}], namespaceSelector: {selector}, \
             matchConditions: [{{name: team, expression: namespaceObject != null}}]}}}}\n"
        )
    };
    let gold =
        "{matchLabels: {tier: gold}, matchExpressions: [{key: frozen, operator: DoesNotExist}]}";
    let selectors = |registration: &Registration, plugins: &str| -> Vec<Vec<String>> {
        let text = printed(registration, plugins);
        // kube-apiserver refuses a webhook with a variable that it does not know.
        assert!(!text.contains("namespaceObject"), "{text}");
        let webhooks = text.split("  namespaceSelector:\n").skip(1);
        webhooks
            .map(|webhook| {
                let (selector, _) = webhook.split_once("  sideEffects").expect("the next key");
                let keys = selector
                    .lines()
                    .filter_map(|line| line.split_once("- key: "));
                keys.map(|(_, key)| key.to_owned()).collect()
            })
            .collect()
    };
    let apart = Registration {
        per_plugin: true,
        ..registration()
    };
    let name = "kubernetes.io/metadata.name";
    let both = plugin("a-check", gold) + &plugin("b-check", "{}");
    assert_eq!(
        selectors(&apart, &both),
        [vec![name, "tier", "frozen"], vec![name]]
    );
    // In a shared webhook, one plugin's selector would keep requests from the other.
    assert_eq!(selectors(&registration(), &both), [vec![name]]);
    let other = plugin("a-check", gold) + &plugin("b-check", "{matchLabels: {tier: lead}}");
    assert_eq!(selectors(&registration(), &other), [vec![name]]);
    let same = plugin("a-check", gold) + &plugin("b-check", gold);
    assert_eq!(
        selectors(&registration(), &same),
        [vec![name, "tier", "frozen"]]
    );
}
