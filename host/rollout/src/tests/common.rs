//! Cases of the leader's decisions, and of replicas that follow them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::{Asked, Common, Commons, Lack, Led, Report, View, departed, hold, lead, obeys};

type Replicas = BTreeMap<String, Option<Report>>;

/// The common state at a step.
fn common(step: usize) -> Common {
    Common {
        state: at(step),
        carried: Observations::default(),
    }
}

/// The report of a replica that has seen this until the end of the step.
fn report(common: &Common, observed: Observations) -> Report {
    let state = State {
        observed,
        ..common.state.clone()
    };
    Report {
        is_over: true,
        ..Report::of(&three_steps(""), &state, None, 0)
    }
}

fn two(a: Option<Report>, b: Option<Report>) -> Replicas {
    [("a".to_owned(), a), ("b".to_owned(), b)].into()
}

fn led(plan: &Rollout, common: &Common, replicas: &Replicas, asked: Option<Asked>) -> Led {
    let identity = begun().identity;
    let view = View {
        identity: Some(&identity),
        replicas,
        asked,
        is_complete: true,
        now: HOUR,
    };
    lead(plan, Some(common), &view)
}

fn next(led: Led) -> Common {
    match led {
        Led::Change(next) => *next,
        Led::Stay(wait, _) => panic!("stays: {wait}"),
    }
}

fn stays(led: Led) -> Wait {
    match led {
        Led::Stay(wait, _) => wait,
        Led::Change(next) => panic!("changes: {:?}", next.state.last()),
    }
}

fn half() -> Observations {
    Observations {
        reviews: 5,
        ..Observations::default()
    }
}

#[test]
fn leader_begins_a_rollout_when_it_has_loaded_the_new_version() {
    let plan = three_steps("");
    let replicas = Replicas::new();
    let view = View {
        identity: None,
        replicas: &replicas,
        asked: None,
        is_complete: true,
        now: 7,
    };
    assert_eq!(stays(lead(&plan, None, &view)), Wait::Version);
    let identity = begun().identity;
    let view = View {
        identity: Some(&identity),
        ..view
    };
    let first = next(lead(&plan, None, &view));
    assert_eq!((first.state.step, first.state.step_since), (0, 7));
    // Another digest, or other settings: another rollout.
    let other = Identity::stored("other");
    let view = View {
        identity: Some(&other),
        ..view
    };
    let again = next(lead(&plan, Some(&common(2)), &view));
    assert_eq!((again.state.identity, again.state.step), (other, 0));
}

#[test]
fn replicas_pass_a_step_together() {
    let plan = three_steps("");
    let before = common(0);
    let half = || Some(report(&before, half()));
    let after = next(led(&plan, &before, &two(half(), half()), None));
    assert_eq!((after.state.step, after.state.revision), (1, 2));
    assert_eq!(
        after.state.last().unwrap().reason,
        "step 1 passed: 10 review(s), 0 new denial(s), 0 fault(s)"
    );
    let alone = [("a".to_owned(), half())].into();
    let wait = stays(led(&plan, &before, &alone, None));
    let (seen, needed) = (5, 10);
    assert_eq!(wait, Wait::Reviews { seen, needed });
}

#[test]
fn no_step_begins_without_the_word_of_each_replica() {
    let plan = three_steps("");
    let before = common(0);
    let full = || Some(report(&before, good()));
    let changed = |change: fn(&mut Report)| {
        let mut report = report(&before, good());
        change(&mut report);
        Some(report)
    };
    let cases = [
        (None, Lack::Report),
        (changed(|one| one.is_available = false), Lack::Version),
        (changed(|one| one.identity = None), Lack::Version),
        (
            changed(|one| one.identity = Some(Identity::stored("other"))),
            Lack::Identity,
        ),
        (changed(|one| one.revision = 0), Lack::Step),
        (changed(|one| one.run = 0), Lack::Step),
        (changed(|one| one.is_over = false), Lack::End),
    ];
    for (other, why) in cases {
        let wait = stays(led(&plan, &before, &two(full(), other), None));
        let name = "b".to_owned();
        assert_eq!(wait, Wait::Replica { name, why });
    }
    let identity = begun().identity;
    let replicas = two(full(), full());
    let view = View {
        identity: Some(&identity),
        replicas: &replicas,
        asked: None,
        is_complete: false,
        now: HOUR,
    };
    assert!(matches!(
        stays(lead(&plan, Some(&before), &view)),
        Wait::Replica { .. }
    ));
    let view = View {
        identity: None,
        is_complete: true,
        ..view
    };
    assert_eq!(stays(lead(&plan, Some(&before), &view)), Wait::Version);
}

