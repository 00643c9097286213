use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{Outcome, TestReview, configure, manifest};

use super::*;

const FORCE: &str = "deploy-window.tollgate.dev/force";

fn at(moment: &str) -> SystemTime {
    moment.parse::<Timestamp>().unwrap().into()
}

fn deployment(image: &str) -> Json {
    let template = json!({"spec": {"containers": [{"name": "app", "image": image}]}});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {}},
        "spec": {"replicas": 1, "template": template}
    })
}

fn labelled(image: &str, value: &str) -> Json {
    let mut deployment = deployment(image);
    deployment["metadata"]["labels"][FORCE] = json!(value);
    deployment
}

/// Working hours in Berlin, and a window in the night from Saturday to Sunday.
fn settings() -> Json {
    json!({
        "timeZone": "Europe/Berlin",
        "windows": [
            {"days": ["Mon", "Tue", "Wed", "Thu"], "from": "09:00", "to": "17:00"},
            {"days": ["Sat"], "from": "22:00", "to": "02:30"},
        ],
        "freezes": [
            {"from": "2026-12-21", "to": "2027-01-06", "reason": "holidays"},
            {"from": "2027-01-07", "to": "2027-01-07"},
        ],
    })
}

fn evaluate(review: TestReview, moment: &str) -> Outcome<()> {
    review
        .settings(settings())
        .now(at(moment))
        .validate::<DeployWindow>()
}

fn create(moment: &str) -> Outcome<()> {
    evaluate(TestReview::create(deployment("app:1")), moment)
}

fn is_open(settings: &Json, moment: &str) -> bool {
    TestReview::create(deployment("app:1"))
        .settings(settings.clone())
        .now(at(moment))
        .validate::<DeployWindow>()
        .is_allowed()
}

fn closed(moment: &str) -> String {
    create(moment).denial().message.clone()
}

#[test]
fn a_change_within_a_window_is_let_through() {
    // A Monday in winter: Berlin is an hour ahead of UTC.
    for (moment, open) in [
        ("2026-11-23T07:59:59Z", false),
        ("2026-11-23T08:00:00Z", true),
        ("2026-11-23T15:59:59.999Z", true),
        ("2026-11-23T16:00:00Z", false),
        ("2026-11-27T12:00:00Z", false),
    ] {
        assert_eq!(is_open(&settings(), moment), open, "{moment}");
    }
}

#[test]
fn a_window_reaches_over_midnight() {
    // From Saturday the 28th, 22:00 to Sunday, 02:30.
    for (moment, open) in [
        ("2026-11-28T20:59:59Z", false),
        ("2026-11-28T21:00:00Z", true),
        ("2026-11-28T23:00:00Z", true),
        ("2026-11-29T01:29:59Z", true),
        ("2026-11-29T01:30:00Z", false),
        ("2026-11-29T21:00:00Z", false),
    ] {
        assert_eq!(is_open(&settings(), moment), open, "{moment}");
    }
}

#[test]
fn a_window_goes_with_the_clocks() {
    let settings =
        json!({"timeZone": "Europe/Berlin", "windows": [{"from": "09:00", "to": "10:00"}]});
    for (moment, open) in [
        ("2026-10-24T07:00:00Z", true),
        ("2026-10-24T08:00:00Z", false),
        ("2026-10-25T07:00:00Z", false),
        ("2026-10-25T08:00:00Z", true),
    ] {
        assert_eq!(is_open(&settings, moment), open, "{moment}");
    }
}

#[test]
fn of_times_that_come_twice_the_first_counts_and_skipped_ones_are_later() {
    let settings =
        json!({"timeZone": "Europe/Berlin", "windows": [{"from": "01:30", "to": "02:30"}]});
    for (moment, open) in [
        // Clocks go back at 01:00 UTC, so 02:30 occurs at 00:30 UTC and again at 01:30 UTC.
        ("2026-10-25T00:29:59Z", true),
        ("2026-10-25T00:30:00Z", false),
        ("2026-10-25T01:15:00Z", false),
        // Clocks go forward at 01:00 UTC, so 02:30 becomes 03:30, at 01:30 UTC.
        ("2027-03-28T00:30:00Z", true),
        ("2027-03-28T01:29:59Z", true),
        ("2027-03-28T01:30:00Z", false),
    ] {
        assert_eq!(is_open(&settings, moment), open, "{moment}");
    }
}

#[test]
fn a_window_that_a_change_of_the_clocks_swallows_opens_a_week_later() {
    let window = json!({"days": ["Sun"], "from": "02:30", "to": "03:15"});
    let review = TestReview::create(deployment("app:1"))
        .settings(json!({"timeZone": "Europe/Berlin", "windows": [window]}))
        .now(at("2027-03-26T12:00:00Z"));
    assert_eq!(
        review.validate::<DeployWindow>().denial().message,
        "no deployment window is open; the next window opens on Sunday, 2027-04-04 at 02:30 (Europe/Berlin)"
    );
}

