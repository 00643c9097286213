use std::path::Path;

use super::share::part;
use super::*;
use crate::PluginName;
use crate::{Config, Source};

const HEAD: &str = "
registries: { cacheDirectory: /var/lib/tollgate }
plugins:
  - name: guard
    source: file:/guard-1.wasm
    settings: { a: 1 }
    limits: { fuel: 5M }
";

fn parse(entry: &str) -> Result<Config, String> {
    let text = format!("{HEAD}{entry}");
    Config::parse(&text, Path::new("/etc/tollgate"))
        .map_err(|error| tollgate_admission::chain(&error))
}

fn plan(entry: &str) -> Rollout {
    let config = parse(entry).unwrap();
    Rollout::clone(config.plugins[0].rollout.as_ref().unwrap())
}

#[test]
fn reads_every_key() {
    let config = parse(
        "    rollout:
      to: { source: 'file:/guard-2.wasm', settings: { a: 2 } }
      steps:
        - { mode: shadow, for: 1h }
        - { mode: warn, share: 10, for: 30m }
        - { mode: enforce, namespaces: [staging], for: 1h }
        - { mode: enforce, share: 50, namespaces: [staging, shop], for: 24h }
      gates: { newDenials: 3, faults: 1, addedTime: 2ms, minReviews: 100 }
      onFailure: stop
",
    );
    let config = config.unwrap();
    let plugin = &config.plugins[0];
    let plan = plugin.active_rollout().unwrap();
    assert!(plan.is_version);
    assert_eq!(plan.on_failure, OnFailure::Stop);
    assert_eq!(
        plan.gates,
        RolloutGates {
            new_denials: 3,
            faults: 1,
            added_time: Some(Duration::from_millis(2)),
            min_reviews: 100
        }
    );
    let lines: Vec<String> = plan.lines().collect();
    assert_eq!(
        lines,
        [
            "step 1 of 4: shadow in all namespaces for at least 1h",
            "step 2 of 4: warn in 10 % of the namespaces for at least 30m",
            "step 3 of 4: enforce in 1 named namespace(s) for at least 1h",
            "step 4 of 4: enforce in 50 % of the namespaces and 2 named namespace(s) for at least 24h",
        ]
    );
    let version = &config.shadows[0];
    assert_eq!(version.name.as_str(), "guard.shadow");
    assert_eq!(version.source, Source::File("/guard-2.wasm".into()));
    assert_eq!(version.limits.fuel, 5_000_000);
    assert_eq!(version.rollout, None);
    let answers = plugin.rolled_out(version);
    assert_eq!(
        (answers.name.as_str(), answers.mode),
        ("guard", Mode::Enforce)
    );
    assert_eq!(answers.settings, serde_json::json!({ "a": 2 }));
}

#[test]
fn version_without_source_has_that_of_the_plugin() {
    let config =
        parse("    rollout: { to: { settings: { a: 2 } }, steps: [{ mode: enforce, for: 1h }] }\n");
    let config = config.unwrap();
    assert_eq!(config.shadows[0].source, config.plugins[0].source);
    assert_eq!(config.shadows[0].settings, serde_json::json!({ "a": 2 }));
}

#[test]
fn rolls_a_mode_out_without_another_version() {
    let text = "    mode: warn\n    rollout: { steps: [{ mode: enforce, share: 5, for: 1h }] }\n";
    let config = parse(text).unwrap();
    assert!(config.shadows.is_empty());
    assert!(!plan(text).is_version);
    assert_eq!(plan(text).gates.min_reviews, DEFAULT_MIN_REVIEWS);
}

#[test]
fn rollout_survives_the_recorded_configuration() {
    let config = parse(
        "    rollout: { to: { source: 'file:b.wasm' }, steps: [{ mode: enforce, for: 1h }] }\n",
    );
    let config = config.unwrap();
    let document = config.document(config.plugins.iter());
    let again = Config::of_document(&document, Path::new("/etc/tollgate")).unwrap();
    assert_eq!(again, config);
}

