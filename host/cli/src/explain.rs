//! `tollgate explain`

use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollgate_gate::decision::Decision;

use self::replicas::{Answers, ServiceName};
use super::admin::AdminClient;
use super::called;
use super::kubectl::Live;
use super::terminal::{FAINT, STRONG, full_name, milliseconds, plain, say, style_of, tell};

pub(crate) mod replicas;

/// Explain a decision of a running server: the plugins that were called, the reasons, their verdicts and their changes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Explain {
    /// UID of the review, or its first characters. The UID is at the end of the message that the user sees, in the
    /// audit event, and in the server's log. Without a UID, `explain` lists the last decisions.
    uid: Option<String>,
    #[command(flatten)]
    admin: AdminClient,
    /// Service of an installation whose replicas are all asked, at the addresses of its pods: for a machine that reaches
    /// pods. `admin.authentication` must be configured, as `admin.enabled` of the chart does.
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with = "url")]
    service: Option<ServiceName>,
    #[command(flatten)]
    live: Live,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Deserialize)]
struct Decisions {
    decisions: Vec<serde_json::Value>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate explain                                        the last decisions, with their uids
  tollgate explain 705ab4f5                               the decision of a message that ends in (review 705ab4f5)
  kubectl -n tollgate-system port-forward deployment/tollgate 8081 &
  tollgate explain --admin http://127.0.0.1:8081          decisions of a server in a cluster
  tollgate explain 705ab4f5 --service tollgate-system/tollgate --token-file token
                                                          the decision, whichever replica made it

Exit code: 0 when the decisions were printed, 2 when not.";

/// Number of decisions that the text output lists at most.
const MOST_LISTED: usize = 50;

// === impl Explain ===

impl Explain {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let path = self.path()?;
        let decisions = match &self.service {
            Some(service) => {
                let asking = replicas::ask(service, &self.live, &self.admin, &path);
                let answers = runtime.block_on(asking)?;
                self.report(&answers)?;
                if self.output == Output::Json {
                    let unanswered = answers.unanswered.iter();
                    let unanswered = unanswered
                        .map(|(replica, reason)| json!({ "replica": replica, "reason": reason }));
                    let unanswered: Vec<_> = unanswered.collect();
                    say!(
                        "{:#}",
                        json!({ "decisions": answers.decisions, "unanswered": unanswered })
                    );
                    return Ok(ExitCode::SUCCESS);
                }
                answers.decisions
            }
            None => {
                let answer = runtime.block_on(self.ask(&path))?;
                let answer: Decisions = serde_json::from_slice(&answer).with_context(|| {
                    format!(
                        "unexpected answer from {}: check that it is the admin listener of a server of this version",
                        self.admin.url()
                    )
                })?;
                if self.output == Output::Json {
                    say!("{:#}", json!({ "decisions": answer.decisions }));
                    return Ok(ExitCode::SUCCESS);
                }
                answer.decisions
            }
        };
        if self.uid.is_none() {
            list(&decisions);
            return Ok(ExitCode::SUCCESS);
        }
        for decision in decisions {
            let replica = decision["replica"].as_str().map(plain);
            let decision: Decision = serde_json::from_value(decision)
                .context("cannot decode the decision: check that the server has this version")?;
            explain(&decision, replica.as_deref());
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Names the replicas that did not answer. Fails if there is nothing to print.
    fn report(&self, answers: &Answers) -> anyhow::Result<()> {
        for (replica, reason) in &answers.unanswered {
            tell!(
                "tollgate: replica {} did not answer: {reason}",
                plain(replica)
            );
        }
        ensure!(
            answers.is_any(),
            "none of the {} replicas answered: see the reasons above",
            answers.count
        );
        if let Some(uid) = self.uid.as_ref().filter(|_| answers.decisions.is_empty()) {
            bail!(
                "no replica has a decision {uid} ({} of {} answered): the replicas keep the most recent ones until \
                 their processes end (admin.decisions)",
                answers.count - answers.unanswered.len(),
                answers.count
            );
        }
        Ok(())
    }

    /// The page of the admin listener.
    fn path(&self) -> anyhow::Result<String> {
        let Some(uid) = &self.uid else {
            return Ok("/decisions".to_owned());
        };
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
        ensure!(
            !uid.is_empty() && uid.bytes().all(fits),
            "`{}` is not a uid: expected one such as 705ab4f5-6393-11e8-b7cc-42010a800002, or its beginning",
            plain(uid)
        );
        Ok(format!("/decisions/{uid}"))
    }

    async fn ask(&self, path: &str) -> anyhow::Result<Bytes> {
        let (status, body) = self.admin.get(path).await?;
        let url = self.admin.url();
        match (status, &self.uid) {
            (StatusCode::OK, _) => Ok(body),
            (StatusCode::NOT_FOUND, Some(uid)) => bail!(
                "{url} has no decision {uid}: {}; list its decisions with `tollgate explain` without a uid",
                plain(&String::from_utf8_lossy(&body))
            ),
            (status, _) => bail!(
                "{url} answered {status}: check that it is the address of Tollgate's admin listener (admin.listen)"
            ),
        }
    }
}

/// Prints one line for each of the last decisions, newest first.
fn list(decisions: &[serde_json::Value]) {
    if decisions.is_empty() {
        say!("no decisions yet, or none are kept (admin.decisions.maxCount)");
    }
    for decision in decisions.iter().take(MOST_LISTED) {
        let text = |name: &str| plain(decision[name].as_str().unwrap_or_default());
        let verdict = text("verdict");
        let style = style_of(&verdict);
        let time = text("time");
        let about = full_name(
            decision["namespace"].as_str(),
            decision["name"].as_str().unwrap_or_default(),
        );
        let replica = text("replica");
        let on = if replica.is_empty() { "" } else { " on " };
        say!(
            "{}  {FAINT}{time}{FAINT:#}  {:8}  {style}{verdict:10}{style:#}  {} {about}{FAINT}{on}{replica}{FAINT:#}",
            text("uid"),
            text("endpoint"),
            text("kind"),
        );
    }
    if let Some(more) = decisions
        .len()
        .checked_sub(MOST_LISTED)
        .filter(|more| *more > 0)
    {
        say!("{FAINT}and {more} earlier decisions; list all with -o json{FAINT:#}");
    }
}

fn explain(decision: &Decision, replica: Option<&str>) {
    let style = style_of(&decision.verdict);
    let about = full_name(decision.namespace.as_deref(), &decision.name);
    let code = decision
        .code
        .map(|code| format!(" ({code})"))
        .unwrap_or_default();
    say!(
        "{STRONG}{} {about}{STRONG:#}: {style}{}{code}{style:#} at /{}",
        plain(&decision.kind),
        decision.verdict,
        decision.endpoint,
    );
    let time = OffsetDateTime::from(decision.time)
        .format(&Rfc3339)
        .unwrap_or_default();
    let resource = match &decision.sub_resource {
        Some(sub_resource) => format!("{}/{sub_resource}", decision.resource),
        None => decision.resource.clone(),
    };
    let group = if decision.group.is_empty() {
        "core"
    } else {
        &decision.group
    };
    say!(
        "  {} {} ({}, {}) by {}{}",
        decision.operation,
        plain(&resource),
        plain(group),
        plain(&decision.version),
        plain(&decision.user),
        if decision.dry_run { ", dry run" } else { "" },
    );
    say!(
        "  {time}, uid {}, took {}{}",
        plain(&decision.uid),
        milliseconds(decision.milliseconds),
        replica
            .map(|replica| format!(", on replica {replica}"))
            .unwrap_or_default()
    );
    if decision.patch_operations > 0 {
        say!("  patch of {} operation(s)", decision.patch_operations);
    }
    if let Some(message) = &decision.message {
        say!(
            "  {FAINT}the message to the user had {} bytes (SHA-256 {}…){FAINT:#}",
            message.bytes,
            message.sha256
        );
    }
    if decision.verdict == "overloaded" {
        say!(
            "  the host was overloaded (engine.maxConcurrentCalls) and answered 429, so that the caller retries"
        );
    }
    let width = called::width(&[decision]);
    for called in &decision.plugins {
        say!("\n  {}", called::line(called, width));
        match called.rule {
            Some(rule) => say!(
                "    {FAINT}rule {rule} of /plugins matched, {}{FAINT:#}",
                called.digest.as_deref().unwrap_or_default()
            ),
            None => {
                say!(
                    "    {FAINT}called for every request, because its rules are not known{FAINT:#}"
                )
            }
        }
        for line in called::details(called) {
            say!("    {line}");
        }
        if !called.warnings.is_empty() {
            say!("    {} warning(s)", called.warnings.len());
        }
    }
    if !decision.not_called.is_empty() {
        say!();
    }
    for other in &decision.not_called {
        say!("  {}", called::not_called(other, width));
    }
    say!();
}
