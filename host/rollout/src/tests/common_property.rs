//! Rules over random plans and random events of a leader and its replicas: reports get lost or arrive late, replicas and
//! leaders restart, and the clock goes on.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tollgate_config::Rollout;

use super::begun;
use super::property::{check_answers, plans};
use crate::{
    Asked, Common, Decision, Led, Observations, Phase, Report, State, View, departed, hold, lead,
    obeys,
};

/// What happens in the cluster. Numbers choose a replica.
#[derive(Clone, Debug)]
enum Happens {
    Time(u64),
    Seen {
        replica: usize,
        reviews: u64,
        new_denials: u64,
        faults: u64,
    },
    /// The replica sees the common state.
    Watches(usize),
    /// The replica looks at its own observations.
    Looks(usize),
    /// The report of the replica reaches the cluster.
    Reports(usize),
    /// The replica restarts, with what it reported.
    Restarts(usize),
    /// The replica goes, and its entry with it. Another one takes its place.
    Leaves(usize),
    Leads,
    /// Another replica leads, which has not seen who has gone.
    LeaderChanges,
    Missing(usize, bool),
    Promote,
    RollBack,
}

/// One replica.
#[derive(Clone, Debug, Default)]
struct Replica {
    state: Option<State>,
    observed: Observations,
    is_missing: bool,
}

struct World {
    plan: Rollout,
    common: Option<Common>,
    replicas: Vec<Replica>,
    reported: BTreeMap<String, Option<Report>>,
    /// What the leader saw when it looked last.
    known: BTreeMap<String, Report>,
    asked: Option<Asked>,
    now: u64,
}

const REPLICAS: usize = 3;

fn happens() -> impl Strategy<Value = Happens> {
    let few = prop_oneof![9 => Just(0_u64), 1 => 0_u64..4];
    let replica = 0..REPLICAS;
    prop_oneof![
        4 => (0_u64..5_000).prop_map(Happens::Time),
        6 => (replica.clone(), 0_u64..30, few.clone(), few).prop_map(
            |(replica, reviews, new_denials, faults)| Happens::Seen { replica, reviews, new_denials, faults }
        ),
        6 => replica.clone().prop_map(Happens::Watches),
        6 => replica.clone().prop_map(Happens::Looks),
        8 => replica.clone().prop_map(Happens::Reports),
        1 => replica.clone().prop_map(Happens::Restarts),
        1 => replica.clone().prop_map(Happens::Leaves),
        8 => Just(Happens::Leads),
        1 => Just(Happens::LeaderChanges),
        1 => (replica, any::<bool>()).prop_map(|(replica, is)| Happens::Missing(replica, is)),
        1 => Just(Happens::Promote),
        1 => Just(Happens::RollBack),
    ]
}

fn name(replica: usize) -> String {
    format!("replica-{replica}")
}

impl World {
    fn new(plan: Rollout) -> Self {
        let names = (0..REPLICAS).map(|replica| (name(replica), None));
        Self {
            plan,
            common: None,
            replicas: vec![Replica::default(); REPLICAS],
            reported: names.collect(),
            known: BTreeMap::new(),
            asked: None,
            now: 0,
        }
    }

    fn report(&self, replica: usize) -> Report {
        let own = &self.replicas[replica];
        let blocked = own.is_missing.then_some("not loaded");
        match &own.state {
            None => Report::stateless(Some(begun().identity), blocked),
            Some(state) => {
                let state = State {
                    observed: own.observed,
                    ..state.clone()
                };
                Report::of(&self.plan, &state, blocked, self.now)
            }
        }
    }

    fn happen(&mut self, event: Happens) {
        match event {
            Happens::Time(milliseconds) => self.now += milliseconds,
            Happens::Seen {
                replica,
                reviews,
                new_denials,
                faults,
            } => {
                let own = &mut self.replicas[replica];
                // Without a state, the new version is not called.
                if own.state.is_some() && !own.is_missing {
                    own.observed.reviews += reviews;
                    own.observed.new_denials += new_denials;
                    own.observed.faults += faults;
                }
            }
            Happens::Watches(replica) => self.watch(replica),
            Happens::Looks(replica) => self.look(replica),
            Happens::Reports(replica) => {
                let report = self.report(replica);
                self.reported.insert(name(replica), Some(report));
            }
            Happens::Restarts(replica) => self.restart(replica),
            Happens::Leaves(replica) => {
                self.reported.insert(name(replica), None);
                self.replicas[replica] = Replica::default();
            }
            Happens::Leads => self.lead(),
            Happens::LeaderChanges => self.known.clear(),
            Happens::Missing(replica, is) => self.replicas[replica].is_missing = is,
            Happens::Promote => {
                let state = self.common.as_ref().map(|common| &common.state);
                self.asked = state.map(|state| Asked::Promote {
                    run: state.run,
                    revision: state.revision,
                });
            }
            Happens::RollBack => {
                let state = self.common.as_ref().map(|common| &common.state);
                self.asked = state.map(|state| Asked::RollBack {
                    run: Some(state.run),
                });
            }
        }
    }

    fn watch(&mut self, replica: usize) {
        let Some(common) = &self.common else { return };
        let own = &mut self.replicas[replica];
        if !obeys(own.state.as_ref(), &common.state) {
            return;
        }
        // Without a later run, a rollback of the replica stays.
        if let Some(before) = own
            .state
            .as_ref()
            .filter(|state| state.phase == Phase::RolledBack)
        {
            assert!(common.state.run > before.run || common.state.phase == Phase::RolledBack);
        }
        let is_same_step = own
            .state
            .as_ref()
            .is_some_and(|state| (state.run, state.step) == (common.state.run, common.state.step));
        if !is_same_step {
            own.observed = Observations::default();
        }
        own.state = Some(common.state.clone());
    }

