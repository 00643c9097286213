//! Tests of the conditions `Verified` and `Registered`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_config::{Config, ManifestRule, Match, Serving, ServingPlugin, ServingState};

use super::*;
use crate::desired::Refusal;
use crate::lease::RulesDigest;
use crate::plugin::rules_digest;
use crate::registrar::{Report, Standing};

fn entry(replica: &str) -> ReplicaEntry {
    let installation = Installation {
        name: "tollgate".to_owned(),
        namespace: "system".to_owned(),
        replica: replica.to_owned(),
    };
    ReplicaEntry::new(&installation, true, "Serving", "words".to_owned(), 2)
}

fn resource(status: Value) -> Resource {
    Resource {
        name: "guard".to_owned(),
        namespace: None,
        uid: "uid".to_owned(),
        created: String::new(),
        generation: 2,
        version: String::new(),
        asked: None,
        spec: json!({}),
        status,
    }
}

fn signed(replica: &str, signature: Signature) -> ReplicaEntry {
    ReplicaEntry {
        signature: Some(signature),
        ..entry(replica)
    }
}

fn trusted() -> Signature {
    Signature::Trusted {
        by: "a key of /keys/team.pem".to_owned(),
    }
}

fn of<'c>(conditions: &'c [Condition], kind: &str) -> &'c Condition {
    let mut conditions = conditions.iter();
    let condition = conditions.find(|condition| condition.kind == kind);
    condition.expect("the condition is there")
}

#[test]
fn plugin_is_verified_when_a_trusted_key_has_signed_what_every_replica_serves() {
    use Signature::{NotRequired, Untrusted};

    let old = ReplicaEntry {
        generation: 1,
        ..signed("b", trusted())
    };
    let cases = [
        (
            vec![signed("a", trusted()), signed("b", trusted())],
            "True",
            "Trusted",
        ),
        (vec![signed("a", NotRequired)], "Unknown", "NotRequired"),
        (
            vec![signed("a", trusted()), entry("b")],
            "Unknown",
            "NotLoaded",
        ),
        (
            vec![signed("a", trusted()), signed("b", NotRequired)],
            "Unknown",
            "NotLoaded",
        ),
        (
            vec![signed("a", trusted()), signed("b", Untrusted)],
            "False",
            "Untrusted",
        ),
        (vec![signed("a", trusted()), old], "Unknown", PROGRESSING),
    ];
    for (entries, status, reason) in cases {
        let conditions = conditions(&resource(Value::Null), &entries);
        let verified = of(&conditions, "Verified");
        assert_eq!(
            (verified.status, verified.reason.as_str()),
            (status, reason)
        );
    }
    let all = conditions(&resource(Value::Null), &[signed("a", trusted())]);
    let message = "the artifact is signed by a key of /keys/team.pem";
    assert_eq!(of(&all, "Verified").message, message);
    assert_eq!(all[0].kind, READY, "observedGeneration follows the first");
    // A version that failed to load says why.
    let refused = ReplicaEntry {
        is_ready: false,
        ..signed("b", Untrusted)
    };
    let of_replica = conditions(&resource(Value::Null), &[entry("a"), refused]);
    assert_eq!(of(&of_replica, "Verified").message, "replica b: words");
}

/// Returns the condition of a plugin that serves from this repository, under these signatures.
fn verified_under(signatures: &str, repository: &str) -> Condition {
    let text = format!(
        "signatures: {signatures}\nplugins: [{{ name: guard, source: 'oci://registry.example.com/{repository}:1' }}]"
    );
    let config = Config::parse(&text, Path::new("/etc")).unwrap();
    let signature = Signature::of_serving(&config.plugins[0]);
    // The entry goes through the resource, as in a cluster.
    let written = json!({ "replicas": [signed("a", signature).document("now")] });
    let written = resource(written);
    let all = conditions(&written, &entries(&written));
    of(&all, "Verified").clone()
}

