use std::path::Path;
use std::time::SystemTime;

use crate::{Config, ManifestRule};
use tollgate_admission::namespaces::Lookup;
use tollgate_admission::review::request::{
    GroupVersionKind, GroupVersionResource, Operation, RequestDocument,
};
use tollgate_json::document::Json;

use super::*;

/// A request about `g/v r` named `name` in the namespace `ns`.
fn request(group: &str, version: &str, resource: &str) -> AdmissionRequest {
    let (resource, sub_resource) = match resource.split_once('/') {
        Some((resource, sub_resource)) => (resource, Some(sub_resource.to_owned())),
        None => (resource, None),
    };
    AdmissionRequest {
        uid: "uid".to_owned(),
        operation: Operation::Create,
        kind: GroupVersionKind::default(),
        resource: GroupVersionResource {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
        },
        sub_resource,
        name: "name".to_owned(),
        namespace: Some("ns".to_owned()),
        dry_run: false,
        object: None,
        old_object: None,
        options: None,
        document: RequestDocument::of(Json::Null),
        memory: tollgate_json::document::Account::unlimited(),
        looked_up: tollgate_admission::namespaces::LookedUp::default(),
        observed: tollgate_admission::trace::Observed::default(),
        template: None,
    }
}

fn in_namespace(namespace: Option<&str>, request: AdmissionRequest) -> AdmissionRequest {
    AdmissionRequest {
        namespace: namespace.map(str::to_owned),
        ..request
    }
}

fn rule(
    operations: &[&str],
    groups: &[&str],
    versions: &[&str],
    resources: &[&str],
) -> ManifestRule {
    let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
    ManifestRule {
        operations: texts(operations),
        api_groups: texts(groups),
        api_versions: texts(versions),
        resources: texts(resources),
        scope: None,
    }
}

fn one_rule(rule: ManifestRule) -> Match {
    Match::from_manifest_rules(&[rule]).unwrap()
}

/// Parses a `match` that covers everything, with these namespaces.
fn everything_in(namespaces: &str) -> Match {
    let rule = "{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}";
    let plugin = format!("{{name: a, source: 'file:a', match: {{rules: [{rule}], {namespaces}}}}}");
    let config = Config::parse(&format!("plugins: [{plugin}]"), Path::new(".")).unwrap();
    config.plugins[0].matching.clone().unwrap()
}

#[test]
fn compares_groups() {
    let any = one_rule(rule(&["*"], &["*"], &["*"], &["*"]));
    assert_eq!(any.matches(&request("g", "v", "r")), Some(0));
    let exact = one_rule(rule(&["*"], &["g1", "g2"], &["*"], &["*"]));
    assert_eq!(exact.matches(&request("g1", "v", "r")), Some(0));
    assert_eq!(exact.matches(&request("g2", "v2", "r3")), Some(0));
    assert_eq!(exact.matches(&request("g3", "v", "r")), None);
    assert_eq!(exact.matches(&request("", "v", "r")), None);
    let core = one_rule(rule(&["*"], &[""], &["*"], &["*"]));
    assert_eq!(core.matches(&request("", "v1", "pods")), Some(0));
    assert_eq!(core.matches(&request("apps", "v1", "deployments")), None);
}

#[test]
fn compares_versions() {
    let exact = one_rule(rule(&["*"], &["*"], &["v1", "v2"], &["*"]));
    assert_eq!(exact.matches(&request("g1", "v1", "r")), Some(0));
    assert_eq!(exact.matches(&request("g2", "v2", "r")), Some(0));
    assert_eq!(exact.matches(&request("g1", "v3", "r")), None);
    assert_eq!(exact.matches(&request("g1", "v", "r")), None);
}

#[test]
fn compares_operations() {
    use Operation::{Connect, Create, Delete, Update};
    for (operations, matching) in [
        (vec!["*"], vec![Create, Update, Delete, Connect]),
        (vec!["CREATE"], vec![Create]),
        (vec!["UPDATE"], vec![Update]),
        (vec!["DELETE"], vec![Delete]),
        (vec!["CONNECT"], vec![Connect]),
        (vec!["UPDATE", "DELETE"], vec![Update, Delete]),
    ] {
        let matcher = one_rule(rule(&operations, &["*"], &["*"], &["*"]));
        for operation in [Create, Update, Delete, Connect] {
            let request = AdmissionRequest {
                operation,
                ..request("g", "v", "r")
            };
            let expected = matching.contains(&operation);
            assert_eq!(
                matcher.matches(&request).is_some(),
                expected,
                "{operations:?} {operation}"
            );
        }
    }
}

