//! The rules of registration: case by case, and over random orders of events.

use proptest::prelude::*;
use proptest::sample::Index;
use tollgate_config::Match;

use super::super::fixtures::{matches, matching, plugin, rule, serving};
use super::*;

const VALIDATE: Endpoint = Endpoint::Validate;

fn desired(plugins: &[&Plugin]) -> Desired {
    Desired {
        plugins: plugins.iter().map(|&plugin| plugin.clone()).collect(),
        ..Desired::default()
    }
}

fn record(target: Target) -> Record {
    match target {
        Target::Register { record, .. } => record,
        Target::Keep => panic!("the target is to keep what there is"),
    }
}

fn recorded(plugins: &[&Plugin]) -> Known {
    let of = |plugin: &&Plugin| (plugin.name.clone(), Recorded::of(plugin, true));
    Known::Recorded(Record(plugins.iter().map(of).collect()))
}

#[test]
fn registers_a_plugin_after_every_ready_replica_serves_it() {
    let pods = plugin("pods", matching(&[rule("", "pods")]));
    let wanted = desired(&[&pods]);
    let (with, without) = (serving([&pods]), serving([]));
    let plan = |ready: &[&Announcement]| record(plan(VALIDATE, &wanted, ready, &Known::Absent));
    assert_eq!(plan(&[]), Record::default());
    assert_eq!(plan(&[&with, &without]), Record::default());
    let registered = plan(&[&with, &with]);
    assert_eq!(registered.0["pods"], Recorded::of(&pods, true));
}

#[test]
fn keeps_rules_of_a_desired_plugin_when_replicas_lose_it() {
    let pods = plugin("pods", matching(&[rule("", "pods")]));
    let known = recorded(&[&pods]);
    for ready in [Vec::new(), vec![&serving([])]] {
        let record = record(plan(VALIDATE, &desired(&[&pods]), &ready, &known));
        assert_eq!(record.0["pods"], Recorded::of(&pods, true));
    }
}

#[test]
fn plugin_of_a_namespace_holds_nothing_up() {
    let pods = plugin("pods", matching(&[rule("", "pods")]));
    let own = plugin("team-a/own", matching(&[rule("", "services")]));
    let ready = serving([&pods]);
    // Nobody serves the namespace's plugin yet.
    let target = plan(
        VALIDATE,
        &desired(&[&pods, &own]),
        &[&ready],
        &Known::Unrecorded,
    );
    let record = record(target);
    assert_eq!(record.0.keys().collect::<Vec<_>>(), ["pods"]);
    // A plugin that the leader has not loaded stays registered.
    let unloaded = Plugin {
        mutates: true,
        ..own.clone()
    };
    let known = recorded(&[&pods, &own]);
    let wanted = desired(&[&pods, &unloaded]);
    let kept = self::record(plan(VALIDATE, &wanted, &[&ready], &known));
    assert_eq!(kept.0["team-a/own"].rules, Recorded::of(&own, true).rules);
    assert_eq!(kept.0["pods"], Recorded::of(&pods, true));
    let mutating = self::record(plan(Endpoint::Mutate, &wanted, &[&ready], &Known::Absent));
    assert_eq!(mutating, Record::default());
}

#[test]
fn removes_rules_before_the_plugin_goes() {
    let pods = plugin("pods", matching(&[rule("", "pods")]));
    let ready = serving([&pods]);
    let target = plan(
        VALIDATE,
        &Desired::default(),
        &[&ready],
        &recorded(&[&pods]),
    );
    assert_eq!(record(target), Record::default());
}

#[test]
fn narrows_at_once_and_widens_when_all_replicas_serve() {
    let narrow = plugin("p", matching(&[rule("", "pods")]));
    let wide = plugin("p", matching(&[rule("", "pods services")]));
    let (serves_narrow, serves_wide) = (serving([&narrow]), serving([&wide]));
    let resources = |wanted: &Plugin, ready: &[&Announcement], before: &Plugin| {
        let target = plan(VALIDATE, &desired(&[wanted]), ready, &recorded(&[before]));
        record(target).0["p"].rules[0].resources.clone()
    };
    assert_eq!(resources(&narrow, &[&serves_wide], &wide), ["pods"]);
    let mixed = [&serves_narrow, &serves_wide];
    assert_eq!(resources(&wide, &mixed, &narrow), ["pods"]);
    let all = [&serves_wide, &serves_wide];
    assert_eq!(resources(&wide, &all, &narrow), ["pods", "services"]);
}

