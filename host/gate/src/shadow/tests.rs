//! Tests which results count as different, and how the counts report them.

use serde_json::json;
use tollgate_admission::{Cause, Denial};
use tollgate_config::Limits;

use super::*;

fn passes(ended: Ended, object: Value) -> Verdict {
    Verdict::new(&Ok(ended), Some(Json::from(object)), Secrecy::Open)
}

fn denies(fields: &[&str], message: &str) -> Verdict {
    let causes = fields.iter().map(|field| Cause {
        field: Some((*field).to_owned()),
        ..Cause::default()
    });
    let denial = Denial {
        message: message.to_owned(),
        causes: causes.collect(),
        ..Denial::default()
    };
    Verdict::new(&Ok(Ended::Denied(denial)), None, Secrecy::Open)
}

fn fails(fault: Fault) -> Verdict {
    Verdict::new(&Err(fault), None, Secrecy::Open)
}

fn bad_patch() -> Verdict {
    let what = "its operation 0 does not apply".to_owned();
    fails(Fault::BadPatch { what })
}

fn difference_json(live: &Verdict, shadow: &Verdict) -> Value {
    let difference = live.against(shadow, None);
    difference.map_or(Value::Null, |difference| difference.to_json())
}

#[test]
fn compares_objects_and_not_patches() {
    let object = json!({"metadata": {"labels": {"a": "b"}}});
    let one = passes(Ended::Unchanged, object.clone());
    assert_eq!(
        difference_json(&one, &passes(Ended::Patched, object)),
        Value::Null
    );
    let other = json!({"metadata": {"labels": {"a": "secret value", "c/d": "e"}}});
    assert_eq!(
        difference_json(&one, &passes(Ended::Patched, other)),
        json!({
            "live": "unchanged",
            "shadow": "patched",
            "pointers": ["/metadata/labels/a", "/metadata/labels/c~1d"],
        })
    );
}

#[test]
fn compares_denials_by_fields_and_not_by_text() {
    let one = denies(&["/spec/a", "/spec/b"], "first");
    assert_eq!(
        difference_json(&one, &denies(&["/spec/b", "/spec/a"], "other")),
        Value::Null
    );
    assert_eq!(
        difference_json(&one, &denies(&["/spec/b", "/spec/c"], "first")),
        json!({"live": "denied", "shadow": "denied", "pointers": ["/spec/a", "/spec/c"]})
    );
    let allows = Verdict::new(&Ok(Ended::Allowed), None, Secrecy::Open);
    assert_eq!(
        difference_json(&allows, &one),
        json!({"live": "allowed", "shadow": "denied", "pointers": ["/spec/a", "/spec/b"]})
    );
}

#[test]
fn fault_differs_from_answer_but_not_from_other_fault() {
    let allows = Verdict::new(&Ok(Ended::Allowed), None, Secrecy::Open);
    assert_eq!(
        difference_json(&allows, &bad_patch()),
        json!({"live": "allowed", "shadow": "fault", "fault": "bad-patch", "pointers": []})
    );
    let what = "it answered nothing".to_owned();
    assert_eq!(
        difference_json(&bad_patch(), &fails(Fault::ContractViolation { what })),
        Value::Null
    );
}

#[test]
fn withholds_names_derived_from_secrets() {
    let user = Json::from(json!({"data": {"password": "aHVudGVyMg=="}}));
    let live = Verdict::new(&Ok(Ended::Unchanged), Some(user.clone()), Secrecy::Sealed);
    let made = json!({"data": {"password": "aHVudGVyMg==", "hunter2": ""}});
    let shadow = Verdict::new(&Ok(Ended::Patched), Some(Json::from(made)), Secrecy::Broken);
    for (one, other) in [(&live, &shadow), (&shadow, &live)] {
        let difference = one.against(other, Some(&user)).unwrap();
        assert_eq!(difference.pointers, ["/data/[withheld]"]);
    }
}

#[test]
fn limits_pointers_and_counts_the_rest() {
    let many: serde_json::Map<String, Value> = (0..50)
        .map(|index| (format!("{index:03}"), json!(index)))
        .collect();
    let live = passes(Ended::Unchanged, json!({"spec": {}}));
    let shadow = passes(Ended::Patched, json!({"spec": many}));
    let value = difference_json(&live, &shadow);
    assert_eq!(value["pointers"].as_array().unwrap().len(), 20);
    assert_eq!(value["morePointers"], 30);
}

#[test]
fn counts_calls_and_keeps_last_differences() {
    let limits = Limits {
        fuel: 1000,
        ..Limits::default()
    };
    let counts = Counts::new();
    let allows = Verdict::new(&Ok(Ended::Allowed), None, Secrecy::Open);
    let take = |uid: &str, shadow: &Verdict, fuel: u64| {
        let call = Call {
            uid,
            phase: "validate",
            user: None,
            live: (&allows, 100),
            shadow: (shadow, fuel),
        };
        counts.take(&call, &limits)
    };
    assert_eq!(take("same", &allows, 800).near, None);
    assert_eq!(take("near", &allows, 801).near, Some(1));
    let over = fails(Fault::OutOfFuel { limit: 1000 });
    assert_eq!(take("over", &over, 1000).near, Some(2));
    let late = fails(Fault::Deadline {
        allowed: std::time::Duration::from_secs(10),
        spent: None,
    });
    assert!(take("late", &late, 5).unfinished);
    counts.dropped();
    let mut summary = counts.summary(&limits);
    assert!(summary["since"].take().is_string());
    assert_eq!(
        summary,
        json!({
            "since": null,
            "compared": 3,
            "differed": 1,
            "dropped": 1,
            "unfinished": 1,
            "faults": {"deadline": 1, "out-of-fuel": 1},
            "wouldHaveStopped": "1 of 3",
            "fuel": {"limit": "1k", "mean": 867, "meanOfLive": 100, "most": 1000, "above80Percent": 2},
        })
    );
    let uids = || -> Vec<String> {
        let differences = counts.differences();
        let uids = differences.iter().filter_map(|one| one["uid"].as_str());
        uids.map(str::to_owned).collect()
    };
    assert_eq!(uids(), ["over"]);
    for index in 0..150 {
        take(&format!("uid-{index}"), &over, 1000);
    }
    let uids = uids();
    assert_eq!(uids.len(), 100);
    assert_eq!((&*uids[0], &*uids[99]), ("uid-149", "uid-50"));
}
