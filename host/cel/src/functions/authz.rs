//! Kubernetes' library for questions about rights.
//!
//! The functions here build a question and read an answer. `check` asks: see `Node::Check`, because it needs the source
//! of the review.

use std::sync::Arc;

use super::{Native, text};
use crate::error::{EvalError, Result};
use crate::meter::Meter;
use crate::types::Type;
use crate::value::Value;

/// The type of the variable `authorizer`.
pub(crate) const AUTHORIZER: Type = Type::Named("kubernetes.authorization.Authorizer");
/// The type of the variable `authorizer.requestResource`.
pub(crate) const RESOURCE_CHECK: Type = Type::Named("kubernetes.authorization.ResourceCheck");
/// The function that asks.
pub(crate) const CHECK: &str = "check";
/// The cost of a question, which lets an expression ask twice. As in kube-apiserver.
const CHECK_COST: u64 = 350_000;
/// The longest name of a namespace.
const LONGEST_LABEL: usize = 63;
/// The longest name of a service account.
const LONGEST_NAME: usize = 253;

/// A value of the library.
#[derive(Clone, Debug)]
pub enum Authz {
    /// The user of the request, or a service account.
    Authorizer(Option<Account>),
    /// A path that is no resource.
    Path(Option<Account>, Arc<str>),
    /// An API group.
    Group(Option<Account>, Arc<str>),
    /// A resource.
    Resource(Option<Account>, Resource),
    /// An answer.
    Decision(Decision),
}

/// A service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// A resource that a question is about. An empty text is "not set".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The resource in the plural.
    pub resource: Arc<str>,
    /// The subresource.
    pub subresource: Arc<str>,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name of the object.
    pub name: Arc<str>,
}

/// A question about a right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The service account. None asks about the user of the request.
    pub account: Option<Account>,
    /// What the verb is about.
    pub on: On,
    /// The verb.
    pub verb: Arc<str>,
}

/// What a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// A resource.
    Resource(Resource),
    /// A path that is no resource.
    Path(Arc<str>),
}

/// The answer of an authorizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the user may do it.
    pub allowed: bool,
    /// Why.
    pub reason: Arc<str>,
    /// What the authorizer failed at.
    pub error: Option<Arc<str>>,
}

pub(super) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    Some(match (name, is_member) {
        ("path", true) => |args, _| {
            let path = filled(&args[1], "path must not be empty")?;
            Ok(value(Authz::Path(account(&args[0])?, path)))
        },
        ("group", true) => |args, _| {
            let group = Arc::from(text(&args[1])?);
            Ok(value(Authz::Group(account(&args[0])?, group)))
        },
        ("serviceAccount", true) => service_account,
        ("resource", true) => |args, _| {
            let (account, group) = group(&args[0])?;
            let resource = Resource {
                group,
                resource: filled(&args[1], "resource must not be empty")?,
                ..Resource::default()
            };
            Ok(value(Authz::Resource(account, resource)))
        },
        ("subresource", true) => |args, _| set(args, |resource, text| resource.subresource = text),
        ("namespace", true) => |args, _| set(args, |resource, text| resource.namespace = text),
        ("name", true) => |args, _| set(args, |resource, text| resource.name = text),
        // The compiler makes a node of its own of it.
        (CHECK, true) => |_, _| Err(EvalError::no_such_overload()),
        ("allowed", true) => |args, _| Ok(Value::Bool(decision(&args[0])?.allowed)),
        ("reason", true) => |args, _| Ok(Value::String(decision(&args[0])?.reason.clone())),
        ("errored", true) => |args, _| Ok(Value::Bool(decision(&args[0])?.error.is_some())),
        ("error", true) => |args, _| {
            let error = decision(&args[0])?.error.clone();
            Ok(Value::String(error.unwrap_or_default()))
        },
        _ => return None,
    })
}

/// Returns the question that a call of `check` asks, and charges it.
pub(crate) fn question(on: &Value, verb: &Value, meter: &mut Meter) -> Result<Question> {
    let verb = Arc::from(text(verb)?);
    meter.charge(CHECK_COST)?;
    let Value::Authz(authz) = on else {
        return Err(EvalError::no_such_overload());
    };
    let (account, on) = match &**authz {
        Authz::Path(account, path) => (account, On::Path(path.clone())),
        Authz::Resource(account, resource) => (account, On::Resource(resource.clone())),
        _ => return Err(EvalError::no_such_overload()),
    };
    Ok(Question {
        account: account.clone(),
        on,
        verb,
    })
}

/// Makes a value of the library a value of CEL.
pub(crate) fn value(authz: Authz) -> Value {
    Value::Authz(Arc::new(authz))
}

fn account(value: &Value) -> Result<Option<Account>> {
    match value {
        Value::Authz(authz) => match &**authz {
            Authz::Authorizer(account) => Ok(account.clone()),
            _ => Err(EvalError::no_such_overload()),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

fn group(value: &Value) -> Result<(Option<Account>, Arc<str>)> {
    match value {
        Value::Authz(authz) => match &**authz {
            Authz::Group(account, group) => Ok((account.clone(), group.clone())),
            _ => Err(EvalError::no_such_overload()),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

fn decision(value: &Value) -> Result<&Decision> {
    match value {
        Value::Authz(authz) => match &**authz {
            Authz::Decision(decision) => Ok(decision),
            _ => Err(EvalError::no_such_overload()),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

fn set(args: &[Value], set: fn(&mut Resource, Arc<str>)) -> Result<Value> {
    let Value::Authz(authz) = &args[0] else {
        return Err(EvalError::no_such_overload());
    };
    let Authz::Resource(account, resource) = &**authz else {
        return Err(EvalError::no_such_overload());
    };
    let mut resource = resource.clone();
    set(&mut resource, Arc::from(text(&args[1])?));
    Ok(value(Authz::Resource(account.clone(), resource)))
}

fn service_account(args: &[Value], _meter: &mut Meter) -> Result<Value> {
    account(&args[0])?;
    let (namespace, name) = (text(&args[1])?, text(&args[2])?);
    let is_subdomain = name.len() <= LONGEST_NAME && name.split('.').all(is_label_of_any_length);
    if !is_subdomain {
        return Err(EvalError::new("Invalid service account name"));
    }
    if namespace.len() > LONGEST_LABEL || !is_label_of_any_length(namespace) {
        return Err(EvalError::new("Invalid service account namespace"));
    }
    let account = Account {
        namespace: Arc::from(namespace),
        name: Arc::from(name),
    };
    Ok(value(Authz::Authorizer(Some(account))))
}

/// Whether a text has the characters of a DNS label.
fn is_label_of_any_length(text: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
        && bytes.iter().all(|byte| is_end(byte) || *byte == b'-')
}

fn filled(value: &Value, message: &'static str) -> Result<Arc<str>> {
    let text = text(value)?;
    if text.trim().is_empty() {
        return Err(EvalError::new(message));
    }
    Ok(Arc::from(text))
}

#[cfg(test)]
mod tests;
