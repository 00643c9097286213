//! Implements the capability `images`: whether container images are signed as a policy requires.
//!
//! A host function does not wait. If the verifier does not know all answers, the question ends the call. The host gives
//! back its permits, asks for all of them at the same time, and makes the call again with the answers. See `Guest::call`.
//! The host waits for a part of the remaining time only, so that the plugin can still answer when a registry does not.
//!
//! The name of an image is text that the plugin chooses and that a registry gets. So a plugin that has read the content
//! of a Secret may not ask.
//!
//! In the namespaces that the grant lists, the `imagePullSecrets` of the object under review count. The plugin has no say in
//! them.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tollgate_admission::images::{Answer, Failure, ImageVerifier, Puller, Question};
use tollgate_config::{Images, Reference};
use wasmtime::component::Linker;

use super::bindings::images as contract;
use super::fault::Stop;
use super::host::{Host, charge, charge_bytes, subject};
use super::state::{CallState, Subject};

/// Maximum number of different questions of one call.
const MOST_QUESTIONS: usize = 128;
/// The work for one request, in JSON values: the host reads the image and looks for the answer.
const NODES_PER_REQUEST: usize = 50;
/// Size of a result in the plugin's memory, without its texts.
const RESULT_BYTES: usize = 32;

const NOT_CONFIGURED: &str =
    "the plugin may have no images verified: add `images` to its configuration";
const NO_TENANTS: &str = "a plugin of a namespace may have no images verified";
const NOT_AFTER_SECRETS: &str =
    "the plugin has read the content of a Secret, and the name of an image would leave the cluster";
const NO_VERIFIER: &str = "this host verifies no images: give it answers (`--images FILE`, or the key `images` of a suite)";

/// What a plugin may have verified, and who verifies.
#[derive(Clone, Debug, Default)]
pub(super) struct Grant {
    images: Option<Arc<Images>>,
    verifier: Option<Arc<dyn ImageVerifier>>,
    is_of_tenant: bool,
}

/// The questions of one call, with the answers that its attempts have waited for.
pub(super) struct Asking {
    grant: Grant,
    answered: Vec<(Question, Answer)>,
    /// The questions that ended the last attempt.
    awaited: Vec<Question>,
    /// The Pod whose credentials count, once the plugin has asked.
    puller: Option<Option<Arc<Puller>>>,
}

type Checked = Result<contract::Verified, contract::Failure>;

pub(super) fn add_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker
        .instance("tollgate:admission/images@0.1.0")?
        .func_wrap(
            "verify",
            |host: Host<'_>, (requests,): (Vec<contract::Request>,)| {
                Ok((verify(host, &requests)?,))
            },
        )
}

/// Asks all questions that a call has ended at. When most of the time is over, the answers are those without a registry.
pub(super) async fn await_answers(
    asking: Option<&mut Asking>,
    questions: Vec<Question>,
    deadline: Instant,
) {
    let Some(asking) = asking else {
        return;
    };
    let now = Instant::now();
    let patience = patience(deadline.saturating_duration_since(now));
    let Some(verifier) = asking.grant.verifier.clone() else {
        return;
    };
    let answers = questions.into_iter().map(|question| {
        let verifier = &verifier;
        async move {
            let until = tokio::time::Instant::from_std(now + patience);
            let asked = tokio::time::timeout_at(until, verifier.ask(&question)).await;
            let answer = asked.unwrap_or_else(|_elapsed| {
                let waited = patience.as_millis();
                let reason = format!(
                    "no answer of the registry within {waited} ms (limits.timeout, and the timeout of the webhook)"
                );
                verifier.last_known_good(&question, &reason)
            });
            (question, answer)
        }
    });
    asking.answered.extend(join_all(answers).await);
}

/// The part of the remaining time that a call waits for registries. The rest is for its next attempt.
fn patience(remaining: Duration) -> Duration {
    remaining * 3 / 4
}

// === impl Grant ===

impl Grant {
    pub(super) fn of_tenant(is_of_tenant: bool) -> Self {
        Self {
            is_of_tenant,
            ..Self::default()
        }
    }

    pub(super) fn with(
        &self,
        images: Option<Arc<Images>>,
        verifier: Option<Arc<dyn ImageVerifier>>,
    ) -> Self {
        Self {
            images,
            verifier,
            ..self.clone()
        }
    }

    /// Reads a question.
    ///
    /// # Errors
    /// When the image is malformed, or the configuration does not grant the question.
    fn question(
        &self,
        request: &contract::Request,
        puller: Option<&Arc<Puller>>,
    ) -> Result<Question, contract::Failure> {
        let refused = |what: &str| contract::Failure::NotGranted(what.to_owned());
        if self.is_of_tenant {
            return Err(refused(NO_TENANTS));
        }
        let Some(images) = &self.images else {
            return Err(refused(NOT_CONFIGURED));
        };
        let image = Reference::of_image(&request.image)
            .map_err(|error| contract::Failure::Malformed(error.to_string()))?;
        let policy = images.policy(&image, &request.policy);
        let policy = policy.map_err(|refusal| refused(&refusal.to_string()))?;
        Ok(Question {
            image: Arc::from(image.to_string()),
            policy: Arc::from(&*policy.name),
            puller: puller.cloned(),
        })
    }

    /// Returns the Pod whose credentials count. None if the namespace is not listed.
    fn puller(&self, subject: &Subject) -> Option<Arc<Puller>> {
        let namespace = subject.request.namespace.as_deref()?;
        if !self.images.as_ref()?.reads_pull_secrets_in(namespace) {
            return None;
        }
        Puller::of(&subject.request, subject.object.as_ref()).map(Arc::new)
    }
}

