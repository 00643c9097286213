//! The status of the reconciler, as `/plugins`, `/readyz` and the answers to reloads show it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollgate_config::PluginName;

use super::reconcile::{Held, HeldBecause, Report, Snapshot, Trouble};
use crate::plugin::{PluginSet, PluginState};

/// The status, written by the task that reconciles and read by the admin pages.
#[derive(Debug)]
pub(super) struct Status(Mutex<StatusData>);

/// The data of the status.
#[derive(Debug)]
pub(super) struct StatusData {
    /// The configuration file or folder.
    origin: String,
    /// When the configuration was last read and valid; `None` if the last known good has served since the start.
    pub(super) read: Option<OffsetDateTime>,
    pub(super) snapshot: Snapshot,
}

// === impl Status ===

impl Status {
    pub(super) fn new(origin: String, read: Option<OffsetDateTime>, snapshot: Snapshot) -> Self {
        Self(Mutex::new(StatusData {
            origin,
            read,
            snapshot,
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, StatusData> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the status of the reconciler to the page `/plugins`.
    pub(super) fn add_to_page(&self, page: &mut Value) {
        let data = self.lock();
        let snapshot = &data.snapshot;
        let mut configuration = json!({
            "source": data.origin,
            "needsRestart": snapshot.needs_restart,
        });
        match data.read {
            Some(read) => configuration["read"] = timestamp(read).into(),
            None => configuration["lastKnownGood"] = true.into(),
        }
        if let Some(reason) = &snapshot.invalid {
            configuration["invalid"] = reason.as_str().into();
        }
        page["state"] = match (snapshot.is_starting, snapshot.is_degraded()) {
            (true, _) => "starting".into(),
            (false, true) => "degraded".into(),
            (false, false) => "ok".into(),
        };
        page["configuration"] = configuration;
        let Some(plugins) = page["plugins"].as_array_mut() else {
            return;
        };
        for (name, (source, trouble)) in &snapshot.troubles {
            let source = source.to_string();
            let (plugin, serves) = place(plugins, name, &source);
            if plugin["state"] == "loaded" {
                plugin["state"] = "degraded".into();
            }
            plugin["desired"] = trouble_json(trouble);
            if serves {
                plugin["desired"]["source"] = source.into();
            }
        }
        for (name, loading) in &snapshot.loading {
            let source = loading.source.to_string();
            let (plugin, _) = place(plugins, name, &source);
            if plugin["state"] == "failed" || plugin["state"] == "pending" && snapshot.is_starting {
                plugin["state"] = "loading".into();
            }
            if plugin["desired"].is_null() {
                plugin["desired"] = json!({ "source": source });
            }
            let state = if loading.is_fetched {
                "preparing"
            } else {
                "fetching"
            };
            plugin["desired"]["state"] = state.into();
            plugin["desired"]["loadingSince"] = at(loading.since).into();
        }
        let Some(held) = &snapshot.held else {
            return;
        };
        for (name, because) in &held.plugins {
            let plugin = plugins
                .iter_mut()
                .find(|plugin| plugin["name"] == name.entry());
            if let Some(plugin) = plugin {
                plugin["held"] = json!({
                    "change": change(*because),
                    "becauseOf": held.awaited.keys().map(PluginName::as_str).collect::<Vec<_>>(),
                    "since": at(held.since),
                    "whatToDo": held.what_to_do(name),
                });
            }
        }
    }

    /// Lines for `/readyz?verbose`. Failed plugins that were never loaded are left out, because the page names them
    /// elsewhere.
    pub(super) fn lines(&self, live: &PluginSet) -> Vec<String> {
        let data = self.lock();
        let snapshot = &data.snapshot;
        let invalid = snapshot.invalid.iter().map(|reason| {
            let what = if data.read.is_none() {
                "serving the last known good since the start"
            } else {
                "the previous configuration stays in effect"
            };
            format!("the configuration is not valid; {what}: {reason}")
        });
        let restart = (!snapshot.needs_restart.is_empty()).then(|| {
            let keys = snapshot.needs_restart.join(", ");
            format!("these changed settings require a restart: {keys}")
        });
        let loading = snapshot.loading.iter().map(|(name, loading)| {
            let source = &loading.source;
            let since = at(loading.since);
            format!("plugin {name} has been loading from {source} since {since}; the serving version, if any, stays until then")
        });
        let troubles = snapshot.troubles.iter().filter_map(|(name, (_, trouble))| {
            let reason = &trouble.reason;
            if let Some(plugin) = name.shadow_of() {
                return Some(format!(
                    "the shadow of plugin {plugin} does not run as configured; no answer is affected: {reason}"
                ));
            }
            let mut parts = live.parts();
            let plugin = parts.find(|plugin| plugin.config.name == *name);
            match plugin.map(|plugin| &plugin.state) {
                Some(PluginState::Loaded(_)) => Some(format!(
                    "plugin {name} does not serve as configured; the previous version keeps serving: {reason}"
                )),
                Some(PluginState::Failed { .. }) => None,
                Some(PluginState::Disabled) | None => Some(format!(
                    "plugin {name} is not called yet, because no version of it is loaded: {reason}"
                )),
            }
        });
        let held = snapshot.held.iter().flat_map(|held| {
            let plugins = held.plugins.iter();
            plugins.map(|(name, because)| line(held, name, *because))
        });
        let lines = invalid
            .chain(restart)
            .chain(loading)
            .chain(troubles)
            .chain(held);
        lines.collect()
    }

    /// The line for `/readyz` before any plugin serves, with the plugins that are being loaded.
    pub(super) fn start(&self) -> String {
        let data = self.lock();
        let waits: Vec<String> = data
            .snapshot
            .loading
            .iter()
            .map(|(name, loading)| format!("{name} ({})", loading.source))
            .collect();
        format!(
            "the plugins are being loaded; reviews are answered with 503; waiting for: {}",
            waits.join(", ")
        )
    }
}

/// Adds what the replicas of the cluster say to the plugins of the page. Plugins that this replica does not know are left
/// out.
pub(super) fn add_replicas(page: &mut Value, mut replicas: BTreeMap<String, Vec<Value>>) {
    let plugins = page["plugins"].as_array_mut();
    for plugin in plugins.into_iter().flatten() {
        let name = plugin["name"].as_str().unwrap_or_default();
        if let Some(entries) = replicas.remove(name) {
            plugin["replicas"] = entries.into();
        }
    }
}

/// One line about a plugin that is held at its previous configuration.
fn line(held: &Held, name: &PluginName, because: HeldBecause) -> String {
    let awaited: Vec<String> = held
        .awaited
        .iter()
        .map(|(name, reason)| format!("{name} does not serve as desired ({reason})"))
        .collect();
    let change = match because {
        HeldBecause::Changed => "keeps its previous configuration",
        HeldBecause::Removed => "stays in effect although it was removed",
    };
    format!(
        "plugin {name} {change} (since {}), because plugin {}: {}",
        at(held.since),
        awaited.join(" and plugin "),
        held.what_to_do(name)
    )
}

fn change(because: HeldBecause) -> &'static str {
    match because {
        HeldBecause::Changed => "changed",
        HeldBecause::Removed => "removed",
    }
}

/// The part of `/plugins` about a failed load.
fn trouble_json(trouble: &Trouble) -> Value {
    let mut value = json!({
        "reason": trouble.reason,
        "since": at(trouble.since),
        "attempts": trouble.attempts,
        "nextAttempt": at(trouble.next),
    });
    if let Some(digest) = &trouble.digest {
        value["digest"] = (&**digest).into();
    }
    value
}

/// The answer to a caller who asked for a reload.
pub(super) fn answer(report: &Report) -> Value {
    let mut value = json!({
        "result": report.result(),
        "changed": names(report.changed.iter()),
        "needsRestart": report.needs_restart,
    });
    if let Some(reason) = &report.invalid {
        value["invalid"] = reason.as_str().into();
    }
    for (name, reason) in &report.failed {
        value["failed"][name.as_str()] = reason.as_str().into();
    }
    if !report.loading.is_empty() {
        value["loading"] = names(report.loading.iter());
    }
    if !report.held.is_empty() {
        value["held"] = names(report.held.iter());
    }
    value
}

fn names<'n>(names: impl Iterator<Item = &'n PluginName>) -> Value {
    names.map(PluginName::as_str).collect()
}

/// The place of a plugin or a shadow in `/plugins`, which is added if it is missing. The flag says whether the plugin
/// was there already.
fn place<'p>(
    plugins: &'p mut Vec<Value>,
    name: &PluginName,
    source: &str,
) -> (&'p mut Value, bool) {
    let entry = name.entry();
    let found = plugins.iter().position(|plugin| plugin["name"] == entry);
    let Some(index) = found else {
        // The plugin is new: none of its versions serves.
        let new = match name.member() {
            Some(_) => json!({ "name": entry, "state": "pending" }),
            None => json!({ "name": name.as_str(), "source": source, "state": "pending" }),
        };
        plugins.push(new);
        let last = plugins.len() - 1;
        return match name.member() {
            Some(member) => place_of_member(&mut plugins[last], member, source),
            None => (&mut plugins[last], false),
        };
    };
    let plugin = &mut plugins[index];
    if let Some(member) = name.member() {
        return place_of_member(plugin, member, source);
    }
    if name.shadow_of().is_none() {
        return (plugin, true);
    }
    // The trouble is reported for the shadow only, because the plugin's answers do not depend on it.
    let shadow = &mut plugin["shadow"];
    if shadow.is_null() {
        *shadow = json!({ "source": source, "state": "pending" });
    }
    (shadow, true)
}

/// The place of a member in the entry of its group, which is added if it is missing.
fn place_of_member<'p>(group: &'p mut Value, name: &str, source: &str) -> (&'p mut Value, bool) {
    let members = &mut group["group"]["members"];
    if !members.is_array() {
        *members = json!([]);
    }
    // It is an array now.
    let Value::Array(members) = members else {
        return (members, false);
    };
    let found = members.iter().position(|member| member["name"] == name);
    let index = found.unwrap_or_else(|| {
        members.push(json!({ "name": name, "source": source, "state": "pending" }));
        members.len() - 1
    });
    (&mut members[index], found.is_some())
}

/// Converts a moment of this process to a timestamp.
fn at(moment: Instant) -> String {
    let (now, today) = (Instant::now(), OffsetDateTime::now_utc());
    timestamp(if moment > now {
        today + (moment - now)
    } else {
        today - (now - moment)
    })
}

/// Formats a time as RFC 3339, to the second.
fn timestamp(time: OffsetDateTime) -> String {
    let time = time.replace_nanosecond(0).unwrap_or(time);
    time.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_words_of_replicas_to_known_plugins() {
        let mut page = json!({ "plugins": [{ "name": "labels" }, { "name": "from-file" }] });
        let entry = json!({ "name": "pod-a", "ready": true });
        let replicas = [
            ("labels".to_owned(), vec![entry.clone()]),
            ("unknown".to_owned(), vec![entry.clone()]),
        ];
        add_replicas(&mut page, replicas.into());
        let expected = json!({
            "plugins": [{ "name": "labels", "replicas": [entry] }, { "name": "from-file" }],
        });
        assert_eq!(page, expected);
    }
}
