//! Tests one case for each rule.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn start_publishes_all_plugins_in_one_swap() {
    let mut world = World::started("a:\nb:\nc: enabled: false", LastKnownGood::default());
    world.finish("b");
    assert_eq!(world.in_force(), ["nothing"]);
    world.finish("a");
    assert_eq!(world.in_force(), ["a a.wasm@0", "b b.wasm@0", "c -"]);
    assert_eq!(world.swaps.len(), 1);
}

#[test]
fn keeps_renamed_plugin_until_replacement_serves() {
    let mut world = World::serving("guard:\nother:");
    world.read("guard-v2:\nother:");
    assert_eq!(
        world.in_force(),
        ["guard guard.wasm@0", "other other.wasm@0"]
    );
    world.fail("guard-v2");
    assert_eq!(
        world.in_force(),
        ["guard guard.wasm@0", "other other.wasm@0"]
    );
    assert_eq!(world.held(), [("guard".to_owned(), HeldBecause::Removed)]);
    let held = world.state.snapshot().held.unwrap();
    assert_eq!(held.because_of(), "guard-v2");
    let count_held = |world: &World| {
        let notes = world.notes.iter();
        notes.filter(|note| matches!(note, Note::Held(_))).count()
    };
    assert_eq!(count_held(&world), 1);
    for _ in 0..5 {
        world.pass(SECOND * 300);
        world.fail("guard-v2");
        assert_eq!(
            world.in_force(),
            ["guard guard.wasm@0", "other other.wasm@0"]
        );
    }
    assert_eq!(count_held(&world), 1, "one note for each reason");
    world.pass(SECOND * 300);
    world.finish("guard-v2");
    assert_eq!(
        world.in_force(),
        ["guard-v2 guard-v2.wasm@0", "other other.wasm@0"]
    );
    assert!(world.held().is_empty());
    assert_eq!(world.swaps.last().unwrap(), &["guard", "guard-v2"]);
    assert!(matches!(world.notes.last(), Some(Note::Released)));
}

#[test]
fn plugins_of_namespaces_hold_up_nothing_and_are_not_held() {
    let mut world = World::serving("guard:\nold:\nteam-a/own:\nteam-b/own:");
    world.read("guard: settings: { a: 1 }\nteam-b/own: settings: { a: 1 }\nteam-b/new:");
    world.fail("team-b/new");
    world.fail("team-b/own");
    // The plugin of the cluster is still being loaded, so the one that it may replace stays.
    assert_eq!(
        world.in_force(),
        [
            "guard guard.wasm@0",
            "old old.wasm@0",
            "team-b/own team-b/own.wasm@0"
        ]
    );
    world.finish("guard");
    assert_eq!(
        world.in_force(),
        ["guard guard.wasm@0", "team-b/own team-b/own.wasm@0"]
    );
    assert!(world.held().is_empty());
    assert_eq!(world.config("guard").settings["a"], 1);
    // The failing plugin keeps its own previous version.
    assert_eq!(
        world.config("team-b/own").settings["a"],
        serde_json::Value::Null
    );
}

#[test]
fn removing_failing_entry_ends_the_hold() {
    let mut world = World::serving("guard:\nother:");
    world.read("guard-v2:\nother:");
    world.fail("guard-v2");
    world.read("other:");
    assert_eq!(world.in_force(), ["other other.wasm@0"]);
    assert!(world.held().is_empty());
}

#[test]
fn explicit_relief_takes_effect_at_once() {
    let mut world = World::serving("guard:\nother:");
    world.read("guard: enabled: false\nother: mode: warn, settings: { a: 1 }\nguard-v2:");
    assert_eq!(world.in_force(), ["guard -", "other other.wasm@0"]);
    let other = world.config("other");
    assert_eq!(other.mode, tollgate_config::Mode::Warn);
    assert_eq!(
        other.settings,
        serde_json::json!({}),
        "its new settings are not loaded yet"
    );
    world.fail("guard-v2");
    world.finish("other");
    assert_eq!(
        world.config("other").settings,
        serde_json::json!({ "a": 1 })
    );
}

#[test]
fn holds_enforcing_plugin_until_other_plugin_is_loaded() {
    let mut world = World::serving("guard: settings: { v: 1 }\nother:");
    let narrow = "existingViolations: allow, settings: { v: 2 }";
    let text = format!("guard: {narrow}\nother: settings: {{ v: 2 }}");
    world.read(&text);
    world.finish("guard");
    let guard = world.config("guard");
    assert_eq!(guard.settings, serde_json::json!({ "v": 1 }));
    assert_eq!(
        guard.existing_violations,
        tollgate_config::ExistingViolations::default()
    );
    assert_eq!(world.held(), [("guard".to_owned(), HeldBecause::Changed)]);
    let swaps = world.swaps.len();
    world.finish("other");
    assert_eq!(
        world.swaps.len(),
        swaps + 1,
        "all changes take effect in one swap"
    );
    assert_eq!(world.swaps.last().unwrap(), &["guard", "other"]);
    assert_eq!(
        world.config("guard").settings,
        serde_json::json!({ "v": 2 })
    );
}

