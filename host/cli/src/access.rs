//! What users may do, from files and suites, for reviews without a cluster.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use tollgate_admission::access::{Authorizer, FixedRights, On, Rule, Subject};
use tollgate_config::problem::Collector;
use tollgate_config::read::{Fields, Node};
use tollgate_config::yaml;

/// The key of the rules, in a suite and in a file.
pub(crate) const KEY: &str = "access";

const RULES_EXPECTED: &str = "rules such as {user: anna, verb: delete, resource: pods}";
const SUBJECT_EXPECTED: &str = "one of `user` and `group`: who may do it";
const ON_EXPECTED: &str =
    "one of `resource`, such as pods or pods/exec, and `path`, such as /metrics";
const VERB_EXPECTED: &str = "a verb such as delete, or \"*\" for every verb";
const TEXT_EXPECTED: &str = "a text";

/// Reads the rules of a file, which has them under the key `access` as a suite does.
pub(crate) fn read(path: &Path) -> anyhow::Result<Arc<dyn Authorizer>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let problems = Collector::default();
    let rules = yaml::read(&text, &problems).and_then(|document| {
        let mut fields = Node::root(&document, &problems).object()?;
        let rules = fields
            .required(KEY, RULES_EXPECTED)
            .and_then(|node| read_rules(&node));
        fields.finish();
        rules
    });
    let rules = problems.finish(rules);
    let rules = rules.map_err(|problems| anyhow!("{}: {problems}", path.display()))?;
    Ok(of_rules(rules))
}

/// Makes an authorizer of rules.
pub(crate) fn of_rules(rules: impl IntoIterator<Item = Rule>) -> Arc<dyn Authorizer> {
    Arc::new(FixedRights::new(rules))
}

/// Reads a list of rules. Every problem is reported.
pub(crate) fn read_rules(node: &Node<'_>) -> Option<Vec<Rule>> {
    let rules = node.elements("rules")?;
    let rules: Vec<Option<Rule>> = rules.iter().map(read_rule).collect();
    rules.into_iter().collect()
}

fn read_rule(node: &Node<'_>) -> Option<Rule> {
    let mut fields = node.object()?;
    let (user, group) = (text(&mut fields, "user"), text(&mut fields, "group"));
    let verb = fields
        .required("verb", VERB_EXPECTED)
        .and_then(|node| node.quotable_text(VERB_EXPECTED).map(str::to_owned));
    let api_group = text(&mut fields, "apiGroup");
    let resource = text(&mut fields, "resource");
    let namespace = text(&mut fields, "namespace");
    let name = text(&mut fields, "name");
    let path = text(&mut fields, "path");
    let subject = match (user, group) {
        (Some(user), None) => Some(Subject::User(user)),
        (None, Some(group)) => Some(Subject::Group(group)),
        _ => {
            fields.reject(SUBJECT_EXPECTED);
            None
        }
    };
    let has_keys_of_resources = api_group.is_some() || namespace.is_some() || name.is_some();
    let on = match (resource, path) {
        (Some(resource), None) => Some(On::Resource {
            api_group: api_group.unwrap_or_default(),
            resource,
            namespace,
            name,
        }),
        (None, Some(path)) if !has_keys_of_resources => Some(On::Path(path)),
        (None, Some(_)) => {
            fields
                .reject("`path` without apiGroup, namespace and name, which belong to a resource");
            None
        }
        _ => {
            fields.reject(ON_EXPECTED);
            None
        }
    };
    fields.finish();
    Some(Rule {
        subject: subject?,
        verb: verb?,
        on: on?,
    })
}

fn text(fields: &mut Fields<'_>, key: &'static str) -> Option<String> {
    let node = fields.optional(key)?;
    node.quotable_text(TEXT_EXPECTED).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Result<Vec<Rule>, String> {
        let problems = Collector::default();
        let read = yaml::read(text, &problems)
            .and_then(|value| read_rules(&Node::at(KEY, &value, &problems)));
        problems
            .finish(read)
            .map_err(|problems| problems.to_string())
    }

    #[test]
    fn reads_rules_about_resources_and_paths() {
        let text = "
- { user: anna, verb: delete, apiGroup: apps, resource: deployments/scale, namespace: shop, name: web }
- { group: 'system:masters', verb: '*', path: '/metrics*' }
";
        let on = On::Resource {
            api_group: "apps".to_owned(),
            resource: "deployments/scale".to_owned(),
            namespace: Some("shop".to_owned()),
            name: Some("web".to_owned()),
        };
        let expected = [
            Rule {
                subject: Subject::User("anna".to_owned()),
                verb: "delete".to_owned(),
                on,
            },
            Rule {
                subject: Subject::Group("system:masters".to_owned()),
                verb: "*".to_owned(),
                on: On::Path("/metrics*".to_owned()),
            },
        ];
        assert_eq!(rules(text).unwrap(), expected);
    }

    #[test]
    fn refuses_rules_that_could_mean_something_else() {
        for (rule, problem) in [
            ("{ verb: get, resource: pods }", "one of `user` and `group`"),
            (
                "{ user: a, group: b, verb: get, resource: pods }",
                "one of `user` and `group`",
            ),
            ("{ user: a, resource: pods }", "access[0].verb"),
            ("{ user: a, verb: get }", "one of `resource`"),
            (
                "{ user: a, verb: get, path: /metrics, namespace: b }",
                "belong to a resource",
            ),
            (
                "{ user: a, verb: get, resource: pods, groups: b }",
                "access[0].groups",
            ),
        ] {
            let problems = rules(&format!("[{rule}]")).unwrap_err();
            assert!(problems.contains(problem), "{rule}: {problems}");
        }
    }
}
