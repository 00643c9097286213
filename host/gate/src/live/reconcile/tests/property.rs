//! Property tests: no sequence of events weakens enforcement.

use proptest::prelude::*;
use tollgate_config::{FailurePolicy, GroupStep, MemberVerdict, Mode, PluginConfig};

use super::super::place::enforces;
use super::*;

/// An entry, reduced to a few choices.
#[derive(Clone, Debug)]
struct Entry {
    name: usize,
    file: usize,
    settings: usize,
    /// The namespaces in the scope of the entry, as bits; at least one.
    scope: u8,
    mode: usize,
    is_enabled: bool,
    ignores: bool,
    group: Option<Members>,
}

/// The members of a group, reduced to a few choices: file and settings of each, and an expression.
#[derive(Clone, Debug)]
struct Members {
    members: Vec<(usize, usize)>,
    expression: usize,
}

#[derive(Clone, Debug)]
enum Op {
    Read(Vec<Entry>),
    Invalid,
    /// One of the loads ends.
    End {
        which: usize,
        well: bool,
    },
    Pass {
        seconds: u64,
    },
    RequestReload,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const EXPRESSIONS: [&str; 3] = ["all", "any", "m0() && !m1()"];
const MODES: [&str; 5] = ["enforce", "enforce", "enforce", "warn", "audit"];

fn group() -> impl Strategy<Value = Members> {
    let members = prop::collection::vec((0..3_usize, 0..2_usize), 2..4);
    (members, 0..EXPRESSIONS.len()).prop_map(|(members, expression)| Members {
        // The last expression has two members.
        expression: if members.len() == 2 {
            expression
        } else {
            expression % 2
        },
        members,
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    let choices = (
        0..NAMES.len(),
        0..3_usize,
        0..2_usize,
        1..8_u8,
        0..MODES.len(),
        0..6_u8,
        any::<bool>(),
        prop_oneof![2 => Just(None), 1 => group().prop_map(Some)],
    );
    choices.prop_map(
        |(name, file, settings, scope, mode, enabled, ignores, group)| Entry {
            name,
            file,
            settings,
            scope,
            mode,
            is_enabled: enabled > 0,
            ignores,
            group,
        },
    )
}

/// A configuration in which each name occurs once.
fn configuration() -> impl Strategy<Value = Vec<Entry>> {
    prop::collection::vec(entry(), 0..5).prop_map(|mut entries| {
        let mut seen = BTreeSet::new();
        entries.retain(|entry| seen.insert(entry.name));
        entries
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => configuration().prop_map(Op::Read),
        1 => Just(Op::Invalid),
        8 => (0..4_usize, any::<bool>()).prop_map(|(which, well)| Op::End { which, well }),
        2 => (0..20_u64).prop_map(|seconds| Op::Pass { seconds }),
        1 => Just(Op::RequestReload),
    ]
}

fn text(entries: &[Entry]) -> String {
    let line = |entry: &Entry| {
        let namespaces: Vec<String> = (0..3)
            .filter(|bit| entry.scope >> bit & 1 == 1)
            .map(|bit| format!("n{bit}"))
            .collect();
        let code = |(file, settings): (usize, usize)| {
            format!("source: 'file:/{file}.wasm', settings: {{ v: {settings} }}")
        };
        let code = match &entry.group {
            None => code((entry.file, entry.settings)),
            Some(Members {
                members,
                expression,
            }) => {
                let members = members.iter().copied().enumerate();
                let members: Vec<String> = members
                    .map(|(index, member)| format!("{{ name: m{index}, {} }}", code(member)))
                    .collect();
                format!(
                    "group: {{ members: [{}], expression: '{}', message: no }}",
                    members.join(", "),
                    EXPRESSIONS[*expression]
                )
            }
        };
        format!(
            "{}: {code}, mode: {}, enabled: {}, failurePolicy: {}, match: {{ rules: [{{ \
             operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [pods] }}], namespaces: [{}] }}",
            NAMES[entry.name],
            MODES[entry.mode],
            entry.is_enabled,
            if entry.ignores { "Ignore" } else { "Fail" },
            namespaces.join(", ")
        )
    };
    let lines: Vec<String> = entries.iter().map(line).collect();
    lines.join("\n")
}

/// The requests in the scope of an entry: one for each namespace.
fn scope(config: &PluginConfig) -> u8 {
    let Some(matching) = &config.matching else {
        return 0b111;
    };
    let bits = matching.namespaces.iter().map(|name| match &**name {
        "n0" => 1,
        "n1" => 2,
        _ => 4,
    });
    bits.sum()
}

/// What a plugin or a member says: the requests that it denies, or nothing because it has no code to call.
type Says<'p> = (&'p PluginConfig, Option<u8>);

/// The requests that plugins deny together: first by their code, then because code is missing. The members of a group
/// decide together.
fn denied<'p>(plugins: impl Iterator<Item = Says<'p>>) -> (u8, u8) {
    let mut entries: BTreeMap<&str, Vec<Says<'p>>> = BTreeMap::new();
    for (config, says) in plugins.filter(|(config, _)| enforces(config)) {
        let entry = entries.entry(config.name.entry()).or_default();
        entry.push((config, says));
    }
    let mut all = (0, 0);
    for says in entries.values() {
        let (config, _) = says[0];
        for request in [1, 2, 4].into_iter().filter(|bit| scope(config) & bit != 0) {
            match verdict(says, request) {
                GroupStep::Settled(true) => {}
                GroupStep::Settled(false) => all.0 |= request,
                _ if config.failure_policy == FailurePolicy::Fail => all.1 |= request,
                _ => {}
            }
        }
    }
    all
}

/// What one plugin, or the members of one group, say about a request.
fn verdict(says: &[Says<'_>], request: u8) -> GroupStep {
    let of = |denies: &Option<u8>| match denies {
        None => MemberVerdict::Faulted,
        Some(denies) if denies & request != 0 => MemberVerdict::Denied,
        Some(_) => MemberVerdict::Allowed,
    };
    let (first, denies) = &says[0];
    let Some(group) = &first.group else {
        return match of(denies) {
            MemberVerdict::Faulted => GroupStep::Unknown,
            verdict => GroupStep::Settled(verdict == MemberVerdict::Allowed),
        };
    };
    let configs: Vec<&PluginConfig> = says.iter().map(|(config, _)| *config).collect();
    assert!(
        PluginConfig::of_group(&configs).is_some(),
        "members of different groups: {configs:?}"
    );
    let verdicts = group.members.iter().map(|name| {
        let name = group.name.of_member(name);
        let mut says = says.iter();
        says.find(|(config, _)| config.name == name)
            .map(|(_, denies)| of(denies))
    });
    group.expression.step(&verdicts.collect::<Vec<_>>())
}

fn serving(place: &Place<TestCode>) -> Says<'_> {
    (&place.config, place.code().map(|loaded| loaded.code.denies))
}

/// The requests that a configuration denies once all of it serves. If an entry's failurePolicy has decided since the
/// start, the failurePolicy counts as desired.
fn desired_denials<'d>(desired: &'d [PluginConfig], places: &[Place<TestCode>]) -> u8 {
    let of_entry = |entry: &'d PluginConfig| {
        let place = places.iter().find(|place| place.config.name == entry.name);
        let is_failed = place.is_some_and(Place::is_failed);
        (entry, (!is_failed).then(|| denies(entry)))
    };
    let (by_code, by_fault) = denied(desired.iter().map(of_entry));
    by_code | by_fault
}

