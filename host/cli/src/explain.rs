//! `tollgate explain`

use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::StatusCode;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollgate_gate::decision::Decision;

use super::admin::AdminClient;
use super::called;
use super::terminal::{FAINT, STRONG, full_name, milliseconds, plain, say, style_of};

/// Explain a decision of a running server: which plugins were called, why, and what they said and changed.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Explain {
    /// UID of the review, or its first characters. The UID is at the end of the message that the user sees, in the
    /// audit event, and in the server's log. Without a UID, `explain` lists the last decisions.
    uid: Option<String>,
    #[command(flatten)]
    admin: AdminClient,
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
        let answer = runtime.block_on(self.ask())?;
        let decisions: Decisions = serde_json::from_slice(&answer).with_context(|| {
            format!(
                "unexpected answer from {}: check that it is the admin listener of a server of this version",
                self.admin.url()
            )
        })?;
        if self.output == Output::Json {
            say!(
                "{:#}",
                serde_json::json!({ "decisions": decisions.decisions })
            );
            return Ok(ExitCode::SUCCESS);
        }
        if self.uid.is_none() {
            list(&decisions.decisions);
            return Ok(ExitCode::SUCCESS);
        }
        for decision in decisions.decisions {
            let decision: Decision = serde_json::from_value(decision)
                .context("cannot decode the decision: check that the server has this version")?;
            explain(&decision);
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn ask(&self) -> anyhow::Result<Bytes> {
        let path = match &self.uid {
            None => "/decisions".to_owned(),
            Some(uid) => {
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
                ensure!(
                    !uid.is_empty() && uid.bytes().all(fits),
                    "`{}` is not a uid: expected one such as 705ab4f5-6393-11e8-b7cc-42010a800002, or its beginning",
                    plain(uid)
                );
                format!("/decisions/{uid}")
            }
        };
        let (status, body) = self.admin.get(&path).await?;
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
        say!(
            "{}  {FAINT}{time}{FAINT:#}  {:8}  {style}{verdict:10}{style:#}  {} {about}",
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

fn explain(decision: &Decision) {
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
        "  {time}, uid {}, took {}",
        plain(&decision.uid),
        milliseconds(decision.milliseconds)
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
