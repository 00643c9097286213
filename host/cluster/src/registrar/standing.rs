//! The standing of each plugin: whether the live configurations have its rules. Does no IO.

use std::collections::BTreeMap;

use tollgate_admission::Endpoint;

use super::plan::Known;
use crate::lease::RulesDigest;
use crate::plugin::{Desired, Plugin};

/// Whether a desired plugin is registered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Standing {
    /// The live configurations have the desired rules, which have this digest.
    Registered(RulesDigest),
    /// A ready replica does not serve the plugin with its desired rules, so they are not registered as a whole.
    Waiting,
    /// The leader has not loaded the plugin, so its desired rules are not known.
    Pending,
    /// The live configuration cannot be read.
    Unread,
    /// Somebody else changed the configuration and the leader has not repaired it, or somebody else changes it
    /// repeatedly.
    Changed(String),
    /// The leader cannot write the configuration.
    Failed {
        /// The reason in CamelCase, for programs.
        reason: &'static str,
        /// The problem, for people.
        message: String,
    },
}

/// The state of one configuration after a round of the registrar.
#[derive(Clone, Debug, Default)]
pub(super) struct Outlook {
    /// The record of the live configuration. None if it is not known.
    pub(super) known: Option<Known>,
    /// The foreign changes, if they stand or come again and again.
    pub(super) changed: Option<String>,
    /// Why the configuration is not as desired: the reason, and the text.
    pub(super) problem: Option<(&'static str, String)>,
}

/// Returns the standing of every desired plugin, by name.
pub(super) fn standings(
    desired: &Desired,
    outlooks: &[(Endpoint, Outlook)],
) -> BTreeMap<String, Standing> {
    let pending = desired.pending.iter();
    let pending = pending.map(|name| (name.clone(), Standing::Pending));
    let known = desired.plugins.iter().map(|plugin| {
        let rules = plugin.rules_digest();
        let mut standings = outlooks
            .iter()
            .filter(|(endpoint, _)| plugin.serves(*endpoint))
            .filter_map(|(_, outlook)| outlook.obstacle(plugin, &rules));
        let standing = standings.next();
        let standing = standing.unwrap_or_else(|| Standing::Registered(rules.clone()));
        (plugin.name.clone(), standing)
    });
    pending.chain(known).collect()
}

// === impl Outlook ===

impl Outlook {
    /// Why the desired rules of a plugin do not count as registered, or none.
    fn obstacle(&self, plugin: &Plugin, rules: &RulesDigest) -> Option<Standing> {
        if let Some((reason, message)) = &self.problem {
            return Some(Standing::Failed {
                reason,
                message: message.clone(),
            });
        }
        if let Some(changed) = &self.changed {
            return Some(Standing::Changed(changed.clone()));
        }
        let recorded = match &self.known {
            None => return Some(Standing::Unread),
            Some(Known::Absent | Known::Unrecorded) => None,
            Some(Known::Recorded(record)) => record.0.get(&plugin.name),
        };
        let is_whole = recorded.is_some_and(|recorded| recorded.digest.as_ref() == Some(rules));
        (!is_whole).then_some(Standing::Waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{matching, plugin, rule};
    use super::super::record::{Record, Recorded};
    use super::*;

    fn guard() -> Plugin {
        plugin("guard", matching(&[rule("", "pods")]))
    }

    fn outlook(recorded: &[(&Plugin, bool)]) -> Outlook {
        let records = recorded
            .iter()
            .map(|(plugin, is_whole)| (plugin.name.clone(), Recorded::of(plugin, *is_whole)));
        Outlook {
            known: Some(Known::Recorded(Record(records.collect()))),
            ..Outlook::default()
        }
    }

    fn standing(desired: &Desired, mutate: Outlook, validate: Outlook) -> Standing {
        let outlooks = [(Endpoint::Mutate, mutate), (Endpoint::Validate, validate)];
        standings(desired, &outlooks)["guard"].clone()
    }

    #[test]
    fn plugin_is_registered_when_every_live_configuration_has_its_whole_rules() {
        let mut guard = guard();
        (guard.mutates, guard.validates) = (true, true);
        let desired = Desired {
            plugins: vec![guard.clone()],
            ..Desired::default()
        };
        let whole = || outlook(&[(&guard, true)]);
        let registered = Standing::Registered(guard.rules_digest());
        assert_eq!(standing(&desired, whole(), whole()), registered);
        let part = outlook(&[(&guard, false)]);
        assert_eq!(standing(&desired, whole(), part), Standing::Waiting);
        let absent = Outlook {
            known: Some(Known::Absent),
            ..Outlook::default()
        };
        assert_eq!(standing(&desired, absent, whole()), Standing::Waiting);
        let unread = Outlook::default();
        assert_eq!(standing(&desired, whole(), unread), Standing::Unread);
        // A configuration that the plugin has no part in does not matter to it.
        guard.mutates = false;
        let validating = Desired {
            plugins: vec![guard.clone()],
            ..Desired::default()
        };
        let other = standing(&validating, Outlook::default(), outlook(&[(&guard, true)]));
        assert_eq!(other, Standing::Registered(guard.rules_digest()));
    }

    #[test]
    fn foreign_changes_and_failed_writes_outweigh_the_record() {
        let guard = guard();
        let desired = Desired {
            plugins: vec![guard.clone()],
            pending: ["other".to_owned()].into(),
        };
        let changed = Outlook {
            changed: Some("anna changed it".to_owned()),
            ..outlook(&[(&guard, true)])
        };
        let failed = Outlook {
            problem: Some(("Forbidden", "cannot write".to_owned())),
            ..changed.clone()
        };
        let of = |outlook: Outlook| {
            let outlooks = [
                (Endpoint::Mutate, outlook.clone()),
                (Endpoint::Validate, outlook),
            ];
            standings(&desired, &outlooks)
        };
        let expected = Standing::Changed("anna changed it".to_owned());
        assert_eq!(of(changed)["guard"], expected);
        let failed = of(failed);
        assert!(matches!(
            &failed["guard"],
            Standing::Failed { reason: "Forbidden", message } if message == "cannot write"
        ));
        assert_eq!(failed["other"], Standing::Pending);
    }
}
