//! Rollouts of ClusterAdmissionPlugins: read from their status, and changed by an annotation, with the user's kubectl.

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tollgate_admission::RolloutChange;
use tollgate_cluster::{Kind, ROLLOUT_ANNOTATION};
use tollgate_config::PluginName;

use crate::kubectl::{Live, Query};

/// The plugins of the cluster.
const PLUGINS: Query = Query {
    resources: "clusteradmissionplugins.tollgate.dev",
    namespace: None,
    selector: None,
    labels: None,
    is_optional: false,
};

/// Returns the rollouts in the status of all plugins, as `/rollouts` shows rollouts.
pub(super) fn all(live: &Live) -> anyhow::Result<Vec<Value>> {
    let objects = live.read(&[&PLUGINS])?;
    let plugins = objects.of_kind(Kind::Plugin.name());
    Ok(plugins.flat_map(rollouts).collect())
}

/// Asks the leader for a change, and returns what was asked for.
pub(super) fn change(
    live: &Live,
    plugin: &PluginName,
    change: RolloutChange,
) -> anyhow::Result<String> {
    let objects = live.read(&[&PLUGINS])?;
    let mut plugins = objects.of_kind(Kind::Plugin.name());
    let found = plugins.find(|object| object["metadata"]["name"] == plugin.as_str());
    let object = found.with_context(|| {
        format!("there is no ClusterAdmissionPlugin {plugin}: kubectl get clusteradmissionplugins lists them")
    })?;
    let asked = asked(object, change)?;
    live.annotate(
        PLUGINS.resources,
        plugin.as_str(),
        ROLLOUT_ANNOTATION,
        &asked,
    )?;
    Ok(asked)
}

/// Returns the value of the annotation that asks for a change of what the status shows.
fn asked(object: &Value, change: RolloutChange) -> anyhow::Result<String> {
    let decided = object["status"]["rollouts"].as_array();
    let decided = decided.map(Vec::as_slice).unwrap_or_default();
    let [one] = decided else {
        ensure!(
            !decided.is_empty(),
            "the leader has not begun a rollout of it: look at the conditions of the resource"
        );
        return match change {
            // Each installation has runs of its own, so the wish is for every run.
            RolloutChange::RollBack => Ok("rollback".to_owned()),
            RolloutChange::Promote => bail!(
                "{} installations roll it out: promote it at the replicas of each, with --service",
                decided.len()
            ),
        };
    };
    let (run, revision) = (&one["run"], &one["revision"]);
    match (change, one["phase"].as_str()) {
        (RolloutChange::Promote, Some("promoted")) => {
            bail!("the new version already answers everything")
        }
        (RolloutChange::RollBack, Some("rolled-back")) => {
            bail!("the old version already answers everything")
        }
        (RolloutChange::Promote, _) => Ok(format!("promote-{run}.{revision}")),
        (RolloutChange::RollBack, _) => Ok(format!("rollback-{run}")),
    }
}

/// The rollouts of a plugin: one for each installation that serves it.
fn rollouts(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let plan = &spec["rollout"];
    if !plan.is_object() {
        return Vec::new();
    }
    let steps = plan["steps"].as_array().into_iter().flatten();
    let base = json!({
        "plugin": object["metadata"]["name"],
        "steps": steps.map(step).collect::<Vec<String>>(),
        "old": { "source": spec["source"] },
        "new": { "source": if plan["to"]["source"].is_null() { &spec["source"] } else { &plan["to"]["source"] } },
    });
    let decided = object["status"]["rollouts"].as_array();
    let decided = decided.map(Vec::as_slice).unwrap_or_default();
    if decided.is_empty() {
        let mut waiting = base;
        waiting["phase"] = "waiting".into();
        waiting["waits"] = "waits for the leader of the replicas to begin the rollout".into();
        return vec![waiting];
    }
    let several = decided.len() > 1;
    let decided = decided.iter();
    decided
        .map(|one| of_installation(base.clone(), one, several))
        .collect()
}

