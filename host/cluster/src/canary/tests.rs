//! The condition `Effective` from answers of kube-apiserver, and from comparisons. No cluster is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use http::HeaderMap;
use http::header::WARNING;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tollgate_admission::Endpoint;
use tollgate_admission::canary::{Challenge, Prover as _};
use tollgate_admission::namespaces::Namespace;
use tollgate_config::{ManifestRule, Match};
use tollgate_json::document::parse;

use super::answer::{Answer, Asked, Sighting, interpret};
use super::keys::nonce;
use super::task::warned;
use super::*;
use crate::Installation;
use crate::lease::{Announcement, Replicas, RulesDigest};
use crate::registrar::{Report, Standing};

const SYSTEM: &str = "system/gate";
const WEBHOOK: &str = "guard.validate.gate.tollgate.dev";

fn entry() -> Entry {
    Entry {
        webhook: WEBHOOK.to_owned(),
        canary: "guard.validate.gate".to_owned(),
        path: "/validate/guard".to_owned(),
        endpoint: Endpoint::Validate,
        plugins: vec!["guard".to_owned()],
        labels: Some(BTreeMap::new()),
        timeout_seconds: 1,
        must_answer: true,
    }
}

/// Returns the result of an answer for an entry of an installation whose only replica has this key.
fn sighted(answer: &Answer, entry: &Entry, key: &Key) -> Sighting {
    let public = key.public();
    let asked = Asked {
        installation: SYSTEM,
        entry,
        nonce: "n",
        keys: &[&public],
        all_have_keys: true,
    };
    interpret(answer, asked)
}

fn key() -> Key {
    Key::generate().expect("random numbers")
}

fn created(proof: Option<String>) -> Answer {
    Answer {
        code: 201,
        message: String::new(),
        proof,
    }
}

fn refused(code: u16, message: &str) -> Answer {
    Answer {
        code,
        message: message.to_owned(),
        proof: None,
    }
}

/// The kind of a sighting, and its reason.
fn words(sighting: &Sighting) -> (&'static str, &'static str) {
    match sighting {
        Sighting::Answered { .. } => ("answered", ""),
        Sighting::Failed { reason, .. } => ("failed", reason),
        Sighting::Unclear { reason, .. } => ("unclear", reason),
    }
}

#[test]
fn only_a_proof_of_a_replica_for_this_nonce_and_path_shows_anything() {
    let (replica, stranger) = (key(), key());
    let prove = |key: &Key, nonce: &str, path: &str| Some(key.prove(SYSTEM, nonce, path, &[]));
    let path = "/validate/guard";
    let cases = [
        (prove(&replica, "n", path), ("answered", "")),
        (
            prove(&replica, "earlier", path),
            ("unclear", "NotRecognised"),
        ),
        (
            prove(&replica, "n", "/validate"),
            ("unclear", "NotRecognised"),
        ),
        (prove(&stranger, "n", path), ("unclear", "NotRecognised")),
        (Some("unknown".to_owned()), ("unclear", "NotRecognised")),
        (None, ("failed", "NotCalled")),
    ];
    for (proof, expected) in cases {
        let sighting = sighted(&created(proof), &entry(), &replica);
        assert_eq!(words(&sighting), expected, "{sighting:?}");
    }
    let lacking = replica.prove(SYSTEM, "n", path, &["guard"]);
    let expected = Sighting::Answered {
        plugins: vec!["guard".to_owned()],
        lacking: vec!["guard".to_owned()],
    };
    assert_eq!(
        sighted(&created(Some(lacking)), &entry(), &replica),
        expected
    );
}

#[test]
fn replica_that_knows_no_canaries_shows_nothing() {
    let asked = Asked {
        installation: SYSTEM,
        entry: &entry(),
        nonce: "n",
        keys: &[],
        all_have_keys: false,
    };
    let sighting = interpret(&created(None), asked);
    assert_eq!(words(&sighting), ("unclear", "OldReplica"));
}

#[test]
fn errors_of_kube_apiserver_are_told_apart() {
    let failed = |cause: &str| {
        format!(
            "Internal error occurred: failed calling webhook \"{WEBHOOK}\": failed to call webhook: Post \
             \"https://gate.system.svc:443/validate/guard?timeout=1s\": {cause}"
        )
    };
    let cases = [
        (
            500,
            failed(
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            ),
            ("failed", "Untrusted"),
        ),
        (
            500,
            failed("dial tcp 10.0.0.1:443: connect: connection refused"),
            ("failed", "Unreachable"),
        ),
        (
            500,
            failed("context deadline exceeded"),
            ("failed", "Unreachable"),
        ),
        (500, failed("EOF"), ("failed", "Unreachable")),
        (
            500,
            failed("received invalid webhook response"),
            ("failed", "CallFailed"),
        ),
        (
            500,
            failed("x509: bad").replace(WEBHOOK, "other.example.com"),
            ("unclear", "Blocked"),
        ),
        (
            403,
            "admission webhook \"other.example.com\" denied the request: no".to_owned(),
            ("unclear", "Blocked"),
        ),
        (
            403,
            "canaries.tollgate.dev is forbidden: User \"u\" cannot create resource".to_owned(),
            ("unclear", "Forbidden"),
        ),
        (
            404,
            "the server could not find the requested resource".to_owned(),
            ("unclear", "KindMissing"),
        ),
        (
            503,
            "the server is busy".to_owned(),
            ("unclear", "RequestFailed"),
        ),
    ];
    for (code, message, expected) in cases {
        let sighting = sighted(&refused(code, &message), &entry(), &key());
        assert_eq!(words(&sighting), expected, "{message}");
    }
    // The port of a connection is another one each time.
    let of = |port: u16| {
        let message = failed(&format!(
            "read tcp 10.0.0.1:{port}->10.0.0.2:443: connection reset by peer"
        ));
        sighted(&refused(500, &message), &entry(), &key())
    };
    assert!(of(1).is_like(&of(2)) && of(1) != of(2));
}