#[test]
fn verified_says_who_must_have_signed() {
    let policies = |signers: &str, threshold: u32| {
        format!(
            "{{ trustedRoot: root.json, policies: [
                {{ name: guards, repositories: ['registry.example.com/guards/*'], signers: [{signers}], threshold: \
             {threshold} }} ] }}"
        )
    };
    let key = "{ key: a.pub }";
    let identity = "{ issuer: 'https://issuer.example.com', subject: 'ci@example.com' }";
    let both = format!("{key}, {identity}");
    let said_of_both =
        "a key of /etc/a.pub, the identity ci@example.com of https://issuer.example.com";
    for (signatures, signed_by) in [
        ("{ keys: [a.pub] }".to_owned(), "a key of /etc/a.pub"),
        (
            "{ keys: [a.pub, b.pub] }".to_owned(),
            "one of a key of /etc/a.pub, a key of /etc/b.pub",
        ),
        (policies(key, 1), "a key of /etc/a.pub"),
        (
            policies(identity, 1),
            "the identity ci@example.com of https://issuer.example.com",
        ),
        (policies(&both, 1), &*format!("one of {said_of_both}")),
        (policies(&both, 2), &*format!("2 of {said_of_both}")),
    ] {
        let verified = verified_under(&signatures, "guards/guard");
        let said = (verified.status, &*verified.reason, verified.message);
        let message = format!("the artifact is signed by {signed_by}");
        assert_eq!(said, ("True", "Trusted", message), "{signatures}");
    }
    let uncovered = verified_under(&policies(key, 1), "others/guard");
    assert_eq!(
        (uncovered.status, uncovered.reason.as_str()),
        ("False", "Untrusted")
    );
    assert!(
        uncovered
            .message
            .starts_with("no policy of signatures.policies"),
        "{}",
        uncovered.message
    );
    let nothing = verified_under("{ keys: [] }", "guards/guard");
    assert_eq!(nothing.reason, "NotRequired");
}

#[test]
fn entries_are_read_as_they_are_written() {
    let registration = Some(Registration::not_managed());
    for signature in [None, Some(Signature::Untrusted), Some(trusted())] {
        let entry = ReplicaEntry {
            signature,
            registration: registration.clone(),
            ..entry("a")
        };
        let written = resource(json!({ "replicas": [entry.document("now")] }));
        assert_eq!(entries(&written), [entry]);
    }
}

fn matching(resource: &str) -> Match {
    let texts = |text: &str| vec![text.to_owned()];
    let rule = ManifestRule {
        operations: texts("CREATE"),
        api_groups: texts(""),
        api_versions: texts("v1"),
        resources: texts(resource),
        scope: None,
    };
    Match::from_manifest_rules(&[rule]).unwrap()
}

/// Returns the leader's report on the registration while it serves the plugin for pods.
fn words(verdict: &Verdict, report: &Report) -> Registration {
    let file = "plugins: [{ name: guard, source: 'file:guard.wasm' }]";
    let config = Config::parse(file, &PathBuf::from("/etc/tollgate")).unwrap();
    let serving = Serving {
        plugins: vec![ServingPlugin {
            config: Arc::new(config.plugins[0].clone()),
            digest: None,
            state: ServingState::Loaded {
                matching: matching("pods"),
                mutates: false,
                validates: true,
            },
        }],
        ..Serving::default()
    };
    Registration::of_leader("guard", verdict, serving.get("guard"), report)
}

fn verdict() -> Verdict {
    Verdict {
        uid: "uid".to_owned(),
        generation: 2,
        refusal: None,
        is_kept: false,
    }
}

fn report(standing: Standing) -> Report {
    Report {
        leads: true,
        plugins: BTreeMap::from([("guard".to_owned(), standing)]),
        ..Report::default()
    }
}

fn rules(resource: &str) -> RulesDigest {
    rules_digest(&matching(resource), false, true)
}

