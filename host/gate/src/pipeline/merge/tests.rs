use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;
use tollgate_admission::Cause;
use tollgate_admission::review::decode::decode;
use tollgate_config::{PluginConfig, PluginName, Source};
use tollgate_json::document::{Json, Pointer};

use super::*;

fn request() -> AdmissionRequest {
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "operation": "CREATE", "name": "web",
            "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
            "object": {"metadata": {"name": "web", "uid": "o-1"}}
        }
    });
    decode(review.to_string().as_bytes(), 32).unwrap().request
}

fn name(text: &str) -> PluginName {
    PluginName::parse(text).unwrap()
}

fn report(plugin: &str, mode: Mode, failure_policy: FailurePolicy, ended: Ended) -> Report {
    let source = Source::File("plugin.wasm".into());
    let config = PluginConfig {
        mode,
        failure_policy,
        ..PluginConfig::new(name(plugin), source)
    };
    let digest = Arc::from("sha256:0123456789abcdef0123456789abcdef");
    Report::new(&config, Some(digest), ended)
}

fn denial(message: &str) -> Denial {
    Denial {
        message: message.to_owned(),
        ..Denial::default()
    }
}

fn cause(field: &str, message: &str) -> Cause {
    Cause {
        field: Some(field.to_owned()),
        message: message.to_owned(),
        reason: None,
    }
}

fn denies(plugin: &str, denial: Denial) -> Report {
    report(
        plugin,
        Mode::Enforce,
        FailurePolicy::Fail,
        Ended::Denied(denial),
    )
}

fn faults(plugin: &str, failure_policy: FailurePolicy) -> Report {
    let fault = FaultReport {
        kind: "out-of-fuel",
        message: "it used up its limit of 100M fuel".to_owned(),
    };
    report(plugin, Mode::Enforce, failure_policy, Ended::Faulted(fault))
}

fn allows(plugin: &str) -> Report {
    report(plugin, Mode::Enforce, FailurePolicy::Fail, Ended::Allowed)
}

fn patch() -> Vec<Operation> {
    vec![Operation::Remove {
        path: Pointer::parse("/spec/replicas").unwrap(),
    }]
}

fn run(reports: &[Report]) -> Outcome {
    let outcome = merge(reports, patch(), &request());
    assert_eq!(outcome.allowed, outcome.status.is_none());
    assert_eq!(outcome.allowed, !outcome.patch.is_empty());
    for (key, _) in &outcome.audit_annotations {
        assert!(key.len() <= 63 && !key.contains('/'), "{key}");
    }
    let keys: BTreeSet<_> = outcome
        .audit_annotations
        .iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(keys.len(), outcome.audit_annotations.len());
    outcome
}

/// Formats what kube-apiserver and kubectl show of a denial.
fn shown(outcome: &Outcome) -> String {
    let status = outcome.status.as_ref().unwrap();
    let mut text = format!("{} {}\n{}\n", status.code, status.reason, status.message);
    for cause in &status.details.as_ref().unwrap().causes {
        text.push_str(&format!(
            "- {} [{}] {}\n",
            cause.field.as_deref().unwrap_or(""),
            cause.reason,
            cause.message
        ));
    }
    text
}

fn annotation<'o>(outcome: &'o Outcome, key: &str) -> Option<&'o str> {
    outcome
        .audit_annotations
        .iter()
        .find(|(known, _)| known == key)
        .map(|(_, value)| value.as_str())
}

#[test]
fn allows_when_no_plugin_denies() {
    let outcome = run(&[
        allows("a"),
        report("b", Mode::Enforce, FailurePolicy::Fail, Ended::Patched),
    ]);
    assert_eq!(outcome.patch, patch());
    assert!(outcome.warnings.is_empty());
    assert_eq!(
        annotation(&outcome, "plugins"),
        Some("a@0123456789ab,b@0123456789ab")
    );
    assert!(run(&[]).audit_annotations.is_empty());
}

