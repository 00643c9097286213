//! The permissions: exactly those that Tollgate uses.

use std::collections::BTreeSet;

use serde_json::Value;
use tollgate_tests::chart::{NAMESPACE, Objects};

use crate::chart_or_skip;

/// What the default values grant: the scope, the resource with the names that it is limited to, and the verbs.
const DEFAULT: [(&str, &str, &str); 18] = [
    ("cluster", "/namespaces", "get list watch"),
    (
        "cluster",
        "admissionregistration.k8s.io/mutatingwebhookconfigurations",
        "create",
    ),
    (
        "cluster",
        "admissionregistration.k8s.io/mutatingwebhookconfigurations=tollgate",
        "get list watch patch delete",
    ),
    (
        "cluster",
        "admissionregistration.k8s.io/validatingwebhookconfigurations",
        "create",
    ),
    (
        "cluster",
        "admissionregistration.k8s.io/validatingwebhookconfigurations=tollgate",
        "get list watch patch delete",
    ),
    (
        "cluster",
        "rbac.authorization.k8s.io/clusterroles=tollgate-anchor",
        "get list watch patch",
    ),
    ("cluster", "tollgate.dev/admissionplugins", "get list watch"),
    ("cluster", "tollgate.dev/admissionplugins/status", "patch"),
    ("cluster", "tollgate.dev/canaries", "create"),
    (
        "cluster",
        "tollgate.dev/clusteradmissionplugins",
        "get list watch",
    ),
    (
        "cluster",
        "tollgate.dev/clusteradmissionplugins/status",
        "patch",
    ),
    ("default", "events.k8s.io/events", "create patch"),
    (
        "tollgate-system",
        "/secrets=tollgate-authority",
        "get update",
    ),
    (
        "tollgate-system",
        "coordination.k8s.io/leases",
        "get list watch create update patch delete",
    ),
    ("tollgate-system", "events.k8s.io/events", "create patch"),
    (
        "tollgate-system",
        "tollgate.dev/pluginexceptions",
        "get list watch",
    ),
    (
        "tollgate-system",
        "tollgate.dev/pluginexceptions/status",
        "patch",
    ),
    ("tollgate-system", "/secrets", "create"),
];

/// Permissions as lines, such as `default events.k8s.io/events create`.
fn granted(objects: &Objects) -> BTreeSet<String> {
    let mut granted = BTreeSet::new();
    for kind in ["ClusterRole", "Role"] {
        for role in objects.of_kind(kind) {
            let scope = role["metadata"]["namespace"].as_str().unwrap_or("cluster");
            // The anchor has no rules.
            for rule in role["rules"].as_array().into_iter().flatten() {
                if let Some(urls) = rule.get("nonResourceURLs") {
                    let verbs = words(&rule["verbs"], " ");
                    let urls = list(urls).iter().map(text);
                    granted.extend(urls.map(|url| format!("{scope} {url} {verbs}")));
                    continue;
                }
                let names = match rule.get("resourceNames") {
                    Some(names) => format!("={}", words(names, ",")),
                    None => String::new(),
                };
                for group in list(&rule["apiGroups"]) {
                    for resource in list(&rule["resources"]) {
                        let (group, resource) = (text(group), text(resource));
                        let verbs = words(&rule["verbs"], " ");
                        granted.insert(format!("{scope} {group}/{resource}{names} {verbs}"));
                    }
                }
            }
        }
    }
    granted
}

fn list(value: &Value) -> &Vec<Value> {
    value
        .as_array()
        .unwrap_or_else(|| panic!("not a list: {value}"))
}

fn text(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a text: {value}"))
}

fn words(value: &Value, between: &str) -> String {
    let words: Vec<&str> = list(value).iter().map(text).collect();
    words.join(between)
}

/// The permissions of the default values, without those for settings and with others.
fn expected(others: &[&str]) -> BTreeSet<String> {
    let default = DEFAULT.map(|(scope, resource, verbs)| format!("{scope} {resource} {verbs}"));
    let others = others.iter().map(|line| (*line).to_owned());
    default.into_iter().chain(others).collect()
}

#[test]
fn permissions_are_exact() {
    let chart = chart_or_skip!();
    let all = [
        "tollgate-system /configmaps list watch",
        "tollgate-system /secrets list watch",
    ];
    assert_eq!(granted(&chart.objects("")), expected(&all));
    let named = r#"cluster.settingsFrom={"secrets":["a","b"],"configMaps":[]}"#;
    let named = chart.objects_with(&["--set-json", named]);
    let by_name = ["tollgate-system /secrets=a,b list watch"];
    assert_eq!(granted(&named), expected(&by_name));
    // With a certificate of others, Tollgate has no CA.
    let no_secrets = [
        "--set",
        "tls.secretName=tls",
        "--set-json",
        "cluster.settingsFrom.secrets=[]",
    ];
    let foreign = chart.objects_with(&no_secrets);
    let mut without = expected(&all[..1]);
    without.retain(|line| !line.contains("/secrets"));
    assert_eq!(granted(&foreign), without);
}