#[test]
fn added_plugin_serves_once_loaded_and_delays_no_other() {
    let mut world = World::serving("guard:");
    world.read("first:\nguard:\nsecond:");
    world.finish("second");
    assert_eq!(
        world.in_force(),
        ["guard guard.wasm@0", "second second.wasm@0"]
    );
    world.fail("first");
    assert_eq!(
        world.in_force(),
        ["guard guard.wasm@0", "second second.wasm@0"]
    );
    assert!(
        world.held().is_empty(),
        "the entry of guard has not changed"
    );
    world.pass(SECOND * 2);
    world.finish("first");
    let all = [
        "first first.wasm@0",
        "guard guard.wasm@0",
        "second second.wasm@0",
    ];
    assert_eq!(world.in_force(), all);
}

#[test]
fn non_enforcing_plugins_change_at_once() {
    let mut world = World::serving("guard:\naudit: mode: audit\ngone: mode: warn");
    world.read("guard-v2:\naudit: mode: audit, failurePolicy: Ignore\nslow: mode: audit");
    assert_eq!(
        world.in_force(),
        ["guard guard.wasm@0", "audit audit.wasm@0"]
    );
    assert_eq!(
        world.config("audit").failure_policy,
        tollgate_config::FailurePolicy::Ignore
    );
    world.finish("guard-v2");
    assert_eq!(
        world.in_force(),
        ["guard-v2 guard-v2.wasm@0", "audit audit.wasm@0"]
    );
    assert!(
        world.is_loading("slow"),
        "slow is still loading and holds no other plugin"
    );
}

#[test]
fn change_to_enforce_mode_takes_effect_at_once() {
    let mut world = World::serving("guard: mode: warn\nother:");
    world.read("guard:\nother:\nnew:");
    assert_eq!(world.config("guard").mode, tollgate_config::Mode::Enforce);
    world.read("guard: mode: warn\nother:\nnew:");
    assert_eq!(world.config("guard").mode, tollgate_config::Mode::Warn);
}

#[test]
fn exchanged_names_change_in_one_swap() {
    let mut world = World::serving("a: source: 'file:/1.wasm'\nb: source: 'file:/2.wasm'");
    world.read("a: source: 'file:/2.wasm'\nb: source: 'file:/1.wasm'");
    world.finish("a");
    assert_eq!(world.in_force(), ["a 1.wasm@0", "b 2.wasm@0"]);
    world.fail("b");
    assert_eq!(world.in_force(), ["a 1.wasm@0", "b 2.wasm@0"]);
    world.pass(SECOND * 2);
    world.finish("b");
    assert_eq!(world.in_force(), ["a 2.wasm@0", "b 1.wasm@0"]);
}

#[test]
fn keeps_order_until_awaited_plugin_serves() {
    let mut world = World::serving("a:\nb:\nc:");
    world.read("new:\nc:\nb:\na:\n");
    let held = ["a a.wasm@0", "b b.wasm@0", "c c.wasm@0"];
    assert_eq!(world.in_force(), held);
    world.finish("new");
    let all = ["new new.wasm@0", "c c.wasm@0", "b b.wasm@0", "a a.wasm@0"];
    assert_eq!(world.in_force(), all);
}

#[test]
fn held_plugin_takes_new_file_version_at_once() {
    let mut world = World::serving("guard:\nother:");
    let text = "guard: existingViolations: allow\nother: settings: { v: 2 }";
    world.read(text);
    world.fail("other");
    assert_eq!(world.held().len(), 1);
    world.replace("guard.wasm", text);
    world.finish("guard");
    assert_eq!(
        world.in_force(),
        ["guard guard.wasm@1", "other other.wasm@0"]
    );
    assert_eq!(
        world.held().len(),
        1,
        "guard stays under its previous entry"
    );
    world.replace("guard.wasm", text);
    world.fail("guard");
    assert_eq!(
        world.in_force(),
        ["guard guard.wasm@1", "other other.wasm@0"]
    );
}

#[test]
fn trusted_root_of_held_plugin_is_refreshed() {
    let urls = |world: &World| {
        let sources = world.state.tuf_sources();
        let urls = sources.iter().map(|source| source.url.to_string());
        urls.collect::<Vec<_>>()
    };
    let guard = |host: &str| {
        format!(
            "guard: source: 'oci://registry.example.com/guard:1', existingViolations: allow, signatures: {{ tuf: {{ url: 'https://{host}', root: root.json }}, policies: [{{ \
             name: ci, repositories: ['**'], signers: [{{ issuer: 'https://a.example', subject: '**' }}] }}] }}"
        )
    };
    let (old, new) = ("https://old.example/", "https://new.example/");
    let mut world = World::serving(&format!("{}\nother:", guard("old.example")));
    assert_eq!(urls(&world), [old]);
    // The other plugin cannot be loaded, so the entry is held.
    world.read(&format!(
        "{}\nother: settings: {{ v: 2 }}",
        guard("new.example").replace("allow", "deny")
    ));
    world.fail("other");
    assert_eq!(urls(&world), [new, old]);
    world.pass(SECOND * 300);
    world.finish_all();
    assert_eq!(urls(&world), [new]);
}