#[test]
fn registers_only_at_endpoints_that_a_plugin_serves() {
    let pods = plugin("pods", matching(&[rule("", "pods")]));
    let ready = serving([&pods]);
    let target = plan(
        Endpoint::Mutate,
        &desired(&[&pods]),
        &[&ready],
        &Known::Absent,
    );
    assert_eq!(record(target), Record::default());
}

#[test]
fn changes_nothing_while_registered_rules_are_not_known() {
    let pods = plugin("pods", matching(&[rule("", "pods")]));
    let pending = |name: &str| Desired {
        pending: [name.to_owned()].into(),
        ..desired(&[&pods])
    };
    let known = recorded(&[&pods]);
    let unknown = Desired {
        pending: ["pods".to_owned()].into(),
        ..Desired::default()
    };
    assert_eq!(plan(VALIDATE, &unknown, &[], &known), Target::Keep);
    // A new plugin that cannot be loaded does not stop the others.
    let ready = serving([&pods]);
    let target = plan(VALIDATE, &pending("new"), &[&ready], &Known::Absent);
    assert_eq!(record(target).0.len(), 1);
    // A configuration without a record stays until everything is served.
    let wanted = desired(&[&pods]);
    let plan = |ready: &[&Announcement]| plan(VALIDATE, &wanted, ready, &Known::Unrecorded);
    assert_eq!(plan(&[&serving([])]), Target::Keep);
    assert_eq!(record(plan(&[&serving([&pods])])).0.len(), 1);
}

/// The rules among which plugins change.
fn variants() -> Vec<Match> {
    let mut limited = matching(&[rule("", "pods services")]);
    limited.namespaces = vec!["a".into()];
    vec![
        matching(&[rule("", "pods")]),
        matching(&[rule("", "pods services")]),
        matching(&[rule("", "services"), rule("apps", "*")]),
        matching(&[rule("apps", "deployments deployments/scale")]),
        matching(&[rule("*", "*/scale")]),
        matching(&[rule("*", "*/*")]),
        limited,
    ]
}

/// Requests that tell the variants apart: group, resource and namespace.
const SAMPLES: [(&str, &str, &str); 8] = [
    ("", "pods", "a"),
    ("", "pods", "b"),
    ("", "pods/status", "a"),
    ("", "services", "a"),
    ("", "services", "b"),
    ("apps", "deployments", "a"),
    ("apps", "deployments/scale", "a"),
    ("apps", "statefulsets/scale", "b"),
];

/// The samples that a plugin is called for.
fn covers(matching: &Match) -> Vec<bool> {
    let covers = |(group, resource, namespace): &(&str, &str, &str)| {
        let in_namespace = matching.namespaces.is_empty()
            || matching.namespaces.iter().any(|name| **name == **namespace);
        in_namespace
            && matching
                .rules
                .iter()
                .any(|rule| matches(rule, (*group, *resource)))
    };
    SAMPLES.iter().map(covers).collect()
}

/// The samples for which a plugin is registered.
fn registers(record: &Record, name: &str) -> Vec<bool> {
    let Some(recorded) = record.0.get(name) else {
        return vec![false; SAMPLES.len()];
    };
    let mut matching = matching(&[rule("", "pods")]);
    matching.rules = recorded
        .rules
        .iter()
        .filter_map(super::super::record::RecordedRule::rule)
        .collect();
    matching.namespaces = recorded
        .namespaces
        .iter()
        .map(|name| name.as_str().into())
        .collect();
    covers(&matching)
}

#[derive(Clone, Debug)]
enum Event {
    /// A user changes or removes a plugin.
    Desire {
        plugin: usize,
        variant: Option<Index>,
    },
    /// A replica takes up the desired state of a plugin.
    Follow { replica: usize, plugin: usize },
    /// A replica becomes ready, or fails.
    Ready { replica: usize, is_ready: bool },
    /// The leader reconciles.
    Reconcile,
}

const NAMES: [&str; 2] = ["first", "second"];

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (0..2_usize, prop::option::weighted(0.8, any::<Index>()))
            .prop_map(|(plugin, variant)| Event::Desire { plugin, variant }),
        6 => (0..3_usize, 0..2_usize).prop_map(|(replica, plugin)| Event::Follow { replica, plugin }),
        3 => (0..3_usize, prop::bool::weighted(0.8))
            .prop_map(|(replica, is_ready)| Event::Ready { replica, is_ready }),
        6 => Just(Event::Reconcile),
    ]
}

#[derive(Default)]
struct World {
    desired: [Option<Plugin>; 2],
    /// The plugins that each replica serves, and whether it is ready.
    replicas: [([Option<Plugin>; 2], bool); 3],
    registered: Record,
}

