//! Cases of the decisions, and the files. Properties are in `property`.

mod common;
mod common_property;
mod files;
mod property;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use tollgate_config::{Config, Rollout, Source};

use crate::{By, Decision, Identity, Mean, Observations, Part, Phase, Stage, State, Version, Wait};

const HOUR: u64 = 3_600_000;

/// The configuration of a plugin with a rollout.
pub(super) fn configured(rollout: &str) -> Config {
    let text = format!(
        "registries: {{ cacheDirectory: /var/lib/tollgate }}
plugins:
  - name: guard
    source: file:/guard-1.wasm
    rollout: {{ to: {{ source: 'file:/guard-2.wasm' }}, {rollout} }}
"
    );
    Config::parse(&text, Path::new("/")).unwrap()
}

pub(super) fn plan(rollout: &str) -> Rollout {
    let config = configured(rollout);
    Rollout::clone(config.plugins[0].rollout.as_ref().unwrap())
}

fn three_steps(more: &str) -> Rollout {
    plan(&format!(
        "steps: [{{ mode: shadow, for: 1h }}, {{ mode: warn, share: 20, for: 1h }}, {{ mode: enforce, share: 20, for: 1h }}],
         gates: {{ minReviews: 10, addedTime: 1ms }}{more}"
    ))
}

pub(super) fn begun() -> State {
    let config = configured("steps: [{ mode: enforce, for: 1h }]");
    let entry = &config.plugins[0];
    let plan = entry.rollout.as_ref().unwrap();
    State::begin(
        Identity::of(plan, entry, &config.shadows[0], Some("sha256:1")),
        0,
    )
}

fn at(step: usize) -> State {
    State { step, ..begun() }
}

fn mean(calls: u64, microseconds: u64) -> Mean {
    Mean {
        calls,
        microseconds: calls * microseconds,
    }
}

fn good() -> Observations {
    Observations {
        reviews: 10,
        new_time: mean(10, 300),
        old_time: mean(10, 250),
        ..Observations::default()
    }
}

fn decide(plan: &Rollout, state: &State, observed: &Observations, now: u64) -> Decision {
    crate::decide(plan, state, observed, true, now)
}

fn change(decision: Decision) -> State {
    match decision {
        Decision::Change(state) => *state,
        Decision::Stay(wait) => panic!("stays: {wait}"),
    }
}

fn wait(decision: Decision) -> Wait {
    match decision {
        Decision::Stay(wait) => wait,
        Decision::Change(state) => panic!("changes: {:?}", state.last()),
    }
}

#[test]
fn passes_every_step_and_is_promoted() {
    let plan = three_steps("");
    let mut state = begun();
    for step in 0..3 {
        assert_eq!((state.phase, state.step), (Phase::Running, step));
        let now = (step as u64 + 1) * HOUR;
        state = change(decide(&plan, &state, &good(), now));
        assert_eq!(state.last().unwrap().by, By::Gates);
    }
    assert_eq!(state.phase, Phase::Promoted);
    assert_eq!(
        state.last().unwrap().reason,
        "step 3 passed: 10 review(s), 0 new denial(s), 0 fault(s)"
    );
    assert_eq!(state.history.len(), 4);
    // Nothing happens any more.
    let faults = Observations {
        faults: 99,
        ..good()
    };
    assert_eq!(
        wait(decide(&plan, &state, &faults, 99 * HOUR)),
        Wait::Nothing
    );
}

#[test]
fn each_step_counts_anew_except_for_the_time_of_the_old_version() {
    let plan = three_steps("");
    let next = change(decide(&plan, &begun(), &good(), HOUR));
    assert_eq!(next.step_since, HOUR);
    assert_eq!(
        next.observed,
        Observations {
            old_time: mean(10, 250),
            ..Observations::default()
        }
    );
}