#[test]
fn the_whole_day_is_a_window() {
    for window in [
        json!({"from": "00:00", "to": "24:00"}),
        json!({"from": "00:00", "to": "00:00"}),
    ] {
        let settings = json!({"windows": [window]});
        for moment in ["2026-11-23T00:00:00Z", "2026-11-23T23:59:59Z"] {
            assert!(is_open(&settings, moment), "{moment}");
        }
    }
}

#[test]
fn the_denial_says_when_the_next_window_opens() {
    let next = "no deployment window is open; the next window opens on";
    for (moment, opens) in [
        ("2026-11-23T06:00:00Z", "Monday, 2026-11-23 at 09:00"),
        ("2026-11-23T16:00:00Z", "Tuesday, 2026-11-24 at 09:00"),
        ("2026-11-27T12:00:00Z", "Saturday, 2026-11-28 at 22:00"),
        ("2026-11-29T02:00:00Z", "Monday, 2026-11-30 at 09:00"),
        ("2026-07-01T05:00:00Z", "Wednesday, 2026-07-01 at 09:00"),
    ] {
        assert_eq!(closed(moment), format!("{next} {opens} (Europe/Berlin)"));
    }
}

#[test]
fn no_window_opens_in_a_freeze() {
    assert_eq!(
        closed("2026-12-20T23:00:00Z"),
        "deployments are frozen (holidays); the next window opens on Saturday, 2027-01-09 at 22:00 (Europe/Berlin)",
        "the seventh, a Thursday, is frozen as well"
    );
    assert_eq!(
        closed("2027-01-07T10:00:00Z"),
        "deployments are frozen; the next window opens on Saturday, 2027-01-09 at 22:00 (Europe/Berlin)"
    );
    assert_eq!(
        closed("2026-12-20T12:00:00Z"),
        "no deployment window is open; the next window opens on Saturday, 2027-01-09 at 22:00 (Europe/Berlin)"
    );
}

#[test]
fn a_window_opens_late_where_a_freeze_ends_in_it() {
    let settings = json!({
        "windows": [{"days": ["Fri"], "from": "22:00", "to": "04:00"}],
        "freezes": [{"from": "2026-11-20", "to": "2026-11-27"}],
    });
    assert!(!is_open(&settings, "2026-11-27T23:59:59Z"));
    assert!(is_open(&settings, "2026-11-28T00:00:00Z"));
}

#[test]
fn only_a_change_of_the_spec_has_to_wait() {
    let night = "2026-11-23T00:00:00Z";
    let update = |change: fn(&mut Json)| {
        let mut changed = deployment("app:1");
        change(&mut changed);
        evaluate(TestReview::update(deployment("app:1"), changed), night).is_allowed()
    };
    assert!(update(|_| {}));
    assert!(update(
        |object| object["metadata"]["labels"]["a"] = json!("b")
    ));
    assert!(update(|object| object["metadata"]["finalizers"] = json!([])));
    assert!(update(|object| object["status"] = json!({"replicas": 1})));
    assert!(!update(|object| object["spec"]["replicas"] = json!(2)));
    assert!(!create(night).is_allowed());
}

#[test]
fn what_is_being_deleted_can_lose_its_finalizers_and_not_change_otherwise() {
    let night = "2026-11-23T00:00:00Z";
    let going = |image: &str, finalizers: Json| {
        let mut object = deployment(image);
        object["metadata"]["deletionTimestamp"] = json!("2026-11-22T00:00:00Z");
        object["metadata"]["finalizers"] = finalizers;
        object
    };
    let before = going("app:1", json!(["example.com/cleanup"]));
    let update = |after| evaluate(TestReview::update(before.clone(), after), night).is_allowed();
    assert!(update(going("app:1", json!([]))));
    assert!(!update(going("app:2", json!([]))));
    // kube-apiserver removes this field from new objects.
    let pretended = TestReview::create(going("app:1", json!([])));
    assert!(!evaluate(pretended, night).is_allowed());
}

#[test]
fn deletion_has_to_wait_where_the_rules_ask_about_it() {
    let night = "2026-11-23T00:00:00Z";
    let delete = |object| evaluate(TestReview::delete(object), night).is_allowed();
    assert!(!delete(deployment("app:1")));
    assert!(delete(labelled("app:1", "true")));
}

#[test]
fn scaling_waits_where_the_rules_ask_about_it() {
    let scale = |replicas: i32| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {}, "spec": {"replicas": replicas}});
    let scaled = |old, new| {
        let review = TestReview::update(scale(old), scale(new)).sub_resource("scale");
        evaluate(review, "2026-11-23T00:00:00Z").is_allowed()
    };
    assert!(!scaled(1, 2));
    assert!(scaled(2, 2));
}