#[test]
fn load_restarts_only_when_its_inputs_change() {
    let mut world = World::serving("guard:");
    world.read("guard:\nslow:");
    let ticket = world.ticket("slow");
    world.read("guard: existingViolations: allow\nslow: mode: warn\nother:");
    world.request_reload("guard: existingViolations: allow\nslow: mode: warn\nother:");
    assert_eq!(
        world.ticket("slow"),
        ticket,
        "neither its mode nor other entries are inputs of the load"
    );
    world.read("guard:\nslow: settings: { a: 1 }\nother:");
    assert_ne!(world.ticket("slow"), ticket);
    let ticket = world.ticket("slow");
    world.replace("slow.wasm", "guard:\nslow: settings: { a: 1 }\nother:");
    assert_ne!(world.ticket("slow"), ticket);
    world.read("guard:\nother:");
    assert!(!world.is_loading("slow"));
}

#[test]
fn reload_of_unchanged_file_swaps_nothing() {
    let mut world = World::serving("guard:");
    world.request_reload("guard:");
    assert_eq!(
        world.loads.values().next().unwrap().have.as_deref(),
        Some("file:/guard.wasm@0")
    );
    let swaps = world.swaps.len();
    world.finish("guard");
    assert_eq!(world.swaps.len(), swaps);
}

#[test]
fn start_waits_three_seconds_for_plugins_that_deny_nothing() {
    let text = "guard:\nlenient: failurePolicy: Ignore\naudit: mode: audit\nwarn: mode: warn";
    let mut world = World::started(text, LastKnownGood::default());
    world.finish("guard");
    world.pass(SECOND * 2);
    assert_eq!(world.in_force(), ["nothing"]);
    world.pass(SECOND * 2);
    assert_eq!(
        world.in_force(),
        ["guard guard.wasm@0", "lenient !", "audit !", "warn !"]
    );
    assert!(world.state.snapshot().loading.len() == 3);
    world.finish("audit");
    assert_eq!(world.in_force()[2], "audit audit.wasm@0");
}

#[test]
fn start_waits_ten_seconds_for_plugins_that_would_deny() {
    let mut world = World::started("guard:\nslow:", LastKnownGood::default());
    world.finish("guard");
    world.pass(SECOND * 9);
    assert_eq!(world.in_force(), ["nothing"]);
    world.pass(SECOND * 2);
    assert_eq!(world.in_force(), ["guard guard.wasm@0", "slow !"]);
    // From now on the plugin is like any other: its entry holds up no other plugin.
    world.read("guard: existingViolations: allow\nslow:");
    assert!(world.held().is_empty());
    world.finish("slow");
    assert_eq!(world.in_force(), ["guard guard.wasm@0", "slow slow.wasm@0"]);
}

#[test]
fn loads_shadows_after_start() {
    let shadow = "shadow: { source: 'file:/next.wasm' }";
    let text = format!("guard: {shadow}");
    let mut world = World::started(&text, LastKnownGood::default());
    assert!(!world.is_loading("guard.shadow"));
    world.finish("guard");
    assert_eq!(world.in_force(), ["guard guard.wasm@0"]);
    world.read(&format!("guard: existingViolations: allow, {shadow}"));
    assert!(world.held().is_empty(), "a shadow enforces nothing");
    world.fail("guard.shadow");
    world.pass(SECOND * 2);
    world.finish("guard.shadow");
    assert_eq!(
        world.in_force(),
        ["guard guard.wasm@0", "guard.shadow next.wasm@0"]
    );
}

const ROLLOUT: &str =
    "rollout: { to: { source: 'file:/new.wasm' }, steps: [{ mode: enforce, for: 1h }] }";

#[test]
fn loads_new_version_of_rollout_in_the_start() {
    let text = format!("guard: {ROLLOUT}");
    let mut world = World::started(&text, LastKnownGood::default());
    assert!(world.is_loading("guard.shadow"));
    world.finish("guard");
    assert_eq!(world.in_force(), ["nothing"]);
    world.finish("guard.shadow");
    assert_eq!(
        world.in_force(),
        ["guard guard.wasm@0", "guard.shadow new.wasm@0"]
    );
    // Its failure does not hold the start up.
    let mut world = World::started(&text, LastKnownGood::default());
    world.finish("guard");
    world.fail("guard.shadow");
    assert_eq!(world.in_force(), ["guard guard.wasm@0"]);
}

/// A promoted version answers until the entry that replaces it serves.
#[test]
fn new_version_of_rollout_stays_while_its_entry_changes() {
    let mut world = World::serving(&format!("guard: {ROLLOUT}"));
    let both = ["guard guard.wasm@0", "guard.shadow new.wasm@0"];
    assert_eq!(world.in_force(), both);
    for changed in [
        "guard: source: 'file:/new.wasm'".to_owned(),
        format!(
            "guard: {}, settings: {{ a: 1 }}",
            ROLLOUT.replace("new", "newer")
        ),
    ] {
        world.read(&changed);
        assert_eq!(world.in_force(), both);
        assert!(world.config("guard").rollout.is_some());
        world.fail("guard");
        assert_eq!(world.in_force(), both);
        world.read(&format!("guard: {ROLLOUT}"));
    }
    world.read("guard: source: 'file:/new.wasm'");
    world.finish("guard");
    assert_eq!(world.in_force(), ["guard new.wasm@0"]);
    assert_eq!(world.config("guard").rollout, None);
}

