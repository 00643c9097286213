//! Tests of the configuration file as a person meets it: the meaning of a small file, and the messages for a wrong one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use insta::assert_snapshot;

use super::*;

fn parse(text: &str) -> Config {
    match Config::parse(text, Path::new("/etc/tollgate")) {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

fn error(text: &str) -> String {
    match Config::parse(text, Path::new("/etc/tollgate")) {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn reports_all_problems_at_once() {
    assert_snapshot!(error(r#"
listen: ":8443"
admin: { lisen: 127.0.0.1:8081 }
tls: { certificate: tls.crt, selfSigned: {} }
requests:
  maxBody: 300Mi
  idleTimeout: 60s
  deadlineMargin: { percent: 90, atLeast: 5 }
engine: { maxConcurrentCalls: 64 }
limits: { fuel: lots, memory: 8Gi, concurrency: 100, memry: 1Gi }
plugins:
  - name: Image_Rewrite
    source: oci://policies/image-rewrite
    failure_policy: Ignore
    failurePolicy: ignore
    mode: dryrun
    settings: [1]
    capabilities: [clock, network]
    allowRemovals: yes
    limits: { timeout: 1m, cpuTime: 10 }
  - name: labels
    source: ./labels.wasm
    match: {}
    timeout: 5s
  - name: labels
    source: file:labels.wasm
    match:
      rules:
        - operations: [CREATE, MODIFY, create]
          apiGroups: [core]
          apiVersions: [apps/v1]
          resources: [Pods, pods/*, pods/status]
          scope: namespaced
        - operations: ["*", CREATE]
          apiGroups: []
          resources: ["*", pods, "*/scale"]
      namespaces: []
      excludeNamespaces: [kube-*]
  - just-a-name
"#), @r#"
configuration: 40 problems
  listen: got ":8443", expected an IP address and a port, such as 0.0.0.0:8443 or [::]:8443
  admin.lisen: unknown key, did you mean listen?
  tls: expected either certificate and key, or selfSigned, not both
  tls.key: missing, expected the path of a PEM file with the private key of `certificate`
  requests.deadlineMargin.percent: got 90, expected 0 to 50
  requests.deadlineMargin.atLeast: got 5, expected a duration with its unit, such as 500ms, 1.5s or 1m30s
  requests.idleTimeout: got 60s, expected 91s to 1h
  requests.maxInFlight: got 128Mi by default, expected at least requests.maxBody, which is 300Mi
  limits.fuel: got "lots", expected a whole number, such as 250, 5k, 100M or 1G
  limits.memory: got 8Gi, expected 64Ki to 4Gi
  limits.concurrency: got 100, expected at most 64, which is engine.maxConcurrentCalls
  limits.memry: unknown key, did you mean memory?
  plugins[0].name: got "Image_Rewrite", expected a name of at most 40 characters of a-z, 0-9 and -, such as image-rewrite
  plugins[0].source: got "oci://policies/image-rewrite", expected the registry's host first, with a dot or a port, or localhost, such as registry.example.com/policies/image-rewrite:1.4
  plugins[0].settings: expected an object; the plugin defines its keys
  plugins[0].mode: got "dryrun", expected enforce, warn or audit
  plugins[0].failurePolicy: got "ignore", expected Fail or Ignore; did you mean Ignore?
  plugins[0].limits.cpuTime: got 10, expected a duration with its unit, such as 500ms, 1.5s or 1m30s
  plugins[0].limits.timeout: got 1m, expected 1ms to 30s
  plugins[0].capabilities[1]: got "network", expected clock, cluster, access or images
  plugins[0].allowRemovals: got "yes", expected true or false
  plugins[0].failure_policy: unknown key, did you mean failurePolicy?
  plugins[1].source: got "./labels.wasm", expected file: and a path, such as file:./plugin.wasm, or oci:// and a reference with a tag or a digest, such as oci://registry.example.com/policies/image-rewrite:1.4
  plugins[1].match.rules: missing, expected at least one rule, such as {operations: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}; without `match` the plugin's own rules apply
  plugins[1].timeout: unknown key, expected name, group, source, signatures, enabled, match, settings, mode, failurePolicy, reinvocationPolicy, conflicts, existingViolations, exceptions, limits, capabilities, lookups, access, images, allowRemovals, allowNamespaceExceptions, shadow or rollout
  plugins[2].name: got "labels", which is already the name of plugins[1]
  plugins[2].match.rules[0].operations[1]: got "MODIFY", expected CREATE, UPDATE, DELETE, CONNECT or "*"
  plugins[2].match.rules[0].operations[2]: got "create", expected CREATE, UPDATE, DELETE, CONNECT or "*"; did you mean CREATE?
  plugins[2].match.rules[0].apiGroups[0]: got "core", expected "", which is the name of the core group
  plugins[2].match.rules[0].apiVersions[0]: got "apps/v1", expected an API version without its group, such as v1
  plugins[2].match.rules[0].resources[0]: got "Pods", expected a resource in the plural and in lower case, such as pods, pods/status, pods/*, */scale, "*" or */*
  plugins[2].match.rules[0].resources[2]: "pods/status" is covered by pods/*: leave one of them out
  plugins[2].match.rules[0].scope: got "namespaced", expected Cluster, Namespaced or "*"; did you mean Namespaced?
  plugins[2].match.rules[1].apiGroups: got an empty list, expected at least one; "*" stands for all
  plugins[2].match.rules[1].apiVersions: missing, expected a list of API versions, such as [v1]
  plugins[2].match.rules[1].operations: "*" covers all operations: leave out the others, or the "*"
  plugins[2].match.rules[1].resources: "*" covers all resources: leave out those without a subresource, or the "*"
  plugins[2].match.excludeNamespaces[0]: got "kube-*", expected the name of a namespace; patterns are not supported
  plugins[2].match.namespaces: got an empty list, expected namespaces; leave the key out to match all
  plugins[3]: got "just-a-name", expected an object
"#);
}

#[test]
fn reports_line_and_column_of_invalid_yaml() {
    assert_snapshot!(error("plugins:\n  - name: a\n   source: file:a.wasm\n"), @r#"
configuration: 1 problem
  line 3, column 4: not valid YAML: while parsing a block collection, did not find expected '-' indicator
"#);
    assert_snapshot!(error("plugins: [\n"), @r#"
configuration: 1 problem
  line 1, column 10: not valid YAML: unclosed bracket '['
"#);
    assert_snapshot!(error("plugins:\n- match: { rules: [{ operations: [*] }] }\n"), @r#"
configuration: 1 problem
  line 2, column 35: * begins the name of an alias in YAML; put it in quotes if it is text
"#);
    assert_snapshot!(error("plugins:\n- match:\n    rules:\n    - operations: [CREATE, *, UPDATE]\n"), @r#"
configuration: 1 problem
  line 4, column 28: * begins the name of an alias in YAML; put it in quotes if it is text
"#);
    assert_snapshot!(error("allowEmpty: true\n---\nallowEmpty: true\n"), @r#"
configuration: 1 problem
  line 3, column 1: not valid YAML: only single YAML document expected but multiple found
"#);
    assert_snapshot!(error("listen: \"\\q\"\n"), @r#"
configuration: 1 problem
  line 1, column 9: not valid YAML: while parsing a quoted scalar, found unknown escape character
"#);
    assert_snapshot!(error("\tlisten: 1\n"), @r#"
configuration: 2 problems
  listen: got 1, expected an IP address and a port, such as 0.0.0.0:8443 or [::]:8443
  plugins: missing, expected a list of plugins; write allowEmpty: true to run without any
"#);
    assert_snapshot!(error("allowEmpty: true\nlimits: {fuel: .nan}\n"), @r#"
configuration: 1 problem
  line 2, column 16: not valid YAML: value `.nan` is not a finite number
"#);
    assert_snapshot!(error("just text"), @r#"
configuration: 1 problem
  got "just text", expected an object
"#);
    assert_snapshot!(error("- a"), @r#"
configuration: 1 problem
  got a list, expected an object
"#);
}

#[test]
fn rejects_duplicate_keys_and_still_reports_the_rest() {
    assert_snapshot!(error("listen: 0.0.0.0:1\nallowEmpty: true\nlisten: 0.0.0.0:2\nplugin: []\n"), @r#"
configuration: 2 problems
  line 3, column 1: the key "listen" is given twice; keep one of them
  plugin: unknown key, did you mean plugins?
"#);
    assert_snapshot!(error("allowEmpty: true\nplugins:\n- name: a\n  source: file:a\n  settings: {a: {b: 1, b: 2}}\n"), @r#"
configuration: 1 problem
  line 5, column 24: the key "b" is given twice; keep one of them
"#);
}

#[test]
fn rejects_a_file_without_plugins_unless_told_otherwise() {
    assert_snapshot!(error(""), @r#"
configuration: 1 problem
  plugins: missing, expected a list of plugins; write allowEmpty: true to run without any
"#);
    assert_snapshot!(error("# only a comment\n"), @r#"
configuration: 1 problem
  plugins: missing, expected a list of plugins; write allowEmpty: true to run without any
"#);
    assert_snapshot!(error("plugins: []"), @r#"
configuration: 1 problem
  plugins: got an empty list, expected a list of plugins; write allowEmpty: true to run without any
"#);
    assert_snapshot!(error("plugins:\n"), @r#"
configuration: 1 problem
  plugins: got nothing, expected a list of plugins; write allowEmpty: true to run without any
"#);
    assert!(parse("allowEmpty: true").plugins.is_empty());
    assert!(parse("allowEmpty: true\nplugins: []").plugins.is_empty());
}

#[test]
fn rejects_sources_that_are_neither_files_nor_references() {
    let source = |source: &str| error(&format!("plugins: [{{name: a, source: {source}}}]"));
    assert_snapshot!(source("\"file:\""), @r#"
configuration: 1 problem
  plugins[0].source: got "file:", expected file: and a path, such as file:./plugin.wasm, or oci:// and a reference with a tag or a digest, such as oci://registry.example.com/policies/image-rewrite:1.4
"#);
    assert_snapshot!(source("file://host/a.wasm"), @r#"
configuration: 1 problem
  plugins[0].source: got "file://host/a.wasm", expected file: and a path, such as file:./plugin.wasm, or oci:// and a reference with a tag or a digest, such as oci://registry.example.com/policies/image-rewrite:1.4
"#);
    assert_snapshot!(source("https://example.com/a.wasm"), @r#"
configuration: 1 problem
  plugins[0].source: got "https://example.com/a.wasm", expected file: and a path, such as file:./plugin.wasm, or oci:// and a reference with a tag or a digest, such as oci://registry.example.com/policies/image-rewrite:1.4
"#);
    assert_snapshot!(source("7"), @r#"
configuration: 1 problem
  plugins[0].source: got 7, expected file: and a path, such as file:./plugin.wasm, or oci:// and a reference with a tag or a digest, such as oci://registry.example.com/policies/image-rewrite:1.4
"#);
}

#[test]
fn rejects_invalid_registries_and_signatures() {
    let text = "
registries:
  pollInterval: 10ms
  hosts:
    - { host: https://registry.example.com }
    - { host: registry.example.com, ca: ca.pem, plainHTTP: true }
plugins:
  - { name: a, source: file:a.wasm, signatures: { keys: [cosign.pub] } }
  - { name: b, source: 'oci://registry.example.com/b:1', signatures: { key: cosign.pub } }
";
    assert_snapshot!(error(text), @r#"
configuration: 5 problems
  registries.pollInterval: got 10ms, expected 1s to 24h
  registries.hosts[0].host: got "https://registry.example.com", expected a host with an optional port, such as registry.example.com:5000
  registries.hosts[1].ca: expected no ca if plainHTTP is true, because there is no TLS
  plugins[0].signatures: expected none: only artifacts of registries are signed, and `source` is a file
  plugins[1].signatures.key: unknown key, did you mean keys?
"#);
}

#[test]
fn signature_keys_of_plugin_override_those_of_file() {
    let config = parse(
        "
signatures: { keys: [cosign.pub, /keys/next.pub] }
plugins:
  - { name: a, source: 'oci://registry.example.com/a:1' }
  - { name: b, source: 'oci://registry.example.com/b:1', signatures: { keys: [] } }
  - { name: c, source: file:c.wasm }
",
    );
    let keys = |index: usize| {
        let keys = config.plugins[index].signatures.files();
        keys.map(|path| path.display().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(0), ["/etc/tollgate/cosign.pub", "/keys/next.pub"]);
    assert!(keys(1).is_empty() && keys(2).is_empty());
}

#[test]
fn escapes_hostile_text_in_problems() {
    let long = "x".repeat(5_000);
    let text = format!("allowEmpty: true\n\"a\\n\\e[31m\": 1\nlisten: \"\\e[31m\\u202e{long}\"\n");
    assert_snapshot!(error(&text), @r#"
configuration: 2 problems
  listen: got "\u{1b}[31m\u{202e}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"…, expected an IP address and a port, such as 0.0.0.0:8443 or [::]:8443
  ["a\n\u{1b}[31m"]: unknown key, expected listen, admin, probes, tls, authentication, requests, engine, registries, startupGrace, startupPeers, record, telemetry, cluster, scan, limits, conflicts, signatures, log, tenancy, allowEmpty or plugins
"#);
}

#[test]
fn rejects_an_alias_bomb_in_time() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let earlier = level - 1;
        let aliases = vec![format!("*a{earlier}"); 9].join("../..");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    let error = error(&text);
    assert!(error.starts_with("configuration: 1 problem"), "{error}");
}

#[test]
fn fills_in_every_default() {
    let config = parse("plugins: [{name: a, source: 'file:./a.wasm'}]");
    assert_eq!(config.listen.to_string(), "0.0.0.0:8443");
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:8081");
    let Tls::SelfSigned(self_signed) = &config.tls else {
        panic!("{:?}", config.tls)
    };
    assert_eq!(
        self_signed.directory,
        Path::new("/etc/tollgate/tollgate-tls")
    );
    assert_eq!(
        self_signed.subject_names(),
        ["localhost", "127.0.0.1", "::1"]
    );
    assert_eq!(config.requests.max_body_bytes, 40 << 20);
    assert_eq!(config.requests.idle_timeout, Duration::from_secs(120));
    assert_eq!(config.engine.max_concurrent_calls, 128);
    assert_eq!(config.engine.cache_directory, None);
    let name = PluginName::parse("a").unwrap();
    let expected = PluginConfig::new(name, Source::File(PathBuf::from("/etc/tollgate/a.wasm")));
    assert_eq!(config.plugins, [expected]);
    let limits = &config.plugins[0].limits;
    assert_eq!(
        (limits.fuel, limits.timeout),
        (100_000_000, Duration::from_millis(500))
    );
}

#[test]
fn every_default_is_within_its_bounds() {
    for limit in LIMITS {
        assert!(
            (limit.minimum..=limit.maximum).contains(&limit.default),
            "{}",
            limit.key
        );
    }
}

#[test]
fn accepts_every_key() {
    let config = parse(
        r#"
listen: "[::1]:9443"
admin: { listen: 0.0.0.0:9081, hosts: [gate.internal, 10.0.0.9], authentication: { bearer: { file: /auth/admin } } }
probes: { listen: "[::]:9080" }
startupPeers: ["tollgate-peers:9080"]
tls:
  selfSigned: { directory: /tls, names: [gate.example.com, 10.0.0.1, "fd00::1"], service: tollgate.gate-system }
authentication:
  clientCertificate: { ca: client-ca.crt, subjects: [kube-apiserver, "spiffe://cluster.local/apiserver"] }
  bearer: { file: /auth/tokens }
  basic: { file: /auth/htpasswd }
requests:
  maxBody: 10M
  maxInFlight: 1Gi
  deadlineMargin: { percent: 20, atLeast: 100ms }
  defaultTimeout: 5s
  idleTimeout: 2m
  shutdownGracePeriod: 0s
  maxDepth: 64
engine:
  maxConcurrentCalls: 32
  maxWasmStack: 1Mi
  maxPlugin: 128Mi
  loadTimeout: 1m30s
  loadMemory: 2Gi
  cacheDirectory: cache
limits: { fuel: 1G, cpuTime: 100ms, timeout: 1.5s, memory: 64Mi, memories: 2, tables: 3, tableElements: 10k,
  instances: 5, output: 1Mi, patchOperations: 100, warnings: 0, annotations: 1, logLines: 2, concurrency: 8 }
conflicts: deny
plugins:
  - name: first
    enabled: false
    source: file:/plugins/first.wasm
    match:
      rules:
        - { operations: [CREATE, UPDATE], apiGroups: ["", apps], apiVersions: [v1], resources: [pods, "*/scale"] }
        - { operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], scope: Cluster }
      namespaces: [shop, bank]
      excludeNamespaces: [kube-system]
      excludeUsers: ["system:serviceaccount:kube-system:replicaset-controller"]
      excludeGroups: ["system:nodes", "system:masters"]
      objectSelector:
        matchLabels: { app: web, example.com/tier: "" }
        matchExpressions:
          - { key: stage, operator: In, values: [dev, test] }
          - { key: stage, operator: NotIn, values: ["1"] }
          - { key: legacy, operator: DoesNotExist }
          - { key: owner, operator: Exists, values: [] }
      matchConditions:
        - { name: not-deleted, expression: "request.operation != 'DELETE'" }
        - { name: large, expression: "object.spec.replicas > 3" }
    settings: { rewrite: [{ from: k8s.gcr.io/, to: registry.k8s.io/ }], none: null }
    mode: audit
    failurePolicy: Ignore
    reinvocationPolicy: IfNeeded
    existingViolations: allow
    exceptions:
      - { namespaces: [legacy], names: [web, "1"], users: [jane], groups: [dev], until: 2026-12-31, reason: moving }
      - { users: [john], until: "2026-12-31T18:00:00+01:00", reason: on call }
    limits: { fuel: 5, timeout: 50ms }
    capabilities: [clock]
    allowRemovals: true
"#,
    );
    let Tls::SelfSigned(self_signed) = &config.tls else {
        panic!("{:?}", config.tls)
    };
    assert_eq!(
        self_signed.subject_names()[3..],
        [
            "tollgate.gate-system",
            "tollgate.gate-system.svc",
            "tollgate.gate-system.svc.cluster.local",
            "gate.example.com",
            "10.0.0.1",
            "fd00::1",
        ]
    );
    let expected = Authentication {
        client_certificate: Some(ClientCertificate {
            ca: "/etc/tollgate/client-ca.crt".into(),
            subjects: vec![
                "kube-apiserver".to_owned(),
                "spiffe://cluster.local/apiserver".to_owned(),
            ],
        }),
        bearer: Some("/auth/tokens".into()),
        basic: Some("/auth/htpasswd".into()),
        token_review: None,
    };
    assert_eq!(config.authentication, expected);
    assert_eq!(config.requests.max_body_bytes, 10_000_000);
    assert_eq!(
        config.requests.deadline_margin.of(Duration::from_secs(1)),
        Duration::from_millis(200)
    );
    assert_eq!(
        config
            .requests
            .deadline_margin
            .of(Duration::from_millis(50)),
        Duration::from_millis(50)
    );
    assert_eq!(config.engine.load_timeout, Duration::from_secs(90));
    assert_eq!(
        config.engine.cache_directory.as_deref(),
        Some(Path::new("/etc/tollgate/cache"))
    );
    let plugin = &config.plugins[0];
    assert_eq!(plugin.limits.fuel, 5);
    assert_eq!(plugin.limits.timeout, Duration::from_millis(50));
    assert_eq!(plugin.limits.table_elements, 10_000);
    assert_eq!(plugin.limits.concurrency, 8);
    assert_eq!(plugin.settings["rewrite"][0]["from"], "k8s.gcr.io/");
    assert!(plugin.capabilities.contains(&Capability::Clock) && plugin.allow_removals);
    assert_eq!(
        (plugin.mode, plugin.failure_policy),
        (Mode::Audit, FailurePolicy::Ignore)
    );
    let rules: Vec<String> = plugin
        .matching
        .iter()
        .flat_map(Match::rules)
        .map(ToString::to_string)
        .collect();
    assert_snapshot!(rules.join("\n"), @r#"
operations=CREATE,UPDATE apiGroups="",apps apiVersions=v1 resources=pods,*/scale
operations=* apiGroups=* apiVersions=* resources=*/* scope=Cluster
"#);
    assert!(!plugin.enabled);
    assert_eq!(
        (
            plugin.reinvocation_policy,
            plugin.conflicts,
            plugin.existing_violations
        ),
        (
            ReinvocationPolicy::IfNeeded,
            Conflicts::Deny,
            ExistingViolations::Allow
        )
    );
    let matching = plugin.matching.as_ref().unwrap();
    assert_snapshot!(matching.object_selector, @"app=web,example.com/tier=,stage in (dev,test),stage notin (1),!legacy,owner");
    assert_eq!(matching.exclude_groups.len(), 2);
    let conditions: Vec<&str> = matching
        .conditions
        .iter()
        .map(|condition| condition.name())
        .collect();
    assert_eq!(conditions, ["not-deleted", "large"]);
    let exceptions: Vec<String> = plugin.exceptions.iter().map(ToString::to_string).collect();
    assert_eq!(
        exceptions,
        [
            "moving (until 2026-12-31)",
            "on call (until 2026-12-31T18:00:00+01:00)"
        ]
    );
}

#[test]
fn conflicts_of_plugin_override_those_of_file() {
    let conflicts = |file: &str, plugin: &str| {
        let text = format!("{file}\nplugins: [{{name: a, source: 'file:a'{plugin}}}]");
        parse(&text).plugins[0].conflicts
    };
    assert_eq!(conflicts("", ""), Conflicts::Last);
    assert_eq!(conflicts("conflicts: deny", ""), Conflicts::Deny);
    assert_eq!(
        conflicts("conflicts: deny", ", conflicts: last"),
        Conflicts::Last
    );
    assert_eq!(conflicts("", ", conflicts: deny"), Conflicts::Deny);
}

#[test]
fn rejects_invalid_selectors_conditions_and_exceptions() {
    assert_snapshot!(error(r#"
conflicts: first
plugins:
  - name: a
    source: file:a
    enabled: no
    reinvocationPolicy: ifNeeded
    conflicts: Deny
    existingViolations: warn
    match:
      rules: [{ operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"] }]
      namespaceSelector: { matchLabels: { team: [shop] } }
      excludeUsers: ["system:*", 7]
      excludeGroups: []
      objectSelector:
        matchLabels: { -app: web, tier: "no spaces", count: 3, Example.com/a: b }
        matchExpressions:
          - { key: stage, operator: in, values: [dev] }
          - { key: stage, operator: In }
          - { key: stage, operator: NotIn, values: [] }
          - { key: stage, operator: Exists, values: [dev] }
          - { operator: DoesNotExist }
          - { key: a, operator: In, values: [ok, "-"] }
      matchConditions:
        - { name: broken, expression: "object.spec.replicas >" }
        - { name: unknown, expression: "params.max > 3 && authorizer.path('/').check('get').allowed()" }
        - { name: broken, expression: "true" }
        - { name: "a b", expression: 7 }
        - { expression: "request.name.isQuantity()" }
    exceptions:
      - { until: tomorrow, reason: "" }
      - { namespaces: [], until: 2026-02-30 }
      - { users: ["*"], until: 2026-12-31T18:00, reason: soon, untill: 2027 }
      - {}
"#), @r#"
configuration: 39 problems
  conflicts: got "first", expected last or deny
  plugins[0].enabled: got "no", expected true or false
  plugins[0].match.excludeUsers[0]: got "system:*", expected an exact name; patterns are not supported
  plugins[0].match.excludeUsers[1]: got 7, expected a name; put it in quotes
  plugins[0].match.excludeGroups: got an empty list, expected at least one name, or leave the key out
  plugins[0].match.namespaceSelector.matchLabels.team: expected the value of a label: at most 63 characters (letters, digits, -, _ and .), with a letter or digit at both ends; put it in quotes
  plugins[0].match.objectSelector.matchLabels.-app: expected the key of a label, such as app or example.com/tier
  plugins[0].match.objectSelector.matchLabels["Example.com/a"]: expected the key of a label, such as app or example.com/tier
  plugins[0].match.objectSelector.matchLabels.count: expected the value of a label: at most 63 characters (letters, digits, -, _ and .), with a letter or digit at both ends; put it in quotes
  plugins[0].match.objectSelector.matchLabels.tier: got "no spaces", expected the value of a label: at most 63 characters (letters, digits, -, _ and .), with a letter or digit at both ends
  plugins[0].match.objectSelector.matchExpressions[0].operator: got "in", expected In, NotIn, Exists or DoesNotExist; did you mean In?
  plugins[0].match.objectSelector.matchExpressions[1].values: missing, expected at least one value
  plugins[0].match.objectSelector.matchExpressions[2].values: got an empty list, expected at least one value
  plugins[0].match.objectSelector.matchExpressions[3].values: got a list, expected no values: this operator takes none
  plugins[0].match.objectSelector.matchExpressions[4].key: missing, expected the key of a label, such as app or example.com/tier
  plugins[0].match.objectSelector.matchExpressions[5].values[1]: got "-", expected the value of a label: at most 63 characters (letters, digits, -, _ and .), with a letter or digit at both ends
  plugins[0].match.matchConditions[0].expression: line 1, column 24: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
  plugins[0].match.matchConditions[1].expression: line 1, column 1: unknown name `params`, expected object, oldObject, request or namespaceObject
  plugins[0].match.matchConditions[1].expression: line 1, column 19: `authorizer` is not available here: it needs the API server; write this condition into the webhook configuration
  plugins[0].match.matchConditions[2].name: got "broken", expected another name, because another condition already has this one
  plugins[0].match.matchConditions[3].name: got "a b", expected a name of at most 63 characters: letters, digits, -, _ and .
  plugins[0].match.matchConditions[3].expression: got 7, expected a CEL expression, such as "request.operation != 'DELETE'"; put it in quotes
  plugins[0].match.matchConditions[4].name: missing, expected a name of at most 63 characters: letters, digits, -, _ and .
  plugins[0].match.matchConditions[4].expression: line 1, column 24: unknown function `isQuantity`
  plugins[0].reinvocationPolicy: got "ifNeeded", expected Never or IfNeeded; did you mean IfNeeded?
  plugins[0].conflicts: got "Deny", expected last or deny; did you mean deny?
  plugins[0].existingViolations: got "warn", expected deny or allow
  plugins[0].exceptions[0]: got an object, expected at least one of namespaces, names, users or groups; to disable the plugin, write enabled: false
  plugins[0].exceptions[0].until: got "tomorrow", expected a day, such as 2026-12-31, which is the last one (in UTC), a time, such as 2026-12-31T18:00:00Z, or never
  plugins[0].exceptions[0].reason: got "", expected a text that says why, of at most 500 bytes
  plugins[0].exceptions[1].namespaces: got an empty list, expected at least one name, or leave the key out
  plugins[0].exceptions[1].until: got "2026-02-30", expected a day, such as 2026-12-31, which is the last one (in UTC), a time, such as 2026-12-31T18:00:00Z, or never
  plugins[0].exceptions[1].reason: missing, expected a text that says why
  plugins[0].exceptions[2].users[0]: got "*", expected an exact name; patterns are not supported
  plugins[0].exceptions[2].until: got "2026-12-31T18:00", expected a day, such as 2026-12-31, which is the last one (in UTC), a time, such as 2026-12-31T18:00:00Z, or never
  plugins[0].exceptions[2].untill: unknown key, did you mean until?
  plugins[0].exceptions[3]: got an object, expected at least one of namespaces, names, users or groups; to disable the plugin, write enabled: false
  plugins[0].exceptions[3].until: missing, expected a day, such as 2026-12-31, which is the last one (in UTC), a time, such as 2026-12-31T18:00:00Z, or never
  plugins[0].exceptions[3].reason: missing, expected a text that says why
"#);
}

#[test]
fn limits_number_of_conditions() {
    let conditions: Vec<String> = (0..65)
        .map(|index| format!("{{name: c{index}, expression: 'true'}}"))
        .collect();
    let rule = "{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}";
    let text = format!(
        "plugins: [{{name: a, source: 'file:a', match: {{rules: [{rule}], matchConditions: [{}]}}}}]",
        conditions.join(", ")
    );
    assert_snapshot!(error(&text), @r#"
configuration: 1 problem
  plugins[0].match.matchConditions: got 65 conditions, expected at most 64
"#);
}

#[test]
fn a_smaller_engine_lowers_the_default_concurrency() {
    let config = parse("engine: {maxConcurrentCalls: 4}\nplugins: [{name: a, source: 'file:a'}]");
    assert_eq!(config.plugins[0].limits.concurrency, 4);
}

#[test]
fn shadow_inherits_missing_keys_from_its_plugin() {
    let config = parse(
        r"
limits: { fuel: 7M }
plugins:
  - name: a
    source: file:a.wasm
    settings: { one: 1 }
    limits: { timeout: 1s }
    capabilities: [clock]
    failurePolicy: Fail
    existingViolations: allow
    exceptions: [{ namespaces: [a], until: 2099-01-01, reason: b }]
    shadow: { source: file:next.wasm }
  - name: b
    source: 'oci://registry.example.com/b:1'
    signatures: { keys: [b.pub] }
    capabilities: [clock]
    shadow:
      source: 'oci://registry.example.com/b:2'
      settings: { two: 2 }
      limits: { fuel: 9M }
      capabilities: []
",
    );
    let names: Vec<&str> = config
        .shadows
        .iter()
        .map(|shadow| shadow.name.as_str())
        .collect();
    assert_eq!(names, ["a.shadow", "b.shadow"]);
    let (plugin, shadow) = (&config.plugins[0], &config.shadows[0]);
    assert_eq!(shadow.name.shadow_of(), Some("a"));
    assert!(shadow.is_shadow() && !plugin.is_shadow());
    assert_eq!(
        shadow.source,
        Source::File("/etc/tollgate/next.wasm".into())
    );
    assert_eq!(shadow.settings, plugin.settings);
    assert_eq!(shadow.limits, plugin.limits);
    assert_eq!(shadow.capabilities, plugin.capabilities);
    assert_eq!(shadow.existing_violations, plugin.existing_violations);
    // A shadow version decides nothing. It is not called for requests that an exception of its plugin covers.
    assert_eq!(shadow.mode, Mode::Audit);
    assert_eq!(shadow.failure_policy, FailurePolicy::Ignore);
    assert!(shadow.exceptions.is_empty());

    let (plugin, shadow) = (&config.plugins[1], &config.shadows[1]);
    assert_eq!(shadow.signatures, plugin.signatures);
    assert_eq!(shadow.settings, serde_json::json!({"two": 2}));
    assert_eq!(shadow.limits.fuel, 9_000_000);
    assert!(shadow.capabilities.is_empty());
}

#[test]
fn rejects_invalid_shadows() {
    assert_snapshot!(error(r"
plugins:
  - { name: a, source: file:a.wasm, shadow: { settings: [secret], mode: warn } }
  - { name: b, source: file:b.wasm, shadow: { source: file:c.wasm, capabilities: [clock], signatures: { keys: [] } } }
  - { name: c, source: file:c.wasm, shadow: file:d.wasm }
  - { name: d.shadow, source: file:d.wasm, shadow: { source: file:e.wasm, limits: { fuel: 0 } } }
"), @r#"
configuration: 8 problems
  plugins[0].shadow.source: missing, expected file: and a path, such as file:./plugin.wasm, or oci:// and a reference with a tag or a digest, such as oci://registry.example.com/policies/image-rewrite:1.4
  plugins[0].shadow.settings: expected an object; the plugin defines its keys
  plugins[0].shadow.mode: unknown key, expected source, signatures, settings, limits or capabilities
  plugins[1].shadow.signatures: expected none: only artifacts of registries are signed, and `source` is a file
  plugins[1].shadow.capabilities: got clock, which the plugin itself does not have: a shadow may have only capabilities of its plugin
  plugins[2].shadow: got "file:d.wasm", expected an object
  plugins[3].name: got "d.shadow", expected a name of at most 40 characters of a-z, 0-9 and -, such as image-rewrite
  plugins[3].shadow.limits.fuel: got 0, expected 1 to 1T
"#);
}

#[test]
fn rejects_two_listeners_on_one_port() {
    let listeners = |listen: &str, admin: &str| {
        let text = format!("allowEmpty: true\nlisten: '{listen}'\nadmin: {{listen: '{admin}'}}");
        Config::parse(&text, Path::new("."))
    };
    assert!(listeners("10.0.0.1:8443", "127.0.0.1:8443").is_ok());
    assert!(listeners("127.0.0.1:0", "127.0.0.1:0").is_ok());
    assert_snapshot!(listeners("0.0.0.0:8443", "127.0.0.1:8443").unwrap_err(), @r#"
configuration: 1 problem
  admin.listen: got 127.0.0.1:8443, expected a port other than that of `listen`
"#);
}

#[test]
fn rejects_probes_on_the_port_of_another_listener() {
    let error = |text: &str| Config::parse(text, Path::new(".")).unwrap_err();
    assert_snapshot!(error("allowEmpty: true\nlisten: 0.0.0.0:8080"), @r#"
configuration: 1 problem
  probes.listen: got 0.0.0.0:8080 by default, expected a port other than that of `listen`
"#);
    assert_snapshot!(error("allowEmpty: true\nprobes: {listen: 127.0.0.1:8081}"), @r#"
configuration: 1 problem
  probes.listen: got 127.0.0.1:8081, expected a port other than that of `admin.listen`
"#);
}

#[test]
fn rejects_reachable_admin_listener_without_authentication() {
    let admin = |listen: &str| {
        let text = format!("allowEmpty: true\nadmin: {{listen: '{listen}'}}");
        Config::parse(&text, Path::new("."))
    };
    for listen in [
        "127.0.0.1:1",
        "127.9.9.9:1",
        "[::1]:1",
        "[::ffff:127.0.0.1]:1",
    ] {
        assert!(admin(listen).is_ok(), "{listen}");
    }
    for listen in ["[::]:1", "10.0.0.7:1", "[::2]:1"] {
        assert!(admin(listen).is_err(), "{listen}");
    }
    assert_snapshot!(admin("0.0.0.0:9081").unwrap_err(), @r#"
configuration: 1 problem
  admin.authentication: missing, expected clientCertificate, bearer, basic or tokenReview: admin.listen is 0.0.0.0:9081, which is not a loopback address, so anyone who reaches it could read decisions and reload plugins; probes and metrics are at probes.listen
"#);
}

#[test]
fn describes_start_without_a_plugin() {
    let says = |keys: &str| {
        parse(&format!("allowEmpty: true\n{keys}"))
            .startup
            .to_string()
    };
    assert_snapshot!(says(""), @"the server is not ready until every plugin with mode enforce and failurePolicy Fail is loaded (startupGrace: never, which is the default without startupPeers)");
    assert_snapshot!(says("startupGrace: 30s"), @"the server is not ready until every plugin with mode enforce and failurePolicy Fail is loaded, for 30s at most (startupGrace); after that, it denies the requests that a missing plugin matches, and a rollout of the server continues");
    assert_snapshot!(says("startupPeers: ['peers:8080', '[::1]:8080']"), @"the server is not ready until every plugin with mode enforce and failurePolicy Fail is loaded, for 5m (startupGrace), and longer while one of peers:8080, [::1]:8080 has all of its plugins (startupPeers)");
    assert_snapshot!(says("startupGrace: never\nstartupPeers: ['peers:8080']"), @"the server is not ready until every plugin with mode enforce and failurePolicy Fail is loaded (startupGrace: never)");
    let error = Config::parse(
        "allowEmpty: true\nstartupGrace: soon\nstartupPeers: [peers, 'peers:0']",
        Path::new("."),
    );
    assert_snapshot!(error.unwrap_err(), @r#"
configuration: 3 problems
  startupGrace: got "soon", expected never, or a duration with its unit, such as 30s or 5m
  startupPeers[0]: got "peers", expected the host and port of other replicas' probes.listen, such as tollgate-peers.tollgate-system.svc.cluster.local:8080
  startupPeers[1]: got "peers:0", expected the host and port of other replicas' probes.listen, such as tollgate-peers.tollgate-system.svc.cluster.local:8080
"#);
}

#[test]
fn accepts_certificate_files() {
    let config = parse("allowEmpty: true\ntls: { certificate: tls.crt, key: /tls/tls.key }");
    let expected = Tls::Files {
        certificate: "/etc/tollgate/tls.crt".into(),
        key: "/tls/tls.key".into(),
    };
    assert_eq!(config.tls, expected);
    assert_snapshot!(error("allowEmpty: true\ntls: { certificate: , key: }"), @r#"
configuration: 2 problems
  tls.certificate: got nothing, expected the path of a PEM file with the certificate of `key`
  tls.key: got nothing, expected the path of a PEM file with the private key of `certificate`
"#);
    assert_snapshot!(error("allowEmpty: true\ntls: { selfSigned: { names: [a_b, ''], service: tollgate } }"), @r#"
configuration: 3 problems
  tls.selfSigned.service: got "tollgate", expected a service's name and namespace, such as tollgate.tollgate-system
  tls.selfSigned.names[0]: got "a_b", expected a DNS name or an IP address
  tls.selfSigned.names[1]: got "", expected a DNS name or an IP address
"#);
}

#[test]
fn accepts_all_clients_by_default_and_rejects_missing_files() {
    let config = parse("allowEmpty: true");
    assert_eq!(config.authentication, Authentication::default());
    assert_snapshot!(error("allowEmpty: true\nauthentication: {}"), @r#"
configuration: 1 problem
  authentication: got an empty object, expected clientCertificate, bearer or basic; leave the key out to accept every caller
"#);
    assert_snapshot!(error("allowEmpty: true\nauthentication: { clientCertificate: { subjects: [] }, bearer: tokens, basic: {}, token: x }"), @r#"
configuration: 5 problems
  authentication.clientCertificate.ca: missing, expected the path of a PEM file with the CA of the clients' certificates
  authentication.clientCertificate.subjects: got an empty list, expected subjects; leave the key out to accept every certificate of the CA
  authentication.bearer: got "tokens", expected an object
  authentication.basic.file: missing, expected the path of a file with names and passwords, as `htpasswd -B` writes it
  authentication.token: unknown key, expected clientCertificate, bearer or basic
"#);
}

#[test]
fn accepts_tokens_of_cluster_on_admin_listener_alone() {
    let config = parse(
        "cluster: { enabled: true }\nadmin: { listen: '0.0.0.0:8081', authentication: { tokenReview: { audiences: [a] } } }",
    );
    let authentication = config.admin.authentication.unwrap();
    let audiences = vec!["a".to_owned()];
    assert_eq!(authentication.token_review, Some(TokenReview { audiences }));
    assert_snapshot!(error("allowEmpty: true\nadmin: { authentication: { tokenReview: { audiences: [''], audience: a } } }\nauthentication: { tokenReview: {} }"), @r#"
configuration: 4 problems
  admin.authentication.tokenReview.audience: unknown key, did you mean audiences?
  admin.authentication.tokenReview.audiences[0]: got "", expected an audience of tokens, such as tollgate
  authentication.tokenReview: unknown key, expected clientCertificate, bearer or basic
  admin.authentication.tokenReview: needs cluster.enabled: true, because kube-apiserver verifies the tokens
"#);
    assert_snapshot!(error("allowEmpty: true\nadmin: { authentication: {} }"), @r#"
configuration: 1 problem
  admin.authentication: got an empty object, expected clientCertificate, bearer, basic or tokenReview
"#);
}

#[test]
fn rejects_rules_as_kubernetes_does_in_any_order() {
    let resources = |resources: &str| {
        let rule = format!(
            "{{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: [{resources}]}}"
        );
        Config::parse(
            &format!("plugins: [{{name: a, source: 'file:a', match: {{rules: [{rule}]}}}}]"),
            Path::new("."),
        )
    };
    for accepted in [
        "pods",
        "pods, pods/status",
        "'*'",
        "'*', '*/scale'",
        "'*', pods/status",
        "'*/*'",
        "pods, pods/*",
        "pods/*, services/*",
        "pods/*, '*/scale'",
        "'*/scale', '*/status'",
        "pods, pods",
        "widgets2, a-b/c-d",
    ] {
        assert!(resources(accepted).is_ok(), "{accepted}");
    }
    for rejected in [
        "",
        "''",
        "'*', pods",
        "pods, '*'",
        "'*', pods, services/status",
        "'*/*', pods",
        "pods/status, '*/*'",
        "'*/*', '*/*'",
        "pods/*, pods/status",
        "pods/status, pods/*",
        "pods/*, pods/*",
        "'*/scale', pods/scale",
        "pods/scale, '*/scale'",
        "Pods",
        "pod*",
        "pods/",
        "/status",
        "pods/a/b",
        "deployments.apps",
        "pods/a.b",
        "1",
    ] {
        assert!(resources(rejected).is_err(), "{rejected}");
    }
}

#[test]
fn suggests_corrections_for_rules_that_never_match() {
    assert_snapshot!(error(r#"
plugins:
  - name: a
    source: file:a
    match:
      rules:
        - operations: [CREATE]
          apiGroups: ["*.k8s.io", Apps, v1, v1beta1, "apps,batch", apps., " ", "apps ", a_b]
          apiVersions: [V1, "v1*", "", "v1, v2", 1a]
          resources: [deployments.apps, ingresses.networking.k8s.io, "pods,services", pods/.x]
"#), @r#"
configuration: 18 problems
  plugins[0].match.rules[0].apiGroups[0]: got "*.k8s.io", expected "*" alone for all, or the whole name of an API group; patterns are not supported
  plugins[0].match.rules[0].apiGroups[1]: got "Apps", expected apps
  plugins[0].match.rules[0].apiGroups[2]: got "v1", expected an API group, such as apps; versions belong in apiVersions, and the core group is ""
  plugins[0].match.rules[0].apiGroups[3]: got "v1beta1", expected an API group, such as apps; versions belong in apiVersions, and the core group is ""
  plugins[0].match.rules[0].apiGroups[4]: got "apps,batch", expected one API group in each text, such as [apps, batch]
  plugins[0].match.rules[0].apiGroups[5]: got "apps.", expected apps
  plugins[0].match.rules[0].apiGroups[6]: got " ", expected "", which is the name of the core group
  plugins[0].match.rules[0].apiGroups[7]: got "apps ", expected apps
  plugins[0].match.rules[0].apiGroups[8]: got "a_b", expected an API group, such as apps or networking.k8s.io
  plugins[0].match.rules[0].apiVersions[0]: got "V1", expected v1
  plugins[0].match.rules[0].apiVersions[1]: got "v1*", expected "*" alone for all, or the whole name of an API version; patterns are not supported
  plugins[0].match.rules[0].apiVersions[2]: got "", expected an API version, such as v1
  plugins[0].match.rules[0].apiVersions[3]: got "v1, v2", expected one API version in each text, such as [v1, v1beta1]
  plugins[0].match.rules[0].apiVersions[4]: got "1a", expected an API version, such as v1
  plugins[0].match.rules[0].resources[0]: got "deployments.apps", expected deployments, and apps in apiGroups
  plugins[0].match.rules[0].resources[1]: got "ingresses.networking.k8s.io", expected ingresses, and networking.k8s.io in apiGroups
  plugins[0].match.rules[0].resources[2]: got "pods,services", expected one resource in each text, such as [pods, services]
  plugins[0].match.rules[0].resources[3]: got "pods/.x", expected a resource in the plural and in lower case, such as pods, pods/status, pods/*, */scale, "*" or */*
"#);
    let accepted = r#"
plugins:
  - name: a
    source: file:a
    match:
      rules:
        - operations: [CREATE]
          apiGroups: ["", apps, networking.k8s.io, v1.example.com, vertical, 3scale.net]
          apiVersions: [v1, v2beta3, v20260101, internal-v1]
          resources: [pods]
"#;
    assert_eq!(parse(accepted).plugins.len(), 1);
}

#[test]
fn checks_rules_of_manifest_like_those_of_file() {
    let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let good = ManifestRule {
        operations: texts(&["CREATE"]),
        api_groups: texts(&[""]),
        api_versions: texts(&["v1"]),
        resources: texts(&["pods"]),
        scope: None,
    };
    assert_eq!(
        Match::from_manifest_rules(std::slice::from_ref(&good))
            .unwrap()
            .rules()
            .len(),
        1
    );
    let bad = ManifestRule {
        operations: texts(&["CREATE", "WATCH\u{1b}"]),
        scope: Some("All".into()),
        ..good.clone()
    };
    let empty = ManifestRule::default();
    assert_snapshot!(Match::from_manifest_rules(&[good, bad, empty]).unwrap_err(), @r#"
6 problems
  describe.rules[1].operations[1]: got "WATCH\u{1b}", expected CREATE, UPDATE, DELETE, CONNECT or "*"
  describe.rules[1].scope: got "All", expected Cluster, Namespaced or "*"
  describe.rules[2].operations: got an empty list, expected at least one; "*" stands for all
  describe.rules[2].apiGroups: got an empty list, expected at least one; "*" stands for all
  describe.rules[2].apiVersions: got an empty list, expected at least one; "*" stands for all
  describe.rules[2].resources: got an empty list, expected at least one; "*" stands for all
"#);
    assert_snapshot!(Match::from_manifest_rules(&[]).unwrap_err(), @r#"
1 problem
  describe.rules: empty; the plugin names no rules, so write `match` in its configuration
"#);
}

#[test]
fn limits_rules_of_a_plugin_manifest() {
    let rule = ManifestRule {
        operations: vec!["\u{1b}".repeat(500); 500],
        ..ManifestRule::default()
    };
    let error = Match::from_manifest_rules(std::slice::from_ref(&rule)).unwrap_err();
    assert!(error.to_string().len() < 100_000);
    assert_snapshot!(Match::from_manifest_rules(&vec![rule; 65]).unwrap_err(), @r#"
1 problem
  describe.rules: got 65 rules, expected at most 64
"#);
}

/// The page that documents this module.
fn documentation() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn documentation_contains_table_of_limits() {
    let mut expected = String::new();
    for limit in LIMITS {
        let (unit, default) = (limit.unit.name(), limit.unit.format(limit.default));
        let (minimum, maximum) = (
            limit.unit.format(limit.minimum),
            limit.unit.format(limit.maximum),
        );
        let Limit {
            key,
            mechanism,
            fault,
            ..
        } = limit;
        expected.push_str(&format!(
            "| `{key}` | {unit} | {default} | {minimum} to {maximum} | {mechanism} | {fault} |\n"
        ));
    }
    assert!(
        documentation().contains(&expected),
        "docs/reference/configuration.md lacks these rows:\n{expected}"
    );
}

/// The pages with configuration examples: the guides, and each plugin's own page.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = |folder: &str| {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path())
    };
    let guides = ["docs", "docs/concepts", "docs/guides", "docs/reference"]
        .into_iter()
        .flat_map(files)
        .filter(|path| path.extension().is_some_and(|end| end == "md"));
    let plugins = files("plugins").map(|folder| folder.join("README.md"));
    [root.join("README.md")]
        .into_iter()
        .chain(guides)
        .chain(plugins)
        .collect()
}

/// The examples of a configuration in the documentation.
pub(crate) fn examples() -> Vec<String> {
    let pages: Vec<String> = pages()
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    pages
        .iter()
        .flat_map(|page| page.split("```yaml\n").skip(1))
        .filter_map(|rest| rest.split("```").next())
        // Leaves out Kubernetes' own manifests and suites of `tollgate test`.
        .filter(|example| !example.lines().any(|line| line.starts_with("apiVersion:")))
        .filter(|example| !example.contains("cases:"))
        .map(ToOwned::to_owned)
        .collect()
}

#[test]
fn documented_examples_are_valid() {
    let examples = examples();
    assert!(examples.len() > 20, "{}", examples.len());
    for example in examples {
        // A fragment may have no plugins.
        let empty = if example.contains("plugins:") {
            ""
        } else {
            "allowEmpty: true\n"
        };
        parse(&format!("{empty}{example}"));
    }
}

#[test]
fn loads_each_file_in_a_folder_as_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let touch = |name: &str| std::fs::write(folder.path().join(name), "").unwrap();
    let problem = || {
        let error = Config::for_directory(folder.path())
            .unwrap_err()
            .to_string();
        error.replace(&folder.path().display().to_string(), "plugins")
    };
    assert_snapshot!(problem(), @r#"
plugins: 1 problem
  no plugins: the folder has no file with a name like my-plugin.wasm
"#);
    for name in [
        "required_labels.wasm",
        "always-pull-images.wasm",
        "README.md",
        ".hidden.wasm",
    ] {
        touch(name);
    }
    std::fs::create_dir(folder.path().join("folder.wasm")).unwrap();
    let config = Config::for_directory(folder.path()).unwrap();
    let names: Vec<&str> = config
        .plugins
        .iter()
        .map(|plugin| plugin.name.as_str())
        .collect();
    assert_eq!(names, ["always-pull-images", "required-labels"]);
    assert_eq!(
        config.plugins[1].source,
        Source::File(folder.path().join("required_labels.wasm"))
    );
    assert_eq!(config.plugins[1].matching, None);
    touch("required-labels.wasm");
    touch("Second Try.wasm");
    assert_snapshot!(problem(), @r#"
plugins: 2 problems
  "Second Try.wasm": cannot derive a plugin's name from the file's name: a plugin's name has at most 40 characters of a-z, 0-9 and -, and begins and ends with a letter or digit; rename the file
  "required_labels.wasm": the file would be the plugin required-labels, and so would "required-labels.wasm"; rename one of them
"#);
    folder.close().unwrap();
}

#[test]
fn names_the_invalid_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tollgate.yaml");
    let problem = || {
        Config::load(&path)
            .unwrap_err()
            .to_string()
            .replace(&path.display().to_string(), "tollgate.yaml")
    };
    assert_snapshot!(problem(), @"cannot read the configuration file tollgate.yaml");
    std::fs::write(&path, [b'a', 0xff]).unwrap();
    assert_snapshot!(problem(), @r#"
tollgate.yaml: 1 problem
  the file is not UTF-8 text, from byte 1 on
"#);
    std::fs::write(&path, vec![b'#'; (4 << 20) + 1]).unwrap();
    assert_snapshot!(problem(), @r#"
tollgate.yaml: 1 problem
  the file is longer than 4Mi
"#);
    std::fs::write(&path, "plugins: 1").unwrap();
    assert_snapshot!(problem(), @r#"
tollgate.yaml: 1 problem
  plugins: got 1, expected a list of plugins
"#);
    std::fs::write(&path, "plugins: [{name: a, source: 'file:a.wasm'}]").unwrap();
    assert_eq!(
        Config::load(&path).unwrap().plugins[0].source,
        Source::File(folder.path().join("a.wasm"))
    );
}

#[test]
fn changed_startup_needs_a_restart() {
    let of = |text: &str| {
        let text = format!("allowEmpty: true\n{text}");
        Config::parse(&text, Path::new(".")).unwrap()
    };
    let running = of("");
    assert_eq!(of("").needs_restart(&running), [""; 0]);
    assert_eq!(
        of("startupGrace: 2m").needs_restart(&running),
        ["startupGrace"]
    );
    let peers = of("startupGrace: never\nstartupPeers: ['peers:8080']");
    assert_eq!(peers.needs_restart(&running), ["startupPeers"]);
}