#[test]
fn the_label_forces_a_change_through_for_all_to_see() {
    let night = "2026-11-23T00:00:00Z";
    let forced = TestReview::update(deployment("app:1"), labelled("app:2", "true"));
    let outcome = evaluate(forced.clone(), night);
    assert!(outcome.is_allowed());
    assert_eq!(
        outcome.warnings(),
        [
            "forced through while no deployment window is open; remove the label \
             deploy-window.tollgate.dev/force afterwards"
        ]
    );
    assert_eq!(
        outcome.annotations()["forced"],
        "no deployment window is open; the next window opens on Monday, 2026-11-23 at 09:00 (Europe/Berlin)"
    );
    let by_day = evaluate(forced, "2026-11-23T12:00:00Z");
    assert!(by_day.warnings().is_empty() && by_day.annotations().is_empty());
}

#[test]
fn the_denial_names_the_label_that_forces() {
    for review in [
        TestReview::create(deployment("app:1")),
        TestReview::create(labelled("app:1", "false")),
        // The new object counts.
        TestReview::update(labelled("app:1", "true"), deployment("app:2")),
    ] {
        assert_eq!(
            evaluate(review, "2026-11-23T00:00:00Z").causes(),
            [(
                "/metadata/labels/deploy-window.tollgate.dev~1force",
                "must be \"true\" to go ahead all the same"
            )]
        );
    }
}

#[test]
fn the_label_can_be_another_or_none() {
    let evaluate = |label: Json| {
        let mut settings = settings();
        settings["forceLabel"] = label;
        TestReview::create(labelled("app:1", "true"))
            .settings(settings)
            .now(at("2026-11-23T00:00:00Z"))
            .validate::<DeployWindow>()
    };
    assert_eq!(
        evaluate(json!("example.com/force")).fields(),
        ["/metadata/labels/example.com~1force"]
    );
    let none = evaluate(Json::Null);
    assert!(!none.is_allowed() && none.causes().is_empty());
}

#[test]
fn a_dry_run_is_checked_like_a_real_request() {
    let review = TestReview::create(deployment("app:1")).dry_run();
    assert!(!evaluate(review.clone(), "2026-11-23T00:00:00Z").is_allowed());
    assert!(evaluate(review, "2026-11-23T12:00:00Z").is_allowed());
}

#[test]
fn times_and_dates_are_written_in_one_way() {
    for time in [
        "9", "9:30", "09:5", "09.30", "09:30:00", "24:01", "25:00", "", " 09:30",
    ] {
        let settings = json!({"windows": [{"from": time, "to": "10:00"}]});
        assert!(configure::<DeployWindow>(settings).is_err(), "{time}");
    }
    for date in [
        "24.12.2026",
        "2026-12-32",
        "2026-2-3",
        "2026-12-24T00:00:00Z",
        "",
    ] {
        let window = json!({"from": "09:00", "to": "10:00"});
        let freeze = json!({"from": date, "to": "2027-01-01"});
        let settings = json!({"windows": [window], "freezes": [freeze]});
        assert!(configure::<DeployWindow>(settings).is_err(), "{date}");
    }
}

#[test]
fn settings_errors_name_their_settings() {
    let errors = |settings: Json| {
        let errors = configure::<DeployWindow>(settings).err().unwrap();
        errors.to_string()
    };
    assert_eq!(
        errors(json!({})),
        "/windows: must have at least one window, or nothing could ever change"
    );
    assert_eq!(
        errors(json!({
            "timeZone": "Berlin",
            "windows": [{"days": [], "from": "9", "to": "25:00"}],
            "freezes": [{"from": "2026-12-31", "to": "2026-12-01"}, {"from": "2026-12-24", "to": "9999-12-31"}],
        })),
        "/timeZone: is no time zone of the IANA database, such as Europe/Berlin; \
         /windows/0/days: must have at least one day; \
         /windows/0/from: must be a time of the day, such as \"09:30\"; \
         /windows/0/to: must be a time of the day, such as \"09:30\"; \
         /freezes/0/to: must not be before `from`; \
         /freezes/1/to: must be a date, such as \"2026-12-24\""
    );
    assert!(
        errors(json!({"windows": [{"days": ["Monday"], "from": "09:00", "to": "17:00"}]}))
            .starts_with("/windows/0/days/0: unknown variant `Monday`, expected one of `Mon`"),
    );
}

#[test]
fn the_settings_schema_is_json() {
    let schema: Json =
        serde_json::from_str(&manifest::<DeployWindow>().settings_schema.unwrap()).unwrap();
    assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
}
