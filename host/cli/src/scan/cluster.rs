//! Reads the objects of a cluster: exactly the resources that the plugins' rules match, page by page.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use tollgate_admission::review::request::Operation;
use tollgate_cluster::{Client, InventoryError, Served, page};
use tollgate_config::{Match, Rule, Scope};
use tollgate_gate::plugin::PluginState;
use tollgate_json::document::{Json, parse_up_to};

use super::judge::Judge;
use super::report::is_report;

/// Maximum nesting depth of a page. A deeper object is too deep for kube-apiserver, too.
const MAX_DEPTH: u32 = 1000;
/// Maximum number of values in a page.
const MOST_VALUES: u32 = 20_000_000;
/// How often a list begins again because it expired.
const ATTEMPTS: u32 = 3;

/// Returns the rules of all plugins that a CREATE can match. A plugin that is not loaded has only the rules of the
/// configuration.
pub(super) fn rules(plugins: &[Judge]) -> Vec<Rule> {
    let matching = plugins
        .iter()
        .filter_map(|judge| match &judge.plugin.state {
            PluginState::Loaded(loaded) => Some(&loaded.matching),
            PluginState::Failed { .. } => judge.plugin.config.matching.as_ref(),
            PluginState::Disabled => None,
        });
    let rules = matching.flat_map(Match::rules);
    rules
        .filter(|rule| rule.operations.contains(Operation::Create))
        .cloned()
        .collect()
}

/// Names the plugins whose objects are not known, because they are not loaded and have no `match`.
pub(super) fn without_rules(plugins: &[Judge]) -> Vec<String> {
    let failed = plugins.iter().filter(|judge| {
        matches!(judge.plugin.state, PluginState::Failed { .. })
            && judge.plugin.config.matching.is_none()
    });
    let text = |judge: &Judge| {
        let name = &judge.plugin.config.name;
        format!("the plugin {name} is not loaded and has no `match`, so its objects are not known")
    };
    failed.map(text).collect()
}

/// Whether a rule matches a group version.
pub(super) fn wants(rules: &[Rule], group: &str, version: &str) -> bool {
    !is_report(group)
        && rules
            .iter()
            .any(|rule| matches_version(rule, group, version))
}

/// Chooses the resources to list: each in the version that kube-apiserver prefers, if the rules match it, and in others
/// only for rules that do not.
pub(super) fn choose(rules: &[Rule], served: &[Served]) -> BTreeSet<Served> {
    let mut by_resource: BTreeMap<(&str, &str), Vec<&Served>> = BTreeMap::new();
    for resource in served {
        let versions = by_resource.entry((&resource.group, &resource.plural));
        versions.or_default().push(resource);
    }
    let mut chosen = BTreeSet::new();
    for versions in by_resource.values() {
        for rule in rules {
            let mut matching = versions.iter().filter(|served| matches(rule, served));
            let first = matching.clone().next();
            let preferred = matching.find(|served| served.is_preferred);
            chosen.extend(preferred.or(first).map(|served| Served::clone(served)));
        }
    }
    chosen
}

fn matches_version(rule: &Rule, group: &str, version: &str) -> bool {
    rule.api_groups.iter().any(|one| one.matches(group))
        && rule.api_versions.iter().any(|one| one.matches(version))
}

fn matches(rule: &Rule, served: &Served) -> bool {
    let mut resources = rule.resources.iter();
    let in_scope = match rule.scope {
        Scope::All => true,
        Scope::Cluster => !served.namespaced,
        Scope::Namespaced => served.namespaced,
    };
    in_scope
        && matches_version(rule, &served.group, &served.version)
        && resources.any(|resource| {
            resource.resource.matches(&served.plural) && resource.sub_resource.matches("")
        })
}

/// A list of all objects of a resource, page by page.
pub(super) struct Pages<'c> {
    client: &'c Client,
    resource: &'c Served,
    continued: Option<String>,
    attempts: u32,
    is_over: bool,
}

impl<'c> Pages<'c> {
    pub(super) fn new(client: &'c Client, resource: &'c Served) -> Self {
        Self {
            client,
            resource,
            continued: None,
            attempts: 1,
            is_over: false,
        }
    }

