//! Rights from a list of rules, for reviews without a cluster.

use super::{Action, Answer, Authorizer, Decision, Pending, Question, User};

/// What matches everything.
const ANY: &str = "*";

/// A fixed list of rights. Everything that no rule allows is denied.
#[derive(Clone, Debug, Default)]
pub struct FixedRights {
    rules: Vec<Rule>,
}

/// Something that somebody may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Who may do it.
    pub subject: Subject,
    /// The verb, or `*`.
    pub verb: String,
    /// The action.
    pub on: On,
}

/// Who may do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The user with this name, or `*` for everybody.
    User(String),
    /// Everybody in this group.
    Group(String),
}

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// A resource.
    Resource {
        /// The API group, or `*`.
        api_group: String,
        /// The resource, such as `pods` or `pods/exec`; `*` is all resources with their subresources, and `*/scale` one
        /// subresource of all resources, as in RBAC.
        resource: String,
        /// The namespace. None means every namespace, and no namespace.
        namespace: Option<String>,
        /// The name. None means every name, and no name.
        name: Option<String>,
    },
    /// A path. At its end, `*` is every continuation.
    Path(String),
}

// === impl FixedRights ===

impl FixedRights {
    /// Creates the list.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self {
            rules: rules.into_iter().collect(),
        }
    }

    fn decide(&self, question: &Question) -> Decision {
        match self.rules.iter().position(|rule| rule.allows(question)) {
            Some(index) => Decision::new(true, &format!("access[{index}] allows it"), None),
            None => Decision::new(false, "no rule of access allows it", None),
        }
    }
}

impl Authorizer for FixedRights {
    fn known(&self, question: &Question) -> Option<Answer> {
        Some(Ok(self.decide(question)))
    }

    fn ask<'a>(&'a self, question: &'a Question) -> Pending<'a> {
        Box::pin(std::future::ready(Ok(self.decide(question))))
    }
}

// === impl Rule ===

impl Rule {
    fn allows(&self, question: &Question) -> bool {
        self.subject.is(&question.user) && self.covers(&question.action)
    }

    fn covers(&self, action: &Action) -> bool {
        match (&self.on, action) {
            (
                On::Resource {
                    api_group,
                    resource,
                    namespace,
                    name,
                },
                Action::Resource {
                    verb,
                    group,
                    resource: asked,
                    subresource,
                    namespace: asked_namespace,
                    name: asked_name,
                },
            ) => {
                is(&self.verb, verb)
                    && is(api_group, group)
                    && is_resource(resource, asked, subresource)
                    && namespace.as_ref().is_none_or(|own| own == asked_namespace)
                    && name.as_ref().is_none_or(|own| own == asked_name)
            }
            (On::Path(own), Action::Path { verb, path }) => {
                let covers = match own.strip_suffix(ANY) {
                    Some(beginning) => path.starts_with(beginning),
                    None => own == path,
                };
                is(&self.verb, verb) && covers
            }
            _ => false,
        }
    }
}

// === impl Subject ===

impl Subject {
    fn is(&self, user: &User) -> bool {
        match self {
            Self::User(name) => is(name, &user.name),
            Self::Group(name) => user.groups.contains(name),
        }
    }
}

fn is(pattern: &str, text: &str) -> bool {
    pattern == ANY || pattern == text
}

fn is_resource(pattern: &str, resource: &str, subresource: &str) -> bool {
    match pattern.split_once('/') {
        _ if pattern == ANY => true,
        Some((own, own_subresource)) => is(own, resource) && own_subresource == subresource,
        None => pattern == resource && subresource.is_empty(),
    }
}
