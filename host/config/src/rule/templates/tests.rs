use std::path::Path;

use crate::{Config, Match};

const PODS: &str = "{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}";

fn read(rules: &str, key: &str) -> Result<Match, String> {
    let plugin = format!("{{name: a, source: 'file:a', match: {{rules: [{rules}], {key}}}}}");
    let config = Config::parse(&format!("plugins: [{plugin}]"), Path::new("."));
    let mut config = config.map_err(|problems| problems.to_string())?;
    Ok(config.plugins.remove(0).matching.unwrap())
}

fn rules(matching: &Match) -> Vec<String> {
    matching.rules().iter().map(ToString::to_string).collect()
}

#[test]
fn adds_rules_for_workloads_after_the_plugins_own() {
    let matching = read(PODS, "podTemplates: true").unwrap();
    assert!(matching.pod_templates);
    assert_eq!(
        rules(&matching),
        [
            "operations=CREATE apiGroups=\"\" apiVersions=v1 resources=pods",
            "operations=CREATE,UPDATE apiGroups=\"\" apiVersions=v1 resources=podtemplates,replicationcontrollers",
            "operations=CREATE,UPDATE apiGroups=apps apiVersions=v1 \
             resources=daemonsets,deployments,replicasets,statefulsets",
            "operations=CREATE,UPDATE apiGroups=batch apiVersions=v1 resources=cronjobs,jobs",
        ]
    );
}

#[test]
fn adds_nothing_without_the_key() {
    for key in ["", "podTemplates: false"] {
        let matching = read(PODS, key).unwrap();
        assert!(!matching.pod_templates);
        assert_eq!(rules(&matching).len(), 1);
    }
}

#[test]
fn needs_a_rule_for_the_creation_of_pods() {
    for rule in [
        "{operations: [UPDATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}",
        "{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods/status]}",
        "{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods], scope: Cluster}",
        "{operations: ['*'], apiGroups: [''], apiVersions: ['*'], resources: [services]}",
    ] {
        let error = read(rule, "podTemplates: true").unwrap_err();
        assert!(
            error.contains(
                "match.podTemplates: expected none, because no rule matches the creation of Pods"
            ),
            "{rule}: {error}"
        );
    }
    let all = "{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: [pods, pods/ephemeralcontainers]}";
    assert!(read(all, "podTemplates: true").is_ok());
}

/// Such a plugin would get the workload, and somebody would believe that its template was checked.
#[test]
fn refuses_rules_that_match_workloads_themselves() {
    for (rule, named) in [
        (
            "{operations: [UPDATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}",
            "deployments",
        ),
        (
            "{operations: [DELETE], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}",
            "podtemplates",
        ),
    ] {
        let error = read(&format!("{PODS}, {rule}"), "podTemplates: true").unwrap_err();
        let expected = format!("because a rule matches \"{named}\" itself");
        assert!(error.contains(&expected), "{error}");
    }
    let scale = "{operations: [UPDATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments/scale]}";
    assert!(read(&format!("{PODS}, {scale}"), "podTemplates: true").is_ok());
}