    /// Returns the objects of the next page. A list that expired begins again, so an object may come twice.
    ///
    /// # Errors
    /// When kube-apiserver does not list the objects.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Vec<Json>>> {
        if self.is_over {
            return Ok(None);
        }
        let text = loop {
            match page(self.client, self.resource, self.continued.as_deref()).await {
                Ok(text) => break text,
                Err(InventoryError::Expired { .. }) if self.attempts < ATTEMPTS => {
                    self.attempts += 1;
                    self.continued = None;
                }
                Err(error) => {
                    self.is_over = true;
                    return Err(error.into());
                }
            }
        };
        let parsed = parse_up_to(text.as_bytes(), MAX_DEPTH, MOST_VALUES);
        self.is_over = true;
        let list = parsed.ok().with_context(|| {
            format!(
                "cannot read the list of {}: not JSON, or too large",
                self.resource
            )
        })?;
        let token = list
            .member("metadata")
            .and_then(|metadata| metadata.member("continue"));
        let token = token
            .and_then(Json::as_text)
            .filter(|token| !token.is_empty());
        self.continued = token.map(str::to_owned);
        self.is_over = self.continued.is_none();
        let items = list.member("items").and_then(Json::as_array);
        let items = items.unwrap_or_default().iter();
        Ok(Some(items.map(|item| self.completed(item)).collect()))
    }

    /// Adds kind and apiVersion, which the items of a typed list do not have.
    fn completed(&self, item: &Json) -> Json {
        let Json::Object(members) = item else {
            return item.clone();
        };
        let mut members = (**members).clone();
        members.insert("kind".into(), Json::text(&self.resource.kind));
        members.insert(
            "apiVersion".into(),
            Json::text(&self.resource.api_version()),
        );
        Json::Object(members.into())
    }
}

#[cfg(test)]
mod tests {
    use tollgate_config::ManifestRule;

    use super::*;

    fn rule(group: &str, version: &str, resource: &str, operation: &str) -> Rule {
        let texts = |text: &str| vec![text.to_owned()];
        let rule = ManifestRule {
            operations: texts(operation),
            api_groups: texts(group),
            api_versions: texts(version),
            resources: texts(resource),
            scope: None,
        };
        let matching =
            Match::from_manifest_rules(&[rule]).unwrap_or_else(|error| panic!("{error}"));
        matching.rules()[0].clone()
    }

    fn served(group: &str, version: &str, plural: &str, is_preferred: bool) -> Served {
        Served {
            group: group.to_owned(),
            plural: plural.to_owned(),
            version: version.to_owned(),
            kind: "Kind".to_owned(),
            namespaced: true,
            is_preferred,
        }
    }

    fn chosen(rules: &[Rule], all: &[Served]) -> Vec<String> {
        choose(rules, all).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lists_only_resources_that_rules_match() {
        let all = [
            served("", "v1", "pods", true),
            served("", "v1", "secrets", true),
            served("apps", "v1", "deployments", true),
        ];
        assert_eq!(chosen(&[rule("", "v1", "pods", "CREATE")], &all), ["pods"]);
        assert_eq!(chosen(&[rule("", "v1", "pods/status", "*")], &all), [""; 0]);
        let everything = [rule("*", "*", "*", "*")];
        assert_eq!(chosen(&everything, &all).len(), 3);
        assert!(wants(&everything, "apps", "v1"));
        assert!(!wants(&everything, "openreports.io", "v1alpha1"));
        assert!(!wants(&[rule("", "v1", "pods", "CREATE")], "apps", "v1"));
    }

    #[test]
    fn lists_each_resource_once_unless_rules_need_another_version() {
        let all = [
            served("autoscaling", "v1", "horizontalpodautoscalers", false),
            served("autoscaling", "v2", "horizontalpodautoscalers", true),
        ];
        let any = rule("autoscaling", "*", "horizontalpodautoscalers", "CREATE");
        let old = rule("autoscaling", "v1", "horizontalpodautoscalers", "CREATE");
        let one = ["horizontalpodautoscalers.v2.autoscaling"];
        assert_eq!(chosen(std::slice::from_ref(&any), &all), one);
        assert_eq!(chosen(&[any, old], &all).len(), 2);
    }
}
