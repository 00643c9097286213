use std::time::Duration;

use serde_json::json;
use tollgate_admission::Cost;
use tollgate_admission::review::decode::decode;
use tollgate_admission::review::template::WORKLOADS;
use tollgate_admission::search::Search;
use tollgate_config::{DecisionLimits, PluginName};

use super::*;
use crate::pipeline::outcome::{FaultReport, MemberReport};

fn request(uid: &str) -> AdmissionRequest {
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": uid, "operation": "CREATE", "name": "web", "namespace": "shop",
            "kind": {"group": "", "version": "v1", "kind": "Secret"},
            "resource": {"group": "", "version": "v1", "resource": "secrets"},
            "userInfo": {"username": "jane", "extra": {"token": ["marker"]}},
            "object": {"data": {"password": "marker"}},
        },
    });
    decode(review.to_string().as_bytes(), 32).unwrap().request
}

fn decision(uid: &str) -> Decision {
    Decision::about(&request(uid), Endpoint::Mutate, None)
}

fn report(ended: Ended) -> Report {
    Report {
        plugin: PluginName::parse("labels").unwrap(),
        mode: Mode::Enforce,
        failure_policy: FailurePolicy::Fail,
        ended,
        warnings: vec!["marker".to_owned()],
        annotations: vec![("marker".to_owned(), "marker".to_owned())],
        changed: Vec::new(),
        conflicts: Vec::new(),
        existing: None,
        reinvoked: None,
        unsettled: Vec::new(),
        rollout: None,
        template: None,
        members: Vec::new(),
        cost: Cost {
            duration: Duration::from_millis(3),
            cpu_time: Duration::from_millis(2),
            fuel: 7,
            fuel_of_one_call: 7,
            reused: 0,
        },
        digest: Some("sha256:00".into()),
    }
}

fn fault(kind: &'static str, message: &str) -> Ended {
    Ended::Faulted(FaultReport {
        kind,
        message: message.to_owned(),
    })
}

fn limits(max_count: u32, max_bytes: u64) -> DecisionLimits {
    DecisionLimits {
        max_count,
        max_bytes,
    }
}

#[test]
fn keeps_no_values_and_no_plugin_text() {
    let denial = tollgate_admission::Denial {
        message: "marker".to_owned(),
        code: Some(422),
        reason: Some("marker".to_owned()),
        causes: vec![tollgate_admission::Cause {
            field: Some("/data/password".to_owned()),
            message: "marker".to_owned(),
            reason: None,
        }],
    };
    let reports = [
        report(Ended::Denied(denial)),
        report(fault("trap", "the plugin aborted: marker")),
        report(fault("bad-patch", "bad patch: marker")),
    ];
    let mut decision = decision("u-1");
    decision.plugins = reports
        .iter()
        .map(|report| Called::of(report, Some(0)))
        .collect();
    let text = serde_json::to_string(&decision).unwrap();
    assert!(!text.contains("marker"), "{text}");
    assert!(text.contains("/data/password"), "{text}");
    assert_eq!(
        serde_json::from_str::<Decision>(&text).unwrap().plugins,
        decision.plugins
    );
}

#[test]
fn missing_digest_is_empty_in_json() {
    let called = Called {
        digest: None,
        ..Called::of(&report(Ended::Allowed), None)
    };
    let json = serde_json::to_value(&called).unwrap();
    assert_eq!(json["digest"], "");
    assert_eq!(serde_json::from_value::<Called>(json).unwrap(), called);
}

#[test]
fn keeps_host_text_about_faults() {
    for (kind, said) in [
        (
            "deadline",
            "deadline passed after 500 ms: the plugin ran for 3.0 ms",
        ),
        (
            "match-condition",
            "the match condition `has-replicas` failed: no such key: replicas",
        ),
    ] {
        let called = Called::of(&report(fault(kind, said)), None);
        assert_eq!(called.fault.unwrap().message.as_deref(), Some(said));
    }
}

