//! Planted problems, each of which has to be found, and a healthy cluster, in which nothing is found.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use insta::assert_snapshot;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use serde_json::{Value, json};

use super::*;

fn now() -> OffsetDateTime {
    day("2026-11-01")
}

fn day(day: &str) -> OffsetDateTime {
    use time::format_description::well_known::Rfc3339;
    OffsetDateTime::parse(&format!("{day}T00:00:00Z"), &Rfc3339).expect("a date")
}

fn installation() -> Installation {
    Installation {
        namespace: "tollgate-system".to_owned(),
        service: "tollgate".to_owned(),
        break_glass_group: "tollgate:break-glass".to_owned(),
    }
}

fn objects(documents: &[Value]) -> Objects {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": documents});
    Objects::parse(&list.to_string()).expect("objects")
}

/// A CA that expires at the end of the year, and the certificate that it signed for the Service.
struct Authority {
    ca: String,
    leaf: String,
}

impl Authority {
    fn new(name: &str, year: i32) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 12, 31);
        let key = KeyPair::generate().expect("a key");
        let ca = params.self_signed(&key).expect("a CA").pem();
        let issuer = Issuer::new(params, key);
        let names = vec!["tollgate.tollgate-system.svc".to_owned()];
        let mut params = CertificateParams::new(names).expect("parameters");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2030, 1, 1);
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("a key");
        let leaf = params.signed_by(&key, &issuer).expect("a leaf").pem();
        Self { ca, leaf }
    }

    fn secret(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "tollgate-tls", "namespace": "tollgate-system"},
            "data": {"tls.crt": STANDARD.encode(&self.leaf), "tls.key": ""},
        })
    }
}

/// A webhook configuration as `tollgate manifests` prints it for a plugin with wildcards.
fn registered(bundle: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "tollgate", "labels": {"app.kubernetes.io/name": "tollgate"}},
        "webhooks": [{
            "name": "validate.tollgate.dev",
            "clientConfig": {
                "service": {
                    "namespace": "tollgate-system", "name": "tollgate", "path": "/validate", "port": 443,
                },
                "caBundle": STANDARD.encode(bundle),
            },
            "rules": [{
                "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "*",
            }],
            "failurePolicy": "Fail",
            "namespaceSelector": {"matchExpressions": [{
                "key": "kubernetes.io/metadata.name", "operator": "NotIn",
                "values": ["kube-node-lease", "kube-system", "tollgate-system"],
            }]},
            "matchConditions": [
                {
                    "name": "exclude-leases",
                    "expression": "request.resource.group != 'coordination.k8s.io' || request.resource.resource != \
                                   'leases'",
                },
                {
                    "name": "exclude-nodes",
                    "expression": "request.operation == 'CONNECT' || !(request.resource.group + '/' + \
                                   request.resource.resource in ['/nodes', \
                                   'certificates.k8s.io/certificatesigningrequests', 'storage.k8s.io/csinodes', \
                                   'storage.k8s.io/volumeattachments'])",
                },
            ],
            "timeoutSeconds": 5,
        }],
    })
}

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "tollgate", "namespace": "tollgate-system"},
        "spec": {"ports": [{"port": 443, "targetPort": 8443}]},
    })
}

fn endpoints(ready: &[bool]) -> Value {
    let endpoint =
        |ready: &bool| json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}});
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "tollgate-x", "namespace": "tollgate-system",
            "labels": {"kubernetes.io/service-name": "tollgate"},
        },
        "endpoints": ready.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

fn healthy() -> Vec<Value> {
    let authority = Authority::new("first", 2035);
    vec![
        registered(&authority.ca),
        service(),
        endpoints(&[true, true]),
        authority.secret(),
    ]
}

fn found(documents: &[Value]) -> Vec<Finding> {
    examine(&objects(documents), &installation(), now())
}

fn checks(documents: &[Value]) -> Vec<&'static str> {
    found(documents)
        .iter()
        .map(|finding| finding.check)
        .collect()
}