impl World {
    fn plan(&self) -> Record {
        let wanted: Vec<&Plugin> = self.desired.iter().flatten().collect();
        let ready: Vec<Announcement> = self
            .replicas
            .iter()
            .filter(|(_, is_ready)| *is_ready)
            .map(|(plugins, _)| serving(plugins.iter().flatten()))
            .collect();
        let ready: Vec<&Announcement> = ready.iter().collect();
        let known = Known::Recorded(self.registered.clone());
        record(plan(VALIDATE, &desired(&wanted), &ready, &known))
    }

    fn apply(&mut self, event: &Event) -> Result<(), TestCaseError> {
        match event {
            Event::Desire {
                plugin: index,
                variant,
            } => {
                let variants = variants();
                self.desired[*index] =
                    variant.map(|variant| plugin(NAMES[*index], variant.get(&variants).clone()));
            }
            Event::Follow { replica, plugin } => {
                let (serving, _) = &mut self.replicas[*replica];
                match &self.desired[*plugin] {
                    Some(desired) => serving[*plugin] = Some(desired.clone()),
                    // A plugin waits until it is not registered.
                    None if !self.registered.0.contains_key(NAMES[*plugin]) => {
                        serving[*plugin] = None
                    }
                    None => {}
                }
            }
            Event::Ready { replica, is_ready } => {
                let (serving, was_ready) = &mut self.replicas[*replica];
                // A replica becomes ready when it serves every registered plugin.
                let is_complete = NAMES.iter().zip(serving).all(|(name, serving)| {
                    serving.is_some() || !self.registered.0.contains_key(*name)
                });
                *was_ready = *is_ready && (is_complete || *was_ready);
            }
            Event::Reconcile => {
                let next = self.plan();
                self.check(&next)?;
                self.registered = next;
            }
        }
        Ok(())
    }

    fn check(&self, next: &Record) -> Result<(), TestCaseError> {
        for (index, name) in NAMES.into_iter().enumerate() {
            let (before, after) = (registers(&self.registered, name), registers(next, name));
            let nothing = vec![false; SAMPLES.len()];
            let wanted = self.desired[index]
                .as_ref()
                .map_or(nothing, |plugin| covers(&plugin.matching));
            for sample in 0..SAMPLES.len() {
                let what = format!("{name} {:?}", SAMPLES[sample]);
                prop_assert!(
                    !after[sample] || wanted[sample],
                    "{what} is registered and not desired"
                );
                prop_assert!(
                    after[sample] || !(before[sample] && wanted[sample]),
                    "{what} is no longer registered, and is desired"
                );
                if after[sample] && !before[sample] {
                    for (serving, is_ready) in &self.replicas {
                        let serves = serving[index]
                            .as_ref()
                            .is_some_and(|one| covers(&one.matching)[sample]);
                        prop_assert!(
                            !is_ready || serves,
                            "{what} is registered, and a ready replica does not serve it"
                        );
                    }
                }
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn never_registers_what_is_not_served_and_never_removes_what_is_enforced(
        events in prop::collection::vec(event(), 1..120)
    ) {
        let mut world = World::default();
        for event in &events {
            world.apply(event)?;
            // A registered plugin is on every ready replica, whatever its version.
            for (index, name) in NAMES.into_iter().enumerate() {
                let is_served = world.replicas.iter().all(|(serving, is_ready)| !is_ready || serving[index].is_some());
                prop_assert!(is_served || !world.registered.0.contains_key(name), "{} left too early", name);
            }
        }
        // In the end, all of it is in force.
        for _ in 0..2 {
            for replica in 0..3 {
                for plugin in 0..2 {
                    world.apply(&Event::Follow { replica, plugin })?;
                }
                world.apply(&Event::Ready { replica, is_ready: true })?;
            }
            world.apply(&Event::Reconcile)?;
        }
        for (index, name) in NAMES.into_iter().enumerate() {
            let wanted = world.desired[index].as_ref();
            let wanted = wanted.map_or(vec![false; SAMPLES.len()], |plugin| covers(&plugin.matching));
            prop_assert_eq!(registers(&world.registered, name), wanted);
        }
    }

    /// The overlap of two sets of rules matches exactly what both match.
    #[test]
    fn overlap_is_exact(first in any::<Index>(), second in any::<Index>()) {
        let variants = variants();
        let (first, second) = (first.get(&variants), second.get(&variants));
        let registered = Recorded::of(&plugin("p", first.clone()), true);
        let both = overlap(&registered, second).map_or(vec![false; SAMPLES.len()], |both| covers(&both));
        let expected: Vec<bool> = covers(first).into_iter().zip(covers(second)).map(|(one, other)| one && other).collect();
        prop_assert_eq!(both, expected);
    }
}
