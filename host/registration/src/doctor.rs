//! Finds what in a cluster can lock its users out, or keep Tollgate from its work.
//!
//! ```text
//! objects (kubectl, files) ─▶ probe: requests without which nothing starts again
//!                          ─▶ catcher: which webhook or policy gets which of them   ─▶ findings, each with its fix
//!                          ─▶ service, certificate: can kube-apiserver call Tollgate
//!                          ─▶ exception: which exceptions have expired, or are not needed
//!                          ─▶ effective: which plugins are not called, by their status
//! configuration            ─▶ drift: is the registration what is configured
//! ```
//!
//! Everything here is a function of the given objects. The caller reads them.

mod catcher;
mod certificate;
mod deadlock;
mod effective;
mod exception;
mod probe;
mod service;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use crate::DOMAIN;
use crate::drift::{Drift, Effect, KINDS};
use crate::live::{Objects, list, name_of};

pub use exception::{expired, not_needed};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The cluster denies requests that it needs, or will deny them as soon as something fails.
    Error,
    /// Something is not as it should be.
    Warning,
    /// Something that operators should know.
    Notice,
}

/// One problem, with its fix.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// How bad the finding is.
    pub severity: Severity,
    /// The check that found it: a word that does not change.
    pub check: &'static str,
    /// The object that has the problem, as `Kind name`.
    pub object: String,
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub fix: String,
}

/// The installation that is examined.
#[derive(Clone, Debug)]
pub struct Installation {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// The group whose members' requests skip the webhooks.
    pub break_glass_group: String,
}

/// A webhook, with the configuration that it is in.
#[derive(Clone, Copy)]
struct Registered<'o> {
    configuration: &'o Value,
    webhook: &'o Value,
}

/// Examines the objects of a cluster. `now` is for the dates of certificates and exceptions.
///
/// The findings are sorted: the worst first.
#[must_use]
pub fn examine(
    objects: &Objects,
    installation: &Installation,
    now: OffsetDateTime,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    deadlock::examine(objects, installation, &mut findings);
    service::examine(objects, installation, &mut findings);
    exception::examine(objects, installation, now, &mut findings);
    effective::examine(objects, &mut findings);
    for registered in webhooks(objects).filter(|webhook| webhook.is_of(installation)) {
        certificate::examine(registered, objects, installation, now, &mut findings);
        settings(registered, &mut findings);
    }
    if !webhooks(objects).any(|webhook| webhook.is_of(installation)) {
        findings.push(Finding {
            severity: Severity::Notice,
            check: "not-registered",
            object: format!("Service {}", installation.address()),
            problem: "no webhook calls this Service, so no plugin is enforced".to_owned(),
            fix: "apply the output of `tollgate manifests`".to_owned(),
        });
    }
    sort(&mut findings);
    findings
}

/// Finds the Service that registered webhooks of Tollgate call, as namespace and name.
#[must_use]
pub fn found_in(objects: &Objects) -> Option<(String, String)> {
    webhooks(objects).find_map(|registered| {
        let name = registered.webhook["name"].as_str()?;
        let service = &registered.webhook["clientConfig"]["service"];
        let part = |key: &str| service[key].as_str().map(str::to_owned);
        name.ends_with(&format!(".{DOMAIN}"))
            .then(|| Some((part("namespace")?, part("name")?)))?
    })
}

/// Turns differences between the registration and the configuration into findings.
#[must_use]
pub fn drifted(drifts: &[Drift]) -> Vec<Finding> {
    let finding = |drift: &Drift| {
        let (severity, check) = match drift.effect {
            Effect::Missing => (Severity::Error, "not-registered"),
            Effect::TooNarrow => (Severity::Error, "rules-too-narrow"),
            Effect::TooWide => (Severity::Warning, "rules-too-wide"),
            Effect::LeftOver => (Severity::Warning, "left-over"),
            Effect::Different => (Severity::Warning, "registration-differs"),
        };
        Finding {
            severity,
            check,
            object: drift.place(),
            problem: drift.to_string(),
            fix: drift
                .removal()
                .unwrap_or_else(|| "apply the output of `tollgate manifests`".to_owned()),
        }
    };
    drifts.iter().map(finding).collect()
}

