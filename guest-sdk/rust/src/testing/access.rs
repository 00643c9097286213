//! The rights of a test review: rules that the test gives, by the host's rules.

use serde_json::Value as Json;

use super::host::{read, read_if_any};
use crate::bindings::access::tollgate::admission::access::{
    Action, Decision, Failure, ServiceAccount,
};

/// What the test says about rights.
#[derive(Clone, Debug, Default)]
pub(crate) enum Access {
    /// The capability is not granted.
    #[default]
    NotGranted,
    /// kube-apiserver does not answer.
    Unavailable,
    /// What these rules allow, and nothing else.
    Rules(Vec<Rule>),
}

/// A rule, as in a suite.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Rule {
    user: Option<String>,
    group: Option<String>,
    verb: String,
    #[serde(default)]
    api_group: String,
    resource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    path: Option<String>,
}

/// Outside of a review, `configure` asks. A test gives no rights there.
pub(crate) fn has_access() -> bool {
    read_if_any(|review| !matches!(review.access, Access::NotGranted)).unwrap_or_default()
}

pub(crate) fn check_access(
    action: &Action,
    account: Option<&ServiceAccount>,
) -> Result<Decision, Failure> {
    read(|review| {
        let rules = match &review.access {
            Access::NotGranted => {
                let text = "the capability is not granted; a test grants it: TestReview::access";
                return Err(Failure::NotGranted(text.to_owned()));
            }
            Access::Unavailable => {
                let text = "kube-apiserver does not answer";
                return Err(Failure::Unavailable(text.to_owned()));
            }
            Access::Rules(rules) => rules,
        };
        let (user, groups) = match account {
            Some(account) => of_account(account),
            None => of_request(&review.document),
        };
        let allows = |rule: &Rule| rule.is_for(&user, &groups) && rule.covers(action);
        let index = rules.iter().position(allows);
        Ok(Decision {
            allowed: index.is_some(),
            reason: match index {
                Some(index) => format!("access[{index}] allows it"),
                None => "no rule of access allows it".to_owned(),
            },
            error: None,
        })
    })
}

fn of_account(account: &ServiceAccount) -> (String, Vec<String>) {
    let ServiceAccount { namespace, name } = account;
    let groups = vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
    ];
    (format!("system:serviceaccount:{namespace}:{name}"), groups)
}

fn of_request(document: &Json) -> (String, Vec<String>) {
    let info = &document["userInfo"];
    let groups = info["groups"].as_array().into_iter().flatten();
    let groups = groups.filter_map(Json::as_str).map(str::to_owned);
    let user = info["username"].as_str().unwrap_or_default();
    (user.to_owned(), groups.collect())
}

fn is(pattern: &str, text: &str) -> bool {
    pattern == "*" || pattern == text
}

// === impl Access ===

impl Access {
    pub(super) fn of(rules: impl IntoIterator<Item = Json>) -> Self {
        let rules = rules.into_iter().map(|rule| {
            let read: Rule = serde_json::from_value(rule)
                .unwrap_or_else(|error| panic!("the test's rule is malformed: {error}"));
            assert!(
                read.user.is_some() != read.group.is_some(),
                "a rule of the test has one of `user` and `group`"
            );
            assert!(
                read.resource.is_some() != read.path.is_some(),
                "a rule of the test has one of `resource` and `path`"
            );
            read
        });
        Self::Rules(rules.collect())
    }
}

// === impl Rule ===

impl Rule {
    fn is_for(&self, user: &str, groups: &[String]) -> bool {
        match (&self.user, &self.group) {
            (Some(own), _) => is(own, user),
            (None, Some(own)) => groups.contains(own),
            (None, None) => false,
        }
    }

    fn covers(&self, action: &Action) -> bool {
        match (action, &self.resource, &self.path) {
            (Action::Resource(action), Some(resource), _) => {
                let is_same = |own: &Option<String>, asked: &str| {
                    own.as_deref().is_none_or(|own| own == asked)
                };
                let is_resource = match resource.split_once('/') {
                    _ if resource == "*" => true,
                    Some((own, subresource)) => {
                        is(own, &action.resource) && subresource == action.subresource
                    }
                    None => *resource == action.resource && action.subresource.is_empty(),
                };
                is(&self.verb, &action.verb)
                    && is(&self.api_group, &action.group)
                    && is_resource
                    && is_same(&self.namespace, &action.namespace)
                    && is_same(&self.name, &action.name)
            }
            (Action::Path(action), _, Some(path)) => {
                let is_path = match path.strip_suffix('*') {
                    Some(beginning) => action.path.starts_with(beginning),
                    None => *path == action.path,
                };
                is(&self.verb, &action.verb) && is_path
            }
            _ => false,
        }
    }
}
