//! Implements the capability `access`: whether the user of the request may do something.
//!
//! A host function does not wait. If the authorizer does not know the answer, the question ends the call. The host gives
//! back its permits, asks until the call's deadline, and makes the call again. It then keeps the answer for all further
//! attempts of the call, so that each attempt gets past one question more. See `Guest::call`.
//!
//! The plugin pays as for the calls of `review`. An answer depends on who asks, which the
//! [grounds](super::grounds) of the call record.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use tollgate_admission::access::{
    Action, Answer, Authorizer, Decision, NoAuthorizer, Question, Unavailable, User,
};
use tollgate_config::Access;
use wasmtime::component::Linker;

use super::bindings::access as contract;
use super::fault::{Fault, Stop};
use super::host::{Host, charge, charge_bytes, subject};
use super::state::CallState;

/// The interface of the capability.
pub(super) const ACCESS: &str = "access";
/// The interface of plugins that can do without a capability.
pub(super) const GRANTS: &str = "grants";

/// Maximum number of questions of one call for which the host asks kube-apiserver. Each of them is a further attempt.
const MOST_AWAITED: usize = 16;
/// Maximum length of all texts of one question, in bytes. Names of Kubernetes have at most 253.
const LONGEST_QUESTION: usize = 4096;

/// Reason why questions have no answer in a host without an authorizer.
const NOT_CONFIGURED: &str = "this host has no authorizer: connect it to the cluster (the section `cluster` of the \
    configuration), or give it rules (`--access FILE`, or the key `access` of a suite)";
const NOT_CAPABLE: &str =
    "the plugin does not have the capability: add `capabilities: [access]` to its configuration";
const NO_SERVICE_ACCOUNTS: &str = "the plugin may not ask about service accounts: add `access: { serviceAccounts: true }` to its configuration";

static NO_AUTHORIZER: LazyLock<Arc<NoAuthorizer>> =
    LazyLock::new(|| Arc::new(NoAuthorizer::because(NOT_CONFIGURED)));

/// What a plugin may ask.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    access: Access,
    /// The namespace that the plugin is confined to.
    tenant: Option<Arc<str>>,
}

/// The questions of one call, with the answers that its attempts have waited for.
pub(super) struct Asking {
    grant: Grant,
    authorizer: Arc<dyn Authorizer>,
    /// The user of the request, read at the first question.
    user: Option<Arc<User>>,
    answered: Vec<(Question, Answer)>,
    /// The question that ended the last attempt.
    awaited: Option<Box<Question>>,
}

type Checked = Result<contract::Decision, contract::Failure>;

/// The authorizer of an engine that has none.
pub(super) fn no_authorizer() -> Arc<dyn Authorizer> {
    NO_AUTHORIZER.clone()
}

pub(super) fn add_to_linker(
    linker: &mut Linker<CallState>,
    is_granted: bool,
) -> wasmtime::Result<()> {
    linker
        .instance("tollgate:admission/grants@0.1.0")?
        .func_wrap("access", move |mut host: Host<'_>, (): ()| {
            charge(&mut host, 0, 0)?;
            Ok((is_granted,))
        })?;
    linker
        .instance("tollgate:admission/access@0.1.0")?
        .func_wrap(
            "check",
            |host: Host<'_>,
             (action, account): (contract::Action, Option<contract::ServiceAccount>)| {
                Ok((check(host, action, account)?,))
            },
        )
}

/// Asks for an answer that a call has ended at, until the deadline.
///
/// # Errors
/// The fault of a call that cannot go on.
pub(super) async fn await_answer(
    asking: Option<&mut Asking>,
    question: Box<Question>,
    deadline: Instant,
) -> Result<(), Fault> {
    let Some(asking) = asking else {
        let what = NOT_CAPABLE.to_owned();
        return Err(Fault::AccessUnavailable { what });
    };
    let authorizer = asking.authorizer.clone();
    let answer = tokio::time::timeout_at(deadline.into(), authorizer.ask(&question)).await;
    let answer = answer.map_err(|_elapsed| Fault::AccessUnavailable {
        what: "no answer of kube-apiserver before the deadline".to_owned(),
    })?;
    asking.answered.push((*question, answer));
    Ok(())
}

// === impl Grant ===

impl Grant {
    pub(super) fn new(access: Access, tenant: Option<Arc<str>>) -> Self {
        Self { access, tenant }
    }

