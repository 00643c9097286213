use super::*;
use crate::ManifestRule;

/// Returns the findings for one rule: operations, groups, versions, resources, scope. Each is a list such as
/// `CREATE,UPDATE`.
fn found(operations: &str, groups: &str, versions: &str, resources: &str, scope: &str) -> String {
    let texts = |list: &str| list.split(',').map(str::to_owned).collect();
    let rule = ManifestRule {
        operations: texts(operations),
        api_groups: texts(groups),
        api_versions: texts(versions),
        resources: texts(resources),
        scope: Some(scope.to_owned()),
    };
    let matching = Match::from_manifest_rules(&[rule]).expect("a valid rule");
    let findings = check_rules(&matching, true).into_iter().map(|finding| {
        let sure = if finding.is_certain {
            "certain"
        } else {
            "maybe"
        };
        format!("{sure}: {finding}")
    });
    findings.collect::<Vec<_>>().join("\n")
}

#[test]
fn accepts_rules_that_match() {
    for (operations, groups, versions, resources, scope) in [
        ("CREATE,UPDATE", "", "v1", "pods", "*"),
        ("*", "*", "*", "*", "*"),
        ("*", "*", "*", "*/*", "*"),
        (
            "CREATE",
            ",apps,batch",
            "v1",
            "pods,deployments,jobs",
            "Namespaced",
        ),
        (
            "CREATE",
            "policy",
            "v1,v1beta1",
            "poddisruptionbudgets",
            "*",
        ),
        (
            "CONNECT",
            "",
            "v1",
            "pods/exec,pods/attach,pods/portforward,services/proxy",
            "*",
        ),
        ("CREATE,CONNECT", "", "v1", "pods,pods/exec", "*"),
        (
            "CREATE",
            "",
            "v1",
            "pods/eviction,pods/binding,serviceaccounts/token",
            "*",
        ),
        ("UPDATE", "", "v1", "pods/*", "*"),
        ("UPDATE", "apps", "v1", "*/scale", "*"),
        (
            "UPDATE",
            "autoscaling",
            "v2",
            "horizontalpodautoscalers",
            "*",
        ),
        ("UPDATE", "", "v1", "nodes,namespaces", "Cluster"),
        // Custom resources, alone and together with Kubernetes' own.
        ("CREATE", "argoproj.io", "v1alpha1", "rollouts", "*"),
        (
            "CREATE",
            "apps,argoproj.io",
            "v1,v1alpha1",
            "deployments,rollouts",
            "*",
        ),
        ("CREATE", "serving.knative.dev", "v1", "services", "*"),
        ("CREATE", "metrics.k8s.io", "v1beta1", "pods", "*"),
        ("CREATE", "*", "v1", "widgets", "*"),
    ] {
        assert_eq!(
            found(operations, groups, versions, resources, scope),
            "",
            "{groups} {versions} {resources}"
        );
    }
}

#[test]
fn every_resource_of_the_table_matches_in_its_versions() {
    for resource in resources() {
        for version in &resource.versions {
            let found = found("CREATE", resource.group, version, resource.name, "*");
            assert_eq!(found, "", "{resource:?}");
        }
        let scope = if resource.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        };
        assert_eq!(found("*", resource.group, "*", resource.name, scope), "");
        for sub_resource in resource
            .sub_resources
            .iter()
            .filter(|name| **name != READ_ONLY)
        {
            let full_name = format!("{}/{sub_resource}", resource.name);
            assert_eq!(found("*", resource.group, "*", &full_name, "*"), "");
        }
    }
}