#[test]
fn proof_is_found_among_warnings() {
    let mut headers = HeaderMap::new();
    assert_eq!(warned(&headers), None);
    for warning in [
        "299 - \"unknown field\"",
        "299 - \"tollgate-canary abc lacks a,b\"",
    ] {
        headers.append(WARNING, warning.parse().expect("a header"));
    }
    assert_eq!(warned(&headers).as_deref(), Some("abc lacks a,b"));
}

#[test]
fn replica_proves_itself_to_leaders_of_its_own_installation_only() {
    let (leader, replica) = (std::sync::Arc::new(key()), std::sync::Arc::new(key()));
    let (known, replicas) = watch::channel(Replicas::default());
    let installation = Installation {
        name: "gate".to_owned(),
        namespace: "system".to_owned(),
        replica: "gate-1".to_owned(),
    };
    let prover = Own::new(replica.clone(), &installation, replicas);
    let challenge = |installation: &str| {
        let challenge = Challenge {
            name: "guard.validate.gate".to_owned(),
            nonce: nonce().expect("random numbers"),
            plugins: Vec::new(),
            signature: String::new(),
        };
        leader.challenge(installation, challenge)
    };
    let prove = |challenge: &Challenge| prover.prove(challenge, "/validate", &[]);
    assert_eq!(
        prove(&challenge(SYSTEM)),
        None,
        "the leader's Lease has not been seen"
    );
    let announcement = Announcement {
        canary: Some(leader.public()),
        ..Announcement::default()
    };
    known.send_modify(|replicas| {
        replicas.see("a".to_owned(), "1".to_owned(), announcement, Instant::now());
    });
    assert_eq!(prove(&challenge("other/gate")), None);
    let asked = challenge(SYSTEM);
    let proof = prove(&asked).expect("the leader is known");
    let keys = [replica.public()];
    let asked = Asked {
        installation: SYSTEM,
        entry: &Entry {
            path: "/validate".to_owned(),
            ..entry()
        },
        nonce: &asked.nonce,
        keys: &[&keys[0]],
        all_have_keys: true,
    };
    assert!(interpret(&created(Some(proof)), asked).is_answered());
}

fn report() -> Report {
    Report {
        leads: true,
        plugins: BTreeMap::from([(
            "guard".to_owned(),
            Standing::Registered(RulesDigest("d".to_owned())),
        )]),
        entries: vec![entry()],
        ..Report::default()
    }
}

fn seen(sighting: Sighting) -> Sightings {
    BTreeMap::from([("guard.validate.gate".to_owned(), sighting)])
}

fn answered(lacking: &[&str]) -> Sighting {
    Sighting::Answered {
        plugins: vec!["guard".to_owned()],
        lacking: lacking.iter().map(|&name| name.to_owned()).collect(),
    }
}