#[test]
fn relief_ends_a_rollout_at_once() {
    for relief in ["mode: warn, settings: { a: 1 }", "enabled: false"] {
        let mut world = World::serving(&format!("guard: {ROLLOUT}"));
        world.read(&format!("guard: {relief}"));
        assert_eq!(world.config("guard").active_rollout(), None, "{relief}");
        assert_eq!(world.in_force().len(), 1, "{relief}");
    }
}

/// A plugin in mode warn may enforce already by its rollout, so its removal waits for the replacement.
#[test]
fn rolled_out_mode_is_held_like_an_enforcing_plugin() {
    let mode = "mode: warn, rollout: { steps: [{ mode: enforce, for: 1h }] }";
    let mut world = World::serving(&format!("guard: {mode}"));
    world.read("guard-v2:");
    assert_eq!(world.in_force(), ["guard guard.wasm@0"]);
    assert_eq!(world.held(), [("guard".to_owned(), HeldBecause::Removed)]);
    world.finish("guard-v2");
    assert_eq!(world.in_force(), ["guard-v2 guard-v2.wasm@0"]);
}

#[test]
fn failure_policy_applies_without_last_known_good() {
    let mut world = World::started("guard:\nother:", LastKnownGood::default());
    world.finish("other");
    world.fail("guard");
    assert_eq!(world.in_force(), ["guard !", "other other.wasm@0"]);
    // First relief, then a correction.
    world.read("guard: mode: warn\nother:");
    assert_eq!(world.config("guard").mode, tollgate_config::Mode::Warn);
    world.read("guard: source: 'file:/correct.wasm'\nother: existingViolations: allow");
    assert!(
        world.held().is_empty(),
        "the failurePolicy of guard decides already"
    );
    world.finish("guard");
    assert_eq!(
        world.in_force(),
        ["guard correct.wasm@0", "other other.wasm@0"]
    );
}

#[test]
fn fresh_start_uses_latest_configuration() {
    let mut world = World::started("other:", LastKnownGood::default());
    world.read("guard:\nother:");
    world.finish("other");
    world.fail("guard");
    assert_eq!(world.in_force(), ["guard !", "other other.wasm@0"]);
}

#[test]
fn keeps_failed_denying_plugin_until_replacement_serves() {
    let mut world = World::started("guard:", LastKnownGood::default());
    world.fail("guard");
    world.read("guard-v2:");
    world.fail("guard-v2");
    assert_eq!(world.in_force(), ["guard !"]);
    world.read("");
    assert!(world.in_force().is_empty());
}

#[test]
fn restarted_replica_serves_same_plugins_as_others() {
    let mut world = World::serving("guard:\nother:");
    let text = "guard-v2:\nother: existingViolations: allow";
    world.read(text);
    world.fail("guard-v2");
    let record = world.record.clone();
    let mut again = World::started(text, record);
    again.finish("other");
    again.fail("guard-v2");
    again.recall_all();
    assert_eq!(again.in_force(), world.in_force());
    assert_eq!(again.held(), world.held());
    assert_eq!(again.config("other"), world.config("other"));
    // A replica on which the replacement hangs serves the same.
    let mut again = World::started(text, world.record.clone());
    again.finish("other");
    again.pass(SECOND * 6);
    again.recall_all();
    assert_eq!(again.in_force(), world.in_force());
    again.finish("guard-v2");
    assert_eq!(
        again.in_force(),
        ["guard-v2 guard-v2.wasm@0", "other other.wasm@0"]
    );
}

#[test]
fn recalls_nothing_when_all_plugins_load() {
    let world = World::serving("guard:\nother:");
    let mut again = World::started("guard-v2:\nother: settings: { a: 1 }", world.record);
    again.finish_all();
    assert!(again.recalls.is_empty());
    assert_eq!(
        again.in_force(),
        ["guard-v2 guard-v2.wasm@0", "other other.wasm@0"]
    );
}

#[test]
fn recalls_recorded_version_when_file_is_gone() {
    let world = World::serving("guard:\nother:");
    let mut again = World::started("guard: existingViolations: allow\nother:", world.record);
    again.finish("other");
    again.fail("guard");
    again.recall_all();
    assert_eq!(
        again.in_force(),
        ["guard guard.wasm@0", "other other.wasm@0"]
    );
    let allow = tollgate_config::ExistingViolations::Allow;
    assert_eq!(
        again.config("guard").existing_violations,
        allow,
        "the current entry applies"
    );
    assert!(again.held().is_empty());
}

