//! Rules over random plans and random sequences of events.

use proptest::prelude::*;
use tollgate_config::{OnFailure, PluginName, Rollout, RolloutGates, RolloutStep, Share, StepMode};

use super::{begun, plan};
use crate::{Decision, Mean, Observations, Part, Phase, Stage, State, Version, decide};

/// An event of a rollout.
#[derive(Clone, Debug)]
enum Happens {
    Time(u64),
    Observed {
        reviews: u64,
        new_denials: u64,
        faults: u64,
        new_time: u64,
        old_time: u64,
    },
    Missing(bool),
    Promote,
    RollBack,
    Restart,
}

fn happens() -> impl Strategy<Value = Happens> {
    let few = prop_oneof![6 => Just(0_u64), 1 => 0_u64..4];
    prop_oneof![
        4 => (0_u64..5_000).prop_map(Happens::Time),
        6 => (0_u64..30, few.clone(), few, 0_u64..3_000, 0_u64..3_000).prop_map(
            |(reviews, new_denials, faults, new_time, old_time)| Happens::Observed {
                reviews, new_denials, faults, new_time, old_time,
            }
        ),
        1 => any::<bool>().prop_map(Happens::Missing),
        1 => Just(Happens::Promote),
        1 => Just(Happens::RollBack),
        1 => Just(Happens::Restart),
    ]
}

pub(super) fn plans() -> impl Strategy<Value = Rollout> {
    let step = (0_u8..3, 1_u32..=100, 1_u64..4_000);
    let gates = (
        0_u64..3,
        0_u64..3,
        prop::option::of(1_u64..2_000),
        1_u64..30,
    );
    (prop::collection::vec(step, 1..6), gates, any::<bool>()).prop_map(
        |(mut steps, (new_denials, faults, added, min_reviews), stops)| {
            steps.sort_unstable();
            let all = plan("steps: [{ mode: enforce, for: 1h }]");
            let steps = steps
                .into_iter()
                .map(|(mode, percent, milliseconds)| RolloutStep {
                    mode: [StepMode::Shadow, StepMode::Warn, StepMode::Enforce][usize::from(mode)],
                    share: if mode == 0 {
                        Share::all()
                    } else {
                        Share {
                            percent,
                            namespaces: Vec::new(),
                        }
                    },
                    duration: std::time::Duration::from_millis(milliseconds),
                });
            let steps: Vec<RolloutStep> = steps.chain(all.steps.iter().cloned()).collect();
            Rollout {
                steps,
                gates: RolloutGates {
                    new_denials,
                    faults,
                    added_time: added.map(std::time::Duration::from_micros),
                    min_reviews,
                },
                on_failure: if stops {
                    OnFailure::Stop
                } else {
                    OnFailure::RollBack
                },
                ..all
            }
        },
    )
}

fn namespaces() -> Vec<Option<String>> {
    let named = (0..40).map(|index| Some(format!("team-{index}")));
    named.chain([None]).collect()
}

/// While a rollout is under way, the answer is never weaker than the old version's.
pub(super) fn check_answers(plan: &Rollout, state: &State, is_available: bool) {
    let guard = PluginName::parse("guard").unwrap();
    let stage = state.stage(is_available);
    for namespace in namespaces() {
        let namespace = namespace.as_deref();
        let part = stage.part(plan, &guard, namespace);
        let (answer, after_fault) = (part.decided_by(false), part.decided_by(true));
        let step = plan.steps.get(state.step);
        let is_under_way = matches!(state.phase, Phase::Running | Phase::Stopped);
        let is_inside = step.is_some_and(|step| step.share.contains(&guard, namespace));
        let enforces = step.is_some_and(|step| step.mode == StepMode::Enforce);
        if state.phase == Phase::Promoted {
            // A promoted version counts as configured, whether or not it is loaded.
            assert_eq!((part, answer), (Part::Promoted, Version::New));
            assert_eq!(after_fault, Version::New);
        } else if !is_available || state.phase == Phase::RolledBack {
            assert_eq!((part, answer), (Part::Old, Version::Old));
        } else {
            assert!(is_under_way);
            let expected = if is_inside && enforces {
                Version::New
            } else {
                Version::Old
            };
            assert_eq!(answer, expected);
            // A fault of the new version decides nothing.
            assert_eq!(after_fault, Version::Old);
        }
        assert_eq!(stage == Stage::Promoted, part == Part::Promoted);
    }
}