#[test]
fn one_replica_rolls_all_of_them_back() {
    let plan = three_steps("");
    let before = common(1);
    let back = before.state.changed(
        Phase::RolledBack,
        1,
        By::Gates,
        "1 fault(s) of the new version".to_owned(),
        9,
    );
    let back = Report::of(&plan, &back, None, 9);
    // The other replica reports nothing, and that changes nothing.
    let after = next(led(&plan, &before, &two(None, Some(back.clone())), None));
    assert_eq!(after.state.phase, Phase::RolledBack);
    assert_eq!(
        after.state.last().unwrap().reason,
        "replica b: 1 fault(s) of the new version"
    );
    // A rollback of an earlier run is over.
    let mut again = before.clone();
    again.state.run = 2;
    stays(led(&plan, &again, &two(None, Some(back)), None));
}

#[test]
fn gates_count_the_sum_of_all_replicas() {
    let plan = three_steps(", onFailure: stop");
    let gates = plan.gates.new_denials;
    assert_eq!(gates, 0);
    let mut plan = plan;
    plan.gates.new_denials = 3;
    let before = common(2);
    let denied = |new_denials| {
        let observed = Observations {
            new_denials,
            ..good()
        };
        // Neither replica sees a gate that fails.
        let own = hold(&plan, &before.state, &observed, true, 0);
        assert!(matches!(own, Decision::Stay(_)));
        Some(report(&before, observed))
    };
    let after = next(led(&plan, &before, &two(denied(2), denied(2)), None));
    assert_eq!((after.state.phase, after.state.step), (Phase::Stopped, 2));
    assert_eq!(after.state.observed.new_denials, 4);
    // A replica that is gone still counts.
    let carried = Observations {
        new_denials: 2,
        ..Observations::default()
    };
    let with_carried = Common {
        carried,
        ..before.clone()
    };
    let alone = [("a".to_owned(), denied(2))].into();
    let after = next(led(&plan, &with_carried, &alone, None));
    assert_eq!(after.state.phase, Phase::Stopped);
    assert_eq!(after.carried, carried);
}

#[test]
fn stop_of_a_replica_goes_before_a_step_that_began_meanwhile() {
    let plan = three_steps(", onFailure: stop");
    let before = common(1);
    let stopped = before
        .state
        .changed(Phase::Stopped, 1, By::Gates, "slow".to_owned(), 9);
    let said = Report::of(&plan, &stopped, None, 9);
    let ahead = Common {
        state: before
            .state
            .changed(Phase::Running, 2, By::Gates, "passed".to_owned(), 8),
        ..before
    };
    assert!(!obeys(Some(&stopped), &ahead.state));
    let after = next(led(&plan, &ahead, &two(None, Some(said.clone())), None));
    assert_eq!((after.state.phase, after.state.step), (Phase::Stopped, 1));
    assert!(obeys(Some(&stopped), &after.state));
    // An administrator goes on, and the report from before does not stop the rollout again.
    let (run, revision) = (after.state.run, after.state.revision);
    let asked = Some(Asked::Promote { run, revision });
    let on = next(led(&plan, &after, &two(None, Some(said.clone())), asked));
    assert_eq!((on.state.phase, on.state.step), (Phase::Running, 2));
    stays(led(&plan, &on, &two(None, Some(said)), asked));
}

#[test]
fn wishes_count_once_and_only_for_what_was_seen() {
    let plan = three_steps("");
    let before = common(0);
    let (run, revision) = (before.state.run, before.state.revision);
    let promote = Some(Asked::Promote { run, revision });
    let none = two(None, None);
    let after = next(led(&plan, &before, &none, promote));
    assert_eq!(after.state.step, 1);
    assert_eq!(after.state.last().unwrap().by, By::Operator);
    assert!(matches!(
        stays(led(&plan, &after, &none, promote)),
        Wait::Time { .. }
    ));
    // All replicas were asked at their admin listeners: one step.
    let mut asked = report(&before, half());
    asked.asks_for_promotion = true;
    let all = two(Some(asked.clone()), Some(asked));
    let after = next(led(&plan, &before, &all, None));
    assert_eq!(after.state.step, 1);
    stays(led(&plan, &after, &all, None));
    let back = next(led(
        &plan,
        &after,
        &none,
        Some(Asked::RollBack { run: Some(run) }),
    ));
    assert_eq!(back.state.phase, Phase::RolledBack);
    let (run, revision) = (back.state.run, back.state.revision);
    let again = Some(Asked::Promote { run, revision });
    let again = next(led(&plan, &back, &none, again));
    assert_eq!((again.state.run, again.state.step), (2, 0));
    let old = Some(Asked::RollBack { run: Some(1) });
    stays(led(&plan, &again, &none, old));
    let every = Some(Asked::RollBack { run: None });
    let back = next(led(&plan, &again, &none, every));
    assert_eq!(back.state.phase, Phase::RolledBack);
}