#[test]
fn failure_policy_applies_when_recall_fails() {
    let world = World::serving("guard:");
    let mut again = World::started("guard: settings: { a: 1 }", world.record);
    again.fail("guard");
    let (ticket, _) = again.recalls.pop_first().unwrap();
    let outcome = Err("its key is not trusted".to_owned());
    again.apply(Event::Recalled { ticket, outcome });
    assert_eq!(again.in_force(), ["guard !"]);
    let Serving::Failed { reason, .. } = &again.published.as_ref().unwrap()[0].serving else {
        panic!("it serves");
    };
    let both = "No such file; failed to load the last known good: its key is not trusted";
    assert_eq!(reason, both);
}

#[test]
fn invalid_configuration_changes_nothing_and_is_reported_once() {
    let mut world = World::serving("guard:");
    for _ in 0..3 {
        world.observe(Err("line 1".to_owned()), false, false);
    }
    assert_eq!(world.in_force(), ["guard guard.wasm@0"]);
    assert_eq!(world.state.snapshot().invalid.as_deref(), Some("line 1"));
    let notes = world.notes.iter();
    assert_eq!(
        notes
            .filter(|note| matches!(note, Note::Invalid { .. }))
            .count(),
        1
    );
    world.read("guard:");
    assert_eq!(world.state.snapshot().invalid, None);
}

#[test]
fn failed_retry_swaps_nothing() {
    let mut world = World::started("guard:", LastKnownGood::default());
    world.fail("guard");
    let swaps = world.swaps.len();
    for _ in 0..3 {
        world.pass(SECOND * 300);
        let ticket = world.ticket("guard");
        world.end(ticket, Err("another reason each time"));
    }
    let later: Vec<&Vec<String>> = world.swaps[swaps..].iter().collect();
    assert!(later.iter().all(|changed| changed.is_empty()), "{later:?}");
    let notes: Vec<&Note> = world.notes.iter().collect();
    let news = |note: &&&Note| matches!(note, Note::Trouble { is_news: true, .. });
    assert_eq!(
        notes.iter().filter(news).count(),
        2,
        "one note for each reason"
    );
}

#[test]
fn answers_reload_after_all_loads_or_ten_seconds() {
    let mut world = World::serving("guard:");
    world.request_reload("guard:");
    world.finish("guard");
    assert_eq!(world.answers.pop().unwrap().result(), "unchanged");

    world.request_reload("guard:\nslow:\nother:");
    world.finish("other");
    world.finish("guard");
    world.pass(SECOND * 9);
    assert!(world.answers.is_empty());
    world.pass(SECOND * 2);
    let report = world.answers.pop().unwrap();
    assert_eq!(report.result(), "loading");
    let names = |names: &BTreeSet<PluginName>| -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        (names(&report.loading), names(&report.changed)),
        (vec!["slow".to_owned()], vec!["other".to_owned()])
    );

    world.request_reload("guard:\nslow:\nother:");
    world.fail("slow");
    world.finish_all();
    let report = world.answers.pop().unwrap();
    assert_eq!(report.result(), "failed");
    assert!(report.failed.keys().any(|name| name.as_str() == "slow"));
}

#[test]
fn plugin_without_rules_serves_once_entry_has_rules() {
    let source = "source: 'file:/without-rules.wasm'";
    let mut world = World::serving("guard:");
    world.read(&format!("guard:\nnew: {source}"));
    world.finish("new");
    assert_eq!(world.in_force(), ["guard guard.wasm@0"]);
    let rules = "match: { rules: [{ operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [pods] }] }";
    world.read(&format!("guard:\nnew: {source}, {rules}"));
    assert_eq!(
        world.in_force(),
        ["guard guard.wasm@0", "new without-rules.wasm@0"]
    );
    assert!(world.state.snapshot().troubles.is_empty());
    world.read(&format!("guard:\nnew: {source}"));
    assert!(
        world.config("new").matching.is_some(),
        "the previous entry stays in effect"
    );
    assert_eq!(world.state.snapshot().troubles.len(), 1);
}

#[test]
fn polls_tag_and_backs_off_from_bad_version() {
    let text = "guard: source: 'oci://registry.example.com/guard:1'";
    let mut world = World::serving(text);
    world.pass(SECOND * 50);
    assert!(!world.is_loading("guard"));
    world.pass(SECOND * 20);
    let ticket = world.ticket("guard");
    world.loads.remove(&ticket);
    let digest: Arc<str> = "bad".into();
    let reason = "compile".to_owned();
    for attempt in 1..=8 {
        let outcome = Err(Failure {
            reason: reason.clone(),
            digest: Some(digest.clone()),
            is_unsigned: false,
        });
        let ticket = match attempt {
            1 => ticket,
            _ => {
                while !world.is_loading("guard") {
                    world.pass(SECOND);
                }
                let ticket = world.ticket("guard");
                let order = world.loads.remove(&ticket).unwrap();
                if order.held_back.is_some() {
                    assert_eq!(order.held_back.as_deref(), Some("bad"));
                    world.apply(Event::Loaded {
                        ticket,
                        outcome: Ok(Outcome::HeldBack),
                    });
                    continue;
                }
                ticket
            }
        };
        world.apply(Event::Loaded { ticket, outcome });
    }
    assert_eq!(world.state.snapshot().troubles.len(), 1);
    // Another version ends the trouble.
    while !world.is_loading("guard") {
        world.pass(SECOND);
    }
    let ticket = world.ticket("guard");
    let config = world.loads.remove(&ticket).unwrap().config;
    let loaded = loaded(&config, "good".into());
    let outcome = Ok(Outcome::New {
        loaded,
        is_cached: false,
    });
    world.apply(Event::Loaded { ticket, outcome });
    assert_eq!(world.in_force(), ["guard good"]);
    assert!(world.state.snapshot().troubles.is_empty());
}