// === impl Asking ===

impl Asking {
    /// The state of a call. `offline` answers instead of registries, if the engine has it.
    pub(super) fn new(grant: &Grant, offline: Option<&Arc<dyn ImageVerifier>>) -> Self {
        let mut grant = grant.clone();
        if let Some(offline) = offline {
            grant.verifier = Some(offline.clone());
        }
        Self {
            grant,
            answered: Vec::new(),
            awaited: Vec::new(),
            puller: None,
        }
    }

    /// Takes the questions that ended the last attempt.
    pub(super) fn awaited(&mut self) -> Vec<Question> {
        std::mem::take(&mut self.awaited)
    }

    /// Returns the answer as far as it is known. None if the host has to wait for it.
    fn answer(&mut self, question: Question) -> Option<Result<Answer, contract::Failure>> {
        let mut answered = self.answered.iter();
        if let Some((_, answer)) = answered.find(|(known, _)| *known == question) {
            return Some(Ok(answer.clone()));
        }
        let Some(verifier) = &self.grant.verifier else {
            return Some(Ok(Err(Failure::unavailable(NO_VERIFIER))));
        };
        if let Some(answer) = verifier.known(&question) {
            // Two attempts see the same, and the second one is not asked to wait for what the first one knew.
            if self.answered.len() < MOST_QUESTIONS {
                self.answered.push((question, answer.clone()));
            }
            return Some(Ok(answer));
        }
        if self.awaited.contains(&question) {
            return None;
        }
        if self.answered.len() + self.awaited.len() >= MOST_QUESTIONS {
            return Some(Err(contract::Failure::NotGranted(format!(
                "a call may ask for at most {MOST_QUESTIONS} different images"
            ))));
        }
        self.awaited.push(question);
        None
    }

    /// Notes whose credentials count. The object is the same for all attempts of a call.
    fn is_about(&mut self, subject: &Subject) {
        if self.puller.is_none() {
            self.puller = Some(self.grant.puller(subject));
        }
    }

    fn check(&mut self, request: &contract::Request) -> Option<Checked> {
        let puller = self.puller.as_ref().and_then(Option::as_ref);
        let question = match self.grant.question(request, puller) {
            Ok(question) => question,
            Err(failure) => return Some(Err(failure)),
        };
        let pinned = question.image.contains('@');
        Some(match self.answer(question)? {
            Ok(answer) => read(answer, pinned),
            Err(failure) => Err(failure),
        })
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking")
            .field("answered", &self.answered.len())
            .finish_non_exhaustive()
    }
}

// === images ===

fn verify(mut host: Host<'_>, requests: &[contract::Request]) -> wasmtime::Result<Vec<Checked>> {
    let bytes = requests
        .iter()
        .map(|request| request.image.len() + request.policy.len() + RESULT_BYTES);
    charge(
        &mut host,
        bytes.sum(),
        requests.len().saturating_mul(NODES_PER_REQUEST),
    )?;
    // Outside of a review, there is nothing to verify.
    subject(&mut host)?;
    let state = host.data_mut();
    if let (Some(asking), Some(subject)) = (state.images.as_mut(), &state.subject) {
        asking.is_about(subject);
    }
    let withholds = state.secrecy.withholds();
    let Some(asking) = state.images.as_mut() else {
        return Err(Stop::Contract(NOT_CONFIGURED.to_owned()).into());
    };
    let mut results = Vec::new();
    for request in requests {
        let refused =
            withholds.then(|| Err(contract::Failure::NotGranted(NOT_AFTER_SECRETS.to_owned())));
        results.extend(refused.or_else(|| asking.check(request)));
    }
    if !asking.awaited.is_empty() {
        return Err(Stop::AwaitsImages.into());
    }
    let bytes = results.iter().map(text_bytes).sum();
    charge_bytes(&mut host, bytes)?;
    Ok(results)
}

fn read(answer: Answer, pinned: bool) -> Checked {
    let refusal = |refusal: tollgate_admission::images::Refusal| contract::Refusal {
        digest: refusal.digest.to_string(),
        reason: refusal.reason.to_string(),
    };
    match answer {
        Ok(verified) => Ok(contract::Verified {
            digest: verified.digest.to_string(),
            pinned,
            signers: verified.signers.iter().map(ToString::to_string).collect(),
            last_known_good: verified.last_known_good,
        }),
        Err(Failure::NotFound(reason)) => Err(contract::Failure::NotFound(reason.to_string())),
        Err(Failure::Unsigned(found)) => Err(contract::Failure::Unsigned(refusal(found))),
        Err(Failure::Untrusted(found)) => Err(contract::Failure::Untrusted(refusal(found))),
        Err(Failure::Unavailable(reason)) => {
            Err(contract::Failure::Unavailable(reason.to_string()))
        }
    }
}

fn text_bytes(result: &Checked) -> usize {
    match result {
        Ok(verified) => {
            verified.digest.len() + verified.signers.iter().map(String::len).sum::<usize>()
        }
        Err(
            contract::Failure::Malformed(text)
            | contract::Failure::NotGranted(text)
            | contract::Failure::NotFound(text)
            | contract::Failure::Unavailable(text),
        ) => text.len(),
        Err(contract::Failure::Unsigned(refusal) | contract::Failure::Untrusted(refusal)) => {
            refusal.digest.len() + refusal.reason.len()
        }
    }
}

#[cfg(test)]
mod tests;