    /// Says what the plugin may not ask.
    fn refuses(&self, action: &Action, is_about_service_account: bool) -> Option<String> {
        if let Some(tenant) = &self.tenant {
            if is_about_service_account {
                return Some(
                    "a plugin of a namespace may ask about the user of the request only".to_owned(),
                );
            }
            if action.namespace() != Some(&**tenant) {
                return Some(format!(
                    "a plugin of a namespace may ask about resources in its own namespace only, which is `{tenant}`"
                ));
            }
        }
        (is_about_service_account && !self.access.service_accounts)
            .then(|| NO_SERVICE_ACCOUNTS.to_owned())
    }
}

// === impl Asking ===

impl Asking {
    pub(super) fn new(grant: &Grant, authorizer: &Arc<dyn Authorizer>) -> Self {
        Self {
            grant: grant.clone(),
            authorizer: authorizer.clone(),
            user: None,
            answered: Vec::new(),
            awaited: None,
        }
    }

    /// Takes the question that ended the last attempt.
    pub(super) fn awaited(&mut self) -> Option<Box<Question>> {
        self.awaited.take()
    }

    /// Returns the answer as far as it is known. None if the host has to wait for it.
    fn answer(&mut self, question: Question) -> Option<Answer> {
        let mut answered = self.answered.iter();
        if let Some((_, answer)) = answered.find(|(known, _)| *known == question) {
            return Some(answer.clone());
        }
        if let Some(answer) = self.authorizer.known(&question) {
            return Some(answer);
        }
        if self.answered.len() >= MOST_AWAITED {
            let reason = format!(
                "kube-apiserver was asked {MOST_AWAITED} questions in this call, which is the most"
            );
            return Some(Err(Unavailable::because(&reason)));
        }
        self.awaited = Some(Box::new(question));
        None
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking")
            .field("answered", &self.answered.len())
            .finish_non_exhaustive()
    }
}

// === access ===

fn check(
    mut host: Host<'_>,
    action: contract::Action,
    account: Option<contract::ServiceAccount>,
) -> wasmtime::Result<Checked> {
    let action = read(action);
    let of_account = account
        .as_ref()
        .map_or(0, |account| account.namespace.len() + account.name.len());
    let bytes = action.texts().map(str::len).sum::<usize>() + of_account;
    charge(&mut host, bytes, 1)?;
    let request = subject(&mut host)?.request.clone();
    if let Err(problem) = action.check() {
        return Err(malformed(problem));
    }
    if bytes > LONGEST_QUESTION {
        return Err(malformed("it has more than 4096 bytes"));
    }
    let state = host.data_mut();
    let Some(asking) = state.access.as_mut() else {
        return refused(&mut host, NOT_CAPABLE.to_owned());
    };
    if let Some(refusal) = asking.grant.refuses(&action, account.is_some()) {
        return refused(&mut host, refusal);
    }
    let user = match account {
        Some(account) => Arc::new(User::service_account(&account.namespace, &account.name)),
        None => {
            state.grounds.who = true;
            let user = asking
                .user
                .get_or_insert_with(|| Arc::new(User::of_request(&request)));
            user.clone()
        }
    };
    let Some(answer) = asking.answer(Question { user, action }) else {
        return Err(Stop::AwaitsAccess.into());
    };
    match answer {
        Ok(decision) => {
            charge_bytes(&mut host, decision.text_bytes())?;
            Ok(Ok(answered(&decision)))
        }
        Err(unavailable) => {
            charge_bytes(&mut host, unavailable.reason.len())?;
            let reason = unavailable.reason.to_string();
            Ok(Err(contract::Failure::Unavailable(reason)))
        }
    }
}

fn refused(host: &mut Host<'_>, what: String) -> wasmtime::Result<Checked> {
    charge_bytes(host, what.len())?;
    Ok(Err(contract::Failure::NotGranted(what)))
}

fn malformed(problem: &str) -> wasmtime::Error {
    Stop::Contract(format!(
        "the plugin asked about a malformed action: {problem}"
    ))
    .into()
}

fn read(action: contract::Action) -> Action {
    match action {
        contract::Action::Resource(action) => Action::Resource {
            verb: action.verb,
            group: action.group,
            resource: action.resource,
            subresource: action.subresource,
            namespace: action.namespace,
            name: action.name,
        },
        contract::Action::Path(action) => Action::Path {
            verb: action.verb,
            path: action.path,
        },
    }
}

fn answered(decision: &Decision) -> contract::Decision {
    contract::Decision {
        allowed: decision.allowed,
        reason: decision.reason.to_string(),
        error: decision.error.as_ref().map(ToString::to_string),
    }
}

#[cfg(test)]
mod tests;