#[test]
fn roles_are_bound_to_the_service_account_alone() {
    let objects = chart_or_skip!().objects("");
    let bindings = [
        ("ClusterRoleBinding", "ClusterRole", "tollgate"),
        ("RoleBinding", "Role", "tollgate"),
        ("RoleBinding", "Role", "tollgate-events"),
    ];
    for (kind, role, name) in bindings {
        let binding = objects.get(kind, name);
        assert_eq!(binding["roleRef"]["kind"], role);
        assert_eq!(binding["roleRef"]["name"], name);
        let bound = objects.get(role, name);
        assert_eq!(
            binding["metadata"]["namespace"],
            bound["metadata"]["namespace"]
        );
        let subjects = list(&binding["subjects"]);
        assert_eq!(subjects.len(), 1);
        assert_eq!(subjects[0]["kind"], "ServiceAccount");
        assert_eq!(subjects[0]["name"], objects.pod()["serviceAccountName"]);
        assert_eq!(subjects[0]["namespace"], NAMESPACE);
    }
    for kind in ["ClusterRoleBinding", "RoleBinding"] {
        let expected = bindings
            .iter()
            .filter(|(of_kind, ..)| *of_kind == kind)
            .count();
        assert_eq!(objects.of_kind(kind).count(), expected, "{kind}");
    }
    // Whoever may patch the anchor must not gain rights by it.
    let anchor = objects.get("ClusterRole", "tollgate-anchor");
    assert_eq!(anchor.get("rules"), None);
    assert_eq!(
        objects.get("ServiceAccount", "tollgate")["automountServiceAccountToken"],
        false
    );
    assert_eq!(objects.pod()["automountServiceAccountToken"], true);
}

#[test]
fn admin_listener_needs_delegated_authentication_only() {
    let chart = chart_or_skip!();
    let objects = chart.objects("admin.enabled=true");
    let all = [
        "tollgate-system /configmaps list watch",
        "tollgate-system /secrets list watch",
        "cluster /tollgate/plugins get",
        "cluster /tollgate/shadows get",
        "cluster /tollgate/rollouts get",
        "cluster /tollgate/scan get",
        "cluster /tollgate/decisions get",
    ];
    assert_eq!(granted(&objects), expected(&all));
    let binding = objects.get("ClusterRoleBinding", "tollgate-auth-delegator");
    assert_eq!(binding["roleRef"]["name"], "system:auth-delegator");
    assert_eq!(list(&binding["subjects"]).len(), 1);
    assert_eq!(
        binding["subjects"][0]["name"],
        objects.pod()["serviceAccountName"]
    );
    // Nobody is bound to the role for readers.
    for binding in objects.of_kind("ClusterRoleBinding") {
        assert_ne!(binding["roleRef"]["name"], "tollgate-reader");
    }
    assert!(objects.configuration().contains("tokenReview: {}"));
    assert!(!chart.objects("").configuration().contains("admin:"));
    let ports = list(&objects.get("Service", "tollgate-peers")["spec"]["ports"]);
    assert!(ports.iter().any(|port| port["name"] == "admin"));
    let ports = list(&objects.get("Service", "tollgate")["spec"]["ports"]);
    assert!(ports.iter().all(|port| port["name"] != "admin"));
    for refused in [
        "admin.enabled=true,cluster.enabled=false,tls.secretName=tls,config.allowEmpty=true",
        "admin.enabled=true,config.admin.listen=0.0.0.0:1",
    ] {
        let reason = chart.try_text(&["--set", refused]);
        assert!(reason.is_err(), "{refused}");
    }
}

#[test]
fn plugins_ask_for_rights_only_if_the_chart_says_so() {
    let chart = chart_or_skip!();
    let objects = chart.objects("access.enabled=true");
    let right = "cluster authorization.k8s.io/subjectaccessreviews create";
    assert!(granted(&objects).contains(right));
    let binding = objects.get("ClusterRoleBinding", "tollgate-access");
    assert_eq!(
        binding["subjects"][0]["name"],
        objects.pod()["serviceAccountName"]
    );
    assert!(!granted(&chart.objects("")).contains(right));
}