#[test]
fn plugin_is_effective_only_if_everything_was_shown() {
    let shown = seen(answered(&[]));
    let of = |report: &Report, sightings: &Sightings| {
        let effect = Effect::of_plugin("guard", report, sightings);
        (effect.status, effect.reason)
    };
    let expect = |status: &'static str, reason: &str| (status, reason.to_owned());
    assert_eq!(of(&report(), &shown), expect("True", "Effective"));
    assert_eq!(
        of(&report(), &Sightings::new()),
        expect("Unknown", "Pending")
    );
    assert_eq!(
        of(&report(), &seen(answered(&["guard"]))),
        expect("False", "NotServed")
    );
    // The canary was sent before the plugin had a part in the webhook.
    let earlier = Sighting::Answered {
        plugins: Vec::new(),
        lacking: Vec::new(),
    };
    assert_eq!(of(&report(), &seen(earlier)), expect("Unknown", "Pending"));
    let failed = seen(Sighting::failed("Untrusted", "x509".to_owned()));
    assert_eq!(of(&report(), &failed), expect("False", "Untrusted"));
    let unclear = seen(Sighting::unclear("KindMissing", "no kind".to_owned()));
    assert_eq!(of(&report(), &unclear), expect("Unknown", "KindMissing"));
    // One of two webhooks is not enough.
    let mut both = report();
    both.entries.push(Entry {
        webhook: "guard.mutate.gate.tollgate.dev".to_owned(),
        canary: "guard.mutate.gate".to_owned(),
        endpoint: Endpoint::Mutate,
        ..entry()
    });
    assert_eq!(of(&both, &shown), expect("Unknown", "Pending"));
    // A webhook that is called is not enough either.
    let mut narrow = report();
    let shortfall = Shortfall::new("RulesMissing", "no rule for pods".to_owned());
    narrow.shortfalls.insert("guard".to_owned(), shortfall);
    assert_eq!(of(&narrow, &shown), expect("False", "RulesMissing"));
    let undecided = Report {
        unexamined: BTreeSet::from(["guard".to_owned()]),
        ..report()
    };
    assert_eq!(of(&undecided, &shown), expect("Unknown", "Pending"));
    let unregistered = Report {
        entries: Vec::new(),
        ..report()
    };
    assert_eq!(of(&unregistered, &shown), expect("False", "NotRegistered"));
    assert_eq!(
        of(&Report::default(), &shown),
        expect("False", "NotDesired")
    );
}

fn matching(namespaces: &[&str], scope: Option<&str>) -> Match {
    let texts = |text: &str| vec![text.to_owned()];
    let rule = ManifestRule {
        operations: texts("CREATE"),
        api_groups: texts(""),
        api_versions: texts("v1"),
        resources: texts("pods"),
        scope: scope.map(str::to_owned),
    };
    let mut matching = Match::from_manifest_rules(&[rule]).expect("a rule");
    matching.namespaces = namespaces.iter().map(|&name| name.into()).collect();
    matching
}

fn namespace(name: &str, labels: &Value) -> (String, Namespace) {
    let object = json!({"metadata": {"name": name, "labels": labels}}).to_string();
    let object = parse(object.as_bytes(), 10).expect("JSON");
    (name.to_owned(), Namespace::of(&object))
}

/// A `match` whose namespaces must not have the label `policy: off`.
fn selecting(namespaces: &[&str]) -> Match {
    let entry = json!({"plugins": [{
        "name": "guard", "source": "file:guard.wasm",
        "match": {
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "namespaceSelector": {"matchExpressions": [{"key": "policy", "operator": "NotIn", "values": ["off"]}]},
        },
    }]});
    let config = tollgate_config::Config::parse(&entry.to_string(), Path::new("/etc/tollgate"));
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    let mut matching = config.plugins[0].matching.clone().expect("a match");
    matching.namespaces = namespaces.iter().map(|&name| name.into()).collect();
    matching
}

#[test]
fn label_of_a_namespace_can_exclude_all_that_a_plugin_is_for() {
    let excluded = BTreeSet::from(["kube-system".to_owned()]);
    let reason = |matching: &Match, all: &[(String, Namespace)]| {
        of_namespaces(matching, &excluded, all).map(|shortfall| shortfall.reason)
    };
    let (on, off) = (json!({}), json!({"policy": "off"}));
    let all = |label: &Value| {
        [
            namespace("shop", label),
            namespace("kube-system", &json!({})),
        ]
    };
    let left_out = Some("NamespacesExcluded");
    assert_eq!(reason(&selecting(&["shop"]), &all(&on)), None);
    assert_eq!(reason(&selecting(&["shop"]), &all(&off)), left_out);
    let named = of_namespaces(&selecting(&["shop"]), &excluded, &all(&off));
    assert!(named.is_some_and(|shortfall| shortfall.message.contains("shop")));
    // Without names, one namespace is enough.
    assert_eq!(reason(&selecting(&[]), &all(&on)), None);
    assert_eq!(reason(&selecting(&[]), &all(&off)), left_out);
    // The registration excludes a namespace that the plugin names.
    assert_eq!(
        reason(&matching(&["kube-system"], None), &all(&on)),
        left_out
    );
    // Nothing is said about namespaces that nobody has seen, nor about cluster-scoped objects.
    assert_eq!(reason(&selecting(&["later"]), &all(&on)), None);
    assert_eq!(reason(&selecting(&["shop"]), &[]), None);
    let cluster = matching(&["kube-system"], Some("Cluster"));
    assert_eq!(reason(&cluster, &all(&on)), None);
}

/// Compares the file with the code. With `TOLLGATE_WRITE=1`, writes the file.
#[test]
fn file_holds_the_definition_of_canaries() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let path = folder.join("canaries.yaml");
    let yaml = canary_definition_yaml().expect("YAML");
    if std::env::var_os("TOLLGATE_WRITE").is_some() {
        std::fs::write(&path, &yaml).expect("the folder is writable");
    }
    let file = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        file == yaml,
        "{} differs from the code: run TOLLGATE_WRITE=1 cargo test -p tollgate-cluster definition",
        path.display()
    );
}
