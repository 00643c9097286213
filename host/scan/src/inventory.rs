//! Finds the resources of a cluster that a scan lists, exactly those that the plugins' rules match, and reads the
//! objects of a page.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail};
use tollgate_admission::review::request::Operation;
use tollgate_cluster::{Client, InventoryError, Served, page};
use tollgate_config::kubernetes::resource_named;
use tollgate_config::{Match, Rule, Scope};
use tollgate_gate::plugin::PluginState;
use tollgate_json::document::{Json, parse_up_to};

use super::judge::Judge;
use super::report::is_report;

/// Maximum nesting depth of a page. A deeper object is too deep for kube-apiserver, too.
const MAX_DEPTH: u32 = 1000;
/// Maximum number of values in a page at a terminal.
const MOST_VALUES: u32 = 20_000_000;
/// How often a list begins again because it expired.
const ATTEMPTS: u32 = 3;

/// Returns the rules of all plugins that a CREATE can match. A plugin that is not loaded has only the rules of the
/// configuration.
#[must_use]
pub fn rules(plugins: &[Judge]) -> Vec<Rule> {
    let matching = plugins.iter().filter_map(Judge::matching);
    let rules = matching.flat_map(Match::rules);
    rules
        .filter(|rule| rule.operations.contains(Operation::Create))
        .cloned()
        .collect()
}

/// Names the plugins whose objects are not known, because they are not loaded and have no `match`.
#[must_use]
pub fn without_rules(plugins: &[Judge]) -> Vec<String> {
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
#[must_use]
pub fn wants(rules: &[Rule], group: &str, version: &str) -> bool {
    !is_report(group)
        && rules
            .iter()
            .any(|rule| matches_version(rule, group, version))
}

/// Chooses the resources to list. Lists each in the version that kube-apiserver prefers, if the rules match that
/// version, and in other versions only for rules that do not match it.
#[must_use]
pub fn choose(rules: &[Rule], served: &[Served]) -> BTreeSet<Served> {
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

/// Whether a rule matches the creation of an object of a resource.
pub(crate) fn matches(rule: &Rule, served: &Served) -> bool {
    let mut resources = rule.resources.iter();
    let in_scope = match rule.scope {
        Scope::All => true,
        Scope::Cluster => !served.namespaced,
        Scope::Namespaced => served.namespaced,
    };
    in_scope
        && rule.operations.contains(Operation::Create)
        && matches_version(rule, &served.group, &served.version)
        && resources.any(|resource| {
            resource.resource.matches(&served.plural) && resource.sub_resource.matches("")
        })
}

/// Returns why a resource that is only guessed from its kind may be wrong: the rules name other resources of the group,
/// but not the guessed one. None if the guess does not matter.
#[must_use]
pub fn doubt(rules: &[Rule], guessed: &Served) -> Option<String> {
    let rules = rules
        .iter()
        .filter(|rule| matches_version(rule, &guessed.group, &guessed.version));
    let mut named = BTreeSet::new();
    for rule in rules {
        if matches(rule, guessed) {
            return None;
        }
        named.extend(rule.resources.iter().map(|one| one.resource.to_string()));
    }
    let named: Vec<String> = named.into_iter().collect();
    (!named.is_empty()).then(|| {
        format!(
            "its resource is not known, and the guess `{}` is not in the rules, which name {}: add its \
             CustomResourceDefinition to the dump",
            guessed.plural,
            named.join(", ")
        )
    })
}

/// Returns the version to which kube-apiserver would convert an object for a plugin: a rule matches that version of its resource,
/// and none matches the object's own. Only Kubernetes' own resources are known.
#[must_use]
pub fn converted(rules: &[Rule], served: &Served) -> Option<&'static str> {
    if rules.iter().any(|rule| matches(rule, served)) {
        return None;
    }
    let resource = resource_named(&served.group, &served.plural)?;
    resource.versions.iter().copied().find(|version| {
        let other = Served {
            version: (*version).to_owned(),
            ..served.clone()
        };
        rules.iter().any(|rule| matches(rule, &other))
    })
}

/// A list of all objects of a resource, page by page.
pub struct Pages<'c> {
    client: &'c Client,
    resource: &'c Served,
    continued: Option<String>,
    attempts: u32,
    is_over: bool,
}