#[test]
fn truncates_long_names_and_many_places() {
    let uid = "u".repeat(1_000_000);
    assert!(decision(&uid).uid.len() <= LONGEST_NAME_BYTES);
    let mut report = report(Ended::Patched);
    report.changed = (0..1000).map(|index| format!("/spec/{index}")).collect();
    let changed = Called::of(&report, None).changed;
    assert_eq!(
        (changed.pointers.len(), changed.more),
        (MOST_PLACES, 1000 - MOST_PLACES)
    );
}

/// The part of a plugin that gave a verdict and nothing more.
fn plain(mode: Mode, failure_policy: FailurePolicy, ended: Ended) -> Called {
    let report = Report {
        mode,
        failure_policy,
        warnings: Vec::new(),
        annotations: Vec::new(),
        ..report(ended)
    };
    Called {
        fuel: 1_234,
        reused: 2,
        cpu_milliseconds: 0.012,
        milliseconds: 0.034,
        changed: Places::default(),
        conflicts: Vec::new(),
        existing: None,
        reinvoked: None,
        ..Called::of(&report, Some(3))
    }
}

#[test]
fn kept_decisions_lose_nothing() {
    let mut decision = decision("a");
    let (enforce, fail) = (Mode::Enforce, FailurePolicy::Fail);
    let part = || plain(enforce, fail, Ended::Allowed);
    decision.plugins = vec![
        part(),
        Called::of(&report(Ended::Allowed), None),
        Called {
            digest: None,
            rule: None,
            ..plain(Mode::Warn, FailurePolicy::Ignore, Ended::Unchanged)
        },
        plain(Mode::Audit, fail, Ended::Patched),
        Called {
            annotations: 1,
            ..part()
        },
        Called {
            changed: Places {
                pointers: Vec::new(),
                more: 1,
            },
            ..part()
        },
        Called {
            excepted: Some(String::new()),
            ..part()
        },
        Called {
            rollout: Some("new version".into()),
            ..part()
        },
        Called {
            reinvoked: Some("unchanged".into()),
            ..part()
        },
        // As a later version may have it.
        Called {
            mode: "dry-run".into(),
            ..part()
        },
        Called {
            rule: Some(usize::MAX),
            ..part()
        },
    ];
    assert_eq!(KeptDecision::of(decision.clone()).whole(), decision);
}

/// Reports of plugins that gave a verdict and nothing more, and those with one thing more.
fn reports() -> Vec<Report> {
    let plain = |ended| Report {
        warnings: Vec::new(),
        annotations: Vec::new(),
        ..report(ended)
    };
    let denial = || tollgate_admission::Denial {
        message: "no".to_owned(),
        code: None,
        reason: None,
        causes: Vec::new(),
    };
    let place = || "/spec".to_owned();
    let mut reports: Vec<Report> = [Ended::Allowed, Ended::Unchanged, Ended::Patched]
        .map(plain)
        .into();
    reports.extend([
        plain(Ended::Denied(denial())),
        plain(fault("trap", "unreachable")),
        plain(Ended::Excepted("until tomorrow".to_owned())),
        report(Ended::Allowed),
    ]);
    let mut more = |change: fn(&mut Report)| {
        let mut report = plain(Ended::Allowed);
        change(&mut report);
        reports.push(report);
    };
    more(|report| report.mode = Mode::Audit);
    more(|report| report.failure_policy = FailurePolicy::Ignore);
    more(|report| report.digest = None);
    more(|report| report.cost.reused = 3);
    more(|report| report.warnings = vec!["text".to_owned()]);
    more(|report| report.annotations = vec![("key".to_owned(), "value".to_owned())]);
    more(|report| report.reinvoked = Some("unchanged"));
    more(|report| report.rollout = Some("new version".into()));
    more(|report| report.template = WORKLOADS.first());
    more(|report| {
        report.members = vec![MemberReport {
            name: "member".into(),
            ended: "allowed",
            fuel: 3,
        }];
    });
    let first = |reports: &[Report]| reports[0].clone();
    let changed = Report {
        changed: vec![place()],
        ..first(&reports)
    };
    let conflict = Report {
        conflicts: vec![(place(), changed.plugin.clone())],
        ..first(&reports)
    };
    let existing = Report {
        existing: Some(denial()),
        ..first(&reports)
    };
    reports.extend([changed, conflict, existing]);
    reports
}