#[test]
fn leader_says_registered_only_of_the_rules_that_it_serves() {
    let failed = Standing::Failed {
        reason: "Forbidden",
        message: "cannot write".to_owned(),
    };
    let undecided = Report {
        undecided: Some("no certificate"),
        ..report(Standing::Waiting)
    };
    let changed = Standing::Changed("anna changed it".to_owned());
    let cases = [
        (
            report(Standing::Registered(rules("pods"))),
            "True",
            "Registered",
        ),
        (
            report(Standing::Registered(rules("secrets"))),
            "False",
            "Waiting",
        ),
        (report(Standing::Waiting), "False", "Waiting"),
        (report(Standing::Pending), "Unknown", "NotLoaded"),
        (report(Standing::Unread), "Unknown", "NotRead"),
        (report(changed), "False", "ForeignChange"),
        (report(failed), "False", "Forbidden"),
        (undecided, "Unknown", "Undecided"),
        (Report::default(), "False", "NotDesired"),
    ];
    for (report, status, reason) in cases {
        let said = words(&verdict(), &report);
        assert_eq!((said.status, said.reason.as_str()), (status, reason));
        let is_at_once = ["Registered", "ForeignChange"].contains(&reason);
        assert_eq!(said.is_settled(), is_at_once, "{reason}");
    }
    // The file's plugin of the same name is registered, and the resource is not.
    let taken = Verdict {
        refusal: Some(Refusal {
            reason: "NameTaken",
            message: "the file wins".to_owned(),
        }),
        ..verdict()
    };
    let registered = report(Standing::Registered(rules("pods")));
    assert_eq!(words(&taken, &registered).reason, "NameTaken");
    // A version that is kept stays registered.
    let kept = Verdict {
        is_kept: true,
        ..taken
    };
    assert_eq!(words(&kept, &registered).status, "True");
}

#[test]
fn condition_registered_follows_the_words_of_the_leader_and_stays_without_them() {
    let leader = ReplicaEntry {
        registration: Some(words(
            &verdict(),
            &report(Standing::Registered(rules("pods"))),
        )),
        ..entry("b")
    };
    let none = conditions(&resource(Value::Null), &[entry("a")]);
    assert!(none.iter().all(|condition| condition.kind != "Registered"));
    let said = conditions(&resource(Value::Null), &[entry("a"), leader.clone()]);
    let registered = of(&said, "Registered");
    assert_eq!(registered.status, "True");
    // The leader is gone. Its words stay until the next leader has some.
    let status = json!({ "conditions": [registered.document(&resource(Value::Null), "now")] });
    let after = resource(status);
    let kept = conditions(&after, &[entry("a")]);
    assert_eq!(of(&kept, "Registered"), registered);
    assert!(of(&kept, "Registered").is_written(&after));
    // Of two installations, the worse counts.
    let other = ReplicaEntry {
        registration: Some(words(&verdict(), &report(Standing::Waiting))),
        ..entry("c")
    };
    let both = conditions(&after, &[leader, other]);
    let waiting = of(&both, "Registered");
    assert_eq!(
        (waiting.status, waiting.reason.as_str()),
        ("False", "Waiting")
    );
    assert!(waiting.is_news(&after));
}

#[test]
fn events_tell_of_trouble_and_of_its_end_only() {
    let first = resource(Value::Null);
    let trouble = conditions(&first, &[signed("a", Signature::Untrusted)]);
    assert!(of(&trouble, "Verified").is_news(&first));
    let good = conditions(&first, &[signed("a", trusted())]);
    assert!(of(&good, READY).is_news(&first));
    assert!(!of(&good, "Verified").is_news(&first));
    let documents: Vec<Value> = trouble
        .iter()
        .map(|condition| condition.document(&first, "now"))
        .collect();
    let after = resource(json!({ "conditions": documents }));
    assert!(of(&good, "Verified").is_news(&after));
}

#[test]
fn shows_whether_an_entry_is_about_the_current_generation() {
    let shown = entry("pod-a").shown(2);
    assert_eq!(shown["name"], "pod-a");
    assert_eq!(
        (&shown["ready"], &shown["current"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(entry("pod-a").shown(3)["current"], false);
}