/// The requests that were denied before a change, by plugins that the change does not relieve by name.
fn protected(desired: &[PluginConfig], places: &[Place<TestCode>]) -> u8 {
    let is_relieved = |place: &&Place<TestCode>| {
        let name = place.config.name.entry();
        let entry = desired.iter().find(|entry| entry.name.entry() == name);
        entry.is_some_and(|entry| !entry.enabled || entry.mode != Mode::Enforce)
    };
    let places = places.iter().filter(|place| !is_relieved(place));
    denied(places.map(serving)).0
}

fn check_never_weaker(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut world = World::serving("a: source: 'file:/0.wasm'\nb: source: 'file:/1.wasm'");
    let mut now_text = "a: source: 'file:/0.wasm'\nb: source: 'file:/1.wasm'".to_owned();
    let mut must_hold = 0;
    for op in ops {
        match &op {
            Op::Read(entries) => {
                let desired = super::entries(&text(entries));
                let places = world.published.clone().unwrap_or_default();
                // Denials that an earlier change has relieved need not hold any more.
                must_hold = protected(&desired, &places);
                now_text = text(entries);
                world.read(&now_text);
            }
            Op::Invalid => world.observe(Err("wrong".to_owned()), false, false),
            Op::End { which, well } => {
                let ticket = world.loads.keys().nth(*which).copied();
                if let Some(ticket) = ticket {
                    world.end(ticket, if *well { Ok(()) } else { Err("it fails") });
                }
            }
            Op::Pass { seconds } => world.pass(Duration::from_secs(*seconds)),
            Op::RequestReload => world.request_reload(&now_text),
        }
        let places = world.published.clone().unwrap_or_default();
        let desired = world.state.desired.clone();
        let (by_code, by_fault) = denied(places.iter().map(serving));
        let serves = by_code | by_fault;
        let required = must_hold & desired_denials(&desired, &places);
        prop_assert_eq!(
            required & !serves,
            0,
            "after {:?}: {:03b} were denied and are desired to be, {:03b} are; in force {:?}, desired\n{}",
            op,
            required,
            serves,
            world.in_force(),
            now_text
        );
        // All plugins have served at the beginning, so a load that is under way or fails leaves none without code.
        prop_assert!(
            !places.iter().any(Place::is_failed),
            "{:?}",
            world.in_force()
        );
        // Explicit relief takes effect at once.
        for entry in desired.iter().filter(|entry| !enforces(entry)) {
            let name = entry.name.entry();
            let mut of_entry = places
                .iter()
                .filter(|place| place.config.name.entry() == name);
            prop_assert!(
                of_entry.all(|place| !enforces(&place.config)),
                "{} still enforces",
                entry.name
            );
        }
        // Every caller is answered in time.
        for waiter in &world.state.waiters {
            prop_assert!(waiter.until > world.now);
        }
    }
    // In the end all loads succeed, and exactly the desired plugins serve.
    world.finish_all();
    world.pass(Duration::from_secs(400));
    world.finish_all();
    let places = world.published.clone().unwrap_or_default();
    let in_force: Vec<&PluginConfig> = places.iter().map(|place| &place.config).collect();
    prop_assert_eq!(in_force, world.state.desired.iter().collect::<Vec<_>>());
    for place in &places {
        let serves = place.code().is_some();
        prop_assert_eq!(serves, place.config.enabled, "{:?}", world.in_force());
        if let Some(loaded) = place.code() {
            prop_assert_eq!(loaded.code.denies, denies(&place.config));
        }
    }
    prop_assert!(world.held().is_empty());
    prop_assert!(world.answers.len() <= 64);
    Ok(())
}