#[test]
fn reports_are_kept_like_the_decision_that_is_made_of_them() {
    let reports = reports();
    for rule in [None, Some(3), Some(usize::MAX)] {
        let about = decision("a");
        let mut whole = about.clone();
        whole.plugins = reports
            .iter()
            .map(|report| Called::of(report, rule))
            .collect();
        let kept = KeptDecision::new(about, reports.iter().map(|report| (report, rule)));
        assert_eq!(kept.bytes(), KeptDecision::of(whole.clone()).bytes());
        assert_eq!(kept.whole(), whole);
    }
}

#[test]
fn plain_parts_take_a_fifth_of_the_memory() {
    let empty = KeptDecision::of(decision("a")).bytes();
    for mode in [Mode::Enforce, Mode::Warn, Mode::Audit] {
        for failure_policy in [FailurePolicy::Fail, FailurePolicy::Ignore] {
            for ended in [Ended::Allowed, Ended::Unchanged, Ended::Patched] {
                let part = plain(mode, failure_policy, ended);
                let mut decision = decision("a");
                decision.plugins = vec![part.clone()];
                let bytes = KeptDecision::of(decision).bytes() - empty;
                assert!(5 * bytes <= part.bytes(), "{bytes} bytes for {part:?}");
            }
        }
    }
}

#[test]
fn ring_evicts_oldest_over_count_limit() {
    let ring = Ring::new(limits(2, 1 << 20));
    for uid in ["a", "b", "c", "b"] {
        ring.push(decision(uid), ());
    }
    let uids: Vec<String> = ring
        .recent()
        .iter()
        .map(|(decision, ())| decision.about().uid.clone())
        .collect();
    assert_eq!(uids, ["b", "c"]);
    assert!(ring.of("a").is_empty());
    assert_eq!(ring.of("b").len(), 1);
}

#[test]
fn ring_evicts_oldest_over_byte_limit() {
    let one = KeptDecision::of(decision("a")).bytes() as u64;
    let ring = Ring::new(limits(1000, 3 * one));
    for _ in 0..10 {
        ring.push(decision("a"), ());
    }
    assert_eq!(ring.recent().len(), 3);
    let mut large = decision("b");
    large.plugins = vec![Called::of(&report(Ended::Allowed), None); 100];
    ring.push(large, ());
    assert!(
        ring.of("b").is_empty(),
        "a decision over the byte limit is not kept"
    );
    assert_eq!(
        ring.recent().len(),
        3,
        "a decision over the byte limit evicts nothing"
    );
}

#[test]
fn ring_of_size_zero_keeps_nothing() {
    let ring = Ring::new(limits(0, 1 << 20));
    ring.push(decision("a"), ());
    assert!(!ring.is_on() && ring.recent().is_empty());
}

#[test]
fn names_object_of_deleted_collection() {
    let mut request = request("u-1");
    request.name.clear();
    request.operation = tollgate_admission::review::request::Operation::Delete;
    request.object = None;
    request.old_object = Some(tollgate_json::document::Json::from(
        json!({"metadata": {"name": "web"}}),
    ));
    assert_eq!(
        Decision::about(&request, Endpoint::Validate, None).name,
        "web"
    );
    request.old_object = None;
    assert_eq!(Decision::about(&request, Endpoint::Validate, None).name, "");
}

#[test]
fn finds_decision_by_uid_prefix() {
    let ring = Ring::new(limits(10, 1 << 20));
    let uids = [
        "705ab4f5-6393-11e8-b7cc-42010a800002",
        "705ab4f5-0000-11e8-b7cc-42010a800002",
        "1f3b0000-6393-11e8-b7cc-42010a800002",
        "1f3b",
    ];
    for uid in uids {
        ring.push(decision(uid), ());
    }
    let found = |uid: &str| -> Vec<String> {
        let found = ring.of(uid).into_iter();
        found
            .map(|(decision, ())| decision.about().uid.clone())
            .collect()
    };
    assert_eq!(found(uids[0]), [uids[0]]);
    assert_eq!(found("705ab4f5"), [uids[1], uids[0]], "newest first");
    assert_eq!(found("705ab4f5-6"), [uids[0]]);
    assert_eq!(
        found("1f3b"),
        ["1f3b"],
        "an exact match wins over prefix matches"
    );
    assert_eq!(found("1f3b0"), [uids[2]]);
    assert!(
        found("705").is_empty(),
        "prefixes of three characters match nothing"
    );
    assert!(found("6393").is_empty());
}

