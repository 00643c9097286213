//! Reads what a server says about rollouts. Whatever else answers with JSON must not pass for a rollout.

use std::collections::BTreeSet;

use anyhow::{bail, ensure};
use serde_json::Value;
use tollgate_admission::RolloutChange;
use tollgate_config::PluginName;

use crate::terminal::plain;

/// The phases of a rollout, and whether they are bad news.
const PHASES: [(&str, bool); 5] = [
    ("waiting", false),
    ("running", false),
    ("stopped", true),
    ("promoted", false),
    ("rolled-back", true),
];

/// Says that something else has answered.
pub(super) const UNEXPECTED: &str =
    "unexpected answer: check that it is the admin listener of a server of this version";

/// Takes the rollouts out of the answer to `GET /rollouts`.
pub(super) fn rollouts(mut body: Value) -> anyhow::Result<Vec<Value>> {
    let Some(Value::Array(rollouts)) = body.get_mut("rollouts").map(Value::take) else {
        bail!("{UNEXPECTED}: it has no list `rollouts`");
    };
    for rollout in &rollouts {
        text(rollout, "plugin")?;
        text(rollout, "phase")?;
    }
    Ok(rollouts)
}

/// Selects the rollouts of a plugin, or all.
///
/// # Errors
/// When the plugin has none.
pub(super) fn selected(
    rollouts: Vec<Value>,
    plugin: Option<&PluginName>,
) -> anyhow::Result<Vec<Value>> {
    match plugin {
        Some(plugin) => of_plugin(rollouts, plugin),
        None => Ok(rollouts),
    }
}

/// Selects the rollout of a plugin.
///
/// # Errors
/// When the plugin has none. The error names those that have one.
fn of_plugin(mut rollouts: Vec<Value>, plugin: &PluginName) -> anyhow::Result<Vec<Value>> {
    let names = rollouts.iter().filter_map(|one| one["plugin"].as_str());
    let names: BTreeSet<String> = names.map(plain).collect();
    rollouts.retain(|rollout| rollout["plugin"] == plugin.as_str());
    if !rollouts.is_empty() {
        return Ok(rollouts);
    }
    ensure!(
        !names.is_empty(),
        "the plugin {plugin} has no rollout, and no other plugin has one"
    );
    let names: Vec<String> = names.into_iter().collect();
    bail!(
        "the plugin {plugin} has no rollout, expected one of {}",
        names.join(", ")
    )
}

/// Checks that the answer to a change is the rollout of the plugin after that change.
pub(super) fn changed(
    rollout: &Value,
    plugin: &PluginName,
    change: RolloutChange,
) -> anyhow::Result<()> {
    let (of, phase) = (text(rollout, "plugin")?, text(rollout, "phase")?);
    ensure!(
        of == plugin.as_str(),
        "{UNEXPECTED}: it is about the plugin {}",
        plain(of)
    );
    let is_expected = match change {
        // Replicas that decide together may begin the step a moment later.
        RolloutChange::Promote => is_good(phase).is_some(),
        RolloutChange::RollBack => phase == "rolled-back",
    };
    ensure!(
        is_expected,
        "the server answers that the phase is {} after the change: look at it with `tollgate rollout status`",
        plain(phase)
    );
    Ok(())
}

/// Whether a phase is good news. None if this version does not know the phase.
pub(super) fn is_good(phase: &str) -> Option<bool> {
    let known = PHASES.iter().find(|(name, _)| *name == phase);
    known.map(|(_, is_bad)| !is_bad)
}

fn text<'r>(rollout: &'r Value, key: &str) -> anyhow::Result<&'r str> {
    let text = rollout[key].as_str().filter(|text| !text.is_empty());
    let Some(text) = text else {
        bail!("{UNEXPECTED}: a rollout has no `{key}`");
    };
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(text: &str) -> PluginName {
        PluginName::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn answer_of_something_else_is_no_list_of_rollouts() {
        for body in [
            json!({}),
            json!([]),
            json!("ok"),
            json!(null),
            json!({"rollouts": {}}),
            json!({"rollouts": [{}]}),
            json!({"rollouts": [{"plugin": "guard"}]}),
            json!({"rollouts": [{"phase": "running"}]}),
            json!({"rollouts": ["guard"]}),
        ] {
            let error = rollouts(body.clone()).expect_err(&body.to_string());
            assert!(error.to_string().starts_with(UNEXPECTED), "{error}");
        }
        assert_eq!(rollouts(json!({"rollouts": []})).ok(), Some(Vec::new()));
    }

    #[test]
    fn plugin_without_rollout_is_an_error_that_names_those_with_one() {
        let all = ["labels", "guard", "labels"];
        let all = all.map(|plugin| json!({"plugin": plugin, "phase": "running"}));
        let found = of_plugin(all.to_vec(), &name("guard")).map(|found| found.len());
        assert_eq!(found.ok(), Some(1));
        let error = of_plugin(all.to_vec(), &name("gaurd")).expect_err("misspelt");
        assert_eq!(
            error.to_string(),
            "the plugin gaurd has no rollout, expected one of guard, labels"
        );
        let error = of_plugin(Vec::new(), &name("guard")).expect_err("none");
        assert_eq!(
            error.to_string(),
            "the plugin guard has no rollout, and no other plugin has one"
        );
    }

    #[test]
    fn change_counts_only_if_the_answer_shows_it() {
        let rollout = |plugin: &str, phase: &str| json!({"plugin": plugin, "phase": phase});
        let check = |rollout: &Value, change| changed(rollout, &name("guard"), change).is_ok();
        for (phase, promoted, rolled_back) in [
            ("running", true, false),
            ("promoted", true, false),
            ("stopped", true, false),
            ("waiting", true, false),
            ("rolled-back", true, true),
            ("paused", false, false),
        ] {
            let guard = rollout("guard", phase);
            assert_eq!(check(&guard, RolloutChange::Promote), promoted, "{phase}");
            assert_eq!(
                check(&guard, RolloutChange::RollBack),
                rolled_back,
                "{phase}"
            );
        }
        let other = rollout("labels", "rolled-back");
        assert!(!check(&other, RolloutChange::RollBack));
        for body in [json!({}), json!(null), json!({"status": "ok"})] {
            assert!(!check(&body, RolloutChange::RollBack), "{body}");
        }
    }

    #[test]
    fn unknown_phase_is_no_good_news() {
        assert_eq!(is_good("running"), Some(true));
        assert_eq!(is_good("rolled-back"), Some(false));
        assert_eq!(is_good("paused"), None);
    }
}