#[test]
fn wishes_are_read_as_they_are_written() {
    let promote = Asked::Promote {
        run: 1,
        revision: 4,
    };
    assert_eq!(Asked::parse("promote-1.4"), Some(promote));
    let back = |run| Some(Asked::RollBack { run });
    assert_eq!(Asked::parse("rollback-2"), back(Some(2)));
    assert_eq!(Asked::parse("rollback"), back(None));
    for text in [
        "",
        "promote",
        "promote-1",
        "promote-1.x",
        "rollback-",
        "back",
    ] {
        assert_eq!(Asked::parse(text), None, "{text}");
    }
}

#[test]
fn replica_without_a_status_stays_where_it_is() {
    let plan = three_steps("");
    let state = at(1);
    // Everything passed, and yet only the leader goes on.
    assert_eq!(
        wait(hold(&plan, &state, &good(), true, 9 * HOUR)),
        Wait::Leader
    );
    let few = Observations {
        reviews: 1,
        ..good()
    };
    assert_eq!(
        wait(hold(&plan, &state, &few, true, 9 * HOUR)),
        Wait::Leader
    );
    let faulty = Observations {
        faults: 1,
        ..good()
    };
    let back = change(hold(&plan, &state, &faulty, true, 1));
    assert_eq!(back.phase, Phase::RolledBack);
    // Its own rollback stands until a later run.
    for (run, revision, obeyed) in [(1, 2, false), (1, 99, false), (2, 1, true)] {
        let common = State {
            run,
            revision,
            ..at(2)
        };
        assert_eq!(obeys(Some(&back), &common), obeyed, "{run}.{revision}");
    }
    assert!(obeys(None, &at(2)));
    let other = State {
        identity: Identity::stored("other"),
        ..at(2)
    };
    assert!(!obeys(Some(&state), &other));
    // A state of a file may be ahead of the cluster's, and then goes back.
    let ahead = State {
        revision: 9,
        phase: Phase::Promoted,
        ..at(2)
    };
    assert!(obeys(Some(&ahead), &at(0)));
}

#[test]
fn what_a_replica_saw_counts_after_it_is_gone() {
    let state = at(1);
    let of = |reviews| {
        let observed = Observations {
            reviews,
            faults: 1,
            ..Observations::default()
        };
        report(&common(1), observed)
    };
    let before: BTreeMap<String, Report> = [
        ("gone".to_owned(), of(3)),
        ("restarted".to_owned(), of(5)),
        ("here".to_owned(), of(7)),
        ("elsewhere".to_owned(), report(&common(0), good())),
    ]
    .into();
    let now = [
        ("restarted".to_owned(), Some(of(1))),
        ("here".to_owned(), Some(of(8))),
    ]
    .into();
    let departed = departed(&before, &now, &state);
    assert_eq!((departed.reviews, departed.faults), (8, 2));
}

#[test]
fn counts_are_written_rarely_and_failures_soon() {
    let plan = three_steps("");
    let first = report(&common(0), good());
    let seconds = Duration::from_secs;
    let more = |change: fn(&mut Report)| {
        let mut report = Report {
            is_over: false,
            ..first.clone()
        };
        change(&mut report);
        report
    };
    let first = Report {
        is_over: false,
        ..first.clone()
    };
    assert!(first.is_due(None, seconds(0), &plan));
    assert!(!first.is_due(Some(&first), seconds(9_999), &plan));
    let reviews = more(|one| one.observed.reviews += 1);
    assert!(!reviews.is_due(Some(&first), seconds(179), &plan));
    assert!(reviews.is_due(Some(&first), seconds(180), &plan));
    let denied = more(|one| one.observed.new_denials += 1);
    assert!(!denied.is_due(Some(&first), seconds(1), &plan));
    assert!(denied.is_due(Some(&first), seconds(2), &plan));
    let over = more(|one| one.is_over = true);
    assert!(over.is_due(Some(&first), seconds(0), &plan));
    let waiting = more(|one| {
        one.is_over = true;
        one.observed.reviews += 1;
    });
    assert!(!waiting.is_due(Some(&over), seconds(9), &plan));
    assert!(waiting.is_due(Some(&over), seconds(10), &plan));
}

#[test]
fn cluster_decides_unless_the_file_has_the_plugin() {
    let unknown = Commons::default();
    assert!(unknown.decides("guard"), "the file was not read yet");
    let known = Commons {
        of_file: Some(["guard".to_owned()].into()),
        ..Commons::default()
    };
    assert!(!known.decides("guard"));
    assert!(known.decides("other"));
}