#[test]
fn suggests_corrections_for_rules_that_match_nothing() {
    let rows = [
        ("CREATE", "", "v1", "pod", "*"),
        ("CREATE", "", "v1", "svc", "*"),
        ("CREATE", "", "v1", "podss", "*"),
        ("CREATE", "app", "v1", "deployments", "*"),
        (
            "CREATE",
            "extensions",
            "v1beta1",
            "deployments,ingresses",
            "*",
        ),
        ("CREATE", "", "v1", "deployments", "*"),
        ("CREATE", "", "v1", "deploy", "*"),
        ("CREATE", "apps", "v1", "jobs,pods", "*"),
        ("CREATE", "rbac.k8s.io", "v1", "roles", "*"),
        ("CREATE", "networking.k8s.oi", "v1", "ingresses", "*"),
        ("CREATE", "networking.k8s.io", "v1", "networkpolicy", "*"),
        ("CREATE", "*", "v1", "pod", "*"),
        ("CREATE", "apps", "v1", "rollouts", "*"),
        ("CREATE", "apps", "v1beta1", "deployments", "*"),
        ("CREATE", "apps", "v2", "deployments", "*"),
        (
            "CREATE",
            "resource.k8s.io",
            "v1alpha2",
            "resourceclaims",
            "*",
        ),
        ("CREATE", "batch", "v1beta1", "cronjobs", "*"),
        ("CREATE", "", "v1", "pods/logs", "*"),
        ("CREATE", "", "v1", "pods/log", "*"),
        ("CREATE", "", "v1", "pods/ports", "*"),
        ("UPDATE", "", "v1", "configmaps/status", "*"),
        ("UPDATE", "", "v1", "*/approval", "*"),
        ("CREATE", "", "v1", "pods/exec", "*"),
        ("CREATE", "*", "*", "pods/exec", "*"),
        ("CONNECT", "", "v1", "pods", "*"),
        ("CREATE", "", "v1", "nodes", "Namespaced"),
        ("CREATE", "apps", "v1", "deployments", "Cluster"),
        ("CREATE", "app,apps", "v1", "deployments", "*"),
    ];
    let shown = rows.map(|(operations, groups, versions, resources, scope)| {
        let found = found(operations, groups, versions, resources, scope);
        assert_ne!(found, "", "{groups} {versions} {resources}");
        format!(
            "{operations} [{groups}] [{versions}] [{resources}] {scope}\n  {}",
            found.replace('\n', "\n  ")
        )
    });
    insta::assert_snapshot!(shown.join("\n"), @r#"
    CREATE [] [v1] [pod] *
      certain: match.rules[0].resources: pod matches nothing: expected the plural, pods
    CREATE [] [v1] [svc] *
      certain: match.rules[0].resources: svc matches nothing: expected the plural, services
    CREATE [] [v1] [podss] *
      certain: match.rules[0].resources: podss matches nothing: expected pods
    CREATE [app] [v1] [deployments] *
      certain: match.rules[0].apiGroups: unknown API group app: groups of custom resources have a dot in their names; expected apps
    CREATE [extensions] [v1beta1] [deployments,ingresses] *
      certain: match.rules[0].apiGroups: unknown API group extensions: groups of custom resources have a dot in their names; expected apps or networking.k8s.io
    CREATE [] [v1] [deployments] *
      certain: match.rules[0].resources: deployments matches nothing in apiGroups "": expected apps in apiGroups
    CREATE [] [v1] [deploy] *
      certain: match.rules[0].resources: deploy matches nothing: expected the plural, deployments, and apps in apiGroups
    CREATE [apps] [v1] [jobs,pods] *
      certain: match.rules[0].resources: jobs matches nothing in apiGroups apps: expected batch in apiGroups
      certain: match.rules[0].resources: pods matches nothing in apiGroups apps: expected "" in apiGroups
    CREATE [rbac.k8s.io] [v1] [roles] *
      maybe: match.rules[0].apiGroups: rbac.k8s.io is not an API group of Kubernetes 1.36: did you mean rbac.authorization.k8s.io?
    CREATE [networking.k8s.oi] [v1] [ingresses] *
      maybe: match.rules[0].apiGroups: networking.k8s.oi is not an API group of Kubernetes 1.36: did you mean networking.k8s.io?
    CREATE [networking.k8s.io] [v1] [networkpolicy] *
      certain: match.rules[0].resources: networkpolicy matches nothing: expected the plural, networkpolicies
    CREATE [*] [v1] [pod] *
      maybe: match.rules[0].resources: pod matches nothing: expected the plural, pods
    CREATE [apps] [v1] [rollouts] *
      maybe: match.rules[0].resources: rollouts matches nothing: Kubernetes 1.36 has no such resource in apiGroups apps; a later release may
    CREATE [apps] [v1beta1] [deployments] *
      certain: match.rules[0].apiVersions: deployments of apps is not served in v1beta1 any more: expected v1
    CREATE [apps] [v2] [deployments] *
      maybe: match.rules[0].apiVersions: Kubernetes 1.36 does not serve deployments of apps in v2: expected v1
    CREATE [resource.k8s.io] [v1alpha2] [resourceclaims] *
      maybe: match.rules[0].apiVersions: Kubernetes 1.36 does not serve resourceclaims of resource.k8s.io in v1alpha2: expected v1 or v1beta2 or v1beta1
    CREATE [batch] [v1beta1] [cronjobs] *
      certain: match.rules[0].apiVersions: cronjobs of batch is not served in v1beta1 any more: expected v1
    CREATE [] [v1] [pods/logs] *
      certain: match.rules[0].resources: pods/logs matches nothing: logs can only be read, and plugins are called only for changes
    CREATE [] [v1] [pods/log] *
      certain: match.rules[0].resources: pods/log matches nothing: logs can only be read, and plugins are called only for changes
    CREATE [] [v1] [pods/ports] *
      maybe: match.rules[0].resources: pods/ports matches nothing: Kubernetes 1.36 has no such subresource; a later release may
    UPDATE [] [v1] [configmaps/status] *
      maybe: match.rules[0].resources: configmaps/status matches nothing: Kubernetes 1.36 has no such subresource; a later release may
    UPDATE [] [v1] [*/approval] *
      maybe: match.rules[0].resources: */approval matches nothing: Kubernetes 1.36 has no such subresource; a later release may
    CREATE [] [v1] [pods/exec] *
      certain: match.rules[0].operations: pods/exec has only the operation CONNECT, and the rule has CREATE
    CREATE [*] [*] [pods/exec] *
      certain: match.rules[0].operations: pods/exec has only the operation CONNECT, and the rule has CREATE
    CONNECT [] [v1] [pods] *
      certain: match.rules[0].operations: pods never has the operation CONNECT, which is for subresources such as pods/exec
    CREATE [] [v1] [nodes] Namespaced
      certain: match.rules[0].scope: nodes is not matched by scope Namespaced: expected Cluster, or no scope
    CREATE [apps] [v1] [deployments] Cluster
      certain: match.rules[0].scope: deployments is not matched by scope Cluster: expected Namespaced, or no scope
    CREATE [app,apps] [v1] [deployments] *
      certain: match.rules[0].apiGroups: unknown API group app: groups of custom resources have a dot in their names; expected apps
    "#);
}