/// Ends every load and recall. The loads of broken versions fail.
fn settle(world: &mut World, broken: &BTreeSet<(usize, usize)>) {
    let is_broken = |config: &PluginConfig| {
        broken.iter().any(|(file, settings)| {
            config.source.to_string() == format!("file:/{file}.wasm")
                && config.settings == serde_json::json!({ "v": settings })
        })
    };
    for _ in 0..4 {
        let loads: Vec<(Ticket, bool)> = world
            .loads
            .iter()
            .map(|(ticket, order)| (*ticket, is_broken(&order.config)))
            .collect();
        for (ticket, is_broken) in loads {
            world.end(
                ticket,
                if is_broken {
                    Err("it is broken")
                } else {
                    Ok(())
                },
            );
        }
        world.recall_all();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// If the plugins denied a request before a change, and the desired configuration denies it too, then the serving
    /// plugins deny it.
    #[test]
    fn change_never_weakens_enforcement(ops in prop::collection::vec(op(), 1..40)) {
        check_never_weaker(ops)?;
    }

    /// A replica that restarts with the same records serves the same plugins as one that kept running.
    #[test]
    fn restarted_replica_agrees_with_running_one(
        configurations in prop::collection::vec(configuration(), 1..6),
        broken in prop::collection::btree_set((0..3_usize, 0..2_usize), 0..4),
    ) {
        let mut world = World::started(&text(&configurations[0]), LastKnownGood::default());
        settle(&mut world, &broken);
        for entries in &configurations {
            world.read(&text(entries));
            settle(&mut world, &broken);
        }
        let last = text(configurations.last().expect("there is one"));
        let mut again = World::started(&last, world.record.clone());
        settle(&mut again, &broken);
        prop_assert_eq!(again.in_force(), world.in_force(), "of\n{}", last);
        let configs = |world: &World| -> Vec<PluginConfig> {
            world.published.iter().flatten().map(|place| place.config.clone()).collect()
        };
        prop_assert_eq!(configs(&again), configs(&world));
        prop_assert_eq!(again.held(), world.held());
    }
}