    fn look(&mut self, replica: usize) {
        let own = &mut self.replicas[replica];
        let Some(state) = &own.state else { return };
        let decision = hold(&self.plan, state, &own.observed, !own.is_missing, self.now);
        if let Decision::Change(next) = decision {
            assert!(matches!(next.phase, Phase::Stopped | Phase::RolledBack));
            assert_eq!(next.step, state.step, "a replica goes on by itself");
            own.state = Some(*next);
        } else if matches!(state.phase, Phase::Running | Phase::Stopped) {
            assert!(own.observed.faults <= self.plan.gates.faults);
        }
    }

    /// A replica without a file begins with what it reported, once it sees the common state.
    fn restart(&mut self, replica: usize) {
        let reported = self.reported[&name(replica)].clone();
        self.replicas[replica] = Replica::default();
        self.watch(replica);
        let own = &mut self.replicas[replica];
        if let (Some(state), Some(reported)) = (&own.state, reported)
            && reported.is_about(state)
        {
            own.observed = reported.observed;
        }
    }

    fn lead(&mut self) {
        let identity = begun().identity;
        if let Some(common) = &mut self.common {
            let gone = departed(&self.known, &self.reported, &common.state);
            common.carried = common.carried.plus(&gone);
        }
        let known = self.reported.iter();
        let known = known.filter_map(|(name, report)| Some((name.clone(), report.clone()?)));
        self.known = known.collect();
        let view = View {
            identity: Some(&identity),
            replicas: &self.reported,
            asked: self.asked,
            is_complete: true,
            now: self.now,
        };
        if let Led::Change(next) = lead(&self.plan, self.common.as_ref(), &view) {
            if let Some(before) = &self.common {
                self.check(before, &next);
            }
            self.common = Some(*next);
        }
    }

    fn check(&self, before: &Common, after: &Common) {
        let (before, after) = (&before.state, &after.state);
        let by_gates = after.last().unwrap().by == crate::By::Gates;
        assert!(
            (after.run, after.revision) > (before.run, before.revision) || after.run > before.run
        );
        let went_on = after.step > before.step || after.phase == Phase::Promoted;
        if went_on && by_gates {
            assert_eq!(before.phase, Phase::Running);
            for (name, report) in &self.reported {
                let report = report.as_ref();
                let report = report.unwrap_or_else(|| panic!("{name} said nothing"));
                assert!(report.is_about(before) && report.is_available && report.is_over);
                assert_eq!(report.phase, Phase::Running, "{name} objected");
                assert!(report.observed.faults <= self.plan.gates.faults);
                assert!(report.observed.new_denials <= self.plan.gates.new_denials);
            }
            let reports = self.reported.values().flatten();
            let sum: u64 = reports.map(|report| report.observed.reviews).sum();
            assert!(after.observed == Observations::default() || after.phase == Phase::Promoted);
            assert!(
                sum + self.common.as_ref().unwrap().carried.reviews >= self.plan.gates.min_reviews
            );
        }
        if before.phase == Phase::RolledBack && after.phase != Phase::RolledBack {
            assert_eq!(after.run, before.run + 1);
            assert!(!by_gates);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_replica_is_weaker_than_the_old_version_or_ahead_of_the_leader(
        plan in plans(),
        events in prop::collection::vec(happens(), 1..120),
    ) {
        let mut world = World::new(plan);
        // Every common state that there was.
        let mut furthest: BTreeMap<u64, (bool, usize)> = BTreeMap::new();
        for event in events {
            world.happen(event);
            if let Some(common) = &world.common {
                let state = &common.state;
                let reached = furthest.entry(state.run).or_default();
                *reached = (*reached).max((state.phase == Phase::Promoted, state.step));
            }
            for own in &world.replicas {
                let Some(state) = &own.state else { continue };
                check_answers(&world.plan, state, !own.is_missing);
                // Nobody went further than the leader ever said.
                let point = (state.phase == Phase::Promoted, state.step);
                let reached = furthest.get(&state.run).copied().unwrap_or_default();
                prop_assert!(point <= reached || state.phase == Phase::RolledBack);
            }
        }
    }

    /// When nothing more happens, a rollback of one replica is one of all.
    #[test]
    fn rollback_of_one_replica_reaches_all(
        plan in plans(),
        events in prop::collection::vec(happens(), 1..60),
        which in 0..REPLICAS,
    ) {
        let mut world = World::new(plan);
        for event in events {
            world.happen(event);
        }
        world.asked = None;
        world.lead();
        for replica in 0..REPLICAS {
            world.watch(replica);
        }
        let own = &mut world.replicas[which];
        let back = own.state.as_ref().and_then(|state| state.rolled_back(world.now).ok());
        prop_assume!(back.is_some());
        own.state = back;
        for replica in 0..REPLICAS {
            world.happen(Happens::Reports(replica));
        }
        world.lead();
        for replica in 0..REPLICAS {
            world.watch(replica);
        }
        for own in &world.replicas {
            prop_assert_eq!(own.state.as_ref().map(|state| state.phase), Some(Phase::RolledBack));
        }
    }
}