#[test]
fn rejects_plans_that_cannot_be_meant() {
    let to = "to: { source: 'file:b.wasm' }";
    let table = [
        (
            "steps: [{ mode: enforce, for: 1h }]".to_owned(),
            "plugins[0].rollout.to: missing",
        ),
        (format!("{to}, steps: []"), "rollout.steps: got 0 steps"),
        (to.to_owned(), "rollout.steps: missing"),
        (
            format!("{to}, steps: [{{ mode: warn, for: 1h }}]"),
            "rollout.steps[0].mode: the last step must have mode: enforce",
        ),
        (
            format!("{to}, steps: [{{ mode: enforce, for: 1h }}, {{ mode: warn, for: 1h }}]"),
            "rollout.steps[1]: goes back",
        ),
        (
            format!(
                "{to}, steps: [{{ mode: enforce, share: 20, for: 1h }}, {{ mode: enforce, share: 10, for: 1h }}]"
            ),
            "rollout.steps[1]: goes back",
        ),
        (
            format!(
                "{to}, steps: [{{ mode: enforce, namespaces: [a], for: 1h }}, {{ mode: enforce, share: 10, for: 1h }}]"
            ),
            "rollout.steps[1]: goes back",
        ),
        (
            format!(
                "{to}, steps: [{{ mode: shadow, share: 10, for: 1h }}, {{ mode: enforce, for: 1h }}]"
            ),
            "rollout.steps[0].share: expected none",
        ),
        (
            format!("{to}, steps: [{{ mode: enforce, for: 0s }}]"),
            "steps[0].for: got \"0s\"",
        ),
        (
            format!("{to}, steps: [{{ mode: enforce, for: 1h, share: 0 }}]"),
            "steps[0].share: got 0",
        ),
        (
            format!("{to}, gates: {{ minReviews: 0 }}, steps: [{{ mode: enforce, for: 1h }}]"),
            "rollout.gates.minReviews: got 0",
        ),
    ];
    for (rollout, expected) in table {
        let error = parse(&format!("    rollout: {{ {rollout} }}\n")).unwrap_err();
        assert!(error.contains(expected), "{expected} is not in {error}");
    }
    let error = parse(
        "    mode: warn\n    rollout: { steps: [{ mode: shadow, for: 1h }, { mode: enforce, for: 1h }] }\n",
    );
    assert!(
        error
            .unwrap_err()
            .contains("the plugin's own version runs already")
    );
    let error = parse(
        "    shadow: { source: 'file:c.wasm' }\n    rollout: { to: { source: 'file:b.wasm' }, steps: [{ mode: enforce, for: 1h }] }\n",
    );
    assert!(error.unwrap_err().contains("expected none beside `shadow`"));
}

#[test]
fn needs_a_folder_for_its_state() {
    let text = HEAD.replace("registries: { cacheDirectory: /var/lib/tollgate }", "")
        + "    mode: warn\n    rollout: { steps: [{ mode: enforce, for: 1h }] }\n";
    let error = Config::parse(&text, Path::new("/")).unwrap_err();
    let error = tollgate_admission::chain(&error);
    assert!(error.contains("needs registries.cacheDirectory"), "{error}");
}

fn share(percent: u32, namespaces: &[&str]) -> Share {
    let namespaces = namespaces.iter().map(|name| Box::from(*name)).collect();
    Share {
        percent,
        namespaces,
    }
}

#[test]
fn share_is_stable_grows_and_is_about_its_percentage() {
    let plugin = PluginName::parse("guard").unwrap();
    let names: Vec<String> = (0..1000).map(|index| format!("team-{index}")).collect();
    let mut before = 0;
    for percent in [1, 10, 33, 50, 90, 99] {
        let smaller = share(percent, &[]);
        let larger = share(percent + 1, &[]);
        let inside = names
            .iter()
            .filter(|name| smaller.contains(&plugin, Some(name)));
        let inside: Vec<&String> = inside.collect();
        assert!(
            inside
                .iter()
                .all(|name| larger.contains(&plugin, Some(name)))
        );
        let expected = percent as usize * 10;
        assert!(
            inside.len().abs_diff(expected) < 50,
            "{percent} %: {} of 1000",
            inside.len()
        );
        assert!(inside.len() > before);
        before = inside.len();
    }
    // These values must never change: replicas of two versions have to agree.
    let parts = ["default", "kube-system", "shop", "team-1"].map(|name| part("guard", name));
    assert_eq!(parts, PINNED_PARTS);
}

#[test]
fn plugins_begin_with_different_namespaces() {
    let tenth = share(10, &[]);
    let chosen = |plugin: &str| -> Vec<usize> {
        let plugin = PluginName::parse(plugin).unwrap();
        (0..100)
            .filter(|index| tenth.contains(&plugin, Some(&format!("team-{index}"))))
            .collect()
    };
    assert_ne!(chosen("guard"), chosen("labels"));
}

#[test]
fn named_namespaces_belong_to_the_share_and_cluster_scope_only_to_all() {
    let plugin = PluginName::parse("guard").unwrap();
    let named = share(0, &["staging"]);
    assert!(named.contains(&plugin, Some("staging")));
    assert!(!named.contains(&plugin, Some("shop")));
    assert!(!named.contains(&plugin, None));
    assert!(!share(99, &[]).contains(&plugin, None));
    assert!(Share::all().contains(&plugin, None));
}

const PINNED_PARTS: [u64; 4] = [0, 4, 97, 43];