fn check_change(plan: &Rollout, before: &State, after: &State, observed: &Observations) {
    let failed =
        observed.faults > plan.gates.faults || observed.new_denials > plan.gates.new_denials;
    assert!(matches!(before.phase, Phase::Running | Phase::Stopped));
    if observed.faults > plan.gates.faults {
        assert_eq!(after.phase, Phase::RolledBack);
    }
    if matches!(after.phase, Phase::Promoted) || after.step != before.step {
        assert!(!failed, "went on although a gate failed");
        assert!(observed.reviews >= plan.gates.min_reviews);
        assert_eq!(
            before.phase,
            Phase::Running,
            "a stopped rollout goes on by itself"
        );
    }
    assert!(after.step == before.step || after.step == before.step + 1);
    if after.phase == Phase::Promoted {
        assert_eq!(
            before.step + 1,
            plan.steps.len(),
            "promoted before the last step"
        );
    }
    assert_eq!(after.revision, before.revision + 1);
    assert!(!after.last().unwrap().reason.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn enforcement_is_never_weaker_than_the_old_version(
        plan in plans(),
        events in prop::collection::vec(happens(), 1..60),
    ) {
        let mut state = begun();
        let mut observed = Observations::default();
        let (mut now, mut is_available) = (0, true);
        for event in events {
            let earlier = state.clone();
            match event {
                Happens::Time(milliseconds) => now += milliseconds,
                Happens::Observed { reviews, new_denials, faults, new_time, old_time } => {
                    observed.reviews += reviews;
                    observed.new_denials += new_denials;
                    observed.faults += faults;
                    for (mean, microseconds) in [
                        (&mut observed.new_time, new_time),
                        (&mut observed.old_time, old_time),
                    ] {
                        let calls = reviews;
                        *mean = Mean {
                            calls: mean.calls + calls,
                            microseconds: mean.microseconds + calls * microseconds,
                        };
                    }
                }
                Happens::Missing(missing) => is_available = !missing,
                Happens::Promote => {
                    if let Ok(next) = state.promoted(&plan, now) {
                        state = next;
                    }
                }
                Happens::RollBack => {
                    if let Ok(next) = state.rolled_back(now) {
                        state = next;
                    }
                }
                Happens::Restart => {
                    let text = serde_json::to_string(&State { observed, ..state.clone() }).unwrap();
                    state = serde_json::from_str(&text).unwrap();
                    observed = state.observed;
                }
            }
            if (state.run, state.step) != (earlier.run, earlier.step) {
                observed = state.observed;
            }
            if let Decision::Change(next) = decide(&plan, &state, &observed, is_available, now) {
                check_change(&plan, &state, &next, &observed);
                if next.step != state.step {
                    observed = next.observed;
                }
                state = *next;
            }
            // No gate that failed is left standing.
            if matches!(state.phase, Phase::Running) {
                prop_assert!(observed.faults <= plan.gates.faults);
            }
            prop_assert!(state.history.len() <= 32);
            check_answers(&plan, &state, is_available);
        }
    }

    #[test]
    fn decision_depends_on_its_arguments_alone(
        plan in plans(),
        step in 0_usize..4,
        reviews in 0_u64..40,
        now in 0_u64..8_000,
    ) {
        let state = State { step, ..begun() };
        let observed = Observations { reviews, ..Observations::default() };
        let text = serde_json::to_string(&state).unwrap();
        let again: State = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(
            decide(&plan, &state, &observed, true, now),
            decide(&plan, &again, &observed, true, now)
        );
    }

    /// Replicas that read each other's states agree on one state, in whatever order they read.
    #[test]
    fn replicas_agree(
        ranks in prop::collection::vec((1_u64..3, 1_u64..4, 0_usize..4, 0_usize..3, 0_u64..3), 2..6),
        order in prop::collection::vec((0_usize..6, 0_usize..6), 0..12),
    ) {
        let mut states: Vec<State> = ranks
            .into_iter()
            .map(|(run, revision, phase, step, step_since)| State {
                run, revision, step, step_since, phase: Phase::ALL[phase], ..begun()
            })
            .collect();
        let count = states.len();
        let meet = |states: &mut Vec<State>, one: usize, other: usize| {
            if states[one].yields_to(&states[other]) {
                assert!(!states[other].yields_to(&states[one]));
                states[one] = states[other].clone();
            }
        };
        let latest_run = states.iter().map(|state| state.run).max();
        let is_rolled_back = states
            .iter()
            .any(|state| Some(state.run) == latest_run && state.phase == Phase::RolledBack);
        for (one, other) in order {
            meet(&mut states, one % count, other % count);
        }
        for one in 0..count {
            for other in 0..count {
                meet(&mut states, one, other);
            }
        }
        for one in 0..count {
            for other in 0..count {
                meet(&mut states, one, other);
            }
        }
        for pair in states.windows(2) {
            prop_assert_eq!(&pair[0], &pair[1]);
        }
        if is_rolled_back {
            prop_assert_eq!(states[0].phase, Phase::RolledBack);
        }
    }
}