#[test]
fn changed_keys_query_registry_and_changed_settings_do_not() {
    let entry = |keys: &str| format!("guard: source: 'oci://registry.example.com/guard:1', {keys}");
    let mut world = World::serving(&entry("settings: {}"));
    world.read(&entry("settings: { a: 1 }"));
    let order = world.loads.values().next().unwrap();
    assert!(order.at_hand.is_some(), "the code is taken from the cache");
    world.finish_all();
    world.read(&entry(
        "settings: { a: 1 }, signatures: { keys: [key.pem] }",
    ));
    let order = world.loads.values().next().unwrap();
    assert_eq!((&order.at_hand, &order.have), (&None, &None));
}

const SOURCES: [&str; 2] = ["oci://registry.example.com/guard:1", "file:/guard.wasm"];

/// An entry that has images verified with the key `/key.pem`.
fn with_images(source: &str, settings: &str) -> String {
    format!(
        "guard: source: '{source}', settings: {{ {settings} }}, images: {{ registries: [registry.example.com], policies: \
         [{{ name: release, signers: [{{ name: team, key: key.pem }}] }}] }}"
    )
}

/// Code keeps the keys that it was loaded with, so it must not stay when they change.
#[test]
fn changed_key_of_images_replaces_the_code() {
    for source in SOURCES {
        let text = with_images(source, "");
        let mut world = World::serving(&text);
        let before = world.code("guard");
        world.replace("key.pem", &text);
        let order = world.order("guard");
        assert_eq!(order.have, None, "{source}");
        assert_eq!(order.at_hand.is_some(), source.starts_with("oci"));
        assert!(order.serves);
        world.finish("guard");
        assert!(!world.code("guard").is(&before), "{source}");
        assert_eq!(world.swaps.last().unwrap(), &["guard"]);
        // From now on the code has the new keys.
        world.request_reload(&text);
        assert!(world.order("guard").have.is_some());
    }
}

#[test]
fn retries_read_changed_keys_until_a_load_succeeds() {
    for source in SOURCES {
        let text = with_images(source, "");
        let mut world = World::serving(&text);
        let before = world.code("guard");
        world.replace("key.pem", &text);
        world.fail("guard");
        for _ in 0..3 {
            while !world.is_loading("guard") {
                world.pass(SECOND);
            }
            assert_eq!(world.order("guard").have, None, "{source}");
            world.fail("guard");
            assert!(world.code("guard").is(&before));
        }
        world.request_reload(&text);
        assert_eq!(world.order("guard").have, None, "{source}");
        world.finish("guard");
        assert!(!world.code("guard").is(&before), "{source}");
        assert!(world.state.snapshot().troubles.is_empty());
    }
}

/// The trouble is about another version of the tag. The serving version gets the new keys meanwhile.
#[test]
fn serving_version_gets_changed_keys_while_another_version_is_in_trouble() {
    let text = with_images(SOURCES[0], "");
    let mut world = World::serving(&text);
    let before = world.code("guard");
    world.request_reload(&text);
    let ticket = world.ticket("guard");
    world.loads.remove(&ticket);
    let failure = Failure {
        reason: "compile".to_owned(),
        digest: Some("bad".into()),
        is_unsigned: false,
    };
    let outcome = Err(failure);
    world.apply(Event::Loaded { ticket, outcome });
    world.replace("key.pem", &text);
    let ticket = world.ticket("guard");
    let order = world.loads.remove(&ticket).unwrap();
    assert_eq!(order.have, None);
    let outcome = Ok(Outcome::New {
        loaded: loaded(&order.config, order.at_hand.unwrap()),
        is_cached: true,
    });
    world.apply(Event::Loaded { ticket, outcome });
    assert!(!world.code("guard").is(&before));
    assert!(
        world.is_loading("guard"),
        "the registry is asked about the other version"
    );
}

#[test]
fn held_and_added_entries_get_the_keys_of_today() {
    for source in SOURCES {
        let (first, second) = (with_images(source, ""), with_images(source, "a: 1"));
        let mut world = World::serving(&format!("{first}\nother:"));
        let before = world.code("guard");
        let other = "other: settings: { a: 1 }";
        world.read(&format!("{second}\n{other}"));
        world.finish("guard");
        world.fail("other");
        // The second version is loaded with the changed keys, and the first one, which serves, is not.
        world.replace("key.pem", &format!("{second}\n{other}"));
        world.finish("guard");
        assert!(world.code("guard").is(&before));
        world.read(&format!("{first}\n{other}"));
        assert_eq!(world.order("guard").have, None, "{source}");
        world.finish("guard");
        let after = world.code("guard");
        assert!(!after.is(&before), "{source}");
        // An entry that is removed and added again, while its plugin is held.
        world.read(other);
        assert!(world.code("guard").is(&after));
        world.replace("key.pem", &format!("{first}\n{other}"));
        assert_eq!(world.order("guard").have, None, "{source}");
        world.finish("guard");
        assert!(!world.code("guard").is(&after), "{source}");
    }
}