#[test]
fn waits_for_version_time_and_reviews() {
    let plan = three_steps("");
    let state = begun();
    assert_eq!(
        wait(crate::decide(&plan, &state, &good(), false, 9 * HOUR)),
        Wait::Version
    );
    let left = Duration::from_secs(60);
    assert_eq!(
        wait(decide(&plan, &state, &good(), HOUR - 60_000)),
        Wait::Time { left }
    );
    let few = Observations {
        reviews: 9,
        ..good()
    };
    assert_eq!(
        wait(decide(&plan, &state, &few, HOUR)),
        Wait::Reviews {
            seen: 9,
            needed: 10
        }
    );
    // In a step on the path of requests, the calls must be timed, and there must be something to compare with.
    let untimed = Observations {
        new_time: mean(3, 300),
        ..good()
    };
    assert_eq!(
        wait(decide(&plan, &at(1), &untimed, HOUR)),
        Wait::Reviews {
            seen: 3,
            needed: 10
        }
    );
    let alone = Observations {
        old_time: mean(2, 300),
        ..good()
    };
    assert_eq!(
        wait(decide(&plan, &at(2), &alone, HOUR)),
        Wait::OldTime {
            seen: 2,
            needed: 10
        }
    );
}

#[test]
fn clock_that_goes_back_delays_the_step() {
    let plan = three_steps("");
    let state = State {
        step_since: 5 * HOUR,
        ..begun()
    };
    let left = Duration::from_secs(3600);
    assert_eq!(
        wait(decide(&plan, &state, &good(), HOUR)),
        Wait::Time { left }
    );
}

#[test]
fn fault_rolls_back_at_once_in_every_step() {
    for more in ["", ", onFailure: stop"] {
        let plan = three_steps(more);
        for step in 0..3 {
            let faulty = Observations {
                faults: 1,
                reviews: 1,
                ..Observations::default()
            };
            let state = change(decide(&plan, &at(step), &faulty, 1));
            assert_eq!(state.phase, Phase::RolledBack);
            assert_eq!(
                state.last().unwrap().reason,
                "1 fault(s) of the new version, at most 0 allowed (gates.faults)"
            );
            assert_eq!(state.stage(true), Stage::Old);
        }
    }
}

#[test]
fn new_denial_rolls_back_or_stops() {
    let denied = Observations {
        new_denials: 1,
        ..good()
    };
    let state = change(decide(&three_steps(""), &at(1), &denied, 1));
    assert_eq!(state.phase, Phase::RolledBack);
    let plan = three_steps(", onFailure: stop");
    let stopped = change(decide(&plan, &at(1), &denied, 1));
    assert_eq!((stopped.phase, stopped.step), (Phase::Stopped, 1));
    assert_eq!(stopped.observed, denied);
    // The step stays in effect, however good the rest is.
    assert_eq!(stopped.stage(true), Stage::Step(1));
    assert_eq!(
        wait(decide(&plan, &stopped, &denied, 9 * HOUR)),
        Wait::Operator
    );
    // A fault rolls back even then.
    let faulty = Observations {
        faults: 1,
        ..denied
    };
    assert_eq!(
        change(decide(&plan, &stopped, &faulty, 2)).phase,
        Phase::RolledBack
    );
    let next = stopped.promoted(&plan, 3).unwrap();
    assert_eq!((next.phase, next.step), (Phase::Running, 2));
}

#[test]
fn added_time_is_compared_on_the_path_of_requests_only() {
    let slow = Observations {
        new_time: mean(10, 2000),
        old_time: mean(10, 900),
        ..good()
    };
    let plan = three_steps("");
    // A shadow's time says nothing.
    assert_eq!(change(decide(&plan, &at(0), &slow, HOUR)).step, 1);
    let state = change(decide(&plan, &at(1), &slow, 1));
    assert_eq!(state.phase, Phase::RolledBack);
    assert_eq!(
        state.last().unwrap().reason,
        "a call of the new version takes 1100us longer on average, at most 1ms allowed (gates.addedTime)"
    );
    let few = Observations {
        new_time: mean(9, 2000),
        ..slow
    };
    assert!(matches!(
        wait(decide(&plan, &at(1), &few, 1)),
        Wait::Time { .. }
    ));
}

#[test]
fn administrator_goes_on_rolls_back_and_begins_again() {
    let plan = three_steps("");
    let mut state = begun();
    for step in 1..3 {
        state = state.promoted(&plan, 7).unwrap();
        assert_eq!(
            (state.phase, state.step, state.step_since),
            (Phase::Running, step, 7)
        );
    }
    state = state.promoted(&plan, 8).unwrap();
    assert_eq!(state.phase, Phase::Promoted);
    assert!(state.promoted(&plan, 9).is_err());
    let back = state.rolled_back(10).unwrap();
    assert_eq!(
        (back.phase, back.stage(true)),
        (Phase::RolledBack, Stage::Old)
    );
    assert!(back.rolled_back(11).is_err());
    let again = back.promoted(&plan, 12).unwrap();
    assert_eq!((again.phase, again.step, again.run), (Phase::Running, 0, 2));
    assert_eq!(again.started_at, 12);
}