impl<'c> Pages<'c> {
    /// Begins a list.
    #[must_use]
    pub fn new(client: &'c Client, resource: &'c Served) -> Self {
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
    pub async fn next(&mut self) -> anyhow::Result<Option<Vec<Json>>> {
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
        self.is_over = true;
        let page = read_page(text.as_bytes(), self.resource, MOST_VALUES)?;
        self.continued = page.continued;
        self.is_over = self.continued.is_none();
        Ok(Some(page.objects))
    }
}

/// A page of a list.
#[derive(Debug)]
pub struct Page {
    /// The objects, with kind and apiVersion.
    pub objects: Vec<Json>,
    /// Where the next page begins. None for the last page.
    pub continued: Option<String>,
}

/// Reads a page as kube-apiserver writes it.
///
/// # Errors
/// When the text is not JSON, has too many values, or is not a list.
pub fn read_page(text: &[u8], resource: &Served, most_values: u32) -> anyhow::Result<Page> {
    let list = parse_up_to(text, MAX_DEPTH, most_values).ok();
    let list = list
        .with_context(|| format!("cannot read the list of {resource}: not JSON, or too large"))?;
    let token = list
        .member("metadata")
        .and_then(|metadata| metadata.member("continue"));
    let token = token
        .and_then(Json::as_text)
        .filter(|token| !token.is_empty());
    // kube-apiserver may write an empty list as null. Without `items`, the answer is something else, and no empty list.
    let items = match list.member("items") {
        Some(Json::Array(items)) => items.as_slice(),
        Some(Json::Null) => &[],
        _ => bail!(
            "cannot read the list of {resource}: the answer has no `items`; check that a kube-apiserver answers, and \
             no proxy or broken aggregated API in its place"
        ),
    };
    let objects = items.iter().map(|item| completed(resource, item));
    Ok(Page {
        continued: token.map(str::to_owned),
        objects: objects.collect(),
    })
}

/// Reads an object as kube-apiserver writes it.
pub(crate) fn read_object(text: &[u8], most_values: u32) -> Option<Json> {
    parse_up_to(text, MAX_DEPTH, most_values).ok()
}

/// Adds kind and apiVersion, which the items of a typed list do not have.
pub(crate) fn completed(resource: &Served, item: &Json) -> Json {
    let Json::Object(members) = item else {
        return item.clone();
    };
    let mut members = (***members).clone();
    members.insert("kind".into(), Json::text(&resource.kind));
    members.insert("apiVersion".into(), Json::text(&resource.api_version()));
    Json::from(members)
}

#[cfg(test)]
mod tests {
    use tollgate_config::ManifestRule;

    use super::*;

    #[test]
    fn other_version_of_a_resource_is_converted() {
        let scalers = |version| served("autoscaling", version, "horizontalpodautoscalers", true);
        let rule = |version| rule("autoscaling", version, "horizontalpodautoscalers", "CREATE");
        assert_eq!(converted(&[rule("v2")], &scalers("v1")), Some("v2"));
        assert_eq!(converted(&[rule("v2")], &scalers("v2")), None);
        assert_eq!(converted(&[rule("v2"), rule("v1")], &scalers("v1")), None);
        assert_eq!(converted(&[], &scalers("v1")), None);
    }

    #[test]
    fn guess_that_rules_do_not_name_is_doubted() {
        let guess = served("acme.dev", "v1", "octopuss", true);
        let named = rule("acme.dev", "v1", "octopi", "CREATE");
        let doubt = |rules: &[Rule]| doubt(rules, &guess);
        assert!(doubt(std::slice::from_ref(&named)).is_some_and(|text| text.contains("octopi")));
        let all = rule("*", "*", "*", "*");
        assert_eq!(doubt(&[named, all]), None);
        assert_eq!(doubt(&[rule("", "v1", "pods", "CREATE")]), None);
        assert_eq!(doubt(&[rule("acme.dev", "v1", "octopuss", "*")]), None);
    }

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
    fn answer_without_items_is_no_empty_page() {
        let pods = served("", "v1", "pods", true);
        let read = |text: &str| read_page(text.as_bytes(), &pods, 100);
        for text in [
            "{}",
            r#"{"items":{}}"#,
            r#"{"kind":"Status"}"#,
            "[]",
            "null",
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(
                error.starts_with("cannot read the list of pods: "),
                "{error}"
            );
        }
        for text in [r#"{"items":null}"#, r#"{"items":[]}"#] {
            let page = read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(page.objects.is_empty(), "{text}");
        }
        let text = r#"{"metadata":{"continue":"next"},"items":[{"metadata":{"name":"web"}}]}"#;
        let page = read(text).expect("a page");
        assert_eq!(
            (page.objects.len(), page.continued),
            (1, Some("next".into()))
        );
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