#[test]
fn changed_key_of_signatures_verifies_the_cached_artifact_again() {
    let text =
        "guard: source: 'oci://registry.example.com/guard:1', signatures: { keys: [key.pem] }";
    let mut world = World::serving(text);
    world.replace("key.pem", text);
    let order = world.order("guard");
    assert_eq!(order.have, None);
    assert!(order.at_hand.is_some());
}

/// A group with these members, each with its file. `more` holds further keys of the entry.
fn group(name: &str, members: &[(&str, &str)], expression: &str, more: &str) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(name, file)| format!("{{ name: {name}, source: 'file:/{file}.wasm' }}"))
        .collect();
    format!(
        "{name}: group: {{ members: [{}], expression: {expression}, message: no }}, {more}",
        members.join(", ")
    )
}

const BEFORE: [&str; 2] = ["a one.wasm@0", "b two.wasm@0"];
const AFTER: [&str; 2] = ["a three.wasm@0", "c four.wasm@0"];

fn before(name: &str, more: &str) -> String {
    group(name, &[("a", "one"), ("b", "two")], "all", more)
}

fn after(name: &str, more: &str) -> String {
    group(name, &[("a", "three"), ("c", "four")], "any", more)
}

/// The members in force, without the name of their group.
fn members(world: &World, group: &str) -> Vec<String> {
    let prefix = format!("{group}.");
    let in_force = world.in_force();
    let members = in_force
        .iter()
        .filter_map(|place| place.strip_prefix(&prefix));
    members.map(str::to_owned).collect()
}

#[test]
fn changed_group_takes_effect_as_a_whole() {
    for name in ["g", "team-a/g"] {
        for mode in ["mode: enforce", "mode: warn", "mode: audit"] {
            let context = format!("{name}, {mode}");
            let mut world = World::serving(&before(name, mode));
            world.read(&after(name, mode));
            world.finish(&format!("{name}.a"));
            assert_eq!(members(&world, name), BEFORE, "{context}");
            world.fail(&format!("{name}.c"));
            assert_eq!(members(&world, name), BEFORE, "{context}");
            let config = world.config(&format!("{name}.a"));
            assert_eq!(config.group.as_ref().unwrap().expression.text(), "all");
            world.pass(SECOND * 2);
            world.finish(&format!("{name}.c"));
            assert_eq!(members(&world, name), AFTER, "{context}");
            assert!(world.held().is_empty());
        }
    }
}

#[test]
fn new_group_takes_effect_as_a_whole() {
    for name in ["g", "team-a/g"] {
        let mut world = World::serving("guard:");
        world.read(&format!("guard:\n{}", after(name, "")));
        world.finish(&format!("{name}.a"));
        assert_eq!(world.in_force(), ["guard guard.wasm@0"]);
        world.finish(&format!("{name}.c"));
        assert_eq!(members(&world, name), AFTER);
    }
}

#[test]
fn group_is_held_as_a_whole_while_another_plugin_is_awaited() {
    let mut world = World::serving(&format!("{}\nguard:", before("g", "")));
    world.read(&format!("{}\nguard: settings: {{ a: 1 }}", after("g", "")));
    world.finish("g.a");
    world.finish("g.c");
    world.fail("guard");
    assert_eq!(members(&world, "g"), BEFORE);
    let held = [
        ("g.a".to_owned(), HeldBecause::Changed),
        ("g.b".to_owned(), HeldBecause::Removed),
    ];
    assert_eq!(world.held(), held);
    let held = world.state.snapshot().held.unwrap();
    let advice = held.what_to_do(&PluginName::parse("g").unwrap().of_member("a"));
    assert!(advice.contains("to disable plugin g at once"), "{advice}");
    world.pass(SECOND * 2);
    world.finish("guard");
    assert_eq!(members(&world, "g"), AFTER);
    // A removed group stays as a whole, too.
    world.read("guard: settings: { a: 2 }");
    assert_eq!(members(&world, "g"), AFTER);
    world.finish("guard");
    assert!(members(&world, "g").is_empty());
}

#[test]
fn member_that_failed_at_the_start_stays_with_its_group() {
    let mut world = World::started(
        &before("g", "failurePolicy: Ignore"),
        LastKnownGood::default(),
    );
    world.finish("g.a");
    world.fail("g.b");
    assert_eq!(members(&world, "g"), ["a one.wasm@0", "b !"]);
    world.read(&after("g", "failurePolicy: Ignore"));
    world.finish("g.a");
    assert_eq!(members(&world, "g"), ["a one.wasm@0", "b !"]);
    // An exception does not wait for a member whose failure decides already.
    let excepted =
        "failurePolicy: Ignore, exceptions: [{ namespaces: [n], until: '2999-01-01', reason: r }]";
    world.read(&before("g", excepted));
    assert_eq!(members(&world, "g"), ["a one.wasm@0", "b !"]);
    assert_eq!(world.config("g.a").exceptions.len(), 1);
    world.read(&after("g", ""));
    world.finish_all();
    assert_eq!(members(&world, "g"), AFTER);
}