#[test]
fn history_is_bounded() {
    let plan = three_steps("");
    let mut state = begun();
    for now in 0..100 {
        state = state.changed(Phase::Running, 0, By::Operator, "again".to_owned(), now);
    }
    assert_eq!(state.history.len(), 32);
    assert_eq!(state.last().unwrap().at, 99);
    drop(plan);
}

#[test]
fn old_version_answers_everything_that_the_step_does_not_enforce() {
    let plan = three_steps("");
    let guard = tollgate_config::PluginName::parse("guard").unwrap();
    // The hash of these two is 0 and 43.
    let (inside, outside) = (Some("default"), Some("team-1"));
    let table = [
        (Stage::Old, inside, Part::Old),
        (Stage::Step(0), inside, Part::Shadowed),
        (Stage::Step(0), None, Part::Shadowed),
        (Stage::Step(1), inside, Part::Warned),
        (Stage::Step(1), outside, Part::Old),
        (Stage::Step(2), inside, Part::Enforced),
        (Stage::Step(2), outside, Part::Old),
        (Stage::Step(2), None, Part::Old),
        (Stage::Step(9), inside, Part::Old),
        (Stage::Promoted, outside, Part::Promoted),
        (Stage::Promoted, None, Part::Promoted),
    ];
    for (stage, namespace, part) in table {
        assert_eq!(
            stage.part(&plan, &guard, namespace),
            part,
            "{stage:?} {namespace:?}"
        );
    }
    for (part, answers, after_fault) in [
        (Part::Old, Version::Old, Version::Old),
        (Part::Shadowed, Version::Old, Version::Old),
        (Part::Warned, Version::Old, Version::Old),
        (Part::Enforced, Version::New, Version::Old),
        (Part::Promoted, Version::New, Version::New),
    ] {
        assert_eq!(part.decided_by(false), answers);
        assert_eq!(part.decided_by(true), after_fault);
    }
}

#[test]
fn identity_follows_plan_and_version() {
    let identity = |rollout: &str, digest: &str| {
        let config = configured(rollout);
        let entry = &config.plugins[0];
        let version = &config.shadows[0];
        Identity::of(
            entry.rollout.as_ref().unwrap(),
            entry,
            version,
            Some(digest),
        )
    };
    let steps = "steps: [{ mode: enforce, for: 1h }]";
    let first = identity(steps, "sha256:1");
    assert_eq!(first, identity(steps, "sha256:1"));
    assert_ne!(first, identity(steps, "sha256:2"));
    for other in [
        "steps: [{ mode: enforce, for: 2h }]",
        "steps: [{ mode: enforce, for: 1h, namespaces: [a] }]",
        "steps: [{ mode: enforce, for: 1h }], gates: { faults: 1 }",
        "steps: [{ mode: enforce, for: 1h }], onFailure: stop",
    ] {
        assert_ne!(first, identity(other, "sha256:1"), "{other}");
    }
    assert_ne!(
        identity("steps: [{ mode: enforce, for: 1h, namespaces: [a] }]", ""),
        identity("steps: [{ mode: enforce, for: 1h, namespaces: [b] }]", "")
    );
}