#[test]
fn compares_resources_and_subresources() {
    for (resources, matching, others) in [
        (vec!["*"], vec!["r", "r2"], vec!["r/exec", "r2/proxy"]),
        (vec!["r"], vec!["r"], vec!["r2", "r/exec", "s"]),
        (vec!["r/*"], vec!["r", "r/exec"], vec!["r2", "r2/proxy"]),
        (
            vec!["r/*", "r2"],
            vec!["r", "r/exec", "r2"],
            vec!["r2/proxy"],
        ),
        (
            vec!["*/proxy", "*/exec"],
            vec!["r/exec", "r2/proxy", "r3/proxy"],
            vec!["r", "r2", "r4/scale"],
        ),
        (vec!["r/log"], vec!["r/log"], vec!["r", "r/exec", "r2/log"]),
        (vec!["*/*"], vec!["r", "r2", "r/exec", "r2/proxy"], vec![]),
        (vec!["*", "*/scale"], vec!["r", "r/scale"], vec!["r/exec"]),
    ] {
        let matcher = one_rule(rule(&["*"], &["*"], &["*"], &resources));
        for resource in matching {
            assert!(
                matcher.matches(&request("g", "v", resource)).is_some(),
                "{resources:?} {resource}"
            );
        }
        for resource in others {
            assert!(
                matcher.matches(&request("g", "v", resource)).is_none(),
                "{resources:?} {resource}"
            );
        }
    }
}

#[test]
fn empty_subresource_means_resource_itself() {
    let matcher = one_rule(rule(&["*"], &["*"], &["*"], &["pods"]));
    let request = AdmissionRequest {
        sub_resource: Some(String::new()),
        ..request("", "v1", "pods")
    };
    assert_eq!(matcher.matches(&request), Some(0));
}

#[test]
fn compares_scopes_and_treats_namespaces_as_cluster_scoped() {
    let cluster_scoped = [
        in_namespace(None, request("g", "v", "r")),
        in_namespace(Some(""), request("g", "v", "r/exec")),
        in_namespace(None, request("", "v1", "namespaces")),
        in_namespace(None, request("", "v1", "namespaces/finalize")),
        request("", "v1", "namespaces"),
        request("", "v1", "namespaces/finalize"),
    ];
    let namespaced = [
        request("g", "v", "r"),
        request("g", "v", "r/exec"),
        request("g", "v1", "namespaces"),
        request("", "v2", "namespaces"),
    ];
    let scoped = |scope: Option<&str>| {
        let scope = scope.map(str::to_owned);
        one_rule(ManifestRule {
            scope,
            ..rule(&["*"], &["*"], &["*"], &["*/*"])
        })
    };
    for request in &cluster_scoped {
        assert!(
            scoped(Some("Cluster")).matches(request).is_some(),
            "{request:?}"
        );
        assert!(
            scoped(Some("Namespaced")).matches(request).is_none(),
            "{request:?}"
        );
    }
    for request in &namespaced {
        assert!(
            scoped(Some("Cluster")).matches(request).is_none(),
            "{request:?}"
        );
        assert!(
            scoped(Some("Namespaced")).matches(request).is_some(),
            "{request:?}"
        );
    }
    for request in cluster_scoped.iter().chain(&namespaced) {
        assert!(scoped(Some("*")).matches(request).is_some(), "{request:?}");
        assert!(scoped(None).matches(request).is_some(), "{request:?}");
    }
}

#[test]
fn reports_which_rule_matched() {
    let rules = [
        rule(&["CREATE"], &[""], &["v1"], &["pods"]),
        rule(&["*"], &["*"], &["*"], &["*"]),
    ];
    let matcher = Match::from_manifest_rules(&rules).unwrap();
    assert_eq!(matcher.matches(&request("", "v1", "pods")), Some(0));
    assert_eq!(matcher.matches(&request("", "v1", "services")), Some(1));
    assert_eq!(matcher.matches(&request("", "v1", "pods/exec")), None);
}

#[test]
fn includes_and_excludes_namespaces_by_name() {
    let pod = |namespace| in_namespace(namespace, request("", "v1", "pods"));
    let included = everything_in("namespaces: [shop, bank]");
    let excluded = everything_in("excludeNamespaces: [kube-system]");
    assert!(included.matches(&pod(Some("bank"))).is_some());
    assert!(included.matches(&pod(Some("ban"))).is_none());
    assert!(excluded.matches(&pod(Some("bank"))).is_some());
    assert!(excluded.matches(&pod(Some("kube-system"))).is_none());
}

#[test]
fn never_excludes_cluster_scoped_objects_by_namespace() {
    for matcher in [
        everything_in("namespaces: [shop]"),
        everything_in("excludeNamespaces: [name]"),
    ] {
        for namespace in [None, Some("")] {
            let node = in_namespace(namespace, request("", "v1", "nodes"));
            assert!(matcher.matches(&node).is_some());
        }
    }
}