#[test]
fn single_denial_includes_its_causes() {
    let outcome = run(&[denies(
        "required-labels",
        Denial {
            message: "labels are missing".to_owned(),
            causes: vec![
                cause("/metadata/labels/app.kubernetes.io~1name", "must be set"),
                Cause {
                    reason: Some("FieldValueRequired".to_owned()),
                    ..cause("/metadata/labels/owner", "must be set, too")
                },
                Cause {
                    field: None,
                    message: "labels are missing".to_owned(),
                    reason: Some("Nonsense".to_owned()),
                },
            ],
            ..Denial::default()
        },
    )]);
    insta::assert_snapshot!(shown(&outcome), @r"
    403 Forbidden
    required-labels: labels are missing (metadata.labels[app.kubernetes.io/name]: must be set, metadata.labels[owner]: must be set, too)
    - metadata.labels[app.kubernetes.io/name] [FieldValueForbidden] required-labels: must be set
    - metadata.labels[owner] [FieldValueRequired] required-labels: must be set, too
    -  [FieldValueForbidden] required-labels: labels are missing
    ");
    let details = outcome.status.unwrap().details.unwrap();
    assert_eq!(
        (details.name, details.group, details.kind, details.uid),
        (
            "web".into(),
            "apps".into(),
            "Deployment".into(),
            "o-1".into()
        )
    );
}

#[test]
fn message_lists_all_denials_and_faults() {
    insta::assert_snapshot!(shown(&run(&[denies("a", denial("no latest tag")), allows("b"), denies("c", denial("no root"))])), @r"
    403 Forbidden
    denied by 2 plugins: a: no latest tag; c: no root
    -  [FieldValueForbidden] a: no latest tag
    -  [FieldValueForbidden] c: no root
    ");
    insta::assert_snapshot!(shown(&run(&[denies("a", denial("no latest tag")), faults("b", FailurePolicy::Fail)])), @r"
    403 Forbidden
    denied by 1 plugin, 1 failed: a: no latest tag; b failed (out-of-fuel, failurePolicy Fail): it used up its limit of 100M fuel
    -  [FieldValueForbidden] a: no latest tag
    -  [InternalError] b failed (out-of-fuel, failurePolicy Fail): it used up its limit of 100M fuel
    ");
    insta::assert_snapshot!(
        shown(&run(&[denies("a", denial("x")), faults("b", FailurePolicy::Fail), denies("c", denial("y")), faults("d", FailurePolicy::Ignore)])),
        @r"
        403 Forbidden
        denied by 2 plugins, 1 failed: a: x; b failed (out-of-fuel, failurePolicy Fail): it used up its limit of 100M fuel; c: y
        -  [FieldValueForbidden] a: x
        -  [InternalError] b failed (out-of-fuel, failurePolicy Fail): it used up its limit of 100M fuel
        -  [FieldValueForbidden] c: y
        "
    );
}

#[test]
fn fault_alone_is_internal_error() {
    insta::assert_snapshot!(shown(&run(&[faults("a", FailurePolicy::Fail)])), @r"
    500 InternalError
    a failed (out-of-fuel, failurePolicy Fail): it used up its limit of 100M fuel
    -  [InternalError] a failed (out-of-fuel, failurePolicy Fail): it used up its limit of 100M fuel
    ");
    insta::assert_snapshot!(shown(&run(&[faults("a", FailurePolicy::Fail), faults("b", FailurePolicy::Fail)])), @r"
    500 InternalError
    2 plugins failed: a failed (out-of-fuel, failurePolicy Fail): it used up its limit of 100M fuel; b failed (out-of-fuel, failurePolicy Fail): it used up its limit of 100M fuel
    -  [InternalError] a failed (out-of-fuel, failurePolicy Fail): it used up its limit of 100M fuel
    -  [InternalError] b failed (out-of-fuel, failurePolicy Fail): it used up its limit of 100M fuel
    ");
}

#[test]
fn empty_denial_still_names_its_plugin() {
    insta::assert_snapshot!(shown(&run(&[denies("a", denial(" \n"))])), @r"
    403 Forbidden
    a: no reason given
    -  [FieldValueForbidden] a: no reason given
    ");
    let causes = vec![cause("", ""), cause("/spec", "\u{7}")];
    insta::assert_snapshot!(shown(&run(&[denies("a", Denial { causes, ..denial("") })])), @r"
    403 Forbidden
    a: no reason given
    -  [FieldValueForbidden] a: no reason given
    - spec [FieldValueForbidden] a: no reason given
    ");
    let causes = vec![cause("/spec/replicas", "at most 3")];
    insta::assert_snapshot!(shown(&run(&[denies("a", Denial { causes, ..denial("") })])), @r"
    403 Forbidden
    a: spec.replicas: at most 3
    - spec.replicas [FieldValueForbidden] a: at most 3
    ");
}

#[test]
fn ignored_fault_is_recorded_and_not_shown() {
    let outcome = run(&[faults("a", FailurePolicy::Ignore), allows("b")]);
    assert!(outcome.allowed && outcome.warnings.is_empty());
    assert_eq!(annotation(&outcome, "a.failed-open"), Some("out-of-fuel"));
    assert_eq!(annotation(&outcome, "a.fault"), None);
    assert_eq!(
        annotation(&run(&[faults("a", FailurePolicy::Fail)]), "a.fault"),
        Some("out-of-fuel")
    );
}

#[test]
fn warn_mode_turns_denial_into_warning() {
    let mut denying = denies(
        "a",
        Denial {
            causes: vec![cause("/spec/x", "is old")],
            ..denial("no\nway")
        },
    );
    denying.mode = Mode::Warn;
    denying.warnings = vec!["by the way".to_owned()];
    let mut faulting = faults("b", FailurePolicy::Fail);
    faulting.mode = Mode::Warn;
    let outcome = run(&[denying, faulting]);
    assert_eq!(
        outcome.warnings,
        ["a: no way (spec.x: is old)", "a: by the way"]
    );
    assert_eq!(
        annotation(&outcome, "a.would-deny"),
        Some("no way (spec.x: is old)")
    );
    assert_eq!(annotation(&outcome, "a.denied"), None);
    assert_eq!(annotation(&outcome, "b.fault"), Some("out-of-fuel"));
}

#[test]
fn audit_mode_does_not_affect_answer() {
    let mut reports = [denies("a", denial("no")), faults("b", FailurePolicy::Fail)];
    for report in &mut reports {
        report.mode = Mode::Audit;
        report.warnings = vec!["w".to_owned()];
        report.annotations = vec![("k".to_owned(), "v".to_owned())];
    }
    let outcome = run(&reports);
    assert!(outcome.allowed && outcome.warnings.is_empty() && outcome.audit_annotations.is_empty());
}

#[test]
fn uses_code_only_if_all_denials_agree() {
    let wants = |code, reason: Option<&str>| Denial {
        code,
        reason: reason.map(str::to_owned),
        ..denial("no")
    };
    for (denials, expected) in [
        (vec![wants(None, None)], (403, "Forbidden")),
        (vec![wants(Some(422), None)], (422, "Invalid")),
        (vec![wants(None, Some("Invalid"))], (422, "Invalid")),
        (
            vec![wants(Some(409), Some("AlreadyExists"))],
            (409, "AlreadyExists"),
        ),
        (
            vec![
                wants(Some(409), Some("AlreadyExists")),
                wants(Some(409), None),
            ],
            (409, "Conflict"),
        ),
        (vec![wants(Some(422), Some("NotFound"))], (422, "Invalid")),
        (vec![wants(Some(418), Some("Teapot"))], (418, "Forbidden")),
        (vec![wants(None, Some("Teapot"))], (403, "Forbidden")),
        (
            vec![wants(Some(422), None), wants(Some(422), None)],
            (422, "Invalid"),
        ),
        (
            vec![wants(Some(422), None), wants(None, None)],
            (403, "Forbidden"),
        ),
        (
            vec![wants(Some(422), None), wants(Some(400), None)],
            (403, "Forbidden"),
        ),
        (vec![wants(Some(200), None)], (403, "Forbidden")),
        (vec![wants(Some(0), None)], (403, "Forbidden")),
        (
            vec![wants(Some(500), Some("InternalError"))],
            (403, "Forbidden"),
        ),
        (vec![wants(None, Some("InternalError"))], (403, "Forbidden")),
        (vec![wants(Some(u16::MAX), None)], (403, "Forbidden")),
    ] {
        let reports: Vec<Report> = denials
            .into_iter()
            .map(|denial| denies("a", denial))
            .collect();
        let status = merge(&reports, Vec::new(), &request()).status.unwrap();
        assert_eq!((status.code, status.reason), expected);
    }
}

#[test]
fn details_name_object_by_available_fields() {
    let mut unnamed = request();
    unnamed.name.clear();
    unnamed.object = Some(Json::from(json!({"metadata": {"generateName": "web-"}})));
    let details = |request: &AdmissionRequest| {
        merge(&[denies("a", denial("no"))], Vec::new(), request)
            .status
            .unwrap()
            .details
            .unwrap()
    };
    assert_eq!(details(&unnamed).name, "web-");
    unnamed.old_object = unnamed.object.take();
    assert_eq!(details(&unnamed).name, "web-");
    unnamed.old_object = Some(Json::from(json!({"metadata": 1})));
    assert_eq!(
        (details(&unnamed).name, details(&unnamed).uid),
        (String::new(), String::new())
    );
}

#[test]
fn cuts_huge_message_and_keeps_those_of_others() {
    let mut reports: Vec<Report> = (0..100)
        .map(|index| denies(&format!("plugin-{index}"), denial(&"x".repeat(10_000))))
        .collect();
    reports.insert(0, denies("loud", denial(&"y \u{1b}".repeat(4_000_000))));
    let status = run(&reports).status.unwrap();
    assert!(
        status.message.len() <= 16 * 1024,
        "{}",
        status.message.len()
    );
    assert!(
        status
            .message
            .starts_with("denied by 101 plugins: loud: y y y")
            && status.message.contains("plugin-99: x")
    );
    assert!(!status.message.contains(char::is_control));
    let causes = status.details.unwrap().causes;
    assert_eq!(causes.len(), 100);
    assert!(causes[99].message.ends_with("(and 1 more plugin)"));
}

#[test]
fn message_reports_number_of_omitted_plugins() {
    let reports: Vec<Report> = (0..1000)
        .map(|index| denies(&format!("plugin-{index}"), denial(&"x".repeat(1000))))
        .collect();
    let message = run(&reports).status.unwrap().message;
    assert!(
        message.len() <= 16 * 1024 && message.ends_with(" more"),
        "{}",
        message.len()
    );
    let named = message.matches("plugin-").count();
    assert!(message.ends_with(&format!("; and {} more", 1000 - named)));
}

#[test]
fn million_causes_leave_room_for_other_plugins() {
    let many = Denial {
        causes: vec![cause("/spec/x", "is wrong"); 1_000_000],
        ..denial("no")
    };
    let causes = run(&[denies("a", many), denies("b", denial("no, too"))])
        .status
        .unwrap()
        .details
        .unwrap()
        .causes;
    assert_eq!(causes.len(), 100);
    assert_eq!(causes[98].message, "a: is wrong (and 999901 more)");
    assert_eq!(causes[99].message, "b: no, too");
}

#[test]
fn cleans_and_deduplicates_warnings_like_kube_apiserver() {
    let mut first = allows("a");
    first.warnings = ["", "\n", "line\nbreak", "twice", "twice", "\u{1b}[2Jescape"]
        .map(str::to_owned)
        .to_vec();
    let mut second = allows("b");
    second.warnings = vec!["twice".to_owned()];
    let outcome = run(&[first, second]);
    assert_eq!(
        outcome.warnings,
        ["a: line break", "a: twice", "a: [2Jescape", "b: twice"]
    );
}

#[test]
fn cuts_long_warning_only_if_warnings_do_not_fit() {
    let mut first = allows("a");
    first.warnings = vec!["ä".repeat(4000)];
    let mut second = allows("b");
    second.warnings = vec!["short".to_owned()];
    let warnings = run(&[first.clone(), second.clone()]).warnings;
    assert_eq!(
        warnings,
        [format!("a: {}", "ä".repeat(4000)), "b: short".to_owned()]
    );

    second.warnings.push("l".repeat(300));
    let warnings = run(&[first, second]).warnings;
    let lengths: Vec<usize> = warnings.iter().map(|text| text.chars().count()).collect();
    assert_eq!(lengths, [256, 8, 256]);
    assert!(warnings[0].ends_with('…') && warnings[2].ends_with('…'));
    assert_eq!(warnings[1], "b: short");
}

#[test]
fn million_warnings_do_not_hide_other_plugins() {
    let mut loud = allows("loud");
    loud.warnings = (0..1_000_000)
        .map(|index| format!("{index} {}", "ä".repeat(300)))
        .collect();
    let mut quiet = allows("quiet");
    quiet.warnings = vec!["this matters".to_owned()];
    let warnings = run(&[loud, quiet]).warnings;
    let total: usize = warnings.iter().map(|warning| warning.chars().count()).sum();
    assert!(total <= 4096, "{total}");
    assert!(
        warnings
            .iter()
            .all(|warning| warning.chars().count() <= 256 && !warning.contains(char::is_control))
    );
    assert_eq!(warnings[warnings.len() - 2], "quiet: this matters");
    let shown = warnings.len() - 2;
    assert_eq!(
        warnings[warnings.len() - 1],
        format!("tollgate: {} more warnings are left out", 1_000_000 - shown)
    );
}

#[test]
fn annotations_record_changes_and_conflicts() {
    let mut patched = report("b", Mode::Enforce, FailurePolicy::Fail, Ended::Patched);
    patched.changed = vec![
        "/spec/replicas".to_owned(),
        "/metadata/labels/a~1b".to_owned(),
    ];
    patched.conflicts = vec![("/spec/replicas".to_owned(), name("a"))];
    let outcome = run(std::slice::from_ref(&patched));
    assert_eq!(
        annotation(&outcome, "b.patched"),
        Some("/spec/replicas,/metadata/labels/a~1b")
    );
    assert_eq!(
        annotation(&outcome, "b.conflicts"),
        Some("/spec/replicas (over a)")
    );
    let refused = run(&[patched.clone(), denies("c", denial("no"))]);
    assert_eq!(annotation(&refused, "b.patched"), None);
    assert_eq!(annotation(&refused, "c.denied"), Some("no"));
    patched.changed = (0..100_000).map(|index| format!("/spec/{index}")).collect();
    let outcome = run(&[patched]);
    let value = annotation(&outcome, "b.patched").unwrap();
    assert!(value.len() <= 1024 && value.ends_with(" more"), "{value}");
}

#[test]
fn plugin_cannot_use_annotation_keys_of_others() {
    let mut hostile = report("a", Mode::Enforce, FailurePolicy::Fail, Ended::Patched);
    hostile.changed = vec!["/spec".to_owned()];
    hostile.annotations = [
        "patched",
        "denied",
        "fault",
        "failed-open",
        "left-out",
        "conflicts",
        "would-deny",
        "plugins",
        "b.denied",
        "🚪",
        "",
        "x/y",
        "x.y",
    ]
    .map(|key| (key.to_owned(), "forged".to_owned()))
    .to_vec();
    let outcome = run(&[hostile, denies("b", denial("no"))]);
    for key in [
        "plugins",
        "a.patched",
        "a.denied",
        "b.denied",
        "a.failed-open",
    ] {
        assert_ne!(annotation(&outcome, key), Some("forged"), "{key}");
    }
    assert_eq!(
        outcome
            .audit_annotations
            .iter()
            .filter(|(_, value)| value == "forged")
            .count(),
        13
    );
    assert!(
        outcome
            .audit_annotations
            .iter()
            .filter(|(_, value)| value == "forged")
            .all(|(key, _)| key.starts_with("a."))
    );
}

#[test]
fn bounds_number_and_size_of_plugin_annotations() {
    let mut hostile = allows("a");
    hostile.annotations = (0..1_000_000)
        .map(|index| (format!("k{index}"), "\u{0}v".repeat(10)))
        .collect();
    hostile.annotations[0].1 = "v".repeat(10_000_000);
    hostile.annotations[2].0 = "k1".to_owned();
    let outcome = run(&[hostile]);
    assert_eq!(outcome.audit_annotations.len(), 1 + 31 + 1);
    assert_eq!(annotation(&outcome, "a.k0").unwrap().len(), 1024);
    assert_eq!(annotation(&outcome, "a.k1"), Some("v v v v v v v v v v"));
    assert_eq!(
        annotation(&outcome, "a.left-out"),
        Some("999968 annotations")
    );
}

#[test]
fn records_exception_and_omits_its_plugin() {
    let excepted = report(
        "quiet",
        Mode::Enforce,
        FailurePolicy::Fail,
        Ended::Excepted("moving (until 2026-12-31)".to_owned()),
    );
    let outcome = run(&[excepted.clone(), allows("labels")]);
    assert!(outcome.allowed && outcome.warnings.is_empty());
    assert_eq!(
        annotation(&outcome, "quiet.excepted"),
        Some("moving (until 2026-12-31)")
    );
    assert_eq!(annotation(&outcome, "plugins"), Some("labels@0123456789ab"));
    assert_eq!(annotation(&run(&[excepted]), "plugins"), None);
}

#[test]
fn shows_existing_violations_as_warning() {
    let existing = Denial {
        causes: vec![cause("/spec/a", "is bad")],
        ..Denial::default()
    };
    let excused = Report {
        existing: Some(existing.clone()),
        ..allows("images")
    };
    let outcome = run(&[excused]);
    assert!(outcome.allowed);
    assert_eq!(
        outcome.warnings,
        ["images: existing violation, allowed: spec.a: is bad"]
    );
    assert_eq!(
        annotation(&outcome, "images.existing-violations"),
        Some("spec.a: is bad")
    );
    let new = Denial {
        causes: vec![cause("/spec/b", "is worse")],
        ..Denial::default()
    };
    let both = Report {
        existing: Some(existing),
        ..denies("images", new)
    };
    let outcome = run(&[both]);
    assert_eq!(outcome.status.unwrap().message, "images: spec.b: is worse");
}

#[test]
fn second_call_adds_to_report_of_first() {
    let patched = |places: &[&str]| Report {
        changed: places.iter().map(ToString::to_string).collect(),
        ..report("a", Mode::Enforce, FailurePolicy::Fail, Ended::Patched)
    };
    let unchanged = || report("a", Mode::Enforce, FailurePolicy::Fail, Ended::Unchanged);
    let mut twice = patched(&["/a", "/b"]);
    twice.add(patched(&["/b", "/c"]));
    twice.unsettled = vec!["/c".to_owned()];
    let outcome = run(&[twice]);
    assert_eq!(annotation(&outcome, "a.patched"), Some("/a,/b,/c"));
    assert_eq!(annotation(&outcome, "a.reinvoked"), Some("patched"));
    assert_eq!(annotation(&outcome, "a.not-converging"), Some("/c"));

    let mut content = patched(&["/a"]);
    content.add(unchanged());
    let outcome = run(&[content]);
    assert_eq!(annotation(&outcome, "a.patched"), Some("/a"));
    assert_eq!(annotation(&outcome, "a.reinvoked"), Some("unchanged"));

    // Limits count each call, so the higher of the two costs is kept beside the sum.
    let (mut first, mut second) = (patched(&["/a"]), unchanged());
    (first.cost.fuel, first.cost.fuel_of_one_call) = (7, 7);
    (second.cost.fuel, second.cost.fuel_of_one_call) = (9, 9);
    first.add(second);
    assert_eq!((first.cost.fuel, first.cost.fuel_of_one_call), (16, 9));

    // The first call's change stands if the second call fails open, and is dropped if the second call denies.
    let mut failed = patched(&["/a"]);
    failed.failure_policy = FailurePolicy::Ignore;
    failed.add(faults("a", FailurePolicy::Ignore));
    let outcome = run(&[failed]);
    assert_eq!(annotation(&outcome, "a.patched"), Some("/a"));
    assert_eq!(annotation(&outcome, "a.failed-open"), Some("out-of-fuel"));
    let mut denied = patched(&["/a"]);
    denied.add(denies("a", denial("no")));
    assert!(!run(&[denied]).allowed);
}