fn of_installation(mut rollout: Value, decided: &Value, several: bool) -> Value {
    if several {
        rollout["replica"] = decided["installation"].clone();
    }
    for key in [
        "identity",
        "phase",
        "step",
        "run",
        "revision",
        "startedAt",
        "observed",
    ] {
        rollout[key] = decided[key].clone();
    }
    rollout["stepSince"] = decided["since"].clone();
    rollout["old"]["digest"] = decided["from"].clone();
    rollout["new"]["digest"] = decided["to"].clone();
    if let Some(what) = decided["waitsFor"].as_str() {
        rollout["waits"] = format!("waits for {what}").into();
    }
    let history = decided["history"].as_array().into_iter().flatten();
    let history = history.map(|change| {
        json!({
            "time": change["at"], "phase": change["phase"], "step": change["step"],
            "by": change["by"], "reason": change["reason"],
        })
    });
    rollout["history"] = history.collect();
    rollout
}

/// Describes a step as it is written in a spec.
fn step(step: &Value) -> String {
    let text = |key: &str| step[key].as_str().unwrap_or_default().to_owned();
    let named = step["namespaces"].as_array().map_or(0, Vec::len);
    let share = match (step["share"].as_u64(), named) {
        (None, 0) | (Some(100), _) => "all namespaces".to_owned(),
        (None, named) => format!("{named} named namespace(s)"),
        (Some(percent), 0) => format!("{percent} % of the namespaces"),
        (Some(percent), named) => {
            format!("{percent} % of the namespaces and {named} named namespace(s)")
        }
    };
    format!("{} in {share} for at least {}", text("mode"), text("for"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(rollouts: Value) -> Value {
        json!({
            "kind": "ClusterAdmissionPlugin",
            "metadata": { "name": "guard" },
            "spec": {
                "source": "oci://r.example.com/guard:1",
                "rollout": {
                    "to": { "source": "oci://r.example.com/guard:2" },
                    "steps": [
                        { "mode": "warn", "share": 10, "namespaces": ["a"], "for": "4h" },
                        { "mode": "enforce", "for": "24h" },
                    ],
                },
            },
            "status": { "rollouts": rollouts },
        })
    }

    fn decided(phase: &str) -> Value {
        json!({
            "installation": "tollgate-system/tollgate", "phase": phase, "step": 1, "run": 2, "revision": 3,
            "from": "sha256:1", "to": "sha256:2", "waitsFor": "20 calls",
            "history": [{ "at": "2026-11-22T09:00:04Z", "phase": "running", "step": 1, "by": "gates", "reason": "r" }],
        })
    }

    #[test]
    fn status_is_shown_like_the_page_of_a_server() {
        let shown = rollouts(&plugin(json!([decided("running")])));
        let [shown] = shown.as_slice() else {
            panic!("one rollout: {shown:#?}");
        };
        assert_eq!(
            shown["steps"],
            json!([
                "warn in 10 % of the namespaces and 1 named namespace(s) for at least 4h",
                "enforce in all namespaces for at least 24h",
            ])
        );
        assert_eq!(
            shown["new"],
            json!({ "source": "oci://r.example.com/guard:2", "digest": "sha256:2" })
        );
        assert_eq!(shown["waits"], "waits for 20 calls");
        assert_eq!(shown["history"][0]["time"], "2026-11-22T09:00:04Z");
        let waiting = rollouts(&plugin(json!([])));
        assert_eq!(waiting[0]["phase"], "waiting");
        let mut without = plugin(json!([]));
        without["spec"]["rollout"].take();
        assert!(rollouts(&without).is_empty());
    }

    #[test]
    fn change_names_the_state_that_was_seen() {
        let ask = |phases: &[&str], change| {
            let all = phases.iter().map(|phase| decided(phase)).collect();
            asked(&plugin(all), change).ok()
        };
        let (promote, back) = (RolloutChange::Promote, RolloutChange::RollBack);
        assert_eq!(ask(&["running"], promote).as_deref(), Some("promote-2.3"));
        assert_eq!(
            ask(&["rolled-back"], promote).as_deref(),
            Some("promote-2.3")
        );
        assert_eq!(ask(&["stopped"], back).as_deref(), Some("rollback-2"));
        assert_eq!(ask(&["promoted"], back).as_deref(), Some("rollback-2"));
        assert_eq!(ask(&["running"; 2], back).as_deref(), Some("rollback"));
        assert_eq!(ask(&["promoted"], promote), None);
        assert_eq!(ask(&["rolled-back"], back), None);
        assert_eq!(ask(&["running"; 2], promote), None);
        assert_eq!(ask(&[], back), None);
    }
}