/// Returns the commands that let an administrator out while webhooks under `Fail` deny everything.
#[must_use]
pub fn break_glass(objects: &Objects, installation: &Installation) -> Vec<String> {
    let group = &installation.break_glass_group;
    let mut commands = vec![format!(
        "kubectl --as=\"$USER\" --as-group={group} --as-group=system:masters delete pod NAME -n NAMESPACE"
    )];
    for kind in KINDS {
        for configuration in objects.of_kind(kind) {
            let mut webhooks = list(&configuration["webhooks"]);
            let is_of = |webhook| {
                let registered = Registered {
                    configuration,
                    webhook,
                };
                registered.is_of(installation) && registered.must_answer()
            };
            if webhooks.any(is_of) {
                commands.push(format!(
                    "kubectl delete {} {}",
                    kind.to_lowercase(),
                    name_of(configuration)
                ));
            }
        }
    }
    commands
}

/// Sorts findings: the worst first, then by object.
pub fn sort(findings: &mut Vec<Finding>) {
    findings.sort_by(|one, other| {
        let key = |finding: &Finding| (finding.severity, finding.check, finding.object.clone());
        key(one).cmp(&key(other))
    });
    findings.dedup();
}

fn webhooks(objects: &Objects) -> impl Iterator<Item = Registered<'_>> {
    KINDS.into_iter().flat_map(move |kind| {
        objects.of_kind(kind).flat_map(|configuration| {
            list(&configuration["webhooks"]).map(move |webhook| Registered {
                configuration,
                webhook,
            })
        })
    })
}

/// Longest timeout that is no concern. kube-apiserver's own default is as long.
const LONG_TIMEOUT_SECONDS: u64 = 10;

/// Looks at the failure policy and the timeout of one of Tollgate's webhooks.
fn settings(registered: Registered<'_>, findings: &mut Vec<Finding>) {
    let object = registered.to_string();
    if !registered.must_answer() {
        findings.push(Finding {
            severity: Severity::Notice,
            check: "fails-open",
            object: object.clone(),
            problem: "failurePolicy is Ignore: while no replica answers, requests pass without the plugins".to_owned(),
            fix: "nothing, if all of its plugins are under failurePolicy Ignore or in mode audit or warn; otherwise \
                  apply the output of `tollgate manifests`"
                .to_owned(),
        });
    }
    let seconds = registered.webhook["timeoutSeconds"].as_u64().unwrap_or(10);
    if seconds > LONG_TIMEOUT_SECONDS {
        findings.push(Finding {
            severity: Severity::Warning,
            check: "long-timeout",
            object,
            problem: format!(
                "timeoutSeconds is {seconds}: while the replicas hang, each matching request waits that long"
            ),
            fix: "lower `limits.timeout` of its plugins and apply the output of `tollgate manifests`".to_owned(),
        });
    }
}

// === impl Registered ===

impl Registered<'_> {
    /// Returns whether the webhook calls the installation.
    fn is_of(self, installation: &Installation) -> bool {
        let client = &self.webhook["clientConfig"];
        let service = &client["service"];
        if service.is_object() {
            return service["namespace"] == *installation.namespace
                && service["name"] == *installation.service;
        }
        let name = self.webhook["name"].as_str().unwrap_or_default();
        client["url"].is_string() && name.ends_with(&format!(".{DOMAIN}"))
    }

    /// Returns whether kube-apiserver denies requests while the webhook does not answer.
    fn must_answer(self) -> bool {
        self.webhook["failurePolicy"].as_str().unwrap_or("Fail") == "Fail"
    }
}

impl fmt::Display for Registered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.configuration["kind"].as_str().unwrap_or_default();
        let webhook = self.webhook["name"].as_str().unwrap_or_default();
        write!(
            f,
            "{kind} {}, webhook {webhook}",
            name_of(self.configuration)
        )
    }
}

// === impl Installation ===

impl Installation {
    /// Returns the Service as `NAMESPACE/NAME`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}/{}", self.namespace, self.service)
    }
}

// === impl Severity ===

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = self.problem.replace('\n', "\n    ");
        write!(
            f,
            "{}: {} [{}]\n    {problem}\n    fix: {}",
            self.severity, self.object, self.check, self.fix
        )
    }
}