#[test]
fn pull_secrets_are_read_in_the_listed_namespaces_only() {
    let chart = chart_or_skip!();
    let listed = r#"images.pullSecretNamespaces=["shop","blog"]"#;
    let objects = chart.objects_with(&["--set-json", listed]);
    let all = [
        "tollgate-system /configmaps list watch",
        "tollgate-system /secrets list watch",
        "shop /secrets get",
        "shop /serviceaccounts get",
        "blog /secrets get",
        "blog /serviceaccounts get",
    ];
    assert_eq!(granted(&objects), expected(&all));
    let bindings: Vec<&Value> = objects
        .of_kind("RoleBinding")
        .filter(|binding| binding["metadata"]["name"] == "tollgate-pull-secrets")
        .collect();
    assert_eq!(bindings.len(), 2);
    for binding in bindings {
        assert_eq!(binding["roleRef"]["kind"], "Role");
        assert_eq!(binding["roleRef"]["name"], "tollgate-pull-secrets");
        assert_eq!(list(&binding["subjects"]).len(), 1);
        let subject = &binding["subjects"][0];
        assert_eq!(subject["name"], objects.pod()["serviceAccountName"]);
        assert_eq!(subject["namespace"], NAMESPACE);
    }
    for refused in [r#"["*"]"#, r#"["Shop"]"#, r#""shop""#] {
        let values = format!("images.pullSecretNamespaces={refused}");
        assert!(
            chart.try_text(&["--set-json", &values]).is_err(),
            "{refused}"
        );
    }
}

#[test]
fn background_scan_reads_its_resources_and_writes_its_reports_only() {
    let chart = chart_or_skip!();
    let resources = r#"scan.resources=[{"apiGroups":["apps"],"resources":["deployments"]}]"#;
    let objects = chart.objects_with(&["--set", "scan.enabled=true", "--set-json", resources]);
    let all = [
        "tollgate-system /configmaps list watch",
        "tollgate-system /secrets list watch",
        "cluster apps/deployments get list",
        "cluster openreports.io/reports list create patch delete",
        "cluster openreports.io/clusterreports list create patch delete",
    ];
    assert_eq!(granted(&objects), expected(&all));
    let binding = objects.get("ClusterRoleBinding", "tollgate-scan");
    assert_eq!(
        binding["subjects"][0]["name"],
        objects.pod()["serviceAccountName"]
    );
    let configuration = objects.configuration();
    for line in [
        "scan:",
        "enabled: true",
        "format: openreports",
        "- deployments",
    ] {
        assert!(configuration.contains(line), "{line}: {configuration}");
    }
    // Secrets are never among the resources unless somebody names them.
    let default =
        chart.objects("scan.enabled=true,scan.format=policyreport,config.scan.interval=1h");
    let lines = granted(&default);
    assert!(lines.contains("cluster wgpolicyk8s.io/policyreports list create patch delete"));
    assert!(
        !lines
            .iter()
            .any(|line| line.starts_with("cluster /secrets")),
        "{lines:?}"
    );
    assert!(default.configuration().contains("interval: 1h"));
    assert!(!chart.objects("").configuration().contains("scan:"));
    for refused in [
        "scan.enabled=true,cluster.enabled=false,tls.secretName=tls,config.allowEmpty=true",
        "config.scan.enabled=true",
        "scan.format=html",
    ] {
        let reason = chart.try_text(&["--set", refused]);
        assert!(reason.is_err(), "{refused}");
    }
}

#[test]
fn plugins_of_namespaces_need_exceptions_and_events_of_every_namespace() {
    let chart = chart_or_skip!();
    let tenancy = r#"config.tenancy={"registries":["registry.example.com/tenants"]}"#;
    let objects = chart.objects_with(&["--set", "tenancy.enabled=true", "--set-json", tenancy]);
    let all = [
        "tollgate-system /configmaps list watch",
        "tollgate-system /secrets list watch",
        "cluster tollgate.dev/pluginexceptions get list watch",
        "cluster tollgate.dev/pluginexceptions/status patch",
        "cluster events.k8s.io/events create patch",
    ];
    assert_eq!(granted(&objects), expected(&all));
    assert!(objects.configuration().contains("tenancy:"));
    let refused: [&[&str]; 3] = [
        &["--set", "tenancy.enabled=true"],
        &["--set-json", tenancy],
        &[
            "--set",
            "tenancy.enabled=true,cluster.enabled=false,tls.secretName=tls,config.allowEmpty=true",
            "--set-json",
            tenancy,
        ],
    ];
    for arguments in refused {
        assert!(chart.try_text(arguments).is_err(), "{arguments:?}");
    }
}

#[test]
fn grants_nothing_without_custom_resources() {
    let values = "cluster.enabled=false,tls.secretName=tls,config.allowEmpty=true";
    let objects = chart_or_skip!().objects(values);
    assert_eq!(granted(&objects), BTreeSet::new());
    assert_eq!(objects.of_kind("ClusterRoleBinding").count(), 0);
    assert_eq!(objects.pod()["automountServiceAccountToken"], false);
    assert!(!objects.configuration().contains("cluster:"));
}