#[test]
fn identity_follows_what_the_new_version_may_see() {
    let of = |keys: &str| {
        let text = format!(
            "registries: {{ cacheDirectory: /var/lib/tollgate }}
plugins: [{{ name: guard, source: 'file:/guard-1.wasm', {keys}, rollout: {{
    to: {{ source: 'file:/guard-2.wasm' }}, steps: [{{ mode: enforce, for: 1h }}] }} }}]"
        );
        let config = Config::parse(&text, Path::new("/")).unwrap();
        let entry = &config.plugins[0];
        let (plan, version) = (entry.rollout.as_ref().unwrap(), &config.shadows[0]);
        // Before the version is loaded, its entry is known from the plan.
        assert_eq!(plan.to.as_deref(), Some(version));
        Identity::of(plan, entry, version, Some("sha256:1"))
    };
    let lookup = |more: &str| {
        format!(
            "lookups: [{{ name: all, resource: {{ group: apps, version: v1, resource: deployments }}{more} }}]"
        )
    };
    let seen = [
        "capabilities: []".to_owned(),
        lookup(""),
        lookup(", namespaces: [shop]"),
        lookup(", namespaces: [bank]"),
        lookup(", fields: [/metadata/labels]"),
        lookup(", labelSelector: { matchLabels: { team: shop } }"),
        lookup(", labelSelector: { matchLabels: { team: bank } }"),
        "access: {}".to_owned(),
        "access: { serviceAccounts: true }".to_owned(),
    ];
    let identities: BTreeSet<Identity> = seen.iter().map(|keys| of(keys)).collect();
    assert_eq!(identities.len(), seen.len(), "{identities:?}");
}

#[test]
fn identity_without_bytes_may_be_each_version_of_its_plan() {
    let of = |source: &str, digest: Option<&str>| {
        let steps = "steps: [{ mode: enforce, for: 1h }]";
        let mut config = configured(steps);
        let version = &mut config.shadows[0];
        version.source = Source::File(source.into());
        Identity::of(&plan(steps), &config.plugins[0], version, digest)
    };
    let (one, two) = (
        of("/2.wasm", Some("sha256:1")),
        of("/2.wasm", Some("sha256:2")),
    );
    let unknown = of("/2.wasm", None);
    assert!(!unknown.has_bytes() && one.has_bytes());
    assert!(unknown.may_be(&one) && two.may_be(&unknown) && !one.may_be(&two));
    // Without bytes, only the source tells whether the administrator means another version.
    assert!(!of("/3.wasm", None).may_be(&one));
    let state = State::begin(one.clone(), 0);
    assert_eq!(state.about(&unknown), Some(state.clone()));
    assert_eq!(state.about(&two), None);
    let vague = State::begin(unknown, 0);
    assert_eq!(vague.about(&two).unwrap().identity, two);
}

#[test]
fn rollout_of_the_mode_goes_on_when_the_bytes_change() {
    let text = "registries: { cacheDirectory: /var/lib/tollgate }
plugins: [{ name: guard, source: 'file:/guard.wasm', mode: warn, rollout: { steps: [{ mode: enforce, for: 1h }] } }]";
    let config = Config::parse(text, Path::new("/")).unwrap();
    let entry = &config.plugins[0];
    let of = |digest| Identity::of(entry.rollout.as_ref().unwrap(), entry, entry, digest);
    // Otherwise, a tag that moves would take the plugin back to the mode warn.
    assert_eq!(of(Some("sha256:1")), of(Some("sha256:2")));
    assert_eq!(of(Some("sha256:1")), of(None));
    assert!(of(None).has_bytes());
}

#[test]
fn promoted_version_that_is_not_loaded_keeps_its_part() {
    let promoted = State {
        phase: Phase::Promoted,
        ..at(2)
    };
    assert_eq!(promoted.stage(false), Stage::Promoted);
    for phase in [Phase::Running, Phase::Stopped, Phase::RolledBack] {
        assert_eq!(
            State { phase, ..at(2) }.stage(false),
            Stage::Old,
            "{phase:?}"
        );
    }
}

#[test]
fn numbers_of_a_damaged_state_do_not_overflow() {
    let state = State {
        run: u64::MAX,
        revision: u64::MAX,
        step: usize::MAX,
        phase: Phase::RolledBack,
        ..begun()
    };
    assert!(!state.is_plausible());
    let plan = three_steps("");
    assert_eq!(state.promoted(&plan, 1).unwrap().run, u64::MAX);
    let running = State {
        phase: Phase::Running,
        ..state
    };
    assert_eq!(running.promoted(&plan, 1).unwrap().phase, Phase::Promoted);
    assert_eq!(running.rolled_back(1).unwrap().revision, u64::MAX);
    let back = change(decide(&plan, &running, &good(), 1));
    assert_eq!(back.phase, Phase::RolledBack);
    let mut mean = Mean {
        calls: u64::MAX,
        microseconds: u64::MAX,
    };
    mean.add(1);
    assert_eq!(mean.calls, u64::MAX);
}