fn written(findings: &[Finding]) -> String {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn planted(file: &str) -> String {
    let mut objects = objects(&healthy());
    objects.extend(Objects::parse(file).expect("the planted file has objects"));
    written(&examine(&objects, &installation(), now()))
}

#[test]
fn healthy_installation_has_no_findings() {
    assert_eq!(written(&found(&healthy())), "");
}

#[test]
fn finds_engine_with_wildcards_that_blocks_nodes_and_tollgate() {
    assert_snapshot!(planted(include_str!("planted/wildcard-engine.yaml")));
}

#[test]
fn finds_engine_that_does_not_exempt_control_plane() {
    assert_snapshot!(planted(include_str!("planted/label-exempt-engine.yaml")));
}

#[test]
fn finds_policies_that_need_parameters() {
    assert_snapshot!(planted(include_str!("planted/generated-policies.yaml")));
}

#[test]
fn finds_own_deadlock_without_exclusions() {
    let mut documents = healthy();
    let webhook = &mut documents[0]["webhooks"][0];
    webhook["namespaceSelector"] = json!({});
    webhook["matchConditions"] = json!([]);
    assert_snapshot!(written(&found(&documents)));
}

#[test]
fn each_exclusion_prevents_its_own_finding() {
    let without = |change: fn(&mut Value)| {
        let mut documents = healthy();
        change(&mut documents[0]["webhooks"][0]);
        checks(&documents)
    };
    let no_namespaces = without(|webhook| webhook["namespaceSelector"] = json!({}));
    assert_eq!(no_namespaces, ["blocks-control-plane", "own-deadlock"]);
    let no_nodes = without(|webhook| {
        webhook["matchConditions"]
            .as_array_mut()
            .expect("a list")
            .remove(1);
    });
    assert_eq!(no_nodes, ["blocks-nodes"]);
    let no_leases = without(|webhook| {
        webhook["matchConditions"]
            .as_array_mut()
            .expect("a list")
            .remove(0);
    });
    assert_eq!(
        no_leases,
        Vec::<&str>::new(),
        "their namespaces are excluded"
    );
    let ignoring = without(|webhook| {
        webhook["namespaceSelector"] = json!({});
        webhook["failurePolicy"] = json!("Ignore");
    });
    assert_eq!(ignoring, ["fails-open"]);
}

#[test]
fn webhook_outside_of_cluster_is_a_warning() {
    let mut documents = healthy();
    documents.push(json!({
        "kind": "MutatingWebhookConfiguration", "metadata": {"name": "remote"},
        "webhooks": [{
            "name": "remote.example.com", "clientConfig": {"url": "https://remote.example.com/"},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "tollgate-system"}},
        }],
    }));
    let findings = found(&documents);
    assert_eq!(findings.len(), 1, "{}", written(&findings));
    assert_eq!(findings[0].severity, Severity::Warning);
    assert_eq!(findings[0].check, "blocks-tollgate");
    assert!(
        findings[0]
            .problem
            .contains("CREATE pods in tollgate-system")
    );
}

#[test]
fn finds_service_that_cannot_answer() {
    let mut documents = healthy();
    documents.remove(1);
    assert_eq!(checks(&documents), ["service-missing"]);
    let mut documents = healthy();
    documents[1]["spec"]["ports"] = json!([{"port": 8443}]);
    assert_eq!(checks(&documents), ["service-port"]);
    for (ready, expected) in [
        (&[][..], vec!["service-without-endpoints"]),
        (&[false], vec!["service-without-endpoints"]),
        (&[true, false], vec!["one-replica"]),
        (&[true, true], vec![]),
    ] {
        let mut documents = healthy();
        documents[2] = endpoints(ready);
        assert_eq!(checks(&documents), expected, "{ready:?}");
    }
}

#[test]
fn finds_certificates_that_kube_apiserver_rejects() {
    let with = |bundle: &str, authority: &Authority| {
        let mut documents = healthy();
        documents[0] = registered(bundle);
        documents[3] = authority.secret();
        checks(&documents)
    };
    let (first, second) = (Authority::new("first", 2035), Authority::new("first", 2035));
    let both = format!("{}{}", first.ca, second.ca);
    assert_eq!(with(&first.ca, &first), Vec::<&str>::new());
    assert_eq!(with(&both, &second), Vec::<&str>::new());
    // Both CAs have the same name. Their keys differ.
    assert_eq!(with(&first.ca, &second), ["ca-mismatch"]);
    assert_eq!(with("", &first), ["ca-missing"]);
    assert_eq!(with("no certificate", &first), ["ca-invalid"]);
    let expired = Authority::new("old", 2025);
    assert_eq!(with(&expired.ca, &expired), ["ca-expired"]);
    let renewed = format!("{}{}", expired.ca, first.ca);
    assert_eq!(with(&renewed, &first), Vec::<&str>::new());
    let soon = Authority::new("soon", 2026);
    let mut documents = healthy();
    documents[0] = registered(&soon.ca);
    documents[3] = soon.secret();
    let in_december = day("2026-12-10");
    let findings = examine(&objects(&documents), &installation(), in_december);
    assert_eq!(findings[0].check, "ca-expires-soon");
    assert_eq!(findings[0].severity, Severity::Warning);
}

#[test]
fn finds_missing_registration_and_long_timeouts() {
    let mut documents = healthy();
    documents.remove(0);
    assert_eq!(checks(&documents), ["not-registered"]);
    let mut documents = healthy();
    documents[0]["webhooks"][0]["timeoutSeconds"] = json!(30);
    assert_eq!(checks(&documents), ["long-timeout"]);
}

#[test]
fn finds_service_by_registered_webhooks() {
    let found = found_in(&objects(&healthy()));
    assert_eq!(
        found,
        Some(("tollgate-system".to_owned(), "tollgate".to_owned()))
    );
    assert_eq!(found_in(&Objects::default()), None);
}

#[test]
fn names_commands_that_let_administrators_out() {
    let commands = break_glass(&objects(&healthy()), &installation());
    assert_eq!(
        commands,
        [
            "kubectl --as=\"$USER\" --as-group=tollgate:break-glass --as-group=system:masters delete pod NAME -n \
             NAMESPACE",
            "kubectl delete validatingwebhookconfiguration tollgate",
        ]
    );
}