#[test]
fn relief_of_a_group_takes_effect_at_once() {
    for name in ["g", "team-a/g"] {
        let mut world = World::serving(&before(name, ""));
        world.read(&after(name, "mode: warn"));
        assert_eq!(members(&world, name), BEFORE);
        for member in ["a", "b"] {
            let mode = world.config(&format!("{name}.{member}")).mode;
            assert_eq!(mode, tollgate_config::Mode::Warn);
        }
        world.read(&after(name, "enabled: false"));
        assert_eq!(members(&world, name), ["a -", "c -"]);
        world.read(&after(name, ""));
        world.finish(&format!("{name}.a"));
        assert!(
            members(&world, name).is_empty(),
            "a part of a group says nothing"
        );
        world.finish(&format!("{name}.c"));
        assert_eq!(members(&world, name), AFTER);
    }
}

/// A disabled entry comes back with other plugins when all of them are ready. Until then, the plugin that it replaces stays.
#[test]
fn disabled_entry_comes_back_as_a_whole() {
    let guard = "guard: source: 'file:/one.wasm'";
    let plugin = "g: source: 'file:/one.wasm', failurePolicy: Ignore";
    let ignoring = "failurePolicy: Ignore";
    for (disabled, enabled, loads, expected) in [
        (
            format!("{plugin}, enabled: false"),
            after("g", ignoring),
            vec!["g.a", "g.c"],
            AFTER.map(|member| format!("g.{member}")).to_vec(),
        ),
        (
            before("g", "failurePolicy: Ignore, enabled: false"),
            after("g", ignoring),
            vec!["g.a", "g.c"],
            AFTER.map(|member| format!("g.{member}")).to_vec(),
        ),
        (
            before("g", "failurePolicy: Ignore, enabled: false"),
            plugin.to_owned(),
            vec!["g"],
            vec!["g one.wasm@0".to_owned()],
        ),
    ] {
        let mut world = World::serving(&format!("{disabled}\n{guard}"));
        world.read(&enabled);
        for load in &loads {
            assert_eq!(world.in_force(), ["guard one.wasm@0"], "{enabled}");
            world.finish(load);
        }
        assert_eq!(world.in_force(), expected);
    }
}

/// A member that has failed does not let a new version of its group in without it.
#[test]
fn new_version_waits_for_the_member_that_had_failed() {
    let versions = ["one", "two"].map(|file| {
        format!(
            "g: group: {{ members: [{{ name: a, source: 'file:/{file}.wasm' }}, {{ name: b, source: 'file:/{file}.wasm' }}], \
             expression: all, message: no }}, failurePolicy: Ignore"
        )
    });
    let mut world = World::started(&versions[0], LastKnownGood::default());
    world.finish("g.a");
    world.fail("g.b");
    assert_eq!(members(&world, "g"), ["a one.wasm@0", "b !"]);
    world.read(&versions[1]);
    world.finish("g.a");
    assert_eq!(members(&world, "g"), ["a one.wasm@0", "b !"]);
    world.finish("g.b");
    assert_eq!(members(&world, "g"), ["a two.wasm@0", "b two.wasm@0"]);
}

/// An entry can become a group, and a group a plugin.
#[test]
fn entry_keeps_its_plugins_until_those_of_another_kind_are_ready() {
    for name in ["g", "team-a/g"] {
        let plugin = format!("{name}: source: 'file:/one.wasm'");
        let mut world = World::serving(&plugin);
        world.read(&after(name, ""));
        world.finish(&format!("{name}.a"));
        assert_eq!(world.in_force(), [format!("{name} one.wasm@0")]);
        world.finish(&format!("{name}.c"));
        assert_eq!(members(&world, name), AFTER);
        world.read(&plugin);
        world.fail(name);
        assert_eq!(members(&world, name), AFTER);
        world.pass(SECOND * 2);
        world.finish(name);
        assert_eq!(world.in_force(), [format!("{name} one.wasm@0")]);
    }
}

#[test]
fn restarted_replica_recalls_all_members_of_a_waiting_group() {
    for name in ["g", "team-a/g"] {
        for mode in ["mode: enforce", "mode: warn"] {
            let mut world = World::serving(&before(name, mode));
            world.read(&after(name, mode));
            world.finish(&format!("{name}.a"));
            world.fail(&format!("{name}.c"));
            let mut again = World::started(&after(name, mode), world.record.clone());
            again.finish(&format!("{name}.a"));
            again.fail(&format!("{name}.c"));
            again.recall_all();
            assert_eq!(members(&again, name), BEFORE, "{name}, {mode}");
            assert_eq!(again.held(), world.held());
        }
    }
}