fn costly(uid: &str, plugin: &str, fuel: u64, cpu_milliseconds: f64) -> Decision {
    let called = Called {
        name: plugin.into(),
        fuel,
        cpu_milliseconds,
        milliseconds: 2.0 * cpu_milliseconds,
        ..Called::of(&report(Ended::Allowed), None)
    };
    Decision {
        plugins: vec![called],
        ..decision(uid)
    }
}

fn numbers(answer: &serde_json::Value) -> Vec<u64> {
    let decisions = answer["decisions"].as_array().unwrap().iter();
    decisions
        .map(|decision| decision["number"].as_u64().unwrap())
        .collect()
}

#[test]
fn search_returns_pages_of_selected_decisions() {
    let ring = Ring::new(limits(6, 1 << 20));
    for index in 0..8 {
        let plugin = if index % 2 == 0 { "labels" } else { "images" };
        ring.push(costly(&format!("u-{index}"), plugin, 1, 1.0), ());
    }
    let ask = |search: &Search| super::search(&ring.numbered(), search, |one| json!(one));
    let all = ask(&Search {
        limit: 10,
        ..Search::default()
    });
    assert_eq!(numbers(&all), [8, 7, 6, 5, 4, 3], "the oldest are evicted");
    assert_eq!((&all["kept"], &all["next"]), (&json!(6), &json!(null)));
    assert_eq!(all["since"], all["decisions"][5]["time"]);
    let of_labels = |before| Search {
        plugin: Some("label".to_owned()),
        limit: 2,
        before,
        ..Search::default()
    };
    let first = ask(&of_labels(None));
    assert_eq!(numbers(&first), [7, 5]);
    assert_eq!((&first["matched"], &first["next"]), (&json!(3), &json!(5)));
    // A page does not move when decisions are added meanwhile.
    ring.push(costly("u-8", "images", 1, 1.0), ());
    let second = ask(&of_labels(Some(5)));
    assert_eq!(
        numbers(&second),
        Vec::<u64>::new(),
        "decision 3 was evicted"
    );
    assert_eq!(second["next"], json!(null));
}

#[test]
fn costs_sum_up_calls_by_plugin() {
    let ring = Ring::new(limits(200, 1 << 20));
    for fuel in 1..=100 {
        ring.push(costly("a", "cheap", fuel, 0.001), ());
    }
    let mut denied = costly("b", "dear", 7, 0.3);
    denied.plugins[0].denial = Some(Box::new(Denial {
        code: None,
        message: Text::of("no"),
        causes: 0,
        fields: Places::default(),
    }));
    ring.push(denied, ());
    let mut excepted = costly("c", "never-called", 0, 0.0);
    excepted.plugins[0].excepted = Some("moving house".to_owned());
    ring.push(excepted, ());
    let costs = super::costs(&ring.numbered());
    assert_eq!(costs["decisions"], 102);
    let [dear, cheap] = costs["costs"].as_array().unwrap().as_slice() else {
        panic!("{costs}");
    };
    assert_eq!(
        (&dear["plugin"], &dear["calls"]),
        (&json!("dear"), &json!(1))
    );
    assert_eq!((&dear["denials"], &dear["faults"]), (&json!(1), &json!(0)));
    assert_eq!(dear["shareOfCpuTime"], 0.75);
    let milliseconds = json!({ "mean": 0.6, "p95": 0.6, "most": 0.6 });
    assert_eq!(dear["milliseconds"], milliseconds);
    let fuel = json!({ "mean": 50, "p95": 95, "most": 100 });
    assert_eq!((&cheap["plugin"], &cheap["fuel"]), (&json!("cheap"), &fuel));
}

#[test]
fn nothing_kept_costs_nothing() {
    let costs = super::costs(&[]);
    assert_eq!(costs, json!({ "costs": [], "decisions": 0, "since": null }));
}