#[test]
fn treats_namespace_object_as_inside_itself() {
    let namespace = |namespace: Option<&str>, name: &str| AdmissionRequest {
        name: name.to_owned(),
        ..in_namespace(namespace, request("", "v1", "namespaces"))
    };
    let included = everything_in("namespaces: [shop]");
    let excluded = everything_in("excludeNamespaces: [kube-system]");
    for (request, included_expected, excluded_expected) in [
        (namespace(Some("shop"), "shop"), true, true),
        (namespace(None, "shop"), true, true),
        (namespace(Some("kube-system"), "kube-system"), false, false),
        (namespace(None, "kube-system"), false, false),
        (namespace(None, ""), false, true),
    ] {
        assert_eq!(
            included.matches(&request).is_some(),
            included_expected,
            "{request:?}"
        );
        assert_eq!(
            excluded.matches(&request).is_some(),
            excluded_expected,
            "{request:?}"
        );
    }
}

/// Parses a `match` that covers everything, with these keys.
fn everything_with(keys: &str) -> Match {
    everything_in(keys)
}

fn by(username: &str, groups: &[&str], request: AdmissionRequest) -> AdmissionRequest {
    let user = serde_json::json!({"userInfo": {"username": username, "groups": groups}});
    AdmissionRequest {
        document: RequestDocument::of(Json::from(user)),
        ..request
    }
}

#[test]
fn excludes_users_and_groups_by_exact_name() {
    let pod = |username, groups: &[&str]| by(username, groups, request("", "v1", "pods"));
    let matcher = everything_with("excludeUsers: [jane, john], excludeGroups: ['system:nodes']");
    for (username, groups, expected) in [
        ("jane", vec![], false),
        ("john", vec!["dev"], false),
        ("Jane", vec![], true),
        ("janet", vec!["dev"], true),
        ("", vec![], true),
        (
            "kubelet",
            vec!["system:authenticated", "system:nodes"],
            false,
        ),
        ("kubelet", vec!["system:nodes:a"], true),
    ] {
        let matches = matcher.matches(&pod(username, &groups)).is_some();
        assert_eq!(matches, expected, "{username} {groups:?}");
    }
    // Without userInfo there is no user to exclude.
    assert!(matcher.matches(&request("", "v1", "pods")).is_some());
}

#[test]
fn exception_applies_only_if_all_lists_match() {
    let exception = |keys: &str| {
        let rule = "{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}";
        let plugin = format!(
            "{{name: a, source: 'file:a', match: {{rules: [{rule}]}}, \
             exceptions: [{{{keys}, until: 2026-12-31, reason: test}}]}}"
        );
        let config = Config::parse(&format!("plugins: [{plugin}]"), Path::new(".")).unwrap();
        config.plugins[0].exceptions[0].clone()
    };
    let pod = by("jane", &["dev"], request("", "v1", "pods"));
    let node = in_namespace(None, request("", "v1", "nodes"));
    let namespace = in_namespace(None, request("", "v1", "namespaces"));
    let unnamed = AdmissionRequest {
        name: String::new(),
        ..pod.clone()
    };
    let object = || Some(Json::from(serde_json::json!({"metadata": {"name": "new"}})));
    let created = AdmissionRequest {
        object: object(),
        ..unnamed.clone()
    };
    // Like each object when a collection is deleted.
    let deleted = AdmissionRequest {
        operation: Operation::Delete,
        old_object: object(),
        ..unnamed.clone()
    };
    for (keys, request, expected) in [
        ("namespaces: [ns]", &pod, true),
        ("namespaces: [other]", &pod, false),
        ("namespaces: [ns]", &node, false),
        ("namespaces: [name]", &namespace, true),
        ("names: [name]", &pod, true),
        ("names: [nam]", &pod, false),
        ("names: [new]", &created, true),
        ("names: [new]", &deleted, true),
        ("names: [other]", &deleted, false),
        ("names: [new]", &unnamed, false),
        ("users: [jane]", &pod, true),
        ("groups: [ops, dev]", &pod, true),
        ("groups: [ops]", &pod, false),
        ("namespaces: [ns], users: [jane]", &pod, true),
        ("namespaces: [ns], users: [john]", &pod, false),
        ("namespaces: [other], users: [jane]", &pod, false),
    ] {
        let covers = exception(keys).covers(request);
        assert_eq!(covers, expected, "{keys} {request:?}");
    }
    let now = |seconds: u64| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    let exception = exception("names: [a]");
    // 2026-12-31T23:59:59Z and the second after it.
    assert!(exception.is_active(now(1_798_761_599)));
    assert!(!exception.is_active(now(1_798_761_600)));
}

mod ported;
