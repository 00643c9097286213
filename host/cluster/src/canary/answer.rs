//! Interprets kube-apiserver's answer to a canary. Does no IO.

use std::collections::BTreeMap;

use super::entry::Entry;
use super::keys::Proof;
use tollgate_admission::canary::UNKNOWN;

/// The last result of the canary of each webhook entry, by the name of the canary.
pub(crate) type Sightings = BTreeMap<String, Sighting>;

/// The result of a canary for a webhook entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sighting {
    /// A replica of this installation answered kube-apiserver.
    Answered {
        /// The plugins of the challenge.
        plugins: Vec<String>,
        /// The plugins that the replica does not call.
        lacking: Vec<String>,
    },
    /// kube-apiserver did not call the webhook, or got no answer.
    Failed {
        /// The reason in CamelCase.
        reason: &'static str,
        /// The text for people.
        message: String,
    },
    /// The canary proved neither of both.
    Unclear {
        /// The reason in CamelCase.
        reason: &'static str,
        /// The text for people.
        message: String,
    },
}

/// kube-apiserver's answer to the creation of a canary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// The HTTP status.
    pub(super) code: u16,
    /// The text of an error.
    pub(super) message: String,
    /// The proof in the object or in a warning, as it came.
    pub(super) proof: Option<String>,
}

/// The leader's challenge, against which it checks the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) installation: &'a str,
    pub(super) entry: &'a Entry,
    pub(super) nonce: &'a str,
    /// The public keys of the replicas.
    pub(super) keys: &'a [&'a str],
    /// Whether every ready replica announces a key. An older version of Tollgate has none.
    pub(super) all_have_keys: bool,
}

/// Parts of Go's messages about failures of TLS and of certificates.
const UNTRUSTED: [&str; 3] = ["x509:", "tls:", "certificate"];
/// Parts of the messages of Go and kube-apiserver about a server that cannot be reached.
const UNREACHABLE: [&str; 11] = [
    "connection refused",
    "no endpoints available",
    "no such host",
    "no route to host",
    "not found",
    "i/o timeout",
    "context deadline exceeded",
    "Client.Timeout",
    "connection reset",
    "EOF",
    "broken pipe",
];
const LONGEST_TEXT_CHARACTERS: usize = 500;

/// Interprets an answer.
pub(super) fn interpret(answer: &Answer, asked: Asked<'_>) -> Sighting {
    match answer.code {
        200..=299 => of_success(answer.proof.as_deref(), asked),
        404 if !answer.message.contains("webhook") => Sighting::unclear(
            "KindMissing",
            "the kind Canary is not defined: apply the CustomResourceDefinitions (tollgate crds)"
                .to_owned(),
        ),
        403 if answer.message.contains("is forbidden: User") => Sighting::unclear(
            "Forbidden",
            format!(
                "the service account may not create canaries: {}",
                cut(&answer.message)
            ),
        ),
        _ => of_failure(&answer.message, answer.code, asked.entry),
    }
}

fn of_success(proof: Option<&str>, asked: Asked<'_>) -> Sighting {
    let Asked {
        installation,
        entry,
        nonce,
        keys,
        all_have_keys,
    } = asked;
    let webhook = &entry.webhook;
    let Some(text) = proof else {
        if !all_have_keys {
            let message = "a ready replica is of a version that does not answer canaries";
            return Sighting::unclear("OldReplica", message.to_owned());
        }
        let why = if entry.must_answer {
            "kube-apiserver did not call it for a canary"
        } else {
            "kube-apiserver did not call it for a canary, or got no answer and went on, because failurePolicy is Ignore"
        };
        return Sighting::failed("NotCalled", format!("webhook {webhook}: {why}"));
    };
    let proof = Proof::read(text);
    if text == UNKNOWN {
        let message =
            format!("webhook {webhook}: the replica that answered does not know this leader yet");
        return Sighting::unclear("NotRecognised", message);
    }
    if !proof.is_valid(installation, nonce, &entry.path, keys) {
        let message =
            format!("webhook {webhook}: no replica of this installation has signed the answer");
        return Sighting::unclear("NotRecognised", message);
    }
    Sighting::Answered {
        plugins: entry.plugins.clone(),
        lacking: proof.lacking.iter().map(|&name| name.to_owned()).collect(),
    }
}

fn of_failure(message: &str, code: u16, entry: &Entry) -> Sighting {
    let webhook = &entry.webhook;
    let quoted = format!("\"{webhook}\"");
    let is_call = message.contains("failed calling webhook");
    if is_call && message.contains(&quoted) {
        let cause = message
            .split_once(&quoted)
            .map_or(message, |(_, rest)| rest);
        let cause = cause.trim_start_matches([':', ' ']);
        let has = |words: &[&str]| words.iter().any(|word| cause.contains(word));
        let reason = if has(&UNTRUSTED) {
            "Untrusted"
        } else if has(&UNREACHABLE) {
            "Unreachable"
        } else {
            "CallFailed"
        };
        return Sighting::failed(
            reason,
            format!(
                "kube-apiserver cannot call webhook {webhook}: {}",
                cut(cause)
            ),
        );
    }
    let is_of_others =
        is_call || message.contains("admission webhook") || message.contains("policy");
    if is_of_others {
        let message = format!(
            "something else refuses the canary of webhook {webhook}: leave the group tollgate.dev out of it: {}",
            cut(message)
        );
        return Sighting::unclear("Blocked", message);
    }
    Sighting::unclear(
        "RequestFailed",
        format!(
            "kube-apiserver answered the canary of webhook {webhook} with {code}: {}",
            cut(message)
        ),
    )
}

fn cut(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(LONGEST_TEXT_CHARACTERS).collect()
}

// === impl Sighting ===

impl Sighting {
    pub(super) fn failed(reason: &'static str, message: String) -> Self {
        Self::Failed { reason, message }
    }

    pub(super) fn unclear(reason: &'static str, message: String) -> Self {
        Self::Unclear { reason, message }
    }

    pub(super) fn is_answered(&self) -> bool {
        matches!(self, Self::Answered { .. })
    }

    /// Whether both have the same result, apart from the details of an error. kube-apiserver's texts can contain the
    /// port of a connection, which differs each time.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Failed { reason, .. }, Self::Failed { reason: before, .. })
            | (Self::Unclear { reason, .. }, Self::Unclear { reason: before, .. }) => {
                reason == before
            }
            _ => self == other,
        }
    }
}
